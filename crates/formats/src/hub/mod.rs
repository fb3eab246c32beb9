//! Finds a model's folder: embedded, on disk, or on the Hugging Face hub.
//!
//! Models in the hub's cache are found without a network. The feature `hub` adds the client that
//! downloads the others.

#[cfg(feature = "hub")]
mod fetch;
#[cfg(not(target_arch = "wasm32"))]
mod hub_cache;
#[cfg(not(target_arch = "wasm32"))]
mod installed;

#[cfg(not(target_arch = "wasm32"))]
pub use installed::list;

use crate::random_model::RandomModel;
use anyhow::{bail, ensure, Context as _, Result};
use std::path::{Path, PathBuf};

/// True if this build can download models.
pub const DOWNLOADS: bool = cfg!(feature = "hub");

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
fn known(name: &str) -> Option<&'static str> {
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

/// Returns the folder of embedded models: `CANDECODE_MODELS`, or else `models/` in the repository.
///
/// # Errors
/// If the folder doesn't exist.
pub fn models_dir() -> Result<PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let built = || crates.and_then(Path::parent).unwrap_or(Path::new(".")).join("models");
    let dir = std::env::var_os("CANDECODE_MODELS").map_or_else(built, PathBuf::from);
    let shown = dir.display();
    ensure!(dir.is_dir(), "no folder {shown}; set CANDECODE_MODELS to the embedded models' folder");
    Ok(dir)
}

/// Returns the path of a model: an embedded name, a folder or GGUF file, a short name from
/// [`KNOWN`], or `owner/repo` on the hub. Random models (`random-135m`) have no folder, so their
/// name is returned. With `offline`, or with `HF_HUB_OFFLINE` in the environment, no network is
/// used.
///
/// # Errors
/// If the model doesn't exist, or isn't on this machine and can't be downloaded.
pub fn locate(name: &str, offline: bool) -> Result<PathBuf> {
    if EMBEDDED_MODELS.contains(&name) {
        return Ok(models_dir()?.join(name));
    }
    if Path::new(name).try_exists().with_context(|| format!("--model {name}"))? {
        return Ok(PathBuf::from(name)); // a folder, or a GGUF file
    }
    if RandomModel::named(name)?.is_some() {
        return Ok(PathBuf::from(name)); // `ModelFiles` builds the model from its name
    }
    if name.ends_with(".gguf") {
        bail!("{name}: there is no such file; give the path of a GGUF file on this machine")
    }
    in_cache(name, known(name).unwrap_or(name), offline)
}

/// In a browser page, there is no cache and no download.
#[cfg(target_arch = "wasm32")]
fn in_cache(name: &str, _: &str, _: bool) -> Result<PathBuf> {
    bail!("unknown model \"{name}\"")
}

/// Returns the folder of `repo` in the hub's cache, downloading the model first if that is allowed.
#[cfg(not(target_arch = "wasm32"))]
fn in_cache(name: &str, repo: &str, offline: bool) -> Result<PathBuf> {
    let parts: Vec<&str> = repo.split('/').collect();
    if parts.len() != 2 || !parts.iter().all(|part| hub_cache::is_plain_name(part)) {
        if name.contains(['/', '\\']) {
            bail!(
                "{name}: there is no such folder or file; for a model on the hub, give owner/repo"
            )
        }
        let short: Vec<&str> = KNOWN.iter().map(|(short, _)| *short).collect();
        bail!(
            "unknown model \"{name}\": neither a folder nor a known name; embedded: {}; on the \
                hub: {}, or owner/repo",
            EMBEDDED_MODELS.join(", "),
            short.join(", ")
        )
    }
    let cached = hub_cache::Repository::new(repo)?;
    if let Some(dir) = cached.whole() {
        return Ok(dir); // a complete model needs no requests
    }
    #[cfg(feature = "hub")]
    if !offline && !offline_by_environment() {
        return fetch::fetch(&cached);
    }
    let _ = offline;
    cached.without_network()
}

#[cfg(feature = "hub")]
/// Returns true if `HF_HUB_OFFLINE` forbids using the network.
fn offline_by_environment() -> bool {
    std::env::var("HF_HUB_OFFLINE").is_ok_and(|value| {
        !matches!(value.to_ascii_lowercase().as_str(), "" | "0" | "false" | "no" | "off")
    })
}
