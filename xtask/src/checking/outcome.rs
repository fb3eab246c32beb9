//! What check programs report: a record in JSON for each check.

use crate::term::readable;
use candecode_course::in_src;
use serde_json::Value;
use std::collections::BTreeMap;

/// The outcome of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// The check passed.
    Passed,
    /// A `todo!` was reached.
    Unwritten,
    /// The result was wrong.
    Failed,
    /// The code under test panicked.
    Panicked,
    /// It exceeded its time limit.
    Timeout,
    /// The whole test program ended before this check finished.
    Died,
    /// The day's file does not compile.
    Broken,
}

/// Each status with its word in the report, and its symbol and word on the screen, which always
/// appear together. The last two never come from a checker, only from the runner's saved results.
const STATUSES: [(Status, &str, &str, &str); 7] = [
    (Status::Passed, "passed", "✓", "passed"),
    (Status::Unwritten, "unwritten", "○", "not written"),
    (Status::Failed, "failed", "✗", "failed"),
    (Status::Panicked, "panicked", "✗", "panicked"),
    (Status::Timeout, "timeout", "✗", "ran too long"),
    (Status::Died, "died", "✗", "did not finish"),
    (Status::Broken, "broken", "✗", "does not compile"),
];

impl Status {
    /// Parses a status from the report.
    pub fn parse(word: &str) -> Option<Status> {
        STATUSES.iter().find(|(_, name, ..)| *name == word).map(|(status, ..)| *status)
    }

    /// Returns the word used in the report.
    pub fn name(self) -> &'static str {
        STATUSES[self as usize].1
    }

    /// Returns the symbol and word shown on the screen.
    pub fn words(self) -> (&'static str, &'static str) {
        let (_, _, symbol, word) = STATUSES[self as usize];
        (symbol, word)
    }
}

/// Prefix of the message line that suggests a next step. The runner may replace the line.
pub const NEXT: &str = "  next: ";
/// Prefixes of the message lines that name the mistake: a fact, and one or two that are likely.
pub const DIAGNOSIS: [&str; 3] = ["  this is what you get", "  perhaps", "  or"];
/// Prefix of the message line with a checker's guess, for results that no known mistake explains.
pub const GUESS: &str = "  likely: ";

/// One check and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The name of the check.
    pub test: String,
    /// The outcome.
    pub status: Status,
    /// The message for the reader. Empty if the check passed.
    pub message: String,
    /// What a failure is compared by.
    pub words: String,
}

impl Unit {
    /// Returns a unit that is compared with nothing.
    pub fn new(test: String, status: Status, message: String) -> Unit {
        Unit { test, status, message, words: String::new() }
    }

    /// Returns the task in a test's name: `6.1` for `task_6_1_…`. Returns `None` for other tests,
    /// such as those that test the checkers.
    pub fn task(&self) -> Option<String> {
        candecode_course::task_of_check(&self.test)
    }

    /// Adds the lines that name the cause to the message, in place of the check's guess.
    pub fn add_cause(&mut self, lines: &[String]) {
        let kept = self.message.lines().filter(|line| !line.starts_with(GUESS));
        let (next, mut text): (Vec<&str>, Vec<&str>) =
            kept.partition(|line| line.starts_with(NEXT));
        text.extend(lines.iter().map(String::as_str).chain(next));
        self.message = text.join("\n");
    }
}

/// Parses a record about a check. Returns `None` for any other.
pub fn unit(record: &Value) -> Option<Unit> {
    let field = |name: &str| record[name].as_str().unwrap_or_default();
    let status = Status::parse(field("status"))?;
    let (test, words) = (field("test").to_string(), field("words").to_string());
    // A panic names the reader's file as a module of the check program.
    Some(Unit { test, status, message: in_src(&readable(field("message"))), words })
}

/// Parses the units of a report, one record a line. Skips a line cut off by a crash.
pub fn parse(text: &str) -> BTreeMap<String, Unit> {
    let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let units = records.filter_map(|record| unit(&record));
    units.map(|unit| (unit.test.clone(), unit)).collect()
}

/// A failed check, as far as it's compared with others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    /// How it failed.
    pub status: Status,
    /// The words that were shown and, in a second line, those of the result.
    pub words: String,
}

impl Failure {
    /// Parses a failure from the fields of a record.
    pub fn of(record: &Value) -> Option<Failure> {
        let status = Status::parse(record["status"].as_str()?)?;
        Some(Failure { status, words: record["words"].as_str().unwrap_or_default().to_string() })
    }

    /// Returns whether two failures of one check match word for word. Numbers may differ by as much
    /// as reordering the same operations changes them.
    pub fn same(&self, other: &Failure) -> bool {
        let number = |word: &str| word.parse::<f64>().ok();
        let alike = |a: &str, b: &str| match (number(a), number(b)) {
            _ if a == b => true,
            (Some(a), Some(b)) if a.is_finite() => (a - b).abs() <= 1e-5 * a.abs().max(1.0),
            _ => false,
        };
        let mut words = (self.words.split_whitespace(), other.words.split_whitespace());
        self.status == other.status
            && loop {
                match (words.0.next(), words.1.next()) {
                    (Some(a), Some(b)) if alike(a, b) => {}
                    (a, b) => break a.is_none() && b.is_none(),
                }
            }
    }

    /// Returns whether it says anything about its cause: it's a wrong result or an error, and more
    /// than NaN, which many mistakes lead to.
    pub fn is_telling(&self) -> bool {
        let got = self.words.split_once('\n').map_or("", |(_, got)| got);
        let nothing = !got.is_empty() && got.split_whitespace().all(|word| word.contains("NaN"));
        self.status == Status::Failed && !nothing
    }
}

/// A row of `cargo xtask mistakes`: what a mistake, a correct variant or the stub does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MistakeRow {
    /// `mistake`, `variant` or `stub`.
    pub kind: String,
    /// The name in the day's `mistakes.toml`.
    pub name: String,
    /// The checks that a variant fails. For the stub, those that report "not written yet".
    pub caught: Vec<String>,
    /// How a mistake fails the checks, by check.
    pub failures: BTreeMap<String, Failure>,
    /// For the stub, how many checks there are.
    pub words: String,
}

/// Returns the rows of a report that come from testing the checkers.
pub fn mistake_rows(text: &str) -> Vec<MistakeRow> {
    let values = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let row = |value: Value| {
        let field = |name: &str| value[name].as_str().unwrap_or_default().to_string();
        let caught = value["caught"].as_array().into_iter().flatten();
        let failures = value["failures"].as_object().into_iter().flatten();
        Some(MistakeRow {
            kind: value["row"].as_str()?.to_string(),
            name: field("name"),
            caught: caught.filter_map(|check| Some(check.as_str()?.to_string())).collect(),
            failures: failures
                .filter_map(|(check, failure)| Some((check.clone(), Failure::of(failure)?)))
                .collect(),
            words: field("words"),
        })
    };
    values.filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_round_trips_through_its_name() {
        for (status, name, ..) in STATUSES {
            assert_eq!((status.name(), Status::parse(name)), (name, Some(status)));
        }
    }

    fn failure(words: &str) -> Failure {
        Failure { status: Status::Failed, words: words.into() }
    }

    #[test]
    fn words_match_but_for_rounding() {
        let same = |a: &str, b: &str| failure(a).same(&failure(b));
        assert!(same("got 0.5\n0.5 1000", "got 0.500001\n0.5 1000.001"));
        assert!(!same("got 0.5\n0.5", "got 0.6\n0.5") && !same("a\nb", "a\nb c"));
        assert!(!same("got NaN\ninf", "got NaN\n1") && same("got NaN\ninf", "got NaN\ninf"));
        let panicked = Failure { status: Status::Panicked, words: String::new() };
        assert!(!panicked.same(&failure("")) && panicked.same(&panicked));
    }
}
