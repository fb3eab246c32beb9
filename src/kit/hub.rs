//! Where a model's folder is: embedded, on disk, or on the Hugging Face hub.

use anyhow::{bail, Context as _, Result};
use hf_hub::api::sync::{ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, Repo, RepoType};
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

/// The folder of a model: an embedded name, a folder, a short name of [`KNOWN`], or `owner/repo` on the hub.
///
/// # Errors
/// If there is no such model, or it cannot be fetched.
pub fn resolve(name: &str) -> Result<PathBuf> {
    if STORY_MODELS.contains(&name) {
        return Ok(models_dir()?.join(name));
    }
    if Path::new(name).is_dir() {
        return Ok(PathBuf::from(name));
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
    fetch(repo)
}

/// Fetches what a model needs into the hub's own cache, and gives its folder there.
fn fetch(repo: &str) -> Result<PathBuf> {
    let spec = Repo::new(repo.to_string(), RepoType::Model);
    let cache = Cache::from_env();
    if offline() {
        let found = cache.repo(spec).get("config.json");
        let config = found.with_context(|| {
            format!("{repo} is not in the cache, and HF_HUB_OFFLINE is set; unset it, or use --model {DEFAULT_MODEL}")
        })?;
        return parent(&config);
    }
    let token = std::env::var("HF_TOKEN").ok().filter(|token| !token.is_empty());
    let builder = ApiBuilder::from_env().with_progress(true).with_retries(3);
    let builder = if token.is_some() { builder.with_token(token) } else { builder };
    let api = builder.build().context("could not set up the hub")?.repo(spec);
    let dir = parent(&get(&api, repo, "config.json")?)?;
    get(&api, repo, "tokenizer.json")?;
    // Optional files: a repository without them is complete.
    for optional in ["generation_config.json", "tokenizer_config.json"] {
        let _ = api.get(optional);
    }
    if let Ok(index) = api.get("model.safetensors.index.json") {
        let text = std::fs::read_to_string(&index).with_context(|| index.display().to_string())?;
        for shard in crate::kit::weights::shard_names(&text)? {
            get(&api, repo, &shard)?;
        }
    } else {
        get(&api, repo, "model.safetensors")?;
    }
    Ok(dir)
}

fn offline() -> bool {
    std::env::var("HF_HUB_OFFLINE")
        .is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false" | "no"))
}

fn parent(file: &Path) -> Result<PathBuf> {
    Ok(file.parent().context("the hub's cache has no folder")?.to_path_buf())
}

fn get(api: &ApiRepo, repo: &str, file: &str) -> Result<PathBuf> {
    api.get(file).map_err(|e| {
        let way_on = format!("--model {DEFAULT_MODEL} needs no network");
        let io = |e: &ApiError| matches!(e, ApiError::IoError(_));
        let text = e.to_string();
        if text.contains("401") || text.contains("403") {
            return anyhow::anyhow!("{repo}: access refused; ask for access on its page, then set HF_TOKEN; {way_on}");
        }
        if text.contains("404") {
            return anyhow::anyhow!("{repo}: the hub has no {file} there; is the name right? {way_on}");
        }
        if io(&e) {
            return anyhow::anyhow!("{repo}: {file} could not be written to the cache ({text}); is there space, and permission? HF_HOME moves it");
        }
        anyhow::anyhow!("{repo}: could not fetch {file} ({text}); is there a network? {way_on}")
    })
}
