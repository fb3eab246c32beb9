//! Prints the results of a check: a message per failure, a table of tasks, and the totals.

use crate::cargo::{self, Place};
use crate::checking::outcome::{Status, Unit, DIAGNOSIS, GUESS, NEXT};
use crate::checking::runner::DayRun;
use crate::say;
use crate::term::{paint, readable, Color};
use anyhow::Result;
use candecode_course::{checks_of_task, claim_of_check, Day, Repo, Task};
use std::collections::{BTreeMap, BTreeSet};

/// Counts of checks that passed and that didn't, including those not written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Passed.
    pub passed: usize,
    /// Wrong, not written or not finished.
    pub failed: usize,
}

impl Sum {
    /// Counts units. An empty list is a failure: unchecked code isn't correct code.
    pub fn of(units: &[Unit]) -> Sum {
        if units.is_empty() {
            return Sum { passed: 0, failed: 1 };
        }
        let passed = units.iter().filter(|unit| unit.status == Status::Passed).count();
        Sum { passed, failed: units.len() - passed }
    }

    /// Adds another sum.
    pub fn add(&mut self, other: Sum) {
        self.passed += other.passed;
        self.failed += other.failed;
    }

    /// Formats the last line of every check.
    pub fn line(self) -> String {
        format!("{} passed, {} failed", self.passed, self.failed)
    }
}

/// Prints a message for every check that fails. Unwritten tasks appear only in the table. With
/// `show_output`, also prints the output of the code under test, even for checks that pass. Without
/// it, only mentions that a failing check has output.
///
/// If several checks fail for the same reason, prints the message once, with the names of the
/// others. `tasks` are those named on the command line: for a single one, suggests a hint as the
/// next step, instead of the same command again.
pub fn messages(run: &DayRun, show_output: bool, tasks: &[String]) {
    let quiet = [Status::Passed, Status::Unwritten, Status::Broken];
    let failing: Vec<&Unit> =
        run.units.iter().filter(|unit| !quiet.contains(&unit.status)).collect();
    for unit in &run.units {
        let cause = cause(unit);
        let alike = |other: &&&Unit| self::cause(other) == cause;
        let first = failing.iter().find(alike).is_some_and(|first| first.test == unit.test);
        let wrong = first && !quiet.contains(&unit.status);
        let printed = run.outputs.get(&unit.test);
        if wrong {
            // Show the guess only for a task's first failure: it assumes that simpler checks pass.
            let task = |other: &&&Unit| other.task() == unit.task();
            let simplest = failing.iter().find(task).is_some_and(|first| first.test == unit.test);
            show_message(unit, simplest);
            let others: Vec<String> =
                failing.iter().filter(alike).map(|unit| parts(unit).0).collect();
            also(&others[1..]);
            way_on(unit, tasks);
        }
        match printed {
            Some(text) if show_output => {
                let words = format!("{} printed:", name(unit));
                say!("{}\n{}", paint(Color::Dim, &words), readable(text));
            }
            Some(text) if wrong => {
                let lines = text.lines().count();
                let plural = if lines == 1 { "" } else { "s" };
                let words = format!("  your code printed {lines} line{plural}: --show-output");
                say!("{}", paint(Color::Dim, &words));
            }
            Some(text) => {
                // A check that can't run on this machine passes, and says so.
                let skipped = text.lines().filter(|line| line.starts_with("SKIPPED"));
                skipped.for_each(|line| say!("{line}"));
            }
            None => {}
        }
        if wrong || (printed.is_some() && show_output) {
            say!("");
        }
    }
}

/// The maximum number of checks to list for one cause.
const NAMED: usize = 12;

/// Splits a check's message into its first line and the rest, leaving out the next step.
fn parts(unit: &Unit) -> (String, Vec<&str>) {
    let message = unit.message.trim_end();
    let (head, body) = match message.split_once('\n') {
        Some((head, body)) if head.starts_with("task ") => (head.to_string(), body),
        _ => (name(unit), message),
    };
    (head, body.lines().filter(|line| !line.starts_with(NEXT)).collect())
}

/// Returns a check's name as a reader knows it: its task, and what it claims.
fn name(unit: &Unit) -> String {
    match unit.task() {
        Some(task) => format!("task {task} · {}", claim_of_check(&unit.test)),
        None => unit.test.clone(),
    }
}

/// Returns why a check failed: its diagnosis, or its whole message if there is none. Checks that
/// fail for the same reason return the same lines.
fn cause(unit: &Unit) -> Vec<&str> {
    let (_, body) = parts(unit);
    let diagnosis = |line: &&&str| DIAGNOSIS.iter().any(|start| line.starts_with(start));
    let found: Vec<&str> = body.iter().filter(diagnosis).copied().collect();
    match (found.is_empty(), body.is_empty()) {
        (false, _) => found,
        (true, false) => body,
        (true, true) => vec![unit.test.as_str()], // no message, so it matches no other check
    }
}

/// Prints the message of one check.
pub fn message(unit: &Unit) {
    show_message(unit, true);
}

/// Prints the message of one check, with or without its guess at the cause.
fn show_message(unit: &Unit, with_guess: bool) {
    let (symbol, word) = unit.status.words();
    let (head, body) = parts(unit);
    say!("{}", paint(Color::Red, &format!("{symbol} {word}: {head}")));
    let shown = body.iter().filter(|line| with_guess || !line.starts_with(GUESS));
    shown.for_each(|line| say!("{line}"));
}

/// Names the checks that fail for the same reason.
fn also(heads: &[String]) {
    match heads {
        [] => return,
        [one] => say!("  the same goes for {one}"),
        several => {
            say!("  the same goes for {} more checks:", several.len());
            several.iter().take(NAMED).for_each(|head| say!("    {head}"));
        }
    }
    if heads.len() > NAMED {
        say!("    … and {} more", heads.len() - NAMED);
    }
}

/// Suggests a next step after a failure: checking the task on its own, or a hint if that's what the
/// reader just did.
fn way_on(unit: &Unit, asked: &[String]) {
    let Some(next) = unit.message.lines().find(|line| line.starts_with(NEXT)) else { return };
    match unit.task().filter(|task| asked == std::slice::from_ref(task)) {
        Some(task) => say!("{NEXT}cargo xtask hint --task {task}"),
        None => say!("{next}"),
    }
}

/// Prints the table of a day's tasks: those in `only`, or all if it's empty.
///
/// # Errors
/// If the reference's task lines cannot be read.
pub fn tasks(repo: &Repo, run: &DayRun, words: &str, only: &[String]) -> Result<()> {
    title_line(run, words);
    let mut by_task: BTreeMap<String, Vec<&Unit>> = BTreeMap::new();
    for unit in &run.units {
        by_task
            .entry(unit.task().unwrap_or_else(|| kind(unit).to_string()))
            .or_default()
            .push(unit);
    }
    for task in
        repo.tasks(&run.day)?.iter().filter(|task| only.is_empty() || only.contains(&task.id))
    {
        let units = by_task.remove(&task.id).unwrap_or_default();
        row(&task.id, &title(task), &units);
    }
    for (name, units) in by_task {
        row("", &name, &units);
    }
    Ok(())
}

/// Prints a notice instead of the table. If a day doesn't build, its tasks are neither right nor
/// wrong.
pub fn broken(run: &DayRun, words: &str, places: &BTreeSet<Place>) {
    title_line(run, words);
    let (symbol, word) = Status::Broken.words();
    let at = match places.is_empty() {
        true => String::new(),
        false => format!(": {}", cargo::places(places)),
    };
    say!("  {}{at}", paint(Color::Red, &format!("{symbol} {word}")));
}

/// Prints the line above a day's table.
fn title_line(run: &DayRun, words: &str) {
    say!("{}  {}", paint(Color::Bold, &run.day.title()), paint(Color::Dim, &format!("({words})")));
}

/// Describes a check that belongs to no task.
fn kind(unit: &Unit) -> &'static str {
    if unit.test.starts_with("proof_") {
        "tests of the checkers"
    } else {
        "other checks"
    }
}

/// Returns a task's title, marked if it's beyond the core.
pub fn title(task: &Task) -> String {
    let kind = match (task.challenge, task.further, task.needed_by()) {
        (true, ..) => " (challenge)".to_string(),
        (_, true, Some(day)) => format!(" (required before day {day})"),
        (_, true, None) => " (optional)".to_string(),
        (_, false, _) => String::new(),
    };
    format!("{}{kind}", task.title)
}

/// Prints one row: symbol, word, number, title, and how many checks passed if only some did.
fn row(id: &str, title: &str, units: &[&Unit]) {
    let worst = units.iter().map(|unit| unit.status).max();
    let passed = units.iter().filter(|unit| unit.status == Status::Passed).count();
    let some = match passed {
        0 => String::new(),
        n if n == units.len() => String::new(),
        n => format!("  [{n} of {} checks passed]", units.len()),
    };
    let (symbol, word) = worst.map_or(("–", "no check"), Status::words);
    colored_row(worst, symbol, word, id, title, &some);
}

/// Prints a row of a table of tasks. `None` means that something has changed since the last check.
pub fn print_row(status: Option<Status>, id: &str, title: &str, rest: &str) {
    let (symbol, word) = status.map_or(("?", "not checked"), Status::words);
    colored_row(status, symbol, word, id, title, rest);
}

fn colored_row(
    status: Option<Status>,
    symbol: &str,
    word: &str,
    id: &str,
    title: &str,
    rest: &str,
) {
    let color = match status {
        Some(Status::Passed) => Color::Green,
        Some(Status::Unwritten) | None => Color::Yellow,
        Some(_) => Color::Red,
    };
    let mark = paint(color, &format!("{symbol} {word:<16}"));
    say!("  {mark}  {id:<5} {title}{}", paint(Color::Dim, rest));
}

/// Returns the results of a day that wasn't run. All its checks get the same status.
///
/// # Errors
/// If the checks or the reference's task lines cannot be read.
pub fn not_run(repo: &Repo, day: &Day, status: Status) -> Result<DayRun> {
    let mut names = repo.checks(day)?;
    for task in repo.tasks(day)? {
        let prefix = checks_of_task(&task.id);
        if !names.iter().any(|name| name.starts_with(&prefix)) {
            names.push(prefix);
        }
    }
    let units = names.into_iter().map(|test| Unit::new(test, status, String::new())).collect();
    Ok(DayRun::of(day, units))
}
