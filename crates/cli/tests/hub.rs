//! Tests downloads from the hub over the loopback: a server in this test speaks the hub's protocol,
//! serves an embedded model, and simulates network failures.
//!
//! Runs the `candecode` command itself, with the reference:
//! `cargo test --package candecode-cli --features ref --test hub`.

#![cfg(all(feature = "ref", feature = "hub"))]

#[path = "hub/cached.rs"]
mod cached;
#[path = "hub/refusals.rs"]
mod refusals;
#[path = "hub/secrets.rs"]
mod secrets;
#[path = "hub/transfers.rs"]
mod transfers;

use candecode_remote::test_servers::hub::{story, Home, Hub, COMMIT, REPO};
use std::process::{Command, Output, Stdio};

const WEIGHTS: &str = "model.safetensors";

/// Builds the command with this model and its own cache, and no other hub settings in its
/// environment.
fn command(model: &str, home: &Home, hub: &Hub, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_candecode"));
    for (name, _) in std::env::vars_os() {
        let upper = name.to_string_lossy().to_ascii_uppercase();
        let settings = ["HF_", "HUGGING", "TRANSFORMERS_"];
        if upper.ends_with("_PROXY") || settings.iter().any(|start| upper.starts_with(start)) {
            command.env_remove(name);
        }
    }
    command.args(["--model", model]).args(flags).stdin(Stdio::null());
    command.env("HF_HOME", &home.0).env("HF_ENDPOINT", &hub.address);
    command
}

/// Generates a short text with this model.
fn run(model: &str, home: &Home, hub: &Hub) -> Output {
    write(command(model, home, hub, &[]))
}

fn write(mut command: Command) -> Output {
    command.args(["-p", "Once upon a time", "--max-new-tokens", "20"]).output().unwrap()
}

/// Fetches the model without generating any text, with these variables in the environment.
fn fetch_with(home: &Home, hub: &Hub, variables: &[(&str, &str)]) -> Output {
    command(REPO, home, hub, &["--where"]).envs(variables.iter().copied()).output().unwrap()
}

fn fetch(home: &Home, hub: &Hub) -> Output {
    fetch_with(home, hub, &[])
}

#[track_caller]
fn text(output: &Output) -> String {
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Checks that the command failed with these words, and returns its messages.
#[track_caller]
fn failed(output: &Output, says: &[&str]) -> String {
    let err = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    for words in says {
        assert!(err.contains(words), "expected \"{words}\" in: {err}");
    }
    assert!(!err.contains("panicked") && err.lines().count() < 12, "{err}");
    err
}

/// Generates the same text with the model from its folder.
fn local(home: &Home, hub: &Hub) -> String {
    let text = text(&run(story().to_str().unwrap(), home, hub));
    assert!(text.starts_with("Once upon a time") && text.len() > 40, "{text}");
    text
}

fn weights() -> Vec<u8> {
    std::fs::read(story().join(WEIGHTS)).unwrap()
}

fn get(file: &str) -> String {
    format!("GET /{REPO}/resolve/{COMMIT}/{file}")
}

/// Returns the start offset of every request for a file's bytes.
fn ranges(hub: &Hub, file: &str) -> Vec<usize> {
    let asked = hub.asked().into_iter().filter(|asked| asked.line == get(file));
    let range = |headers: &str| {
        let range = headers.lines().find_map(|line| line.strip_prefix("range: bytes="));
        range.unwrap_or("0").trim_end_matches('-').parse().unwrap()
    };
    asked.map(|asked| range(&asked.headers)).collect()
}
