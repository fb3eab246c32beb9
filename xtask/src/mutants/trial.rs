//! Runs a day's checks on one mutant, in a process of its own.

use super::build::module;
use crate::child::{self, End};
use crate::repo::Repo;
use anyhow::{bail, Result};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does not compile.
    Unviable,
    /// This check fails.
    Caught(String),
    /// The process died in this check, or did not end.
    Stopped(String),
    /// Every check passes.
    Survived,
}

/// What a mutant may take of memory, in KiB: an endless loop may fill it.
const MEMORY: &str = "8000000";

/// Runs the checks on a mutant, the one that caught it last before the others.
///
/// # Errors
/// If the program cannot be started, or says neither that the mutant was caught nor that it survived.
pub fn run(
    repo: &Repo,
    program: &Path,
    at: usize,
    first: &str,
    limit: Duration,
) -> Result<Verdict> {
    let mut command = shell(program);
    command.args(["a_mutant", "--exact", "--nocapture"]).current_dir(&repo.root);
    command.env("CARGO_MANIFEST_DIR", &repo.root).env("RUST_BACKTRACE", "0");
    command.env("CANDECODE_MUTANT", module(at)).env("CANDECODE_MUTANT_FIRST", first);
    command.env("RAYON_NUM_THREADS", "1").env_remove("CANDECODE_REPORT");
    let out = child::run(&mut command, limit, |_| ())?;
    let said = |word: &str| {
        let found = out.stdout.lines().rev().find_map(|line| line.strip_prefix(word));
        found.map(|rest| rest.trim().to_string())
    };
    if let Some(check) = said("mutant caught by ") {
        return Ok(Verdict::Caught(check));
    }
    let check = said("mutant meets ").unwrap_or_default();
    match out.end {
        End::Exit(0) if said("mutant survived").is_some() => Ok(Verdict::Survived),
        End::TimedOut | End::Died(_) => Ok(Verdict::Stopped(check)),
        End::Exit(code) if !check.is_empty() && code != 0 => Ok(Verdict::Stopped(check)),
        End::Exit(code) => bail!("{}: exit code {code}\n{}{}", module(at), out.stdout, out.stderr),
    }
}

/// How long a mutant may take: five times what the reference takes, and twenty seconds.
///
/// # Errors
/// If the reference does not pass.
pub fn limit(repo: &Repo, program: &Path) -> Result<Duration> {
    let start = Instant::now();
    match run(repo, program, 0, "", Duration::from_secs(20 * 60))? {
        Verdict::Survived => Ok(start.elapsed() * 5 + Duration::from_secs(20)),
        other => bail!("the reference itself does not pass its checks: {other:?}"),
    }
}

/// The program, where there is a shell with a bound on its memory.
fn shell(program: &Path) -> Command {
    if cfg!(windows) {
        return Command::new(program);
    }
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {MEMORY}; exec \"$0\" \"$@\"")]).arg(program);
    command
}
