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
mod model_names;

#[cfg(not(target_arch = "wasm32"))]
pub use installed::list;
pub use model_names::{is_instruct, models_dir, DEFAULT_MODEL, EMBEDDED_MODELS, KNOWN};

use crate::random_model::RandomModel;
use anyhow::{bail, Context as _, Result};
use model_names::known;
use std::path::{Path, PathBuf};

/// True if this build can download models.
pub const DOWNLOADS: bool = cfg!(feature = "hub");

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
