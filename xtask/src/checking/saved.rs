//! The results of a day's last checks, kept until anything they depend on changes.

use crate::backup;
use crate::checking::outcome::{self, Unit};
use crate::checking::runner::DayRun;
use anyhow::Result;
use candecode_course::{Day, Repo};
use serde_json::json;
use siphasher::sip::SipHasher13;
use std::collections::BTreeMap;
use std::hash::Hasher;
use std::path::{Path, PathBuf};

/// The inputs that all days' checks share: checkers, goldens, known mistakes, the reference, the
/// crates, and everything in `src/` except the days. (The runner is included because it generates
/// the code of the known mistakes.)
const COMMON: [&str; 7] =
    ["tests", "solutions", "src", "crates", "xtask/src", "Cargo.toml", "Cargo.lock"];

/// The models that checks use: `EMBEDDED_MODELS` of the formats crate, which a test compares.
/// Readers may keep large files next to them.
pub const MODELS: [&str; 4] = ["story-3m", "story-230k", "story-gpt2-1m", "paper"];

/// A fingerprint of the shared inputs.
pub struct Inputs(u64);

impl Inputs {
    /// Reads and hashes the inputs.
    pub fn read(repo: &Repo) -> Inputs {
        let mut hasher = SipHasher13::new();
        COMMON.iter().for_each(|path| add_path(&repo.root.join(path), &mut hasher));
        let models = std::env::var_os("CANDECODE_MODELS");
        let models = models.map_or_else(|| repo.root.join("models"), PathBuf::from);
        MODELS.iter().for_each(|name| add_path(&models.join(name), &mut hasher));
        Inputs(hasher.finish())
    }

    /// Returns the fingerprint of a day's current state: the shared inputs and its own file.
    pub fn key(&self, repo: &Repo, day: &Day) -> String {
        let mut hasher = self.hasher();
        add_path(&repo.root.join(day.src()), &mut hasher);
        format!("{:016x}", hasher.finish())
    }

    /// Returns the fingerprint of all days' current state.
    pub fn state(&self, repo: &Repo) -> String {
        let mut hasher = SipHasher13::new();
        repo.days.iter().for_each(|day| add(self.key(repo, day).as_bytes(), &mut hasher));
        format!("{:016x}", hasher.finish())
    }

    /// The fingerprints are stored, so they must not depend on the version of Rust, as those of the
    /// standard library's hasher and `Hash` do.
    fn hasher(&self) -> SipHasher13 {
        let mut hasher = SipHasher13::new();
        add(&self.0.to_le_bytes(), &mut hasher);
        hasher
    }
}

/// Saves the outcome of a day's checks. If only some tasks were checked, what is known of the
/// others stays. Compute the key before the build, so that a file that changes in the meantime
/// makes the outcome stale, never wrong.
///
/// # Errors
/// If the disk is full or permission is denied.
pub fn save(repo: &Repo, key: &str, run: &DayRun) -> Result<()> {
    let mut units = known(repo, key, &run.day).unwrap_or_default();
    units.extend(run.units.iter().map(|unit| (unit.test.clone(), unit.clone())));
    let mut text = format!("{key}\n");
    for unit in units.values() {
        text += &format!("{}\n", json!({"test": unit.test, "status": unit.status.name()}));
    }
    backup::write(&file(repo, &run.day), text.as_bytes())
}

/// Returns the outcome of a day's last checks, by test, or `None` if something has changed since.
pub fn load(repo: &Repo, inputs: &Inputs, day: &Day) -> Option<BTreeMap<String, Unit>> {
    known(repo, &inputs.key(repo, day), day)
}

/// Returns what was saved with this key.
fn known(repo: &Repo, key: &str, day: &Day) -> Option<BTreeMap<String, Unit>> {
    let text = String::from_utf8(backup::read(&file(repo, day))?).ok()?;
    let (saved, units) = text.split_once('\n')?;
    (saved == key).then(|| outcome::parse(units))
}

/// Returns the path of a day's saved outcome.
fn file(repo: &Repo, day: &Day) -> PathBuf {
    repo.root.join(format!(".candecode/results/{}.jsonl", day.name))
}

/// Hashes a file, or all files of a directory in order of their names, except the reader's days and
/// the files that editors keep next to them.
fn add_path(path: &Path, hasher: &mut SipHasher13) {
    add(path.file_name().unwrap_or_default().as_encoded_bytes(), hasher);
    if let Ok(entries) = std::fs::read_dir(path) {
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths.retain(|path| !is_day_of_src(path) && !is_editors_file(path));
        paths.iter().for_each(|path| add_path(path, hasher));
    } else {
        add(&backup::read(path).unwrap_or_default(), hasher);
    }
}

/// Hashes bytes and their number, so that "ab", "c" differs from "a", "bc".
fn add(bytes: &[u8], hasher: &mut SipHasher13) {
    hasher.write(&bytes.len().to_le_bytes());
    hasher.write(bytes);
}

/// Returns whether no build reads a file in the tree: a swap, lock, autosave or backup file of an
/// editor (`.a.rs.swp`, `.#a.rs`, `#a.rs#`, `a.rs~`), or another hidden file.
pub fn is_editors_file(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(['.', '#']) || name.ends_with('~')
}

/// Returns whether a file is one of the reader's days.
fn is_day_of_src(path: &Path) -> bool {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    path.parent().is_some_and(|dir| dir.ends_with("src")) && Day::from_name(&name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_models_used_by_checks_count_as_inputs() {
        let root = std::env::temp_dir().join(format!("candecode-inputs-{}", std::process::id()));
        let repo = Repo { root: root.clone(), days: vec![] };
        let key_with = |path: &str| {
            backup::write(&root.join(path), path.as_bytes()).unwrap();
            Inputs::read(&repo).0
        };
        let before = key_with("models/story-3m/model.safetensors");
        assert_eq!(key_with("models/mine.gguf"), before);
        assert_eq!(key_with("models/mine/model.safetensors"), before);
        assert_ne!(key_with("models/story-230k/config.json"), before);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn files_that_editors_keep_next_to_a_day_are_no_inputs() {
        let root = std::env::temp_dir().join(format!("candecode-editors-{}", std::process::id()));
        let repo = Repo { root: root.clone(), days: vec![] };
        let key_with = |path: &str| {
            backup::write(&root.join(path), path.as_bytes()).unwrap();
            Inputs::read(&repo).0
        };
        let before = key_with("src/lib.rs");
        for name in [".day06_generate.rs.swp", "#day06_generate.rs#", "day06_generate.rs~"] {
            assert_eq!(key_with(&format!("src/{name}")), before, "{name}");
        }
        assert_ne!(key_with("src/main.rs"), before);
        std::fs::remove_dir_all(root).unwrap();
    }
}
