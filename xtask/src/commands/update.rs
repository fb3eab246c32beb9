//! `cargo xtask update`: merges the newest course, and leaves the reader's days alone.
//!
//! `.gitattributes` gives `src/day*.rs` the merge driver `ours`: where the reader and the course
//! both changed a day, the reader's file stays, and a day that the reader has not begun becomes the
//! new stub. The driver is defined by the command line of this one merge. Without it, or with `git
//! pull --rebase` or `--autostash`, git drops the reader's day.

use crate::backup::Backup;
use crate::commands::diff::changed_lines;
use crate::progress::{self, Progress};
use crate::repo::{Day, Repo};
use crate::term::{paint, Colour};
use crate::{say, stubs, usage};
use anyhow::{anyhow, bail, ensure, Context, Result};
use clap::Args;
use std::fs;
use std::process::{Command, ExitCode};

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
/// If the tree is not clean beside the days, or git cannot fetch or merge; the text says more.
pub fn run(repo: &Repo, args: &Update) -> Result<ExitCode> {
    ensure_quiet(repo)?;
    let (remote, branch) = source(repo, args)?;
    say!("Fetching {branch} from {remote} …");
    git(repo, &["fetch", "--quiet", &remote, &branch])
        .context("nothing was changed; is the network there?")?;
    let theirs = git(repo, &["rev-parse", "FETCH_HEAD"])?;
    if git(repo, &["merge-base", "--is-ancestor", &theirs, "HEAD"]).is_ok() {
        say!("Nothing is new: this is what {remote} has.");
        return Ok(ExitCode::SUCCESS);
    }
    let base = git(repo, &["merge-base", "HEAD", &theirs]).map_err(|_| {
        anyhow!(
            "this clone and {remote} have no commit in common: if it is a shallow clone, `git \
                 fetch --unshallow {remote}`, then again"
        )
    })?;

    let mut backup = Backup::new(repo);
    let mut begun: Vec<(&Day, Vec<u8>)> = Vec::new();
    for day in &repo.days {
        match progress::of(repo, day)? {
            Progress::Missing => bail!(
                "{} is absent: `cargo xtask reset day{}` brings the stub, then again; nothing was \
                 changed",
                day.src(),
                day.number
            ),
            Progress::Stub => {}
            Progress::Begun(_) => begun.push((day, fs::read(repo.root.join(day.src()))?)),
        }
        backup.keep_file(&day.src())?;
    }
    let changed = changed_files(repo)?;
    if !changed.is_empty() {
        let mut commit = vec!["commit", "--quiet", "-m", "My days, before an update", "--"];
        commit.extend(changed.iter().map(String::as_str));
        git(repo, &commit)?;
    }
    let merge = ["merge", "--quiet", "--no-edit", &theirs];
    let merged = git(repo, &merge);
    if let Err(problem) = merged {
        let conflicts = git(repo, &["diff", "--name-only", "--diff-filter=U"])?.replace('\n', ", ");
        let _ = git(repo, &["merge", "--abort"]);
        put_back(repo, &mut backup, &begun)?;
        if conflicts.is_empty() {
            return Err(problem.context("the course is as it was, and so are your days"));
        }
        bail!(
            "you and the course changed the same files: {conflicts}\nThe course is as it was, and \
             so are your days. Undo your commits to these files (`git checkout {} -- FILE`, then \
             commit), then again",
            &base[..12]
        );
    }
    put_back(repo, &mut backup, &begun)?;

    say!("{}", paint(Colour::Bold, &format!("The course is what {remote}/{branch} has. New:")));
    let range = format!("{base}..{theirs}");
    say!("{}", git(repo, &["log", "--no-merges", "--format=  %s", "--max-count=10", &range])?);
    if let Some(stamp) = backup.stamp() {
        say!("Your days are as they were; copies: `cargo xtask restore {stamp}`.");
    }
    for (day, _) in &begun {
        tell_moved(repo, day, &base, &theirs)?;
    }
    say!("Where you are: cargo xtask list");
    Ok(ExitCode::SUCCESS)
}

/// An error if anything but the days is changed or staged, or a merge or rebase not finished.
fn ensure_quiet(repo: &Repo) -> Result<()> {
    let prefix = git(repo, &["rev-parse", "--show-prefix"]);
    ensure!(
        prefix.is_ok_and(|prefix| prefix.is_empty()),
        "{} is no clone (a downloaded archive?), or there is no `git` on PATH: clone the course \
         with git, and copy your src/ into it",
        repo.root.display()
    );
    for (file, what) in
        [("MERGE_HEAD", "merge"), ("rebase-merge", "rebase"), ("rebase-apply", "rebase")]
    {
        if repo.root.join(git(repo, &["rev-parse", "--git-path", file])?).exists() {
            bail!(
                "a {what} is not finished: `git {what} --continue` or `git {what} --abort`, then \
                   again"
            );
        }
    }
    let days: Vec<String> = repo.days.iter().map(Day::src).collect();
    let mut others = changed_files(repo)?;
    others.retain(|path| !days.contains(path));
    ensure!(
        others.is_empty(),
        "files of the course are changed: {}\n`git commit` or `git stash` them, or undo the change \
         with `git checkout HEAD -- FILE`, then again; nothing was changed",
        others.join(", ")
    );
    Ok(())
}

/// The tracked files that are not as in HEAD, staged or not.
fn changed_files(repo: &Repo) -> Result<Vec<String>> {
    let names = git(repo, &["diff", "HEAD", "--name-only", "--no-renames"])?;
    Ok(names.lines().map(str::to_string).collect())
}

/// Writes each begun day again that the merge changed: with the driver `ours` it changes none.
fn put_back(repo: &Repo, backup: &mut Backup, begun: &[(&Day, Vec<u8>)]) -> Result<()> {
    for (day, bytes) in begun {
        if fs::read(repo.root.join(day.src())).ok().as_ref() != Some(bytes) {
            backup.replace(&day.src(), bytes)?;
            say!("{} was put back as you had it.", day.src());
        }
    }
    Ok(())
}

/// Prints which lines of a day's stub the course changed: the reader's file has the old ones.
fn tell_moved(repo: &Repo, day: &Day, base: &str, theirs: &str) -> Result<()> {
    let stub = |commit: &str| -> Result<String> {
        let source = git(repo, &["show", &format!("{commit}:{}", day.solution())])?;
        stubs::stub(&source).map_err(|e| anyhow!("{}: {e}", day.solution()))
    };
    let (Ok(old), new) = (stub(base), stub(theirs)?) else { return Ok(()) };
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

/// What git prints, without the line's end; its own words if it fails.
///
/// The settings hold for this one call, whatever the reader's configuration says: no hooks, no
/// signatures that ask for a password, nobody's name if there is none, and the merge driver of the
/// days.
fn git(repo: &Repo, args: &[&str]) -> Result<String> {
    let mut git = Command::new("git");
    for setting in [
        "merge.ours.driver=true",
        "merge.autoStash=false",
        "commit.gpgSign=false",
        "core.hooksPath=/dev/null",
        "core.quotePath=false",
    ] {
        git.args(["-c", setting]);
    }
    let nameless = || {
        let mut ask = Command::new("git");
        ask.args(["var", "GIT_COMMITTER_IDENT"]).current_dir(&repo.root);
        !ask.output().is_ok_and(|out| out.status.success())
    };
    if ["commit", "merge"].contains(&args[0]) && nameless() {
        git.args(["-c", "user.name=reader", "-c", "user.email=reader@localhost"]);
    }
    git.args(args).current_dir(&repo.root);
    git.env("LC_ALL", "C").env("GIT_TERMINAL_PROMPT", "0").env("GIT_EDITOR", "true");
    let out = git.output().context("cannot start git")?;
    if !out.status.success() {
        let words = [out.stdout, out.stderr].concat();
        let words = String::from_utf8_lossy(&words).trim().to_string();
        bail!("`git {}` failed: {words}", args.join(" "));
    }
    Ok(String::from_utf8_lossy(&out.stdout).trim_end().to_string())
}
