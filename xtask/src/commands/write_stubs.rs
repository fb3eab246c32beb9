//! `cargo xtask stubs`: writes `src/dayNN_*.rs`, but never overwrites the reader's work.

use crate::backup;
use crate::git::git;
use crate::say;
use anyhow::{ensure, Result};
use candecode_course::{stubs, Day, Repo};
use clap::Args;
use std::process::ExitCode;

/// The flags of `stubs`.
#[derive(Args)]
pub struct Stubs {
    /// Write nothing; fail and list the stubs that don't match the reference
    #[arg(long, conflicts_with = "force")]
    check: bool,
    /// Also replace files you've changed, after copying them to .candecode/backup/
    #[arg(long)]
    force: bool,
}

/// Runs `stubs`.
///
/// # Errors
/// If a reference breaks the rules for markers, or a file can't be read or written.
pub fn run(repo: &Repo, args: &Stubs) -> Result<ExitCode> {
    if args.check {
        return check(repo);
    }
    for day in &repo.days {
        let (path, stub) = (day.src(), repo.stub(day)?);
        let text = current(repo, day)?;
        if text.as_ref().is_some_and(|text| same(text, &stub)) {
            say!("unchanged {path}");
        } else if text.as_ref().is_none_or(|text| ours(repo, day, text)) {
            let before = text.as_ref().map(String::as_bytes);
            if !backup::replace_if(repo, &path, before, stub.as_bytes())? {
                say!("kept      {path}: you have just saved it");
                continue;
            }
            say!("wrote     {path}");
        } else if args.force {
            let date = backup::replace(repo, &path, stub.as_bytes())?.unwrap_or_default();
            say!("wrote     {path}; your version is saved as {}/{date}/{path}", backup::DIR);
        } else {
            say!(
                "kept      {path}: you changed it (--force writes the stub and keeps a copy of \
                 yours)"
            );
            continue;
        }
        backup::write(&repo.root.join(last_written(day)), stub.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Compares every stub with its reference.
///
/// # Errors
/// If one differs. Otherwise the same as [`run`].
fn check(repo: &Repo) -> Result<ExitCode> {
    let mut different = 0;
    for day in &repo.days {
        let stub = repo.stub(day)?;
        if current(repo, day)?.is_none_or(|text| !same(&text, &stub)) {
            say!("differs   {}", day.src());
            different += 1;
        }
    }
    ensure!(
        different == 0,
        "{different} of {} stubs don't match solutions/: `cargo xtask stubs` updates them",
        repo.days.len()
    );
    say!("{} stubs match solutions/", repo.days.len());
    Ok(ExitCode::SUCCESS)
}

/// Returns whether a day's file in `src/` is known to be generated: it's either the stub of the
/// reference in git's HEAD, or the stub this command wrote last.
fn ours(repo: &Repo, day: &Day, text: &str) -> bool {
    let last = repo.read(&last_written(day)).ok();
    let head = git(repo, &["show", &format!("HEAD:./{}", day.solution())]).ok();
    let head = head.and_then(|source| stubs::stub(&source).ok());
    [last, head].iter().flatten().any(|known| same(known, text))
}

/// Reads the day's file in `src/`, if there is one.
fn current(repo: &Repo, day: &Day) -> Result<Option<String>> {
    let path = day.src();
    repo.root.join(&path).exists().then(|| repo.read(&path)).transpose()
}

/// Compares texts, ignoring line endings, which git may convert on Windows.
fn same(a: &str, b: &str) -> bool {
    a.lines().eq(b.lines())
}

/// Returns the path of a copy of the stub this command wrote last.
fn last_written(day: &Day) -> String {
    format!(".candecode/stubs/{}.rs", day.name)
}
