//! Whether a file was saved: looked at several times a second.
//!
//! A few dozen file times cost nothing, and looking works where the system's own events do not: on
//! network drives, in containers, across the border between Windows and Linux. An editor that saves
//! in several steps is waited for.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// Files and directories, what they were when last looked at, and a change yet to settle.
pub struct FileWatcher {
    paths: Vec<PathBuf>,
    known: u64,
    pending: Option<u64>,
}

impl FileWatcher {
    /// Takes what is there now as known.
    pub fn new(paths: Vec<PathBuf>) -> FileWatcher {
        let known = fingerprint(&paths);
        FileWatcher { paths, known, pending: None }
    }

    /// Takes what is there now as known, in place of what was.
    pub fn reset(&mut self) {
        self.known = fingerprint(&self.paths);
        self.pending = None;
    }

    /// Whether something changed since, and has been the same for two looks.
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

/// Names, lengths and times of all files.
fn fingerprint(paths: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    paths.iter().for_each(|path| add(path, &mut hasher));
    hasher.finish()
}

/// Adds a file, or what is in a directory. A file that is just being replaced counts as absent.
fn add(path: &Path, hasher: &mut DefaultHasher) {
    path.hash(hasher);
    let Ok(meta) = fs::metadata(path) else { return };
    if meta.is_dir() {
        let mut inside: Vec<PathBuf> =
            fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
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
    fn a_change_is_seen_once_and_only_when_it_has_settled() {
        let dir = std::env::temp_dir().join(format!("candecode-watcher-{}", std::process::id()));
        fs::create_dir_all(dir.join("below")).unwrap();
        let file = dir.join("below/a.rs");
        fs::write(&file, "1").unwrap();
        let mut watcher = FileWatcher::new(vec![dir.clone(), dir.join("absent")]);
        assert!(!watcher.poll());
        fs::write(&file, "12").unwrap();
        assert!(!watcher.poll(), "it may still be written");
        fs::write(&file, "123").unwrap();
        assert!(!watcher.poll());
        assert!(watcher.poll());
        assert!(!watcher.poll());
        fs::remove_file(&file).unwrap();
        watcher.reset();
        assert!(!watcher.poll() && !watcher.poll());
        fs::remove_dir_all(dir).unwrap();
    }
}
