//! What cannot be fetched, and what is said of it.

use crate::server::{story, Fault, Home, Hub, Large, COMMIT, REPO};
use crate::{command, failed, fetch, run, sharded, text, WEIGHTS};

const WAY_ON: &str = "--model story-3m needs no network";

/// Fetching with this fault in the first answer must fail with these words.
#[track_caller]
fn first(test: &str, fault: Fault, token: Option<&str>, says: &[&str]) {
    let hub = Hub::serve(story(), Large::Here).fault("HEAD", "config.json", 1, fault);
    let home = Home::new(test);
    let mut fetch = command(REPO, &home, &hub, &["--where"]);
    fetch.envs(token.map(|token| ("HF_TOKEN", token)));
    let said = failed(&fetch.output().unwrap(), says);
    assert!(said.contains(WAY_ON), "{said}");
    assert!(home.blobs().is_empty());
    let asked = hub.asked();
    let told = asked[0].headers.contains("authorization: bearer hf_secret");
    assert_eq!(told, token.is_some(), "{asked:?}");
}

#[test]
fn a_gated_model_says_how_to_get_a_token_and_where_to_put_it() {
    let gated = |code| Fault::Status(code, "x-error-code: GatedRepo");
    let says = [
        "some/name is gated",
        "accept its terms on http://127.0.0.1",
        "/some/name, make a token on",
        "/settings/tokens, and set it: HF_TOKEN=hf_...",
    ];
    first("gated-401", gated(401), None, &says);
    let says = ["some/name is gated, and your token has no access to it", "the token in HF_TOKEN"];
    first("gated-403", gated(403), Some("hf_secret"), &says);
}

#[test]
fn a_token_that_is_not_taken_is_said() {
    let refused = Fault::Status(401, "x-error-message: Invalid credentials");
    let says =
        ["the hub does not take your token (401: Invalid credentials)", "set HF_TOKEN to it"];
    first("token", refused, Some("hf_secret"), &says);
    let says = ["access refused (403)", "is the name right?", "HF_TOKEN=hf_..."];
    first("no-token", Fault::Status(403, "x: y"), None, &says);
}

#[test]
fn a_token_of_the_login_is_used() {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("login-token"));
    std::fs::create_dir_all(&home.0).unwrap();
    std::fs::write(home.0.join("token"), "hf_secret\n").unwrap();
    text(&fetch(&home, &hub));
    let asked = hub.asked();
    let told = |headers: &str| headers.contains("authorization: bearer hf_secret");
    assert!(asked.iter().all(|asked| told(&asked.headers)), "{asked:?}");
}

#[test]
fn what_the_hub_does_not_have_is_named() {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("other"));
    let says = ["other/name: the hub has no such repository, or hides it; is the name right?"];
    failed(&run("other/name", &home, &hub), &[says[0], WAY_ON]);
    // The real hub says 401 of what it has not, to those without a token.
    first(
        "hidden",
        Fault::Status(401, "x-error-code: RepoNotFound"),
        None,
        &["no such repository"],
    );
}

#[test]
fn short_names_stand_for_repositories() {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("short"));
    for (short, repo) in [
        ("gpt2", "openai-community/gpt2"),
        ("gpt2-medium", "openai-community/gpt2-medium"),
        ("gpt2-xl", "openai-community/gpt2-xl"),
        ("distilgpt2", "distilbert/distilgpt2"),
        ("qwen2-0.5b", "Qwen/Qwen2-0.5B"),
        ("qwen2-7b", "Qwen/Qwen2-7B"),
        ("qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B"),
        ("qwen3-0.6b", "Qwen/Qwen3-0.6B"),
        ("smollm2-135m", "HuggingFaceTB/SmolLM2-135M"),
        ("smollm2-360m", "HuggingFaceTB/SmolLM2-360M"),
        ("smollm2-1.7b", "HuggingFaceTB/SmolLM2-1.7B"),
        ("tinyllama-1.1b", "TinyLlama/TinyLlama-1.1B-Chat-v1.0"),
    ] {
        let output = command(short, &home, &hub, &["--where"]).output().unwrap();
        failed(&output, &[&format!("{repo}: the hub has no such repository")]);
        assert_eq!(hub.lines(), [format!("HEAD /{repo}/resolve/main/config.json")]);
    }
}

#[test]
fn a_repository_without_a_needed_file_is_refused() {
    for (left_out, says) in [
        ("config.json", "some/name: the hub has no config.json there"),
        ("tokenizer.json", "some/name: the hub has no tokenizer.json there"),
        (WEIGHTS, "no model.safetensors there, and no model.safetensors.index.json; candecode reads safetensors"),
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
    failed(&fetch(&home, &hub), &["the hub has no model-2.safetensors there"]);
}

#[test]
fn nobody_there_names_the_way_on() {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("nobody"));
    hub.close();
    let says =
        ["could not fetch config.json: http://127.0.0.1", "is out of reach", "is there a network?"];
    failed(&fetch(&home, &hub), &[says[0], says[1], says[2], WAY_ON]);
}

#[test]
fn what_is_no_hub_is_told_apart() {
    let says =
        ["what answers at http://127.0.0.1", "is no hub", "is there no login page in between?"];
    first("login", Fault::Login, None, &says);
    first("teapot", Fault::Status(418, "x: y"), None, &["is no hub (it answers 418)"]);
    let nowhere = Fault::Status(302, "x: y");
    first("nowhere", nowhere, None, &["is no hub", "redirects to nowhere"]);
    let path = Fault::Status(200, "x-repo-commit: ../../etc\r\netag: abc");
    first("path", path, None, &["is no hub (its commit ../../etc or etag abc is none)"]);
    let (served, home) = (Hub::serve(story(), Large::Here), Home::new("endless"));
    let endless = Fault::Status(302, "location: /some/name/resolve/main/config.json");
    let hub = served.fault("HEAD", "config.json", 99, endless);
    failed(&fetch(&home, &hub), &["is no hub (it redirects without end)"]);
}

#[test]
fn a_cache_that_cannot_be_written_is_said() {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("in-the-way"));
    std::fs::write(&home.0, "a file in the way").unwrap();
    failed(&fetch(&home, &hub), &["could not be written to", "HF_HOME moves it"]);
    std::fs::remove_file(&home.0).unwrap();
    std::fs::create_dir_all(home.repo()).unwrap();
    std::fs::write(home.repo().join("blobs"), "a file in the way").unwrap();
    let says = ["config.json could not be written to the cache", "is there permission?", "HF_HOME"];
    failed(&fetch(&home, &hub), &says);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_said() {
    let (hub, home) = (Hub::serve(story(), Large::Here), Home::new("full"));
    let part = home.repo().join("blobs").join("git-tokenizer.json.candecode");
    std::fs::create_dir_all(part.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/full", &part).unwrap(); // a device that has no room
    let says = [
        "the disk is full: tokenizer.json does not fit",
        "set HF_HOME to a folder on another disk",
    ];
    failed(&fetch(&home, &hub), &says);
    assert!(home.file("config.json").exists() && !home.file("tokenizer.json").exists());
    std::fs::remove_file(part).unwrap();
    text(&fetch(&home, &hub));
}

#[test]
fn a_proxy_is_asked_in_place_of_the_hub() {
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
