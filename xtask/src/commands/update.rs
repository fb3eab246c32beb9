//! `cargo xtask update`: merges the latest version of the course without touching the reader's
//! days.
//!
//! `.gitattributes` assigns the merge driver `ours` to `src/day*.rs`. If both the reader and the
//! course changed a day, the reader's file wins. A day that the reader hasn't started becomes the
//! new stub. [`git`] defines the driver. Without it, or with `git pull --rebase` or `--autostash`,
//! git would drop the reader's changes.

use crate::backup::{self, is_day};
use crate::commands::diff::changed_lines;
use crate::commands::migrate;
use crate::git::{git, paths};
use crate::say;
use crate::term::{paint, Color};
use anyhow::{anyhow, bail, ensure, Context, Result};
use candecode_course::{stubs, Day, Progress, Repo};
use clap::Args;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// The ref for the fetched course. `FETCH_HEAD` isn't safe, because any other fetch overwrites it,
/// such as one that an editor runs in the background.
const COURSE: &str = "refs/candecode/course";

/// The flags of `update`.
#[derive(Args)]
pub struct Update {
    /// The remote to fetch the course from [default: `upstream` if it exists, else `origin`]
    #[arg(long, value_name = "NAME")]
    remote: Option<String>,
    /// The remote's branch [default: its main one]
    #[arg(long, default_value = "HEAD", hide_default_value = true)]
    branch: String,
}

/// Copies and commits the reader's days, merges the course, and restores any day the merge changed.
///
/// # Errors
/// If files of the course have local changes, or git can't fetch or merge. The message has the
/// details.
pub fn run(repo: &Repo, args: &Update) -> Result<ExitCode> {
    ensure_ready(repo)?;
    let begun = begun(repo)?;
    let upstream = git(repo, &["remote", "get-url", "upstream"]).is_ok();
    let usual = if upstream { "upstream" } else { "origin" };
    let remote = args.remote.as_deref().unwrap_or(usual);
    say!("Fetching the course from {remote} …");
    let refspec = format!("+{}:{COURSE}", args.branch);
    git(repo, &["fetch", "--quiet", "--no-tags", remote, &refspec]).context(
        "nothing was changed; are you online, and does `git remote -v` list the course?",
    )?;
    if git(repo, &["merge-base", "--is-ancestor", COURSE, "HEAD"]).is_ok() {
        say!("Already up to date with {remote}.");
        return Ok(ExitCode::SUCCESS);
    }
    let base = git(repo, &["merge-base", "HEAD", COURSE]).map_err(|_| {
        anyhow!(
            "this clone and {remote} have no commit in common: if it is a shallow clone, run `git \
             fetch --unshallow {remote}`, then try again"
        )
    })?;
    ensure_nothing_in_the_way(repo, &base)?;
    let files: Vec<String> = begun.iter().map(|(day, _)| day.src()).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let copies = if files.is_empty() { None } else { Some(backup::keep(repo, &files)?) };
    commit_days(repo, "My days, before an update")
        .context("nothing was changed; `git status` shows what git hasn't finished")?;
    merge(repo, &begun)?;

    say!("{}", paint(Color::Bold, &format!("Updated the course from {remote}. What's new:")));
    let range = format!("{base}..{COURSE}");
    say!("{}", git(repo, &["log", "--no-merges", "--format=  %s", "--max-count=10", &range])?);
    if let Some(date) = copies {
        say!("Your days are unchanged; restore copies with `cargo xtask reset --undo {date}`.");
    }
    tell_changes(repo, &begun, &base)?;
    migrate::note_old_days(&Repo::open(&repo.root)?);
    say!("See where you are: cargo xtask list");
    Ok(ExitCode::SUCCESS)
}

/// Returns an error if this isn't a clone, git is in the middle of an operation, or files of the
/// course have local changes.
fn ensure_ready(repo: &Repo) -> Result<()> {
    ensure!(
        git(repo, &["rev-parse", "--show-prefix"]).is_ok_and(|prefix| prefix.is_empty()),
        "{} isn't a clone (a downloaded archive?), or `git` isn't on PATH: clone the course with \
         git, and copy your src/ into the clone",
        repo.root.display()
    );
    ensure!(
        git(repo, &["symbolic-ref", "--quiet", "HEAD"]).is_ok(),
        "no branch is checked out, as in the middle of a rebase (see `git status`): finish it, or \
         `git switch` to your branch, then try again; nothing was changed"
    );
    let mut changed = changed_files(repo)?;
    changed.retain(|path| !is_day(path));
    ensure!(
        changed.is_empty(),
        "files of the course have local changes: {}\n`git commit` or `git stash` them, or undo the \
         changes with `git checkout HEAD -- FILE`, then try again; nothing was changed",
        changed.join(", ")
    );
    Ok(())
}

/// Returns an error if the course adds a file where the reader has an untracked one. If git ignores
/// the reader's file, a merge would overwrite it.
fn ensure_nothing_in_the_way(repo: &Repo, base: &str) -> Result<()> {
    let new = ["diff", "--name-only", "--no-renames", "--diff-filter=A", "-z", base, COURSE];
    for path in paths(repo, &new)? {
        let blocks = |place: &&Path| {
            let there = fs::symlink_metadata(repo.root.join(place));
            there.is_ok_and(|meta| *place == Path::new(&path) || !meta.is_dir())
        };
        let Some(place) = Path::new(&path).ancestors().find(blocks) else { continue };
        let place = place.display().to_string();
        ensure!(
            git(repo, &["ls-files", "--error-unmatch", "--", &place]).is_ok(),
            "{place} is in the way: the course now has a file {path}. Move yours elsewhere, then \
             try again; nothing was changed"
        );
    }
    Ok(())
}

/// Returns all days the reader has started, with their contents.
fn begun(repo: &Repo) -> Result<Vec<(Day, Vec<u8>)>> {
    let mut begun = Vec::new();
    for day in &repo.days {
        match repo.progress(day)? {
            Progress::Missing => bail!(
                "{} is missing: restore the stub with `cargo xtask reset day{}`, then try again; \
                 nothing was changed",
                day.src(),
                day.number
            ),
            Progress::Stub => {}
            Progress::Begun(_) => begun.push((day.clone(), repo.read_bytes(&day.src())?)),
        }
    }
    Ok(begun)
}

/// Returns the tracked files that differ from HEAD, staged or not.
fn changed_files(repo: &Repo) -> Result<Vec<String>> {
    paths(repo, &["diff", "--name-only", "--no-renames", "-z", "HEAD"])
}

/// Commits the days that differ from HEAD.
fn commit_days(repo: &Repo, message: &str) -> Result<()> {
    let mut changed = changed_files(repo)?;
    changed.retain(|path| is_day(path));
    if changed.is_empty() {
        return Ok(());
    }
    let mut commit = vec!["commit", "--quiet", "--no-verify", "-m", message, "--"];
    commit.extend(changed.iter().map(String::as_str));
    git(repo, &commit).map(drop)
}

/// Merges the course. If only days conflict, for example after a rename, the reader's versions win.
fn merge(repo: &Repo, begun: &[(Day, Vec<u8>)]) -> Result<()> {
    let flags = ["--quiet", "--no-edit", "--no-verify", "--ff", "--commit", "--no-squash"];
    let merged = git(repo, &[&["merge"], &flags[..], &["--strategy=recursive", COURSE]].concat());
    let conflicts = paths(repo, &["diff", "--name-only", "--diff-filter=U", "-z"])?;
    if let Err(problem) = merged {
        let others: Vec<_> = conflicts.iter().filter(|path| !is_day(path)).cloned().collect();
        if conflicts.is_empty() || !others.is_empty() {
            let _ = git(repo, &["merge", "--abort"]);
            put_back(repo, begun)?;
            ensure!(!others.is_empty(), "{problem:#}\nThe course and your days are unchanged.");
            bail!(
                "you and the course changed the same files: {}\nThe course and your days are \
                 unchanged. Undo your commits to these files, then try again",
                others.join(", ")
            );
        }
    }
    put_back(repo, begun)?;
    if !conflicts.is_empty() {
        let conflicts: Vec<&str> = conflicts.iter().map(String::as_str).collect();
        git(repo, &[&["add", "--all", "--"], &conflicts[..]].concat())?;
        git(repo, &["commit", "--quiet", "--no-verify", "--no-edit"])?;
    }
    commit_days(repo, "My days, after an update")?;
    let there = git(repo, &["merge-base", "--is-ancestor", COURSE, "HEAD"]);
    there.map(drop).context("git merged nothing; your days are unchanged")
}

/// Restores each of the reader's days that the merge changed, which shouldn't happen with the
/// driver `ours`. Moves a day that the course has renamed to its new name.
fn put_back(repo: &Repo, begun: &[(Day, Vec<u8>)]) -> Result<()> {
    let course = Repo::open(&repo.root)?;
    for (day, bytes) in begun {
        let renamed = course.days.iter().find(|new| new.number == day.number);
        let path = renamed.unwrap_or(day).src();
        if fs::read(repo.root.join(&path)).ok().as_ref() != Some(bytes) {
            backup::write(&repo.root.join(&path), bytes)?;
        }
        if path != day.src() {
            say!("The course renamed day {}'s file to {path}, so yours moved there.", day.number);
            let _ = fs::remove_file(repo.root.join(day.src()));
        }
    }
    Ok(())
}

/// Lists the lines that changed in the stubs of days the reader has started. The reader's files
/// still have the old lines.
fn tell_changes(repo: &Repo, begun: &[(Day, Vec<u8>)], base: &str) -> Result<()> {
    let course = Repo::open(&repo.root)?;
    for (day, _) in begun {
        let Some(new) = course.days.iter().find(|new| new.number == day.number) else {
            say!("The course no longer has a day {}; yours stays in {}.", day.number, day.src());
            continue;
        };
        let old = git(repo, &["show", &format!("{base}:{}", day.solution())]).ok();
        let Some(old) = old.and_then(|source| stubs::stub(&source).ok()) else { continue };
        let code = |line: &str| !line.trim().is_empty() && !line.trim().starts_with("//");
        let moved = changed_lines(&old, &course.stub(new)?, code);
        if !moved.is_empty() {
            say!("The course changed; make these changes in {} (- remove, + add):", new.src());
            moved.iter().for_each(|line| say!("  {line}"));
        }
    }
    Ok(())
}
