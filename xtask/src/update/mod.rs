//! How an update of the course brings the reader's days along.
//!
//! Git never merges `src/dayNN_*.rs`: their new texts are made first, beside the tree. Then all other files move, by a
//! commit in which the days are as they were; then each day is replaced as a whole; then git learns what the days are
//! now. Whatever fails, the days are the old ones or the new ones, and a copy of the old ones is kept.

pub mod commits;
pub mod journal;
pub mod plan;
pub mod tell;

use crate::backup::{self, Backup};
use crate::git::Git;
use crate::repo::{Day, Repo};
use anyhow::{anyhow, Context, Result};
use journal::Journal;
use plan::Plan;
use std::process::ExitCode;

/// What is on the way, and goes once the update is whole: relative to the root.
const DIR: &str = ".candecode/update";

/// One update: from which commits to which.
pub struct Step<'a> {
    /// The course.
    pub repo: &'a Repo,
    /// Git in it.
    pub git: &'a Git,
    /// The last commit of the course that this clone has seen.
    pub base: String,
    /// HEAD.
    pub head: String,
    /// What was fetched.
    pub theirs: String,
}

impl Step<'_> {
    /// Does it, and says what became of each day.
    ///
    /// # Errors
    /// If a step cannot be done; the text says what is as it was.
    pub fn run(&self, from: &str) -> Result<ExitCode> {
        let plans = self.plans()?;
        let mut copies = Backup::new(self.repo);
        let mut kept = None;
        for plan in plans.iter().filter(|plan| plan.yours) {
            kept = Some(copies.keep_file(&plan.path)?);
        }
        let files = self.files()?;
        let still = self.commit(&files, &plans, false)?;
        let last = self.commit(&files, &plans, true)?;
        let journal = Journal {
            base: self.base.clone(),
            head: self.head.clone(),
            target: still.clone(),
            last: last.clone(),
        };
        journal.write(self.repo)?;
        self.git.say(&["merge", "--ff-only", "--quiet", &still]).map_err(|e| {
            let undone = journal.put_back(self.repo, self.git);
            if undone.is_ok() {
                let _ = std::fs::remove_dir_all(self.repo.root.join(DIR));
            }
            anyhow!("{e:#}\nyour days are as they were")
        })?;
        self.finish(&plans, &last).context(
            "the update is not whole: each of your days is as it was, or as it shall be; `cargo xtask update` goes on with it",
        )?;
        self.tell(from, &plans, kept)
    }

    /// Replaces the days, each as a whole, and tells git.
    fn finish(&self, plans: &[Plan], last: &str) -> Result<()> {
        for plan in plans {
            if let Some(text) = &plan.tree {
                backup::write(&self.repo.root.join(&plan.path), text.as_bytes())?;
            }
        }
        self.git.say(&["reset", "--quiet", last])?;
        std::fs::remove_dir_all(self.repo.root.join(DIR)).context(DIR)
    }
}

/// The id of a file in a commit.
fn blob(git: &Git, commit: &str, path: &str) -> Option<String> {
    git.say(&["rev-parse", "--verify", "--quiet", &format!("{commit}:{path}")]).ok()
}

/// Whether a path is a day's file in `src/`.
pub fn is_day(path: &str) -> bool {
    let name = path.strip_prefix("src/").and_then(|name| name.strip_suffix(".rs"));
    name.is_some_and(|name| Day::from_name(name).is_some())
}
