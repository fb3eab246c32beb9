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
    command.args(["--model", model]).args(flags);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
        command.env_remove(name).env_remove(name.to_ascii_lowercase());
    }
    for name in [
        "HF_TOKEN",
        "HF_HUB_OFFLINE",
        "HF_HUB_CACHE",
        "HF_HUB_DISABLE_IMPLICIT_TOKEN",
        "HF_HUB_DOWNLOAD_TIMEOUT",
        "HF_TOKEN_PATH",
        "HUGGINGFACE_HUB_CACHE",
        "HUGGING_FACE_HUB_TOKEN",
        "TRANSFORMERS_OFFLINE",
    ] {
        command.env_remove(name);
    }
    command.env("HF_HOME", &home.0).env("HF_ENDPOINT", &hub.address).stdin(Stdio::null());
    command
}

/// Generates a short text with this model.
fn run(model: &str, home: &Home, hub: &Hub) -> Output {
    write(command(model, home, hub, &[]))
}

fn write(mut command: Command) -> Output {
    command.args(["-p", "Once upon a time", "--max-new-tokens", "20"]).output().unwrap()
}

/// Fetches the model without generating any text.
fn fetch(home: &Home, hub: &Hub) -> Output {
    command(REPO, home, hub, &["--where"]).output().unwrap()
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

/// Writes a folder with story-230k, its tensors split over shards.
fn sharded(folder: &Home, shards: usize) {
    std::fs::create_dir_all(&folder.0).unwrap();
    for file in ["config.json", "tokenizer.json", "generation_config.json"] {
        std::fs::copy(story().join(file), folder.0.join(file)).unwrap();
    }
    let all = candle_core::safetensors::load(story().join(WEIGHTS), &candle_core::Device::Cpu);
    let mut all: Vec<_> = all.unwrap().into_iter().collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    let mut map = serde_json::Map::new();
    for shard in 0..shards {
        let file = format!("model-{}.safetensors", shard + 1);
        let mine: std::collections::HashMap<_, _> =
            all.iter().skip(shard).step_by(shards).cloned().collect();
        map.extend(mine.keys().map(|name| (name.clone(), file.as_str().into())));
        candle_core::safetensors::save(&mine, folder.0.join(file)).unwrap();
    }
    let index = serde_json::json!({ "weight_map": map }).to_string();
    std::fs::write(folder.0.join("model.safetensors.index.json"), index).unwrap();
}
