//! Builds the test programs of a mix of days, and runs one day's.

use crate::cargo::{self, Built, Programs};
use crate::checks::libtest;
use crate::checks::outcome::{self, Status, TeethRow, Unit};
use crate::child::{self, End, Outcome};
use crate::host;
use crate::repo::{Day, Repo};
use crate::term::{self, Ticker};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs::DirEntry;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How a day's checkers are run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Passed on as `CANDECODE_DEVICE`.
    pub device: Option<String>,
    /// Only the checks of these tasks; empty: of all.
    pub tasks: Vec<String>,
    /// The tests that prove the checkers.
    pub teeth: Teeth,
    /// Someone waits: a check that does not end is given up after a minute.
    pub waiting: bool,
}

/// Whether the tests that prove the checkers are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Teeth {
    /// No: only the checks.
    #[default]
    Without,
    /// They alone.
    Only,
}

/// What came of a day's checkers.
pub struct DayRun {
    /// The day.
    pub day: Day,
    /// One unit a check.
    pub units: Vec<Unit>,
    /// What the code under test printed, by test.
    pub outputs: BTreeMap<String, String>,
    /// What the tests that prove the checkers tell of each mistake and variant.
    pub teeth: Vec<TeethRow>,
}

impl DayRun {
    /// A day with these units and nothing else.
    pub fn of(day: &Day, units: Vec<Unit>) -> DayRun {
        DayRun { day: day.clone(), units, outputs: BTreeMap::new(), teeth: vec![] }
    }

    /// Forgets the checks of all other tasks; without a task, none.
    pub fn keep_tasks(&mut self, tasks: &[String]) {
        let kept = |unit: &Unit| unit.task().is_some_and(|id| tasks.contains(&id));
        self.units.retain(|unit| tasks.is_empty() || kept(unit));
    }
}

/// Builds the test programs of some days, each named as its day. A day without checkers has none.
///
/// # Errors
/// If this machine cannot build for the device, or cargo cannot be started.
pub fn build(
    repo: &Repo,
    features: &[String],
    days: &[Day],
    device: Option<&str>,
) -> Result<Built> {
    let mut features = features.to_vec();
    features.push("cli".to_string()); // as `run` has it, so that the library is compiled once
    if let Some(device) = device {
        features.extend(host::device_feature(device)?.map(str::to_string));
    }
    // No check downloads: without the crates for it, the build is shorter.
    let mut args = vec!["--no-run".to_string(), "--no-default-features".to_string()];
    if !features.is_empty() {
        args.extend(["--features".to_string(), features.join(",")]);
    }
    let days: Vec<&Day> = days.iter().filter(|day| has_checkers(repo, day)).collect();
    let next = match days[..] {
        [] => return Ok(Built::Done(Programs::default())),
        [day] => format!("Building the checks of day {}; then they run.", day.number),
        _ => format!("Building the checks of {} days; then they run, day after day.", days.len()),
    };
    for day in days {
        args.extend(["--test".to_string(), day.name.clone()]);
    }
    cargo::build(repo, "test", &args, &next)
}

/// Whether there are checkers of a day.
fn has_checkers(repo: &Repo, day: &Day) -> bool {
    repo.root.join(day.tests()).is_file()
}

/// Runs the test program of one day. A day without checkers has no units.
///
/// If it dies, each check that it left open runs once more, alone: so only the culprit is blamed.
///
/// # Errors
/// If it cannot be started.
pub fn run_day(repo: &Repo, day: &Day, programs: &Programs, options: &Options) -> Result<DayRun> {
    if !has_checkers(repo, day) {
        return Ok(DayRun::of(day, vec![]));
    }
    let program = programs.get(&day.name)?;
    let mut filter: Vec<String> =
        options.tasks.iter().map(|id| format!("task_{}_", id.replace('.', "_"))).collect();
    match options.teeth {
        Teeth::Without => filter.extend(["--skip".to_string(), "teeth_".to_string()]),
        Teeth::Only => filter = vec!["teeth_".to_string()],
    }
    let call =
        Call { repo, day, program, device: options.device.as_deref(), waiting: options.waiting };
    let listing =
        [filter.clone(), vec!["--list".into(), "--format".into(), "terse".into()]].concat();
    let mut expected = libtest::list(&call.run(&listing, 0)?.0.stdout);
    // As the checkers have them, and not by letter: task after task, the simplest first.
    let source = std::fs::read_to_string(repo.root.join(day.tests())).unwrap_or_default();
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
            let alone = call.units(&[name.clone(), "--exact".to_string()], &[name])?.2;
            units.splice(at..=at, alone);
        }
    }
    let mut outputs = libtest::outputs(&outcome.stdout);
    for unit in &units {
        if let Some(output) = outputs.get_mut(&unit.test) {
            *output = libtest::own_output(output, &unit.message);
        }
    }
    outputs.retain(|_, output| !output.is_empty());
    Ok(DayRun { day: day.clone(), units, outputs, teeth: outcome::teeth_rows(&report) })
}

/// One test program and its surroundings.
struct Call<'a> {
    repo: &'a Repo,
    day: &'a Day,
    program: &'a Path,
    device: Option<&'a str>,
    waiting: bool,
}

impl Call<'_> {
    /// Runs the program and gives each expected test its unit; also what the report says.
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

    /// Runs the program with a report file of its own; `total` checks are counted on a terminal.
    fn run(&self, args: &[String], total: usize) -> Result<(Outcome, String)> {
        let file = report_file(self.repo, self.day)?;
        let mut command = Command::new(self.program);
        command.args(args).current_dir(&self.repo.root);
        // as `cargo test` has it
        command.env("CARGO_MANIFEST_DIR", &self.repo.root).env("CANDECODE_REPORT", &file);
        command.envs(self.device.map(|device| ("CANDECODE_DEVICE", device)));
        if self.waiting && std::env::var_os("CANDECODE_CHECK_PATIENCE").is_none() {
            command.env("CANDECODE_CHECK_PATIENCE", "60");
        }
        if std::env::var_os("RUST_BACKTRACE").is_none() {
            command.env("RUST_BACKTRACE", "0");
        }
        host::set_threads(&mut command);
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
        let report = std::fs::read_to_string(&file).unwrap_or_default();
        let _ = std::fs::remove_file(&file);
        Ok((outcome?, report))
    }
}

/// Why checks are unfinished, and what the program said last.
fn last_words(outcome: &Outcome) -> (Status, String) {
    let lines: Vec<&str> = outcome.stderr.lines().collect();
    let tail = term::readable(&lines[lines.len().saturating_sub(8)..].join("\n"));
    let why = match &outcome.end {
        End::Died(why) => why.clone(),
        End::Exit(code) => format!("exit code {code}"),
        End::TimedOut => {
            let time = match limit().as_secs() {
                seconds if seconds < 120 => format!("{seconds} s"),
                seconds => format!("{} minutes", seconds / 60),
            };
            let text = "stopped. Is there a loop without an end?";
            return (Status::Timeout, format!("still running after {time}: {text}"));
        }
    };
    (Status::Died, format!("the test program ended before this check did ({why})\n{tail}"))
}

/// The bound of one test program, generous for a machine under load.
fn limit() -> Duration {
    let own = std::env::var("CANDECODE_CHECK_LIMIT").ok().and_then(|s| s.parse().ok());
    Duration::from_secs(own.unwrap_or(20 * 60))
}

/// A fresh report file, inside the target directory; old ones, left by Ctrl-C, are removed.
fn report_file(repo: &Repo, day: &Day) -> Result<PathBuf> {
    let dir = cargo::target_dir(repo).join("xtask");
    std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let old = |entry: &DirEntry| {
        let age =
            entry.metadata().and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
        age.is_some_and(|age| age > Duration::from_secs(24 * 60 * 60))
    };
    for entry in std::fs::read_dir(&dir)?.flatten().filter(old) {
        let _ = std::fs::remove_file(entry.path());
    }
    let file = dir.join(format!("report-{}-{}.jsonl", day.name, std::process::id()));
    std::fs::write(&file, "").with_context(|| file.display().to_string())?;
    Ok(file)
}
