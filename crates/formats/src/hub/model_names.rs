//! Models by name: the embedded ones, and short names of some on the hub.

use anyhow::{ensure, Result};
use std::path::{Path, PathBuf};

/// The model to run if none is named.
pub const DEFAULT_MODEL: &str = "story-3m";

/// The embedded models, which need no network and no account.
pub const EMBEDDED_MODELS: [&str; 4] = ["story-3m", "story-230k", "story-gpt2-1m", "paper"];

/// Short names and their repositories.
pub const KNOWN: [(&str, &str); 16] = [
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
];

/// Returns the repository for a short name.
pub(super) fn known(name: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(short, _)| *short == name).map(|(_, repo)| *repo)
}

/// Returns true if this looks like the name of an instruction-tuned model: its short name, or a
/// repository, folder or file whose name ends in `-Instruct`, `-Chat` or `-it`, ignoring a version
/// or quantization suffix.
pub fn is_instruct(name: &str) -> bool {
    let name = known(name).unwrap_or(name).trim_end_matches(['/', '\\']).to_ascii_lowercase();
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let words: Vec<&str> = last.split(['-', '_', '.']).collect();
    last == "qwen3-0.6b" || words[1..].iter().any(|word| ["instruct", "chat", "it"].contains(word))
}

/// Returns the folder of embedded models: `CANDECODE_MODELS`, or else `models/` beside the program,
/// as in a release, or else `models/` in the repository.
///
/// # Errors
/// If the folder doesn't exist.
pub fn models_dir() -> Result<PathBuf> {
    let program = std::env::current_exe().ok();
    let beside = program.and_then(|program| Some(program.parent()?.join("models")));
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let repository = || crates.and_then(Path::parent).unwrap_or(Path::new(".")).join("models");
    let found = || beside.filter(|dir| dir.is_dir()).unwrap_or_else(repository);
    let dir = std::env::var_os("CANDECODE_MODELS").map_or_else(found, PathBuf::from);
    let shown = dir.display();
    ensure!(dir.is_dir(), "no folder {shown}; set CANDECODE_MODELS to the embedded models' folder");
    Ok(dir)
}
