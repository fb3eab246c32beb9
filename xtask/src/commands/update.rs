//! `cargo xtask update`: brings the course up to date, and the reader's days along.

use crate::error::usage;
use crate::git::Git;
use crate::repo::Repo;
use crate::say;
use crate::update::journal::Journal;
use crate::update::{is_day, Step};
use anyhow::{anyhow, bail, Result};
use clap::Args;
use std::process::ExitCode;

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

/// Runs `update`.
///
/// # Errors
/// If a step cannot be done: the text says what is as it was, and what to do.
pub fn run(repo: &Repo, args: &Update) -> Result<ExitCode> {
    let git = Git::open(repo)?;
    let journal = Journal::read(repo);
    if let Some(journal) = &journal {
        say!("An earlier update did not end: going on with it.");
        journal.put_back(repo, &git)?;
    }
    quiet(repo, &git)?;
    let (remote, branch) = source(&git, args)?;
    say!("fetching {branch} from {remote} …");
    git.say(&["fetch", "--quiet", &remote, &branch]).map_err(|e| {
        anyhow!("{e:#}\nnothing was changed. Is the network there? `cargo xtask doctor` looks")
    })?;
    let (head, theirs) = (git.say(&["rev-parse", "HEAD"])?, git.say(&["rev-parse", "FETCH_HEAD"])?);
    if git.is_behind(&theirs, &head) && journal.is_none() {
        say!("Nothing is new: this is what {remote} has.");
        return Ok(ExitCode::SUCCESS);
    }
    let base = match &journal {
        Some(journal) => journal.base.clone(),
        None => git.say(&["merge-base", &head, &theirs]).map_err(|_| {
            anyhow!("this clone and {remote} have no commit in common: if it is a shallow clone, `git fetch --unshallow {remote}`, then again")
        })?,
    };
    let step = Step { repo, git: &git, base, head, theirs };
    step.run(&format!("{remote}/{branch}"))
}

/// An error if something of the reader's, other than the days, would be in the way.
fn quiet(repo: &Repo, git: &Git) -> Result<()> {
    for (file, what) in [
        ("MERGE_HEAD", "merge"),
        ("rebase-merge", "rebase"),
        ("rebase-apply", "rebase"),
        ("CHERRY_PICK_HEAD", "cherry-pick"),
    ] {
        let path = git.say(&["rev-parse", "--git-path", file])?;
        if repo.root.join(path).exists() {
            bail!("a {what} is not finished: `git {what} --continue` or `git {what} --abort`, then again");
        }
    }
    let staged = git.names(&["diff", "--cached", "--name-only", "-z"])?;
    if !staged.is_empty() {
        bail!("these are staged and not committed: {}\n`git commit` them, or `git restore --staged .`, then again; nothing was changed", staged.join(", "));
    }
    let mut changed = git.names(&["diff", "--name-only", "-z"])?;
    changed.retain(|path| !is_day(path));
    if !changed.is_empty() {
        bail!("files of the course are changed: {}\n`git commit` or `git stash` them, or undo the change with `git checkout -- FILE`, then again; nothing was changed", changed.join(", "));
    }
    Ok(())
}

/// The remote and its branch.
fn source(git: &Git, args: &Update) -> Result<(String, String)> {
    let remotes = git.say(&["remote"])?;
    let has = |name: &str| remotes.lines().any(|line| line == name);
    let remote = match &args.remote {
        Some(name) if has(name) => name.clone(),
        Some(name) => return Err(usage(format!("no remote `{name}`: `git remote -v` lists them"))),
        None if has("upstream") => "upstream".to_string(),
        None if has("origin") => "origin".to_string(),
        None => bail!("there is no remote to update from: `git remote add upstream URL`, with the URL of the course"),
    };
    let branch = match &args.branch {
        Some(branch) => branch.clone(),
        None => {
            let said = git.say(&["ls-remote", "--symref", &remote, "HEAD"]).map_err(|e| {
                anyhow!(
                    "{e:#}\nnothing was changed. Is the network there? `cargo xtask doctor` looks"
                )
            })?;
            let name = said
                .lines()
                .find_map(|line| line.strip_prefix("ref: refs/heads/")?.split('\t').next());
            name.unwrap_or("main").to_string()
        }
    };
    Ok((remote, branch))
}
