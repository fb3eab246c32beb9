//! `cargo xtask stubs`: writes `src/dayNN_*.rs`, and never over what the reader wrote.

use crate::backup;
use crate::repo::{Day, Repo};
use crate::say;
use crate::stubs;
use anyhow::{bail, Result};
use clap::Args;
use std::process::{Command, ExitCode, Stdio};

/// The flags of `stubs`.
#[derive(Args)]
pub struct Stubs {
    /// Only these days; all, if none is named
    #[arg(value_name = "DAY")]
    days: Vec<String>,
    /// Write nothing: fail with a list if a stub is not what the reference says
    #[arg(long, conflicts_with = "force")]
    check: bool,
    /// Also replace files that you changed; each is copied to .candecode/backup/ first
    #[arg(long)]
    force: bool,
}

impl Stubs {
    /// The flags of `stubs --check`.
    pub fn checking() -> Stubs {
        Stubs { days: vec![], check: true, force: false }
    }
}

/// Runs `stubs`.
///
/// # Errors
/// If a reference breaks the rules of its markers, or a file cannot be read or written.
pub fn run(repo: &Repo, args: &Stubs) -> Result<ExitCode> {
    let days: Vec<&Day> = match args.days.as_slice() {
        [] => repo.days.iter().collect(),
        named => named.iter().map(|day| repo.day(day)).collect::<Result<_>>()?,
    };
    if args.check {
        return check(repo, &days);
    }
    for day in days {
        let (path, stub) = (day.src(), repo.stub(day)?);
        if current(repo, day)?.is_some_and(|text| same(&text, &stub)) {
            say!("unchanged {path}");
        } else if ours(repo, day)? {
            backup::write(&repo.root.join(&path), stub.as_bytes())?;
            say!("wrote     {path}");
        } else if args.force {
            let date = backup::replace(repo, &path, stub.as_bytes())?.unwrap_or_default();
            say!("wrote     {path}; what you wrote is kept as {}/{date}/{path}", backup::DIR);
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

/// Compares every stub with its reference, and sees that the switch knows the day.
fn check(repo: &Repo, days: &[&Day]) -> Result<ExitCode> {
    let (mut different, lib, manifest) = (0, repo.read("src/lib.rs")?, repo.read("Cargo.toml")?);
    for day in days {
        if !lib.contains(&format!("path = \"../{}\"", day.solution())) {
            bail!("src/lib.rs does not switch day {} to {}", day.number, day.solution());
        }
        if !manifest.contains(&format!("\"{}\"", day.feature())) {
            bail!("in Cargo.toml the feature `ref` does not turn on `{}`", day.feature());
        }
        let stub = repo.stub(day)?;
        if current(repo, day)?.is_none_or(|text| !same(&text, &stub)) {
            say!("differs   {}", day.src());
            different += 1;
        }
    }
    if different > 0 {
        bail!(
            "{different} of {} stubs are not what solutions/ says: `cargo xtask stubs` writes them",
            days.len()
        );
    }
    say!("{} stubs are what solutions/ says", days.len());
    Ok(ExitCode::SUCCESS)
}

/// Whether a day's file in `src/` is provably the generator's: absent, or equal to the stub of the
/// reference in git's HEAD, or to the stub that this command wrote last.
fn ours(repo: &Repo, day: &Day) -> Result<bool> {
    let Some(text) = current(repo, day)? else { return Ok(true) };
    let last = std::fs::read_to_string(repo.root.join(last_written(day))).ok();
    let head = || committed(repo, &day.solution()).and_then(|source| stubs::stub(&source).ok());
    let is = |known: Option<String>| known.is_some_and(|known| same(&known, &text));
    Ok(is(last) || is(head()))
}

/// The day's file in `src/`, if there is one.
fn current(repo: &Repo, day: &Day) -> Result<Option<String>> {
    match repo.root.join(day.src()).exists() {
        true => repo.read(&day.src()).map(Some),
        false => Ok(None),
    }
}

/// Equal but for the line ends that git may choose on Windows.
fn same(a: &str, b: &str) -> bool {
    a.replace("\r\n", "\n") == b.replace("\r\n", "\n")
}

/// Where this command remembers the stub it wrote last.
fn last_written(day: &Day) -> String {
    format!(".candecode/stubs/{}.rs", day.name)
}

/// A file as it is in git's HEAD; `None` without git.
fn committed(repo: &Repo, path: &str) -> Option<String> {
    let mut git = Command::new("git");
    git.current_dir(&repo.root).args(["show", &format!("HEAD:./{path}")]).stderr(Stdio::null());
    let out = git.output().ok().filter(|out| out.status.success())?;
    String::from_utf8(out.stdout).ok()
}
