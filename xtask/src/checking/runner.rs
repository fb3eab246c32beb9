//! Runs one day's check program.

use crate::cargo::{self, Built};
use crate::checking::libtest;
use crate::checking::outcome::{self, Status, Unit};
use crate::child::{self, End, Outcome};
use crate::host;
use crate::term::{self, Ticker};
use anyhow::{Context, Result};
use candecode_course::{checks_of_task, in_src, Day, Repo};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
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
    /// Whether to run the tests of the checkers instead of the checks.
    pub teeth: bool,
    /// The record of the known mistakes, used to diagnose failures.
    pub record: Option<PathBuf>,
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
    /// The program's full report.
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

/// Runs the check program of one day.
///
/// If the program dies with several checks unfinished, reruns each one on its own to find the
/// culprit.
///
/// # Errors
/// If the program can't be started.
pub fn run_day(repo: &Repo, day: &Day, program: &Path, options: &Options) -> Result<DayRun> {
    let mut filter: Vec<String> = options.tasks.iter().map(|id| checks_of_task(id)).collect();
    if options.teeth {
        filter.push("teeth_".to_string());
    } else {
        // Also skip any tests that the reader wrote in the day's file
        filter.extend(["--skip", "teeth_", "--skip", &format!("{}::", day.name)].map(String::from));
    }
    let call = Call { repo, day, program, options };
    let listing = ["--list", "--format", "terse"].map(String::from);
    let mut expected = libtest::list(&call.run(&[&filter[..], &listing].concat(), 0)?.0.stdout);
    // Sort by task, then in the checkers' order, which puts the simplest check first.
    let source = fs::read_to_string(repo.root.join(day.tests())).unwrap_or_default();
    expected.sort_by_key(|test| {
        let task = test.strip_prefix("task_").and_then(|rest| rest.split('_').nth(1)?.parse().ok());
        (task.unwrap_or(usize::MAX), source.find(&format!(" {test} ")).unwrap_or(usize::MAX))
    });
    filter.push("--show-output".to_string());
    let (outcome, report, mut units) = call.units(&filter, &expected)?;
    let open: Vec<usize> =
        (0..units.len()).filter(|&at| units[at].status == Status::Died).collect();
    if open.len() > 1 {
        for at in open {
            let name = units[at].test.clone();
            units.splice(at..=at, call.exactly(&[name])?);
        }
    }
    let mut outputs = libtest::outputs(&outcome.stdout);
    for unit in &units {
        if let Some(output) = outputs.get_mut(&unit.test) {
            *output = in_src(&libtest::own_output(output, &unit.message));
        }
    }
    outputs.retain(|_, output| !output.is_empty());
    Ok(DayRun { outputs, report, ..DayRun::of(day, units) })
}

/// Runs the named checks of a day.
///
/// # Errors
/// If the program cannot be started.
pub fn run_checks(
    repo: &Repo,
    day: &Day,
    program: &Path,
    options: &Options,
    names: &[String],
) -> Result<Vec<Unit>> {
    Call { repo, day, program, options }.exactly(names)
}

/// Returns a check program's command, with the environment that the checks need. Unlike under
/// `cargo test`, it runs in the repository's root.
pub fn command(repo: &Repo, program: &Path, report: &Path, device: Option<&str>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(&repo.root).env("CARGO_MANIFEST_DIR", repo.root.join("tests"));
    command.env("CANDECODE_REPORT", report).envs(device.map(|name| ("CANDECODE_DEVICE", name)));
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        command.env("RUST_BACKTRACE", "0");
    }
    host::set_threads(&mut command);
    command
}

/// A check program and its context.
struct Call<'a> {
    repo: &'a Repo,
    day: &'a Day,
    program: &'a Path,
    options: &'a Options,
}

impl Call<'_> {
    /// Runs the named checks.
    fn exactly(&self, names: &[String]) -> Result<Vec<Unit>> {
        Ok(self.units(&[names, &["--exact".to_string()]].concat(), names)?.2)
    }

    /// Runs the program. Returns how it ended, its report, and one unit per expected test.
    fn units(&self, args: &[String], expected: &[String]) -> Result<(Outcome, String, Vec<Unit>)> {
        let (outcome, report) = self.run(args, expected.len())?;
        let (unfinished, words) = last_words(&outcome);
        let mut units =
            outcome::merge(expected, &outcome::parse(&report), &outcome.stdout, unfinished);
        for unit in units.iter_mut().filter(|unit| unit.message.is_empty()) {
            if matches!(unit.status, Status::Died | Status::Timeout) {
                unit.message.clone_from(&words);
            }
        }
        Ok((outcome, report, units))
    }

    /// Runs the program with its own report file. On a terminal, shows a count out of `total`
    /// checks.
    fn run(&self, args: &[String], total: usize) -> Result<(Outcome, String)> {
        let file = work_dir(self.repo)?;
        let file = file.join(format!("{}-{}.jsonl", self.day.name, std::process::id()));
        fs::write(&file, "").with_context(|| file.display().to_string())?;
        let mut command = command(self.repo, self.program, &file, self.options.device.as_deref());
        command.args(args);
        command.envs(self.options.record.as_ref().map(|path| ("CANDECODE_RECORD", path)));
        if self.options.waiting && std::env::var_os("CANDECODE_CHECK_PATIENCE").is_none() {
            command.env("CANDECODE_CHECK_PATIENCE", "60");
        }
        let (mut done, number) = (0, self.day.number);
        let counter =
            (total > 0).then(|| Ticker::new(&format!("day {number}: 0 of {total} checks")));
        let outcome = child::run(&mut command, limit(), |line| {
            if libtest::result(line).is_some() {
                done += 1;
                let text = format!("day {number}: {done} of {total} checks");
                let _ = counter.as_ref().map(|counter| counter.say(text));
            }
        });
        drop(counter);
        let report = fs::read_to_string(&file).unwrap_or_default();
        let _ = fs::remove_file(&file);
        Ok((outcome?, report))
    }
}

/// Returns the status for unfinished checks and a message with the reason, followed (unless the
/// program was stopped for taking too long) by the last lines of its standard error.
fn last_words(outcome: &Outcome) -> (Status, String) {
    let lines: Vec<&str> = outcome.stderr.lines().collect();
    let tail = lines[lines.len().saturating_sub(8)..].join("\n");
    let tail = term::readable(&in_src(&tail));
    let why = match &outcome.end {
        End::Died(why) => why.clone(),
        End::Exit(code) => format!("exit code {code}"),
        End::TimedOut => {
            let time = match limit().as_secs() {
                seconds if seconds < 120 => format!("{seconds} s"),
                seconds => format!("{} minutes", seconds / 60),
            };
            return (Status::Timeout, format!("stopped after {time}. Is there an infinite loop?"));
        }
    };
    (Status::Died, format!("the test program ended before this check did ({why})\n{tail}"))
}

/// Returns the time limit for one test program. The default is generous, for a machine under load.
fn limit() -> Duration {
    let own = std::env::var("CANDECODE_CHECK_LIMIT").ok().and_then(|s| s.parse().ok());
    Duration::from_secs(own.unwrap_or(20 * 60))
}

/// Returns the directory for temporary files, inside the target directory. Removes files that an
/// interrupted run left there a day or more ago.
///
/// # Errors
/// If it can't be created.
pub fn work_dir(repo: &Repo) -> Result<PathBuf> {
    let dir = cargo::target_dir(repo).join("candecode/work");
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    for entry in fs::read_dir(&dir)?.flatten() {
        let modified = entry.metadata().and_then(|meta| meta.modified()).ok();
        let age = modified.and_then(|at| at.elapsed().ok()).unwrap_or_default();
        if age > Duration::from_secs(24 * 60 * 60) {
            let _ = fs::remove_dir_all(entry.path()).or_else(|_| fs::remove_file(entry.path()));
        }
    }
    Ok(dir)
}
