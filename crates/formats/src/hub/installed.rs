//! `--models`: the models on this machine and their sizes.

use crate::hub::environment::folder;
use crate::hub::hub_cache::Repository;
use crate::hub::model_names::{models_dir, DEFAULT_MODEL, EMBEDDED_MODELS, KNOWN};
use crate::widened_model::WIDENED;
use anyhow::Result;
use candecode_kit::units::bytes;
use std::path::{Path, PathBuf};

/// Lists the embedded models and those in the hub's cache, one per line: the name, the size, and
/// any missing files.
///
/// # Errors
/// If the folder of embedded models or the home folder is missing.
pub fn list() -> Result<String> {
    let (models, hub) = (models_dir()?, folder()?);
    let mut text = format!("embedded, in {}\n", models.display());
    for name in EMBEDDED_MODELS {
        text += &line(name, &files(&models.join(name)), "");
    }
    let made = format!("made in memory: {DEFAULT_MODEL} at the cost of 135M weights");
    text += &format!("  {WIDENED:<46} {:>9}  {made}\n", "");
    text += &format!("from the hub, in {}\n", hub.display());
    let empty = text.len();
    for dir in files(&hub) {
        let dir = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(name) = dir.strip_prefix("models--") {
            text += &cached(&Repository::new(&name.replacen("--", "/", 1))?);
        }
    }
    Ok(if text.len() == empty { text + "  nothing yet\n" } else { text })
}

/// Returns the line for one repository in the cache.
fn cached(repository: &Repository) -> String {
    let name = &repository.name;
    let short = KNOWN.iter().find(|(_, repo)| repo == name);
    let shown = short.map_or(name.clone(), |(short, _)| format!("{short} ({name})"));
    let missing = repository.commit().map(|commit| repository.missing(&commit).join(", "));
    let mut state = match missing.as_deref() {
        None => "not whole: a download was broken off".to_string(),
        Some("") => String::new(),
        Some(missing) => format!("not whole: no {missing}"),
    };
    let blobs = files(&repository.dir.join("blobs"));
    let mut coming = blobs.clone(); // the extensions of `hf-hub` and `huggingface_hub`
    coming.retain(|blob| blob.extension().is_some_and(|end| end == "part" || end == "incomplete"));
    if !coming.is_empty() {
        state += &format!("; {} of it on the way", size(&coming));
    }
    line(&shown, &blobs, &state)
}

fn line(name: &str, files: &[PathBuf], state: &str) -> String {
    format!("  {name:<46} {:>9}  {state}", size(files)).trim_end().to_string() + "\n"
}

fn size(files: &[PathBuf]) -> String {
    let lengths = files.iter().filter_map(|file| file.metadata().ok()).map(|file| file.len());
    bytes(lengths.sum::<u64>() as f64)
}

/// Returns the files in a folder, sorted by name.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort();
    files
}
