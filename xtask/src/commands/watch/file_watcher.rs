//! Detects saved files by polling several times a second.
//!
//! Reading a few dozen timestamps costs next to nothing, and polling works where the system's own
//! events don't: on network drives, in containers, and between Windows and WSL. A change is
//! reported only once it settles, because some editors save in several steps.

use crate::checking::saved::is_editors_file;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// The watched paths, their last known state, and a change that hasn't settled yet.
pub struct FileWatcher {
    paths: Vec<PathBuf>,
    known: u64,
    pending: Option<u64>,
}

impl FileWatcher {
    /// Starts watching from the current state.
    pub fn new(paths: Vec<PathBuf>) -> FileWatcher {
        let known = fingerprint(&paths);
        FileWatcher { paths, known, pending: None }
    }

    /// Accepts the current state as the known one.
    pub fn reset(&mut self) {
        self.known = fingerprint(&self.paths);
        self.pending = None;
    }

    /// Returns whether something has changed since the last report and has held still since the
    /// previous poll.
    pub fn poll(&mut self) -> bool {
        let now = fingerprint(&self.paths);
        let settled = now != self.known && self.pending == Some(now);
        self.pending = (now != self.known).then_some(now);
        if settled {
            self.known = now;
            self.pending = None;
        }
        settled
    }
}

/// Hashes the paths, lengths and modification times of all files.
fn fingerprint(paths: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    paths.iter().for_each(|path| add(path, &mut hasher));
    hasher.finish()
}

/// Hashes a file, or the contents of a directory except editors' own files. A file in the middle
/// of being replaced counts as absent.
fn add(path: &Path, hasher: &mut DefaultHasher) {
    path.hash(hasher);
    let Ok(meta) = fs::metadata(path) else { return };
    if meta.is_dir() {
        let mut inside: Vec<PathBuf> =
            fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        inside.retain(|path| !is_editors_file(path));
        inside.sort();
        inside.iter().for_each(|path| add(path, hasher));
    } else {
        (meta.len(), meta.modified().ok()).hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_reported_once_after_it_settles() {
        let dir = std::env::temp_dir().join(format!("candecode-watcher-{}", std::process::id()));
        fs::create_dir_all(dir.join("below")).unwrap();
        let file = dir.join("below/a.rs");
        fs::write(&file, "1").unwrap();
        let mut watcher = FileWatcher::new(vec![dir.clone(), dir.join("absent")]);
        assert!(!watcher.poll());
        fs::write(&file, "12").unwrap();
        assert!(!watcher.poll(), "it may not be complete yet");
        fs::write(&file, "123").unwrap();
        assert!(!watcher.poll());
        assert!(watcher.poll());
        assert!(!watcher.poll());
        fs::write(dir.join("below/.a.rs.swp"), "1").unwrap();
        assert!(!watcher.poll() && !watcher.poll());
        fs::remove_file(&file).unwrap();
        watcher.reset();
        assert!(!watcher.poll() && !watcher.poll());
        fs::remove_dir_all(dir).unwrap();
    }
}
