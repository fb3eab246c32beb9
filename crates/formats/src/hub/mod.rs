//! Finds a model's folder: embedded, on disk, or in the Hugging Face hub's cache.
//!
//! Nothing here uses a network: a model that isn't on this machine is left to a [`Download`], if
//! the caller has one.

pub mod environment;
mod hub_cache;
#[cfg(not(target_arch = "wasm32"))]
mod installed;
mod model_names;

pub use hub_cache::{is_plain_name, Repository, OPTIONAL, REQUIRED};
#[cfg(not(target_arch = "wasm32"))]
pub use installed::list;
pub use model_names::{is_instruct, models_dir, DEFAULT_MODEL, EMBEDDED_MODELS, KNOWN};

use crate::random_model::RandomModel;
use crate::widened_model::WIDENED;
use anyhow::{bail, Context as _, Result};
use model_names::known;
use std::path::{Path, PathBuf};

/// Fetches models that aren't on this machine.
pub trait Download {
    /// Downloads a repository's missing model files into the cache, and returns the model's folder.
    ///
    /// # Errors
    /// If a required file can't be downloaded. The message says how to proceed.
    fn download(&self, cached: &Repository) -> Result<PathBuf>;
}

/// Returns the path of a model: an embedded name, a folder or GGUF file, a short name from
/// [`KNOWN`], or `owner/repo` on the hub. Models made in memory (`random-135m`, [`WIDENED`]) have
/// no folder, so their name is returned. A repository that isn't complete in the cache is fetched
/// by `download`.
///
/// # Errors
/// If the model doesn't exist, or isn't on this machine and can't be downloaded.
pub fn locate(name: &str, download: Option<&dyn Download>) -> Result<PathBuf> {
    if EMBEDDED_MODELS.contains(&name) {
        return Ok(models_dir()?.join(name));
    }
    if Path::new(name).try_exists().with_context(|| format!("--model {name}"))? {
        return Ok(PathBuf::from(name)); // a folder, or a GGUF file
    }
    if name == WIDENED || RandomModel::named(name)?.is_some() {
        return Ok(PathBuf::from(name)); // `ModelFiles` builds the model from its name
    }
    if name.ends_with(".gguf") {
        bail!("{name}: there is no such file; give the path of a GGUF file on this machine")
    }
    in_cache(name, known(name).unwrap_or(name), download)
}

/// In a browser page, there is no cache and no download.
#[cfg(target_arch = "wasm32")]
fn in_cache(name: &str, _: &str, _: Option<&dyn Download>) -> Result<PathBuf> {
    bail!("unknown model \"{name}\"")
}

/// Returns the folder of `repo` in the hub's cache, downloading the model first if it isn't
/// there.
#[cfg(not(target_arch = "wasm32"))]
fn in_cache(name: &str, repo: &str, download: Option<&dyn Download>) -> Result<PathBuf> {
    let parts: Vec<&str> = repo.split('/').collect();
    if parts.len() != 2 || !parts.iter().all(|part| hub_cache::is_plain_name(part)) {
        if name.contains(['/', '\\']) {
            bail!(
                "{name}: there is no such folder or file; for a model on the hub, give owner/repo"
            )
        }
        let short: Vec<&str> = KNOWN.iter().map(|(short, _)| *short).collect();
        bail!(
            "unknown model \"{name}\": neither a folder nor a known name; embedded: {}, {WIDENED}; \
                on the hub: {}, or owner/repo",
            EMBEDDED_MODELS.join(", "),
            short.join(", ")
        )
    }
    let cached = hub_cache::Repository::new(repo)?;
    if let Some(dir) = cached.whole() {
        return Ok(dir); // a complete model needs no requests
    }
    match download {
        Some(download) => download.download(&cached),
        None => cached.without_network(
            "this build has no feature `hub`; fetch it once with a build that has it",
        ),
    }
}
