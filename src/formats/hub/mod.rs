//! Where a model's folder is: embedded, on disk, or on the Hugging Face hub.

mod download;
mod fetch;
mod http_client;
mod hub_cache;
mod hub_error;
mod installed;

pub use installed::list;

use anyhow::{bail, Context as _, Result};
use std::path::{Path, PathBuf};

/// The model that runs when none is named.
pub const DEFAULT_MODEL: &str = "story-3m";

/// The embedded models: no network, no account.
pub const STORY_MODELS: [&str; 3] = ["story-3m", "story-230k", "story-gpt2-1m"];

/// Short names, and the repositories they stand for.
pub const KNOWN: [(&str, &str); 12] = [
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
];

/// The folder of the embedded models: `CANDECODE_MODELS`, else `models/` of the repository.
///
/// # Errors
/// If there is no such folder.
pub fn models_dir() -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("CANDECODE_MODELS") {
        let dir = PathBuf::from(dir);
        anyhow::ensure!(
            dir.is_dir(),
            "CANDECODE_MODELS is {}, which is not a folder",
            dir.display()
        );
        return Ok(dir);
    }
    // Where the crate was built, or, if the repository has moved since, above the binary or the current folder.
    let mut starts = vec![PathBuf::from(env!("CARGO_MANIFEST_DIR"))];
    starts.extend(std::env::current_exe().ok());
    starts.extend(std::env::current_dir().ok());
    let mut above = starts.iter().flat_map(|start| start.ancestors());
    let found = above.find(|dir| dir.join("models").join(DEFAULT_MODEL).is_dir());
    let root = found.context("the folder models/ was not found; set CANDECODE_MODELS to it")?;
    Ok(root.join("models"))
}

/// The folder of a model: an embedded name, a folder or GGUF file, a short name of [`KNOWN`], or `owner/repo` on the hub.
///
/// # Errors
/// If there is no such model, or it cannot be fetched.
pub fn resolve(name: &str) -> Result<PathBuf> {
    if STORY_MODELS.contains(&name) {
        return Ok(models_dir()?.join(name));
    }
    if Path::new(name).exists() {
        return Ok(PathBuf::from(name)); // a folder, or a GGUF file
    }
    if name.ends_with(".gguf") {
        bail!("{name}: there is no such file; give the path of a GGUF file on this machine")
    }
    let known = KNOWN.iter().find(|(short, _)| *short == name).map(|(_, repo)| *repo);
    let repo = known.unwrap_or(name);
    let parts: Vec<&str> = repo.split('/').collect();
    let plain = |part: &&str| {
        let word = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !part.is_empty() && !part.starts_with('.') && part.chars().all(word)
    };
    if parts.len() != 2 || !parts.iter().all(plain) {
        let short: Vec<&str> = KNOWN.iter().map(|(short, _)| *short).collect();
        bail!(
            "unknown model \"{name}\": no such folder, and not a name; embedded: {}; on the hub: {}, or owner/repo",
            STORY_MODELS.join(", "),
            short.join(", ")
        )
    }
    fetch::fetch(repo)
}
