//! What the last check of a day said, kept until anything that it depends on changes.

use crate::backup;
use crate::checks::report::{self, Unit};
use crate::checks::runner::DayRun;
use crate::repo::{Day, Repo};
use anyhow::Result;
use serde_json::json;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// Keeps the outcome of a day's checks, for `list`.
///
/// # Errors
/// If there is no space or no permission.
pub fn save(repo: &Repo, run: &DayRun) -> Result<()> {
    let mut text = format!("{}\n", key(repo, &run.day));
    for unit in &run.units {
        text += &format!("{}\n", json!({"test": unit.test, "status": unit.status.name()}));
    }
    backup::write(&file(repo, &run.day), text.as_bytes())
}

/// The outcome of a day's last check, by test; `None` if something changed since.
pub fn load(repo: &Repo, day: &Day) -> Option<BTreeMap<String, Unit>> {
    let text = std::fs::read_to_string(file(repo, day)).ok()?;
    let (known, units) = text.split_once('\n')?;
    (known == key(repo, day)).then(|| report::parse(units))
}

/// Where a day's outcome is kept.
fn file(repo: &Repo, day: &Day) -> PathBuf {
    repo.root.join(format!(".candecode/results/{}.jsonl", day.name))
}

/// A fingerprint of all that the outcome depends on: the day's file, its checkers, the reference, the kit, the crates.
fn key(repo: &Repo, day: &Day) -> String {
    let mut hasher = DefaultHasher::new();
    for path in [
        day.src().as_str(),
        day.tests().as_str(),
        "tests/checks",
        "solutions",
        "src/kit",
        "Cargo.lock",
    ] {
        add(&repo.root.join(path), &mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

/// Adds a file, or all files of a directory in the order of their names.
fn add(path: &Path, hasher: &mut DefaultHasher) {
    path.file_name().hash(hasher);
    if let Ok(entries) = std::fs::read_dir(path) {
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths.iter().for_each(|path| add(path, hasher));
    } else {
        std::fs::read(path).ok().hash(hasher);
    }
}
