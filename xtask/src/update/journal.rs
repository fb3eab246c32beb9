//! What is known of an update that did not end.

use super::{blob, is_day};
use crate::backup::{self, Backup};
use crate::git::Git;
use crate::repo::Repo;
use crate::say;
use anyhow::{bail, Context, Result};

/// Relative to the root.
const FILE: &str = ".candecode/update/journal";

/// An update that is on its way: the commits before it, and the one that it goes to.
pub struct Journal {
    /// The last commit of the course that the clone had seen.
    pub base: String,
    /// HEAD before it.
    pub head: String,
    /// The commit that the files other than the days move to.
    pub target: String,
    /// The commit that the days move to, after them.
    pub last: String,
}

impl Journal {
    pub fn read(repo: &Repo) -> Option<Journal> {
        let text = repo.read(FILE).ok()?;
        let mut lines = text.lines().map(str::to_string);
        let mut next = || lines.next();
        let (base, head, target) = (next()?, next()?, next()?);
        let last = next().unwrap_or_else(|| target.clone()); // an older runner wrote three
        Some(Journal { base, head, target, last })
    }

    pub fn write(&self, repo: &Repo) -> Result<()> {
        let text = format!("{}\n{}\n{}\n{}\n", self.base, self.head, self.target, self.last);
        backup::write(&repo.root.join(FILE), text.as_bytes())
    }

    /// If the files did not all move, moves them back: all but the days, none of which was touched yet.
    pub fn put_back(&self, repo: &Repo, git: &Git) -> Result<()> {
        let lock = git.say(&["rev-parse", "--git-path", "index.lock"])?;
        if repo.root.join(&lock).exists() {
            bail!(
                "{lock} is there: if no git is running (an editor's?), remove the file, then again"
            );
        }
        self.unstage(git)?;
        if git.say(&["rev-parse", "HEAD"])? != self.head {
            return Ok(());
        }
        let moved =
            git.names(&["diff", "--name-only", "-z", "--no-renames", &self.head, &self.target])?;
        let mut copies = Backup::new(repo);
        for path in moved.iter().filter(|path| !is_day(path)) {
            let there = git.say(&["hash-object", "--", path]).ok();
            let (old, new) = (blob(git, &self.head, path), blob(git, &self.target, path));
            if there == old {
                continue;
            }
            match old {
                Some(_) => {
                    if there.is_some() && there != new {
                        let copy = copies.keep_file(path)?; // half-written, or changed since
                        say!("{path} is as it was before the update; what was there is kept as {copy}");
                    }
                    git.say(&["checkout", "--quiet", &self.head, "--", path])?;
                }
                // a file of the reader's own that is in the way stays
                None if begins(git, &self.target, path, repo) => {
                    std::fs::remove_file(repo.root.join(path)).with_context(|| path.clone())?;
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Git writes its index before it moves HEAD: if it was stopped between the two, the index is taken back. What the
    /// reader staged stays staged.
    fn unstage(&self, git: &Git) -> Result<()> {
        let mut staged = git.names(&["diff", "--cached", "--name-only", "-z", "--no-renames"])?;
        staged.retain(|path| {
            let there = git.say(&["rev-parse", "--verify", "--quiet", &format!(":{path}")]).ok();
            [&self.target, &self.last].iter().any(|commit| blob(git, commit, path) == there)
        });
        if staged.is_empty() {
            return Ok(());
        }
        let mut args = vec!["reset", "--quiet", "--"];
        args.extend(staged.iter().map(String::as_str));
        git.say(&args).map(drop)
    }
}

/// Whether a file is what a commit has, or was on the way to it.
fn begins(git: &Git, commit: &str, path: &str, repo: &Repo) -> bool {
    let there = repo.read(path).map(|text| text.replace("\r\n", "\n"));
    let whole = git.file(commit, path);
    there.ok().zip(whole).is_some_and(|(there, whole)| whole.starts_with(&there))
}
