//! What check programs report: a record in JSON for each check.

use crate::term::readable;
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
    fn parse(word: &str) -> Option<Status> {
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

/// One check and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The name of the check.
    pub test: String,
    /// The outcome.
    pub status: Status,
    /// The message for the reader. Empty if the check passed.
    pub message: String,
}

impl Unit {
    /// Returns the task in a test's name: `6.1` for `task_6_1_…`. Returns `None` for other tests,
    /// such as those that test the checkers.
    pub fn task(&self) -> Option<String> {
        candecode_course::task_of_check(&self.test)
    }
}

/// Parses a record about a check. Returns `None` for any other.
pub fn unit(record: &Value) -> Option<Unit> {
    let field = |name: &str| record[name].as_str().unwrap_or_default();
    let status = Status::parse(field("status"))?;
    Some(Unit { test: field("test").to_string(), status, message: readable(field("message")) })
}

/// Parses the units of a report, one record a line. Skips a line cut off by a crash. If a check has
/// several lines, keeps the worst.
pub fn parse(text: &str) -> BTreeMap<String, Unit> {
    let mut units: BTreeMap<String, Unit> = BTreeMap::new();
    let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    for unit in records.filter_map(|record| unit(&record)) {
        match units.get(&unit.test) {
            Some(known) if known.status >= unit.status => {}
            _ => {
                units.insert(unit.test.clone(), unit);
            }
        }
    }
    units
}

/// A row of `cargo xtask mistakes`: a mistake, a correct variant or the stub, with the checks that
/// caught it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MistakeRow {
    /// `mistake`, `variant` or `stub`.
    pub kind: String,
    /// The name in the day's `mistakes.toml`.
    pub name: String,
    /// The checks that fail. For the stub, those that report "not written yet".
    pub caught: Vec<String>,
    /// The checks that no other mistake fails in the same way.
    pub alone: Vec<String>,
    /// The diagnosis, for a mistake.
    pub words: String,
}

/// Returns the rows of a report that come from testing the checkers.
pub fn mistake_rows(text: &str) -> Vec<MistakeRow> {
    let values = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let row = |value: Value| {
        let field = |name: &str| value[name].as_str().unwrap_or_default().to_string();
        let list = |name: &str| {
            let items = value[name].as_array().into_iter().flatten();
            items.filter_map(|item| item.as_str().map(str::to_string)).collect()
        };
        let kind = value["row"].as_str()?.to_string();
        let (caught, alone) = (list("caught"), list("alone"));
        Some(MistakeRow { kind, name: field("name"), caught, alone, words: field("words") })
    };
    values.filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(test: &str, status: Status, message: &str) -> Unit {
        Unit { test: test.into(), status, message: message.into() }
    }

    #[test]
    fn the_worst_status_wins_and_broken_lines_are_ignored() {
        let text = "{\"test\":\"a\",\"status\":\"failed\",\"message\":\"m\"}\n\
                    {\"test\":\"a\",\"status\":\"passed\",\"message\":\"\"}\n\
                    {\"test\":\"b\",\"status\":\"unwri";
        assert_eq!(parse(text).into_values().collect::<Vec<_>>(), [unit("a", Status::Failed, "m")]);
    }

    #[test]
    fn every_status_round_trips_through_its_name() {
        for (status, name, ..) in STATUSES {
            assert_eq!((status.name(), Status::parse(name)), (name, Some(status)));
        }
    }
}
