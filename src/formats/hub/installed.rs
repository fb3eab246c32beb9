//! `--models`: what is on this machine, and how large.

use crate::formats::hub::hub_cache::{folder, Repository};
use crate::formats::hub::{models_dir, EMBEDDED_MODELS, KNOWN};
use crate::kit::units::bytes;
use anyhow::Result;
use std::fs;
use std::path::Path;

/// The embedded models and those of the hub's cache, one a line: name, size, and what is missing, if anything is.
///
/// # Errors
/// If there is no folder of embedded models, or no home folder.
pub fn list() -> Result<String> {
    let dir = models_dir()?;
    let mut text = format!("embedded, in {}\n", dir.display());
    for name in EMBEDDED_MODELS {
        text += &line(name, size(&dir.join(name)), "");
    }
    let hub = folder()?;
    text += &format!("from the hub, in {}\n", hub.display());
    let mut names: Vec<String> = entries(&hub)
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_prefix("models--")?.to_string()))
        .map(|name| name.replacen("--", "/", 1))
        .collect();
    names.sort();
    for name in &names {
        text += &cached(&hub, name);
    }
    if names.is_empty() {
        text += "  nothing yet\n";
    }
    Ok(text)
}

/// The line of one repository in the cache.
fn cached(hub: &Path, name: &str) -> String {
    let repository = Repository::new(hub, name);
    let short = KNOWN.iter().find(|(_, repo)| *repo == name);
    let shown = short.map_or(name.to_string(), |(short, _)| format!("{short} ({name})"));
    let (size, parts) = repository.sizes();
    let missing = repository.commit().map(|commit| repository.missing(&commit));
    let mut state = match missing {
        None => "not whole: a download was broken off".to_string(),
        Some(missing) if missing.is_empty() => String::new(),
        Some(missing) => format!("not whole: no {}", missing.join(", ")),
    };
    if parts > 0 {
        state += &format!("; {} of it on the way", bytes(parts as f64));
    }
    line(&shown, size, &state)
}

fn line(name: &str, size: u64, state: &str) -> String {
    format!("  {name:<46} {:>9}  {state}", bytes(size as f64)).trim_end().to_string() + "\n"
}

/// Bytes of the files of a folder.
fn size(dir: &Path) -> u64 {
    entries(dir).filter_map(|entry| entry.metadata().ok()).map(|file| file.len()).sum()
}

fn entries(dir: &Path) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(dir).into_iter().flatten().flatten()
}
