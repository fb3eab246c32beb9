//! `cargo xtask update`: merges the latest version of the course without touching the reader's
//! days.
//!
//! `.gitattributes` assigns the merge driver `ours` to `src/day*.rs`. If both the reader and the
//! course changed a day, the reader's file wins. A day that the reader hasn't started becomes the
//! new stub. [`git`] defines the driver. Without it, or with `git pull --rebase` or `--autostash`,
//! git would drop the reader's changes.
//!
//! The reader may save at any moment, so git never writes a day here: it merges in a folder of its
//! own and then brings all other files up to date. Days are replaced one by one, each only if it is
//! still what the reader had not begun.

use crate::backup::{self, is_day};
use crate::commands::diff::changed_lines;
use crate::commands::migrate;
use crate::git::{self, git, git_in, paths};
use crate::term::{paint, Color};
use crate::{note, say};
use anyhow::{anyhow, bail, ensure, Context, Result};
use candecode_course::{stubs, Day, Progress, Repo};
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
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
}

/// Copies and commits the reader's days, and merges the course.
///
/// # Errors
/// If files of the course have local changes, or git can't fetch or merge. The message has the
/// details.
pub fn run(repo: &Repo, args: &Update) -> Result<ExitCode> {
    ensure_ready(repo)?;
    let upstream = git(repo, &["remote", "get-url", "upstream"]).is_ok();
    let usual = if upstream { "upstream" } else { "origin" };
    let remote = args.remote.as_deref().unwrap_or(usual);
    say!("Fetching the course from {remote} …");
    let refspec = format!("+HEAD:{COURSE}");
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
    let begun = begun(repo)?;
    let files: Vec<String> = begun.iter().map(Day::src).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let copies = if files.is_empty() { None } else { Some(backup::keep(repo, &files)?) };
    commit_days(repo, "My days, before an update")
        .context("nothing was changed; `git status` shows what git hasn't finished")?;
    let head = git(repo, &["rev-parse", "HEAD"])?;
    let merged = merge(repo, &head)
        .map_err(|e| anyhow!("{e:#}\nThe course and your days are unchanged."))?;
    let is_whole = go_to(repo, &head, &merged)?;
    if is_whole {
        commit_days(repo, "My days, after an update")?;
    }

    say!("{}", paint(Color::Bold, &format!("Updated the course from {remote}. What's new:")));
    let range = format!("{base}..{COURSE}");
    say!("{}", git(repo, &["log", "--no-merges", "--format=  %s", "--max-count=10", &range])?);
    if let Some(date) = copies {
        say!("Your days are unchanged; restore copies with `cargo xtask reset --undo {date}`.");
    }
    tell_changes(repo, &begun, &base)?;
    migrate::note_old_days(&Repo::open(&repo.root)?);
    say!("See where you are: cargo xtask list");
    Ok(ExitCode::from(u8::from(!is_whole)))
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
    for path in paths(&repo.root, &new)? {
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

/// Returns all days the reader has started.
fn begun(repo: &Repo) -> Result<Vec<Day>> {
    let mut begun = Vec::new();
    for day in &repo.days {
        match repo.progress(day)? {
            Progress::Missing => bail!("{}; nothing was changed", repo.missing(day)),
            Progress::Stub => {}
            Progress::Begun(_) => begun.push(day.clone()),
        }
    }
    Ok(begun)
}

/// Returns the tracked files that differ from HEAD, staged or not.
fn changed_files(repo: &Repo) -> Result<Vec<String>> {
    paths(&repo.root, &["diff", "--name-only", "--no-renames", "-z", "HEAD"])
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

/// A folder in which git works without the reader's files. Removed on drop.
struct MergeDir<'a> {
    repo: &'a Repo,
    path: PathBuf,
}

impl MergeDir<'_> {
    fn new<'a>(repo: &'a Repo, head: &str) -> Result<MergeDir<'a>> {
        let dir = MergeDir { repo, path: repo.root.join(".candecode/merge") };
        dir.remove(); // an interrupted update may have left it
        let path = dir.path.display().to_string();
        // Git writes only the files that the merge changes.
        git(repo, &["worktree", "add", "--quiet", "--no-checkout", "--detach", &path, head])?;
        git_in(&dir.path, &["read-tree", head])?;
        Ok(dir)
    }

    fn remove(&self) {
        let _ = fs::remove_dir_all(&self.path);
        let path = self.path.display().to_string();
        // Twice, because an interrupted one may be locked.
        let _ = git(self.repo, &["worktree", "remove", "--force", "--force", &path]);
    }
}

impl Drop for MergeDir<'_> {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Merges the course with the reader's commits, and returns the commit. If only days conflict, for
/// example after a rename, the reader's versions win.
fn merge(repo: &Repo, head: &str) -> Result<String> {
    if git(repo, &["merge-base", "--is-ancestor", head, COURSE]).is_ok() {
        return git(repo, &["rev-parse", COURSE]);
    }
    let dir = MergeDir::new(repo, head)?;
    let flags = ["--no-ff", "--no-commit", "--no-squash", "--no-verify-signatures"];
    let merged = [&["merge", "--quiet", "--strategy=recursive"], &flags[..], &[COURSE]].concat();
    let merged = git_in(&dir.path, &merged);
    let conflicts = paths(&dir.path, &["diff", "--name-only", "--diff-filter=U", "-z"])?;
    let others: Vec<_> = conflicts.iter().filter(|path| !is_day(path)).cloned().collect();
    ensure!(
        others.is_empty(),
        "you and the course changed the same files: {}\nUndo your commits to these files, then try \
         again",
        others.join(", ")
    );
    if conflicts.is_empty() {
        merged?;
    }
    let (mine, theirs) = (days_of(repo, head)?, days_of(repo, COURSE)?);
    for path in &conflicts {
        let number = |path: &String| Day::from_src(path).map(|day| day.number);
        let renamed = theirs.keys().find(|new| number(new) == number(path));
        set_index(&dir.path, path, None)?;
        match mine.get(path) {
            Some(entry) => set_index(&dir.path, renamed.unwrap_or(path), Some(entry))?,
            None => set_index(&dir.path, path, theirs.get(path))?,
        }
    }
    git_in(&dir.path, &["commit", "--quiet", "--no-verify", "--no-edit"])?;
    git_in(&dir.path, &["rev-parse", "HEAD"])
}

/// Returns the days of a commit: their paths, with git's mode and hash of their content.
fn days_of(repo: &Repo, commit: &str) -> Result<BTreeMap<String, String>> {
    let entry = |line: &String| {
        let (about, path) = line.split_once('\t')?;
        let mut about = about.split(' ');
        let (mode, hash) = (about.next()?, about.nth(1)?);
        is_day(path).then(|| (path.to_string(), format!("{mode},{hash}")))
    };
    let lines = paths(&repo.root, &["ls-tree", "-z", commit, "src/"])?;
    Ok(lines.iter().filter_map(entry).collect())
}

/// Sets what git's index holds for a path, without touching the file.
fn set_index(dir: &Path, path: &str, entry: Option<&String>) -> Result<()> {
    let arguments = match entry {
        Some(entry) => ["--add", "--cacheinfo", &format!("{entry},{path}")].map(String::from),
        None => ["--force-remove", "--", path].map(String::from),
    };
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    git_in(dir, &[&["update-index"], &arguments[..]].concat()).map(drop)
}

/// Moves the reader's branch and files from one commit to the next. Once the branch has moved, a
/// day that can't be brought up to date is reported, and the others follow. Returns whether all
/// did.
fn go_to(repo: &Repo, head: &str, next: &str) -> Result<bool> {
    let (old, new) = (days_of(repo, head)?, days_of(repo, next)?);
    let differs = |path: &&String| old.get(*path) != new.get(*path);
    let changed: BTreeSet<&String> = old.keys().chain(new.keys()).filter(differs).collect();

    // Everything but the days, which git leaves as they are.
    let dir = MergeDir::new(repo, next)?;
    for path in &changed {
        set_index(&dir.path, path, old.get(*path))?;
    }
    let others = git_in(&dir.path, &["write-tree"])?;
    let _ = git(repo, &["update-index", "-q", "--refresh"]);
    git(repo, &["read-tree", "-m", "-u", head, &others])
        .context("the course and your days are unchanged")?;
    git(repo, &["update-ref", "-m", "cargo xtask update", "HEAD", next, head])
        .inspect_err(|_| drop(git(repo, &["read-tree", "-m", "-u", &others, head])))
        .context("the course and your days are unchanged")?;
    let mut is_whole = true;
    for path in &changed {
        if let Err(e) = set_index(&repo.root, path, new.get(*path)) {
            note!("error: {path}: {e:#}; `git reset` brings git's index up to date");
            is_whole = false;
        }
    }

    let is_new = |path: &&String| !old.contains_key(*path);
    let gone = old.iter().filter(|(path, _)| !new.contains_key(*path));
    let moved: BTreeMap<&String, &String> = gone
        .filter_map(|(path, entry)| {
            Some((path, new.keys().filter(is_new).find(|to| new[*to] == *entry)?))
        })
        .collect();
    let content = |commit: &str, path: &str| {
        git::bytes(&repo.root, &["cat-file", "--filters", &format!("{commit}:{path}")])
    };
    let move_on = |path: &String| -> Result<()> {
        if let Some(to) = moved.get(path) {
            fs::rename(repo.root.join(path), repo.root.join(to))
                .with_context(|| format!("the course renamed it to {to}, but it can't be moved"))?;
            say!("The course renamed {path} to {to}, so yours moved there.");
            return Ok(());
        }
        if moved.values().any(|to| *to == path) {
            return Ok(());
        }
        let before = old.get(path).map(|_| content(head, path)).transpose()?;
        let is_done = match (&before, new.get(path)) {
            (Some(before), None) => backup::remove_if(repo, path, before)?,
            _ => backup::replace_if(repo, path, before.as_deref(), &content(next, path)?)?,
        };
        if !is_done {
            say!("You saved {path} during the update, so it stays as it is.");
        }
        Ok(())
    };
    for path in changed {
        let Err(problem) = move_on(path) else { continue };
        let day = Day::from_src(path).filter(|_| new.contains_key(path));
        let what_to_do = day.map_or(String::new(), |day| {
            format!("; `cargo xtask reset day{}` writes the new stub", day.number)
        });
        note!("error: {path}: {problem:#}{what_to_do}");
        is_whole = false;
    }
    Ok(is_whole)
}

/// Lists the lines that changed in the stubs of days the reader has started. The reader's files
/// still have the old lines.
fn tell_changes(repo: &Repo, begun: &[Day], base: &str) -> Result<()> {
    let course = Repo::open(&repo.root)?;
    for day in begun {
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
