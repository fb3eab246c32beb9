//! What long waits took the last time on this machine, so that the next one of their kind is
//! announced with that time, or without any. Kept in the target directory.

use super::target_dir;
use crate::backup;
use candecode_course::Repo;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A kind of wait.
#[derive(Clone, Copy, Debug)]
pub enum Wait {
    /// The build of the engine or the server with the reader's days.
    Engine,
}

/// The shortest wait to remember. A build that finds everything up to date says nothing about the
/// next one.
const SHORTEST: Duration = Duration::from_secs(2);

impl Wait {
    /// Returns a remark such as ` (the last such build took 23 s)`, empty if nothing is known.
    pub fn last(self, repo: &Repo) -> String {
        let said = backup::read(&self.file(repo)).and_then(|bytes| String::from_utf8(bytes).ok());
        let remark = |seconds| format!(" (the last such build took {})", words(seconds));
        said.and_then(|text| text.trim().parse().ok()).map_or(String::new(), remark)
    }

    /// Remembers a wait that began at `begun`.
    pub fn remember(self, repo: &Repo, begun: Instant) {
        let took = begun.elapsed();
        if took >= SHORTEST {
            let seconds = format!("{}\n", took.as_secs_f64().round());
            let _ = backup::write(&self.file(repo), seconds.as_bytes());
        }
    }

    fn file(self, repo: &Repo) -> PathBuf {
        let name = match self {
            Wait::Engine => "engine",
        };
        target_dir(repo).join("candecode/waits").join(name)
    }
}

/// Formats a number of seconds.
fn words(seconds: u64) -> String {
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, 0) => format!("{minutes} min"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_announced_with_the_time_of_the_last_one_or_none() {
        let root = std::env::temp_dir().join(format!("candecode-waits-{}", std::process::id()));
        let repo = Repo { root: root.clone(), days: vec![] };
        assert_eq!(Wait::Engine.last(&repo), "");
        backup::write(&Wait::Engine.file(&repo), b"83\n").unwrap();
        let known = " (the last such build took 1 min 23 s)";
        assert_eq!(Wait::Engine.last(&repo), known);
        Wait::Engine.remember(&repo, Instant::now());
        assert_eq!(Wait::Engine.last(&repo), known, "nothing to do");
        std::fs::remove_dir_all(root).unwrap();
    }
}
