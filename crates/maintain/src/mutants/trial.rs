//! Runs a day's checks on one mutant, in a process of its own.

use super::binary::module;
use anyhow::{bail, Context, Result};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use xtask::child::{self, End, Outcome};
use xtask::repo::Repo;

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
/// If the program cannot be started, or says neither that the mutant was caught nor that it
/// survived.
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
    let verdict = verdict(&out);
    verdict.with_context(|| format!("{}: {:?}\n{}{}", module(at), out.end, out.stdout, out.stderr))
}

/// What the program has said; None: nothing that tells.
fn verdict(out: &Outcome) -> Option<Verdict> {
    let said = |word: &str| {
        let found = out.stdout.lines().rev().find_map(|line| line.strip_prefix(word));
        found.map(|rest| rest.trim().to_string())
    };
    if let Some(check) = said("mutant caught by ") {
        return Some(Verdict::Caught(check));
    }
    match out.end {
        End::Exit(0) => said("mutant survived").map(|_| Verdict::Survived),
        _ => said("mutant meets ").map(Verdict::Stopped),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_a_mutant_is_read_from_its_words() {
        let out = |stdout: &str, end| {
            verdict(&Outcome { stdout: stdout.into(), stderr: String::new(), end })
        };
        let meets = "mutant meets task_1\nmutant meets task_2\n";
        let caught = Some(Verdict::Caught("task_2".into()));
        assert_eq!(out(&format!("{meets}mutant caught by task_2\n"), End::Exit(101)), caught);
        assert_eq!(
            out(&format!("{meets}mutant survived\n"), End::Exit(0)),
            Some(Verdict::Survived)
        );
        let stopped = Some(Verdict::Stopped("task_2".into()));
        assert_eq!(out(meets, End::TimedOut), stopped);
        assert_eq!(out(meets, End::Died("signal 11".into())), stopped);
        assert_eq!(out("running 0 tests\n", End::Exit(0)), None);
        assert_eq!(out("no mutant", End::Exit(101)), None);
    }
}
