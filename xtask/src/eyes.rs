//! Whether a file was saved: looked at several times a second.
//!
//! A few dozen file times cost nothing, and looking works where the system's own events do not: on network drives, in
//! containers, across the border between Windows and Linux. An editor that saves in several steps is waited for.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// Files and directories under watch.
pub struct Eyes {
    paths: Vec<PathBuf>,
    known: u64,
    pending: Option<u64>,
}

impl Eyes {
    /// Takes what is there now as known.
    pub fn open(paths: Vec<PathBuf>) -> Eyes {
        let known = look(&paths);
        Eyes { paths, known, pending: None }
    }

    /// Takes what is there now as known, in place of what was.
    pub fn blink(&mut self) {
        self.known = look(&self.paths);
        self.pending = None;
    }

    /// Whether something changed since, and has been the same for two looks.
    pub fn saw_change(&mut self) -> bool {
        let now = look(&self.paths);
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
fn look(paths: &[PathBuf]) -> u64 {
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
        let dir = std::env::temp_dir().join(format!("candecode-eyes-{}", std::process::id()));
        fs::create_dir_all(dir.join("below")).unwrap();
        let file = dir.join("below/a.rs");
        fs::write(&file, "1").unwrap();
        let mut eyes = Eyes::open(vec![dir.clone(), dir.join("absent")]);
        assert!(!eyes.saw_change());
        fs::write(&file, "12").unwrap();
        assert!(!eyes.saw_change(), "it may still be written");
        fs::write(&file, "123").unwrap();
        assert!(!eyes.saw_change());
        assert!(eyes.saw_change());
        assert!(!eyes.saw_change());
        fs::remove_file(&file).unwrap();
        eyes.blink();
        assert!(!eyes.saw_change() && !eyes.saw_change());
        fs::remove_dir_all(dir).unwrap();
    }
}
