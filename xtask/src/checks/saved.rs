//! What the last check of a day said, kept until anything that it depends on changes.

use crate::backup;
use crate::checks::outcome::{self, Unit};
use crate::checks::runner::DayRun;
use crate::repo::{Day, Repo};
use anyhow::Result;
use serde_json::json;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// What the checks of every day depend on: checkers, goldens, known mistakes, the reference, the
/// crates; of `src/` all but the days. (The runner makes the known mistakes' code.)
const COMMON: [&str; 7] =
    ["tests", "solutions", "src", "crates", "xtask/src", "Cargo.toml", "Cargo.lock"];

/// A fingerprint of the content of all that the checks of every day depend on.
pub struct Inputs(u64);

impl Inputs {
    /// Reads them all.
    pub fn read(repo: &Repo) -> Inputs {
        let mut hasher = DefaultHasher::new();
        COMMON.iter().for_each(|path| add(&repo.root.join(path), &mut hasher));
        match std::env::var_os("CANDECODE_MODELS") {
            Some(dir) => add(Path::new(&dir), &mut hasher),
            None => add(&repo.root.join("models"), &mut hasher),
        }
        Inputs(hasher.finish())
    }

    /// The fingerprint of what a day's known mistakes do on this machine.
    pub fn record_key(&self, day: &Day, machine: &[String]) -> String {
        let mut hasher = DefaultHasher::new();
        (self.0, day.number, machine).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }

    /// The fingerprint of a day as it is now: these, and its own file.
    pub fn key(&self, repo: &Repo, day: &Day) -> String {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        add(&repo.root.join(day.src()), &mut hasher);
        format!("{:016x}", hasher.finish())
    }
}

/// Keeps the outcome of a day's checks. The key is of before the build: a file that changes
/// meanwhile makes the outcome old, and never wrong.
///
/// # Errors
/// If there is no space or no permission.
pub fn save(repo: &Repo, key: &str, run: &DayRun) -> Result<()> {
    let mut text = format!("{key}\n");
    for unit in &run.units {
        text += &format!("{}\n", json!({"test": unit.test, "status": unit.status.name()}));
    }
    backup::write(&file(repo, &run.day), text.as_bytes())
}

/// The outcome of a day's last check, by test; `None` if something changed since.
pub fn load(repo: &Repo, inputs: &Inputs, day: &Day) -> Option<BTreeMap<String, Unit>> {
    let text = std::fs::read_to_string(file(repo, day)).ok()?;
    let (known, units) = text.split_once('\n')?;
    (known == inputs.key(repo, day)).then(|| outcome::parse(units))
}

/// Where a day's outcome is kept.
fn file(repo: &Repo, day: &Day) -> PathBuf {
    repo.root.join(format!(".candecode/results/{}.jsonl", day.name))
}

/// Adds a file, or all files of a directory in the order of their names.
fn add(path: &Path, hasher: &mut DefaultHasher) {
    path.file_name().hash(hasher);
    if let Ok(entries) = std::fs::read_dir(path) {
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths.retain(|path| !is_day_of_src(path));
        paths.iter().for_each(|path| add(path, hasher));
    } else {
        // a pipe would be waited for
        path.is_file().then(|| std::fs::read(path).ok()).hash(hasher);
    }
}

/// Whether a file is a day of the reader's.
fn is_day_of_src(path: &Path) -> bool {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    path.parent().is_some_and(|dir| dir.ends_with("src")) && Day::from_name(&name).is_some()
}
