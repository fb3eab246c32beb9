//! `cargo xtask update`: merges the newest course, and leaves the reader's days alone.
//!
//! `.gitattributes` gives `src/day*.rs` the merge driver `ours`: where the reader and the course
//! both changed a day, the reader's file stays, and a day that the reader has not begun becomes the
//! new stub. The driver is defined by the command line of this one merge. Without it, or with `git
//! pull --rebase` or `--autostash`, git drops the reader's day.

use crate::backup::{self, Backup};
use crate::commands::diff::changed_lines;
use crate::git::{git, git_with, paths};
use crate::progress::{self, Progress};
use crate::repo::{Day, Repo};
use crate::term::{paint, Colour};
use crate::{note, say, stubs, usage};
use anyhow::{anyhow, bail, ensure, Context, Result};
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// Where the fetched course is kept: not `FETCH_HEAD`, which any other fetch replaces, an editor's in
/// the background for one.
const COURSE: &str = "refs/candecode/course";

/// The flags of `update`.
#[derive(Args)]
pub struct Update {
    /// Where the course comes from; without it `upstream` if there is such a remote, else `origin`
    #[arg(long, value_name = "NAME")]
    remote: Option<String>,
    /// Which branch of it; without it, its main one
    #[arg(long)]
    branch: Option<String>,
}

/// Copies every day, commits the reader's, merges, and puts back any day that changed.
///
/// # Errors
/// If files of the course are changed, or git cannot fetch or merge; the text says more.
pub fn run(repo: &Repo, args: &Update) -> Result<ExitCode> {
    ensure_clone(repo)?;
    let _lock = backup::lock(repo)?;
    ensure_nothing_unfinished(repo)?;
    let (remote, branch) = source(repo, args)?;
    say!("Fetching {branch} from {remote} …");
    let refspec = format!("+{branch}:{COURSE}");
    let fetch = ["fetch", "--quiet", "--no-tags", "--no-recurse-submodules", &remote, &refspec];
    git(repo, &fetch).context("nothing was changed; is the network there?")?;
    let theirs = git(repo, &["rev-parse", "--verify", &format!("{COURSE}^{{commit}}")])?;
    if contains(repo, &theirs) {
        say!("Nothing is new: this is what {remote} has.");
        return Ok(ExitCode::SUCCESS);
    }
    let base = git(repo, &["merge-base", "HEAD", &theirs]).map_err(|_| {
        anyhow!(
            "this clone and {remote} have no commit in common: if it is a shallow clone, `git \
                 fetch --unshallow {remote}`, then again"
        )
    })?;
    let unfinished = Unfinished::find(repo, &base, &theirs)?;
    let mut backup = Backup::new(repo);
    for day in days_there(repo)? {
        backup.keep_file(&day)?;
    }
    unfinished.undo(repo)?;
    let repo = &Repo::open(&repo.root)?; // which days there are may have been half the new course's
    let begun = begun(repo)?;
    commit_days(repo, "My days, before an update")?;
    let before = git(repo, &["rev-parse", "HEAD"])?;
    if let Err(problem) = merge(repo, &theirs, &begun) {
        let conflicts: BTreeSet<String> =
            conflicts(repo)?.into_keys().filter(|path| !is_day(day_of(path))).collect();
        let _ = git(repo, &["merge", "--abort"]);
        put_back(repo, &mut backup, &begun)?;
        if conflicts.is_empty() {
            return Err(problem.context("the course is as it was, and so are your days"));
        }
        bail!(
            "you and the course changed the same files: {}\nThe course is as it was, and so are \
             your days. Undo your commits to these files (`git checkout {} -- FILE`, then commit), \
             then again",
            conflicts.into_iter().collect::<Vec<_>>().join(", "),
            &base[..12]
        );
    }
    put_back(repo, &mut backup, &begun)?;
    // From here on the course is new. What fails now is said, and no reason to call it a failure.
    if let Err(problem) = commit_days(repo, "My days, after an update") {
        note!("(your days are as they were, but git did not commit them: {problem:#})");
    }
    ensure_merged(repo, &base, &before, &theirs)?;

    say!("{}", paint(Colour::Bold, &format!("The course is what {remote}/{branch} has. New:")));
    let range = format!("{base}..{theirs}");
    match git(repo, &["log", "--no-merges", "--format=  %s", "--max-count=10", &range]) {
        Ok(subjects) => say!("{subjects}"),
        Err(problem) => note!("(what is new cannot be shown: {problem:#})"),
    }
    if let Some(stamp) = backup.stamp() {
        say!("Your days are as they were; copies: `cargo xtask restore {stamp}`.");
    }
    if let Err(problem) = tell_changes(repo, &begun, &base) {
        note!("(what moved in your days cannot be shown: {problem:#})");
    }
    say!("Where you are: cargo xtask list");
    Ok(ExitCode::SUCCESS)
}

/// An error if there is no clone, or git cannot work in it.
fn ensure_clone(repo: &Repo) -> Result<()> {
    let found = git(repo, &["rev-parse", "--show-prefix"]);
    let words = match &found {
        Ok(prefix) if prefix.is_empty() => return Ok(()),
        Ok(_) => "it is a folder of another clone".to_string(),
        Err(problem) => format!("{problem:#}"),
    };
    bail!(
        "{} is no clone (a downloaded archive?), or there is no `git` on PATH: clone the course \
         with git, and copy your src/ into it\n({words})",
        repo.root.display()
    )
}

/// An error if git is in the middle of something else.
fn ensure_nothing_unfinished(repo: &Repo) -> Result<()> {
    let there = |file: &str| -> Result<bool> {
        Ok(repo.root.join(git(repo, &["rev-parse", "--git-path", file])?).exists())
    };
    for (file, command, ways) in [
        ("MERGE_HEAD", "merge", "--continue|--abort"),
        ("CHERRY_PICK_HEAD", "cherry-pick", "--continue|--abort"),
        ("REVERT_HEAD", "revert", "--continue|--abort"),
        ("rebase-apply/applying", "am", "--continue|--abort"),
        ("rebase-merge", "rebase", "--continue|--abort"),
        ("rebase-apply", "rebase", "--continue|--abort"),
        ("sequencer", "cherry-pick", "--continue|--abort"), // or revert, between two commits
        ("BISECT_LOG", "bisect", "reset"),
    ] {
        if there(file)? {
            let ways: Vec<String> =
                ways.split('|').map(|way| format!("`git {command} {way}`")).collect();
            bail!(
                "a {command} is not finished: {}, then again; nothing was changed",
                ways.join(" or ")
            );
        }
    }
    Ok(())
}

/// Whether a commit is in what is checked out.
fn contains(repo: &Repo, commit: &str) -> bool {
    git(repo, &["merge-base", "--is-ancestor", commit, "HEAD"]).is_ok()
}

/// A day of the reader's, as it was before the update.
struct Begun {
    number: u32,
    /// Relative to the root.
    path: String,
    bytes: Vec<u8>,
}

/// Whether a path is that of a day in `src/`, of this course or of an older one.
fn is_day(path: &str) -> bool {
    Day::from_src(path).is_some()
}

/// All days with a line of the reader's, also those that the course no longer has.
///
/// # Errors
/// If a day is absent or cannot be read.
fn begun(repo: &Repo) -> Result<Vec<Begun>> {
    let mut begun = Vec::new();
    let mut take = |number, path: String| -> Result<()> {
        begun.push(Begun { number, bytes: repo.read_bytes(&path)?, path });
        Ok(())
    };
    for day in &repo.days {
        match progress::of(repo, day)? {
            Progress::Missing => bail!(
                "{} is absent: `cargo xtask reset day{}` brings the stub, then again; nothing was \
                 changed",
                day.src(),
                day.number
            ),
            Progress::Stub => {}
            Progress::Begun(_) => take(day.number, day.src())?,
        }
    }
    for path in days_there(repo)? {
        let known = repo.days.iter().any(|day| day.src() == path);
        if let Some(day) = Day::from_src(&path).filter(|_| !known) {
            take(day.number, path)?;
        }
    }
    Ok(begun)
}

/// The files of days that are in `src/`, of this course or of an older one.
fn days_there(repo: &Repo) -> Result<Vec<String>> {
    let entries = fs::read_dir(repo.root.join("src")).context("src")?.flatten();
    let files = entries.filter(|entry| entry.path().is_file());
    let paths = files.map(|entry| format!("src/{}", entry.file_name().to_string_lossy()));
    let mut days: Vec<String> = paths.filter(|path| is_day(path)).collect();
    days.sort();
    Ok(days)
}

/// What an update that was killed left in the working tree: files that are the new course's already.
struct Unfinished {
    /// In HEAD with other content.
    changed: Vec<String>,
    /// Not in HEAD.
    added: Vec<String>,
}

impl Unfinished {
    /// Looks for it.
    ///
    /// # Errors
    /// If a file of the course is changed that the course has otherwise, or a file of the reader's has
    /// the name of a new one.
    fn find(repo: &Repo, base: &str, theirs: &str) -> Result<Unfinished> {
        let listed = paths(repo, &["ls-tree", "-r", "-z", "--full-tree", theirs])?;
        let entry = |line: &String| {
            let (meta, path) = line.split_once('\t')?;
            Some((path.to_string(), meta.split(' ').nth(2)?.to_string()))
        };
        let new: BTreeMap<String, String> = listed.iter().filter_map(entry).collect();
        let (mut changed, mut own): (Vec<_>, Vec<_>) =
            changed_files(repo)?.into_iter().partition(|path| is_theirs(repo, path, new.get(path)));
        // A day that the reader has committed is the reader's, whatever it looks like now.
        changed.retain(|path| !is_day(path) || same_in(repo, path, base, "HEAD"));
        own.retain(|path| !is_day(path));
        ensure!(
            own.is_empty(),
            "files of the course are changed: {}\n`git commit` or `git stash` them, or undo the \
             change with `git checkout HEAD -- FILE`, then again; nothing was changed",
            own.join(", ")
        );
        let old: BTreeSet<String> =
            paths(repo, &["ls-tree", "-r", "-z", "--name-only", "--full-tree", "HEAD"])?
                .into_iter()
                .collect();
        changed.retain(|path| old.contains(path));
        let is_new = |path: &&String| !old.contains(*path) && !is_day(path);
        let mut added = Vec::new();
        for path in new.keys().filter(is_new) {
            if let Some(in_the_way) = in_the_way(repo, path, &old) {
                ensure!(
                    in_the_way == *path && is_theirs(repo, path, new.get(path)),
                    "{in_the_way} is in the way: the course has a file {path} now. Move yours \
                     elsewhere, then again; the course is as it was, and so are your days"
                );
                added.push(path.clone());
            }
        }
        Ok(Unfinished { changed, added })
    }

    /// Makes the working tree what HEAD says, so that git can merge.
    fn undo(&self, repo: &Repo) -> Result<()> {
        if !self.changed.is_empty() {
            let mut checkout = vec!["checkout", "--quiet", "HEAD", "--"];
            checkout.extend(self.changed.iter().map(String::as_str));
            git(repo, &checkout)?;
        }
        for path in &self.added {
            let mut forget = vec!["rm", "--quiet", "--cached", "--ignore-unmatch", "--"];
            forget.push(path);
            git(repo, &forget)?;
            fs::remove_file(repo.root.join(path)).with_context(|| path.clone())?;
        }
        Ok(())
    }
}

/// What is where git would write a new file: something of that name, or a file where a folder of it
/// would be.
fn in_the_way(repo: &Repo, path: &str, tracked: &BTreeSet<String>) -> Option<String> {
    let parents = path.match_indices('/').map(|(end, _)| &path[..end]);
    let file = |parent: &&str| {
        let there = fs::symlink_metadata(repo.root.join(parent));
        there.is_ok_and(|meta| !meta.is_dir()) && !tracked.contains(*parent)
    };
    let there = |path: &&str| fs::symlink_metadata(repo.root.join(path)).is_ok();
    parents.into_iter().find(file).or(Some(path).filter(there)).map(str::to_string)
}

/// Whether a file is the new course's: whole, begun, or as absent as there. `blob` is its id there.
fn is_theirs(repo: &Repo, path: &str, blob: Option<&String>) -> bool {
    let place = repo.root.join(path);
    let Some(blob) = blob else { return fs::symlink_metadata(place).is_err() };
    if !place.is_file() || place.is_symlink() {
        return false;
    }
    if git(repo, &["hash-object", "--", path]).is_ok_and(|id| id == *blob) {
        return true;
    }
    let whole = git(repo, &["cat-file", "blob", blob]);
    let begun = repo.read_bytes(path);
    whole.ok().zip(begun.ok()).is_some_and(|(whole, begun)| whole.as_bytes().starts_with(&begun))
}

/// Whether a file is the same in two commits.
fn same_in(repo: &Repo, path: &str, a: &str, b: &str) -> bool {
    let id = |commit: &str| git(repo, &["rev-parse", "--verify", &format!("{commit}:{path}")]).ok();
    id(a).is_some() && id(a) == id(b)
}

/// The tracked files that are not as in HEAD, staged or not.
fn changed_files(repo: &Repo) -> Result<Vec<String>> {
    let _ = git(repo, &["update-index", "-q", "--refresh"]); // fails where a file is changed
    paths(repo, &["diff-index", "-z", "--name-only", "--no-renames", "HEAD"])
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

/// Merges a commit. Where only days are in conflict, the reader's stay.
fn merge(repo: &Repo, theirs: &str, begun: &[Begun]) -> Result<()> {
    let branch = git(repo, &["symbolic-ref", "--quiet", "--short", "HEAD"]).unwrap_or_default();
    let options = format!("branch.{branch}.mergeOptions="); // -s ours, --squash, …
                                                            // git reads a setting up to its first `=`, which a branch's name may have, too
    let options: &[&str] =
        if branch.is_empty() || branch.contains('=') { &[] } else { &[&options] };
    let merged = git_with(
        repo,
        options,
        &[
            "merge",
            "--quiet",
            "--no-edit",
            "--ff",
            "--commit",
            "--no-squash",
            "--no-verify-signatures",
            "--no-rerere-autoupdate",
            "--strategy=recursive",
            theirs,
        ],
    );
    let Err(problem) = merged else {
        ensure!(contains(repo, theirs), "git merged nothing, and did not say why");
        return Ok(());
    };
    let conflicts = conflicts(repo)?;
    if conflicts.is_empty() || conflicts.keys().any(|path| !is_day(day_of(path))) {
        return Err(problem);
    }
    for (path, stages) in &conflicts {
        let day = day_of(path);
        let place = repo.root.join(path);
        let mine = begun.iter().find(|begun| begun.path == day);
        if mine.is_some() || path != day || !(stages.contains(&'2') || stages.contains(&'3')) {
            git(repo, &["rm", "--quiet", "--cached", "--ignore-unmatch", "--", path])?;
            if path != day || is_link(&place) {
                fs::remove_file(&place).with_context(|| path.clone())?;
            }
        } else {
            let side = if stages.contains(&'2') { "--ours" } else { "--theirs" };
            git(repo, &["checkout", side, "--", path])?;
            git(repo, &["add", "--force", "--", path])?;
        }
        if let Some(mine) = mine {
            backup::write(&repo.root.join(day), &mine.bytes)?;
            git(repo, &["add", "--force", "--", day])?;
        }
    }
    git(repo, &["commit", "--quiet", "--no-verify", "--no-edit"]).map(drop)
}

/// The day that a path in conflict is about: where one side has a link or a folder, git calls the
/// other `src/day06_generate.rs~HEAD`.
fn day_of(path: &str) -> &str {
    path.split_once('~').map_or(path, |(day, _)| day)
}

/// The files in conflict, each with its stages in the index: 1 the base, 2 ours, 3 theirs.
fn conflicts(repo: &Repo) -> Result<BTreeMap<String, BTreeSet<char>>> {
    let mut found: BTreeMap<String, BTreeSet<char>> = BTreeMap::new();
    for line in paths(repo, &["ls-files", "--unmerged", "-z"])? {
        if let Some((meta, path)) = line.split_once('\t') {
            found.entry(path.to_string()).or_default().extend(meta.chars().last());
        }
    }
    Ok(found)
}

/// Writes each begun day again that the merge changed: with the driver `ours` it changes none.
fn put_back(repo: &Repo, backup: &mut Backup, begun: &[Begun]) -> Result<()> {
    for Begun { path, bytes, .. } in begun {
        let place = repo.root.join(path);
        if fs::read(&place).ok().as_ref() == Some(bytes) {
            continue;
        }
        if is_link(&place) && git(repo, &["ls-files", "--error-unmatch", "--", path]).is_ok() {
            fs::remove_file(&place).with_context(|| path.clone())?; // the course's, not the reader's
        }
        backup.replace(path, bytes)?;
        say!("{path} was put back as you had it.");
    }
    Ok(())
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink())
}

/// An error if the course did not come, though git says that it merged: some setting that this
/// command does not know.
fn ensure_merged(repo: &Repo, base: &str, before: &str, theirs: &str) -> Result<()> {
    let differ = |a: &str, b: &str| -> Result<BTreeSet<String>> {
        let args = ["diff-tree", "-r", "-z", "--name-only", "--no-renames", a, b];
        Ok(paths(repo, &args)?.into_iter().collect())
    };
    let (mine, now) = (differ(base, before)?, differ(theirs, "HEAD")?);
    let lost: Vec<String> = now.difference(&mine).filter(|path| !is_day(path)).cloned().collect();
    ensure!(
        lost.is_empty(),
        "git merged, but these files are not what the course has: {}\nIs there a merge driver in \
         .git/info/attributes? `git checkout {} -- FILE` brings the course's; your days are as they \
         were",
        lost.join(", "),
        &theirs[..12]
    );
    Ok(())
}

/// Says what the course did to the days that the reader has begun.
fn tell_changes(repo: &Repo, begun: &[Begun], base: &str) -> Result<()> {
    let course = Repo::open(&repo.root)?;
    for mine in begun {
        let known = |repo: &Repo| repo.days.iter().find(|day| day.number == mine.number).cloned();
        let Some(new) = known(&course) else {
            say!("The course has no day {} any more; yours stays in {}.", mine.number, mine.path);
            continue;
        };
        if new.src() != mine.path {
            say!(
                "Day {0} is {1} in the course now. Yours is still in {2}, which is no longer \
                 compiled: `cargo xtask restore day{0}` puts it into {1}; then delete {2}.",
                mine.number,
                new.src(),
                mine.path
            );
        }
        if let Some(old) = known(repo) {
            tell_moved(&course, &old, &new, base)?;
        }
    }
    Ok(())
}

/// Prints which lines of a day's stub the course changed: the reader's file has the old ones.
fn tell_moved(repo: &Repo, day: &Day, new: &Day, base: &str) -> Result<()> {
    let source = git(repo, &["cat-file", "blob", &format!("{base}:{}", day.solution())]);
    let Some(old) = source.ok().and_then(|source| stubs::stub(&source).ok()) else { return Ok(()) };
    let new = repo.stub(new)?;
    let code = |line: &str| !line.trim().is_empty() && !line.trim().starts_with("//");
    let moved: Vec<String> = changed_lines(&old, &new, code);
    if !moved.is_empty() {
        say!("Moved in the course; make these changes in {} (- goes, + comes):", day.src());
        moved.iter().for_each(|line| say!("  {line}"));
    }
    Ok(())
}

/// The remote and its branch.
fn source(repo: &Repo, args: &Update) -> Result<(String, String)> {
    let remotes = git(repo, &["remote"])?;
    let has = |name: &str| remotes.lines().any(|line| line == name);
    let remote = match &args.remote {
        Some(name) if has(name) => name.clone(),
        Some(name) => return Err(usage(format!("no remote `{name}`: `git remote -v` lists them"))),
        None if has("upstream") => "upstream".to_string(),
        None if has("origin") => "origin".to_string(),
        None => bail!(
            "there is no remote to update from: `git remote add upstream URL`, with the \
                       URL of the course"
        ),
    };
    if let Some(branch) = &args.branch {
        return Ok((remote, branch.clone()));
    }
    let head = git(repo, &["ls-remote", "--symref", &remote, "HEAD"])
        .context("nothing was changed; is the network there?")?;
    let name =
        head.lines().find_map(|line| line.strip_prefix("ref: refs/heads/")?.split('\t').next());
    Ok((remote, name.unwrap_or("main").to_string()))
}
