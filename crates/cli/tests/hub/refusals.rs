//! Tests of downloads that fail, and of their messages.

use crate::{command, failed, fetch, run, sharded, text, WEIGHTS};
use candecode_remote::test_servers::hub::{story, Fault, Home, Hub, Large, COMMIT, REPO};

const WAY_ON: &str = "--model story-3m needs no network";

/// Checks that fetching fails with these words if the first request is answered with this fault. A
/// token is sent only after access has been refused.
#[track_caller]
fn first(test: &str, fault: Fault, token: Option<&str>, says: &[&str]) {
    let times = if token.is_some() { 2 } else { 1 };
    let hub = Hub::serve(story(), Large::Here).fault("HEAD", "config.json", times, fault);
    let home = Home::new(test);
    let mut fetch = command(REPO, &home, &hub, &["--where"]);
    fetch.envs(token.map(|token| ("HF_TOKEN", token)));
    let said = failed(&fetch.output().unwrap(), says);
    assert!(said.contains(WAY_ON), "{said}");
    assert!(home.blobs().is_empty());
    let asked = hub.asked();
    let shown: Vec<bool> = asked.iter().map(|asked| has_token(&asked.headers)).collect();
    assert_eq!(shown, [false, true][..times], "{asked:?}");
}

fn has_token(headers: &str) -> bool {
    headers.contains("authorization: bearer hf_secret")
}

/// The hub reports the exact reason in `x-error-code`, but one message names all three.
#[test]
fn a_refusal_says_how_to_get_a_token_and_where_to_put_it() {
    let says = [
        "some/name: could not fetch config.json: access refused (401); is the name right?",
        "accept its terms on http://127.0.0.1",
        "/some/name, make a token on",
        "/settings/tokens, and set it: HF_TOKEN=hf_...",
    ];
    for (test, code) in [("gated", "GatedRepo"), ("hidden", "RepoNotFound"), ("private", "")] {
        let code = format!("x-error-code: {code}").leak();
        first(test, Fault::Status(401, code), None, &says);
    }
    first("forbidden", Fault::Status(403, "x: y"), None, &["access refused (403)"]);
}

#[test]
fn a_token_refused_by_the_hub_is_reported() {
    let says = ["the hub refuses your token (401)", "accept its terms on", "make a token on"];
    first("token", Fault::Status(401, "x: y"), Some("hf_secret"), &says);
    let says = ["the hub refuses your token (403)"];
    first("gated-403", Fault::Status(403, "x: y"), Some("hf_secret"), &says);
}

#[test]
fn a_repository_missing_from_the_hub_is_named() {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("other"));
    let says = ["other/name: could not fetch config.json: the hub has no such file there, or no \
        such repository"];
    failed(&run("other/name", &home, &hub), &[says[0], "is the name right?", WAY_ON]);
}

#[test]
fn short_names_resolve_to_repositories() {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("short"));
    for (short, repo) in [
        ("gpt2", "openai-community/gpt2"),
        ("gpt2-medium", "openai-community/gpt2-medium"),
        ("gpt2-xl", "openai-community/gpt2-xl"),
        ("distilgpt2", "distilbert/distilgpt2"),
        ("qwen2-0.5b", "Qwen/Qwen2-0.5B"),
        ("qwen2-7b", "Qwen/Qwen2-7B"),
        ("qwen2-0.5b-instruct", "Qwen/Qwen2-0.5B-Instruct"),
        ("qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B"),
        ("qwen2.5-0.5b-instruct", "Qwen/Qwen2.5-0.5B-Instruct"),
        ("qwen3-0.6b", "Qwen/Qwen3-0.6B"),
        ("smollm2-135m", "HuggingFaceTB/SmolLM2-135M"),
        ("smollm2-135m-instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"),
        ("smollm2-360m", "HuggingFaceTB/SmolLM2-360M"),
        ("smollm2-360m-instruct", "HuggingFaceTB/SmolLM2-360M-Instruct"),
        ("smollm2-1.7b", "HuggingFaceTB/SmolLM2-1.7B"),
        ("tinyllama-1.1b", "TinyLlama/TinyLlama-1.1B-Chat-v1.0"),
    ] {
        let output = command(short, &home, &hub, &["--where"]).output().unwrap();
        failed(&output, &[&format!("{repo}: could not fetch config.json: the hub has no such")]);
        assert_eq!(hub.lines(), [format!("HEAD /{repo}/resolve/main/config.json")]);
    }
}

#[test]
fn a_repository_without_a_needed_file_is_refused() {
    for (left_out, says) in [
        ("config.json", "some/name: could not fetch config.json: the hub has no such file there"),
        (
            "tokenizer.json",
            "some/name: could not fetch tokenizer.json: the hub has no such file \
            there",
        ),
        (
            WEIGHTS,
            "no model.safetensors there, and no model.safetensors.index.json; candecode \
            reads safetensors",
        ),
    ] {
        let (served, home) = (Home::new("without-served"), Home::new("without"));
        std::fs::create_dir_all(&served.0).unwrap();
        for file in std::fs::read_dir(story()).unwrap().map(|file| file.unwrap()) {
            if file.file_name() != left_out {
                std::fs::copy(file.path(), served.0.join(file.file_name())).unwrap();
            }
        }
        let hub = Hub::serve(&served.0, Large::Here);
        failed(&fetch(&home, &hub), &[says]);
    }
    let served = Home::new("without-shard");
    sharded(&served, 2);
    std::fs::remove_file(served.0.join("model-2.safetensors")).unwrap();
    let (hub, home) = (Hub::serve(&served.0, Large::Here), Home::new("shard"));
    failed(
        &fetch(&home, &hub),
        &["could not fetch model-2.safetensors: the hub has no such file there"],
    );
}

#[test]
fn an_unreachable_hub_error_suggests_an_offline_model() {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("nobody"));
    hub.close();
    let says =
        ["could not fetch config.json: http://127.0.0.1", "is out of reach", "is there a network?"];
    failed(&fetch(&home, &hub), &[says[0], says[1], says[2], WAY_ON]);
}

#[test]
fn a_server_that_is_not_a_hub_is_reported() {
    let says =
        ["what answers at http://127.0.0.1", "is no hub", "is there no login page in between?"];
    first("login", Fault::Login, None, &says);
    first("teapot", Fault::Status(418, "x: y"), None, &["is no hub (it answers 418)"]);
    let nowhere = Fault::Status(302, "x: y");
    first("nowhere", nowhere, None, &["is no hub (Header etag is missing)"]);
    let path =
        Fault::Status(206, "x-repo-commit: ../../etc\r\netag: abc\r\ncontent-range: bytes 0-0/9");
    first("path", path, None, &["is no hub (Header x-repo-commit is invalid)"]);
    let (served, home) = (Hub::serve(story(), Large::Here), Home::new("endless"));
    let endless = Fault::Status(302, "location: /some/name/resolve/main/config.json");
    let hub = served.fault("HEAD", "config.json", usize::MAX, endless);
    failed(&fetch(&home, &hub), &["is no hub (its redirects never end)"]);
    let odd = Fault::Status(302, "location: ftp://127.0.0.1/config.json");
    first("odd-location", odd, None, &["is no hub (Header location is invalid)"]);
}

#[test]
fn an_invalid_hub_address_is_reported() {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("address"));
    for address in ["127.0.0.1:9", "'http://127.0.0.1'", "ftp://127.0.0.1", "http://a b"] {
        let mut fetch = command(REPO, &home, &hub, &["--where"]);
        let says = format!("HF_ENDPOINT={address}: expected an address such as https://");
        failed(&fetch.env("HF_ENDPOINT", address).output().unwrap(), &[&says]);
    }
}

#[test]
fn an_unwritable_cache_is_reported() {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("in-the-way"));
    std::fs::write(&home.0, "a file in the way").unwrap();
    failed(&fetch(&home, &hub), &["could not be written to", "Set HF_HOME"]);
    std::fs::remove_file(&home.0).unwrap();
    std::fs::create_dir_all(home.repo()).unwrap();
    std::fs::write(home.repo().join("blobs"), "a file in the way").unwrap();
    let says = ["could not fetch config.json: the cache", "could not be written to", "HF_HOME"];
    failed(&fetch(&home, &hub), &says);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported() {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("full"));
    let part = home.repo().join("blobs").join("git-tokenizer.part");
    std::fs::create_dir_all(part.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/full", &part).unwrap(); // a device that is always full
    let says = [
        "could not fetch tokenizer.json: the disk is full",
        "set HF_HOME to a folder on another disk",
    ];
    failed(&fetch(&home, &hub), &says);
    assert!(home.file("config.json").exists() && !home.file("tokenizer.json").exists());
    std::fs::remove_file(part).unwrap();
    text(&fetch(&home, &hub));
}

#[test]
fn a_configured_proxy_is_used_to_reach_the_hub() {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("proxy"));
    for variable in ["HTTP_PROXY", "https_proxy", "ALL_PROXY"] {
        let _ = std::fs::remove_dir_all(&home.0);
        let mut fetch = command(REPO, &home, &hub, &["--where"]);
        fetch.env("HF_ENDPOINT", "http://hub.invalid").env(variable, &hub.address);
        text(&fetch.output().unwrap());
        let asked = hub.lines();
        assert_eq!(asked[0], "CONNECT hub.invalid:80", "{asked:?}");
        assert!(asked.contains(&format!("GET /{REPO}/resolve/{COMMIT}/{WEIGHTS}")), "{asked:?}");
    }
    let _ = std::fs::remove_dir_all(&home.0);
    let mut fetch = command(REPO, &home, &hub, &["--where"]);
    fetch.env("HTTP_PROXY", "http://127.0.0.1:9").env("NO_PROXY", "127.0.0.1");
    text(&fetch.output().unwrap());
}
