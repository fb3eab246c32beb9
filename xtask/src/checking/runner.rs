//! Runs one day's check program.

use crate::cargo::Built;
use crate::checking::outcome::{self, Status, Unit};
use crate::checking::workers::{self, Ended, Patience, Ran};
use crate::host;
use crate::term::Ticker;
use anyhow::Result;
use candecode_course::{claim_of_check, task_of_check, Day, Repo};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

/// Options for running a day's checkers.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The device, passed to the program as `CANDECODE_DEVICE`.
    pub device: Option<String>,
    /// The tasks to check. Empty: all.
    pub tasks: Vec<String>,
    /// Whether the reader is waiting for the results. If so, checks time out after a minute (less
    /// after the first timeout).
    pub waiting: bool,
}

/// The results of a day's checkers.
pub struct DayRun {
    /// The day.
    pub day: Day,
    /// One unit per check.
    pub units: Vec<Unit>,
    /// Output of the code under test, by test.
    pub outputs: BTreeMap<String, String>,
    /// What testing the checkers has reported, one record a line. Otherwise empty.
    pub report: String,
    /// The build it used. `None` for a day the reader hasn't touched.
    pub built: Option<Rc<Built>>,
}

impl DayRun {
    /// Returns a run with these units and nothing else.
    pub fn of(day: &Day, units: Vec<Unit>) -> DayRun {
        let (outputs, report) = (BTreeMap::new(), String::new());
        DayRun { day: day.clone(), units, outputs, report, built: None }
    }

    /// Drops the checks of all other tasks. An empty list keeps everything.
    pub fn keep_tasks(&mut self, tasks: &[String]) {
        let kept = |unit: &Unit| unit.task().is_some_and(|id| tasks.contains(&id));
        self.units.retain(|unit| tasks.is_empty() || kept(unit));
    }
}

/// Runs the checks of one day, or those of the tasks in `options`.
///
/// # Errors
/// If the program can't be started.
pub fn run_day(repo: &Repo, day: &Day, program: &Path, options: &Options) -> Result<DayRun> {
    let mut names = repo.checks(day)?;
    let asked = |name: &String| task_of_check(name).is_some_and(|id| options.tasks.contains(&id));
    names.retain(|name| options.tasks.is_empty() || asked(name));
    let ran = run(repo, day, program, options, &names)?;
    let outputs = names.iter().cloned().zip(ran.iter().map(|ran| ran.printed.clone()));
    let outputs = outputs.filter(|(_, printed)| !printed.is_empty()).collect();
    let units = names.iter().zip(ran).map(|(name, ran)| unit(day, name, ran.end)).collect();
    Ok(DayRun { outputs, ..DayRun::of(day, units) })
}

/// Runs the named checks of a day.
///
/// # Errors
/// If the program can't be started.
pub fn run_checks(
    repo: &Repo,
    day: &Day,
    program: &Path,
    options: &Options,
    names: &[String],
) -> Result<Vec<Unit>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let ran = run(repo, day, program, options, names)?;
    Ok(names.iter().zip(ran).map(|(name, ran)| unit(day, name, ran.end)).collect())
}

/// Runs the named checks. On a terminal, shows how many are done.
fn run(
    repo: &Repo,
    day: &Day,
    program: &Path,
    options: &Options,
    names: &[String],
) -> Result<Vec<Ran>> {
    let command = || command(repo, program, options.device.as_deref());
    let text = |done: usize| format!("day {}: {done} of {} checks", day.number, names.len());
    let counter = Ticker::new(&text(0));
    workers::run(&command, names, patience(options), &|done| counter.say(text(done)))
}

/// Returns the outcome of a check.
fn unit(day: &Day, name: &str, end: Ended) -> Unit {
    let (status, why) = match end {
        Ended::Reported(record) => match outcome::unit(&record) {
            Some(unit) => return unit,
            None => (Status::Failed, "the check program reported no result".to_string()),
        },
        Ended::Died(why) => (Status::Died, why),
        Ended::TimedOut(limit) => {
            let seconds = limit.as_secs();
            let why = format!("the code didn't finish within {seconds} s");
            (Status::Timeout, why + ": is there an infinite loop?")
        }
        Ended::PrintedTooMuch(mib) => {
            let why = format!("the code printed more than {mib} MiB");
            (Status::Died, why + ": is there an infinite loop?")
        }
    };
    let (task, claim) = (task_of_check(name).unwrap_or_default(), claim_of_check(name));
    let why = why.replace('\n', "\n  ");
    let next = format!("  next: cargo xtask check day{} --task {task}", day.number);
    let message = format!("task {task} · {claim}\n  {why}\n{next}");
    Unit::new(name.to_string(), status, message)
}

/// Returns the time limits. They are long enough for a slow machine, so only an infinite loop
/// reaches them. `CANDECODE_CHECK_PATIENCE` overrides the first one, in seconds. After the first
/// timeout, the limit drops to a third, but not below 10 s.
fn patience(options: &Options) -> Patience {
    let own = std::env::var("CANDECODE_CHECK_PATIENCE").ok().and_then(|s| s.parse::<u64>().ok());
    let first = own.unwrap_or(if options.waiting { 60 } else { 180 });
    let then = (first / 3).max(10).min(first);
    Patience { first: Duration::from_secs(first), then: Duration::from_secs(then) }
}

/// Returns a check program's command, with the environment that the checks need. Unlike under
/// `cargo test`, it runs in the repository's root.
pub fn command(repo: &Repo, program: &Path, device: Option<&str>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(&repo.root).env("CARGO_MANIFEST_DIR", repo.root.join("tests"));
    command.envs(device.map(|name| ("CANDECODE_DEVICE", name)));
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        command.env("RUST_BACKTRACE", "0");
    }
    host::set_threads(&mut command);
    command
}
