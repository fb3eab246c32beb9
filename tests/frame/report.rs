//! Turns the outcome of a check into a report: a status, and text for the reader.

use super::record::Row;
use super::{Check, Failure, Kind, Outcome};
use std::io::Write as _;

/// The outcome of a check, as its program reports it.
pub struct Report {
    /// `passed`, `failed`, `unwritten`, `panicked` or `timeout`.
    pub status: &'static str,
    /// The text for the reader. Empty if the check passed.
    pub message: String,
}

impl Report {
    /// Describes the outcome of a check on the reader's code.
    pub fn of<D>(check: &Check<D>, outcome: &Outcome) -> Self {
        let Err(failure) = outcome else {
            return Self { status: "passed", message: String::new() };
        };
        let status = match &failure.kind {
            Kind::Wrong { .. } | Kind::Error => "failed",
            Kind::Unwritten(_) => "unwritten",
            Kind::Panicked => "panicked",
            Kind::TimedOut => "timeout",
        };
        Self { status, message: describe(check, failure) }
    }

    /// Returns whether the check passed.
    pub fn passed(&self) -> bool {
        self.status == "passed"
    }

    /// Sends the report to the runner.
    pub fn send(&self, id: &str) {
        let Self { status, message } = self;
        send(&serde_json::json!({ "test": id, "status": status, "message": message }));
    }
}

fn describe<D>(check: &Check<D>, failure: &Failure) -> String {
    let task = check.task;
    let day = task.split('.').next().unwrap_or_default();
    let mut text = format!("task {task} · {}\n", check.claim());
    for line in &failure.lines {
        text += &format!("  {line}\n");
    }
    let mut known = diagnoses(&check.id(), failure);
    if known.len() > 2 {
        known.clear(); // many mistakes produce this output, so it identifies none of them
    }
    match &known[..] {
        [one, other] => {
            text += &format!("  this is what you get, for one of two reasons: {one}\n");
            text += &format!("  or: {other}\n");
        }
        _ => known.iter().for_each(|one| text += &format!("  this is what you get: {one}\n")),
    }
    if let (true, Some(likely)) = (known.is_empty(), &failure.likely) {
        text += &format!("  likely: {likely}\n");
    }
    text + &format!("  next: cargo xtask check day{day} --task {task}")
}

/// Returns the diagnoses of the recorded mistakes that fail this check in the same way.
fn diagnoses(id: &str, failure: &Failure) -> Vec<String> {
    if !failure.may_be_known() {
        return Vec::new();
    }
    let same = |row: &Row| row.failures.get(id).is_some_and(|theirs| failure.same(theirs));
    let rows = super::record::rows().unwrap_or_default();
    rows.into_iter().filter(same).map(|row| row.diagnosis).collect()
}

/// Sends a line of JSON to the runner: on standard output, after the character that starts a record
/// of a JSON text sequence (RFC 7464). Everything else there was printed by the code under test.
pub fn send(line: &serde_json::Value) {
    let mut out = std::io::stdout().lock();
    // Without a runner, there is nobody to tell.
    let _ = out.write_all(format!("\u{1e}{line}\n").as_bytes()).and_then(|()| out.flush());
}
