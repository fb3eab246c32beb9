//! Tests of where the token comes from, and of where it goes: to the hub alone, and only after an
//! anonymous request has been refused.

use crate::{command, failed, fetch_with, local, run, text, write, WEIGHTS};
use candecode_remote::test_servers::hub::{story, Asked, Fault, Home, Hub, Large, COMMIT, REPO};

const TOKEN: &[(&str, &str)] = &[("HF_TOKEN", "hf_secret")];

/// Generates the text with a token at hand, and checks that it's the right one.
#[track_caller]
fn writes(model: &str, home: &Home, hub: &Hub) {
    let mut run = command(model, home, hub, &[]);
    run.envs(TOKEN.iter().copied());
    assert_eq!(text(&write(run)), local(home, hub));
}

fn has_token(asked: &Asked) -> bool {
    asked.header("authorization") == Some("bearer hf_secret")
}

/// Checks that every request after the first one had the token.
#[track_caller]
fn all_but_the_first(asked: &[Asked]) {
    assert!(asked.len() > 1 && !has_token(&asked[0]), "{asked:?}");
    assert!(asked[1..].iter().all(has_token), "{asked:?}");
}

/// Checks that there were requests, and none had the token in any form.
#[track_caller]
fn none(asked: &[Asked]) {
    assert!(!asked.is_empty());
    assert!(!asked.iter().any(|asked| asked.headers.contains("hf_secret")), "{asked:?}");
}

/// The hub also limits anonymous requests, which a token avoids at once.
#[test]
fn the_token_is_sent_only_after_the_hub_refuses() {
    let home = Home::new("refused-first");
    for refused in [
        Fault::Status(401, "x-error-code: GatedRepo"),
        Fault::Status(403, "x: y"),
        Fault::Status(429, "retry-after: 3000"),
    ] {
        let hub = Hub::serve(story(), Large::Here).fault("HEAD", "config.json", 1, refused);
        text(&fetch_with(&home, &hub, TOKEN));
        all_but_the_first(&hub.asked());
        std::fs::remove_dir_all(&home.0).unwrap();
    }
    let hub = Hub::serve(story(), Large::Here);
    text(&fetch_with(&home, &hub, TOKEN));
    none(&hub.asked());
}

/// The hub keeps large files elsewhere. Its redirect says what the file is, so that host is asked
/// only for the bytes.
#[test]
fn a_large_file_on_another_host_is_fetched_without_the_token() {
    let (hub, home) = (Hub::serve(story(), Large::Elsewhere).gated(), Home::new("elsewhere"));
    writes(REPO, &home, &hub);
    let (there, here): (Vec<_>, Vec<_>) =
        hub.asked().into_iter().partition(|asked| asked.line.contains("/elsewhere/"));
    all_but_the_first(&here);
    none(&there);
    let lines: Vec<_> = there.iter().map(|asked| asked.line.as_str()).collect();
    assert_eq!(lines, ["GET /elsewhere/model.safetensors"]);
}

/// Redirects the files of a gated hub to another server, for the question what a file is as well as
/// for its bytes. `location` is the address, with HUB and OTHER for the servers, and `/at` for the
/// path on the other one.
#[track_caller]
fn redirected(test: &str, code: u16, location: &str) {
    let (hub, other) = (Hub::serve(story(), Large::Here), Hub::serve(story(), Large::Here));
    let (hub, home) = (hub.gated(), Home::new(test));
    let host = |hub: &Hub| hub.address.trim_start_matches("http://").to_string();
    for file in ["config.json", "tokenizer.json", WEIGHTS] {
        let at = format!("/{REPO}/resolve/{COMMIT}/{file}");
        let to = location.replace("HUB", &host(&hub)).replace("OTHER", &host(&other));
        let to = to.replace("/at", &at).replace("/old", &at.replace(REPO, "old/name"));
        let to = Fault::Status(code, format!("location: {to}").leak());
        hub.break_next("HEAD", file, usize::MAX, to);
        hub.break_next("GET", file, usize::MAX, to);
    }
    writes(REPO, &home, &hub);
    all_but_the_first(&hub.asked());
    let there = other.asked();
    none(&there);
    for line in ["HEAD", "GET"].map(|method| format!("{method} /{REPO}/resolve/{COMMIT}/")) {
        let line = line + WEIGHTS;
        assert!(there.iter().any(|asked| asked.line == line), "{test}: {there:?}");
    }
}

#[test]
fn a_redirect_to_another_server_goes_without_the_token() {
    redirected("other-port", 302, "http://OTHER/at");
    redirected("without-scheme", 307, "//OTHER/at");
    redirected("user-like-the-hub", 302, "http://HUB@OTHER/at");
    // The other server redirects once more, relative to itself.
    redirected("then-relative", 302, "http://OTHER/old");
}

#[test]
fn a_redirect_back_to_the_hub_has_the_token_again() {
    let (hub, other) = (Hub::serve(story(), Large::Here), Hub::serve(story(), Large::Here));
    let (hub, home) = (hub.gated(), Home::new("and-back"));
    let to = |hub: &Hub| {
        let to = format!("location: {}/{REPO}/resolve/{COMMIT}/{WEIGHTS}", hub.address);
        Fault::Status(302, to.leak())
    };
    for method in ["HEAD", "GET"] {
        hub.break_next(method, WEIGHTS, 1, to(&other));
        other.break_next(method, WEIGHTS, 1, to(&hub));
    }
    writes(REPO, &home, &hub);
    all_but_the_first(&hub.asked());
    none(&other.asked());
}

/// Within the hub, a redirect keeps the token, whether it is relative or a full address.
#[test]
fn a_redirect_within_the_hub_keeps_the_token() {
    let (hub, home) = (Hub::serve(story(), Large::Here).gated(), Home::new("within"));
    let to = format!("location: {}/{REPO}/resolve/{COMMIT}/{WEIGHTS}", hub.address).leak();
    hub.break_next("HEAD", WEIGHTS, 1, Fault::Status(307, to));
    hub.break_next("GET", WEIGHTS, 1, Fault::Status(307, to));
    writes("old/name", &home, &hub);
    all_but_the_first(&hub.asked());
}

/// Like an address of a store that was signed for a limited time.
#[test]
fn a_refusal_by_another_server_is_retried_and_is_not_the_hubs() {
    let hub = Hub::serve(story(), Large::Elsewhere);
    let refused = Fault::Status(403, "x: y");
    hub.break_next("GET", WEIGHTS, 1, refused);
    let home = Home::new("expired");
    assert_eq!(text(&run(REPO, &home, &hub)), local(&home, &hub));

    let _ = std::fs::remove_dir_all(&home.0);
    hub.break_next("GET", WEIGHTS, usize::MAX, refused);
    hub.asked();
    let says = "could not fetch model.safetensors: localhost, where the hub keeps it, refuses the";
    let said = failed(&fetch_with(&home, &hub, TOKEN), &[says]);
    assert!(!said.contains("make a token"), "{said}");
    none(&hub.asked());
}

/// As in Python: two variables hold a token, and one names the file with the stored one.
#[test]
fn a_token_is_found_where_python_finds_it() {
    let home = Home::new("token-places");
    std::fs::create_dir_all(&home.0).unwrap();
    let stored = home.0.join("stored");
    std::fs::write(&stored, "hf_secret\r\n").unwrap();
    let stored = stored.to_str().unwrap();
    let in_home = home.0.join("in-home");
    std::fs::create_dir_all(&in_home).unwrap();
    std::fs::write(in_home.join("token"), "hf_secret").unwrap();
    for variables in [
        [("HF_TOKEN", "hf_secret"), ("HUGGING_FACE_HUB_TOKEN", "hf_other")],
        [("HF_TOKEN", "hf_sec\nret\n"), ("HF_TOKEN_PATH", "")],
        [("HF_TOKEN", ""), ("HUGGING_FACE_HUB_TOKEN", " hf_secret\n")],
        [("HF_TOKEN", " "), ("HF_TOKEN_PATH", stored)],
        [("HF_TOKEN_PATH", "$HERE/stored"), ("HERE", home.0.to_str().unwrap())],
        [("HF_TOKEN_PATH", "~/stored"), ("HOME", home.0.to_str().unwrap())],
        [("HF_HOME", "${HERE}/in-home"), ("HERE", home.0.to_str().unwrap())],
    ] {
        let hub = Hub::serve(story(), Large::Here).gated();
        let cache = home.0.join("cache");
        let variables = [&variables[..], &[("HF_HUB_CACHE", cache.to_str().unwrap())]].concat();
        text(&fetch_with(&home, &hub, &variables));
        all_but_the_first(&hub.asked());
        std::fs::remove_dir_all(cache).unwrap();
    }
}

#[test]
fn no_token_is_sent_where_the_environment_forbids_it() {
    let (hub, home) = (Hub::serve(story(), Large::Here).gated(), Home::new("forbidden"));
    std::fs::create_dir_all(&home.0).unwrap();
    std::fs::write(home.0.join("token"), "hf_secret").unwrap();
    const FORBIDS: &str = "HF_HUB_DISABLE_IMPLICIT_TOKEN";
    for token in ["", "hf_secret"] {
        let output = fetch_with(&home, &hub, &[(FORBIDS, "1"), ("HF_TOKEN", token)]);
        failed(&output, &["access refused (401); HF_HUB_DISABLE_IMPLICIT_TOKEN is set"]);
        none(&hub.asked());
    }
    text(&fetch_with(&home, &hub, &[(FORBIDS, "0")]));
    all_but_the_first(&hub.asked());
}

#[test]
fn a_token_that_cannot_be_sent_is_reported() {
    let (hub, home) = (Hub::serve(story(), Large::Here).gated(), Home::new("odd-token"));
    for token in ["hf_é", "hf_secret hf_secret"] {
        let output = fetch_with(&home, &hub, &[("HF_TOKEN", token)]);
        failed(&output, &["the hub asks for a token, and yours contains spaces"]);
        none(&hub.asked());
    }
}
