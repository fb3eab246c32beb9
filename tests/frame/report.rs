//! Turns the outcome of a check into a report: a status, text for the reader, and what the runner
//! compares with the known mistakes.

use super::{Check, Failure, Kind, Outcome};
use serde_json::{json, Value};
use std::io::Write as _;

/// The outcome of a check, as its program reports it.
pub struct Report {
    /// `passed`, `failed`, `unwritten`, `panicked` or `timeout`.
    pub status: &'static str,
    /// The text for the reader. Empty if the check passed.
    pub message: String,
    /// What the failure says, for a comparison with other failures of the check.
    pub words: String,
}

impl Report {
    /// Describes the outcome of a check on the reader's code.
    pub fn of<D>(check: &Check<D>, outcome: &Outcome) -> Self {
        match outcome {
            Ok(()) => Self::plain("passed", String::new()),
            Err(failure) => {
                let (message, words) = (describe(check, failure), failure.words());
                Self { status: failure.status(), message, words }
            }
        }
    }

    /// Returns a report that is compared with nothing.
    pub fn plain(status: &'static str, message: String) -> Self {
        Self { status, message, words: String::new() }
    }

    /// Returns whether the check passed.
    pub fn passed(&self) -> bool {
        self.status == "passed"
    }

    /// Sends the report to the runner.
    pub fn send(&self, id: &str) {
        let Self { status, message, words } = self;
        send(&json!({ "test": id, "status": status, "message": message, "words": words }));
    }
}

fn describe<D>(check: &Check<D>, failure: &Failure) -> String {
    let task = check.task;
    let day = task.split('.').next().unwrap_or_default();
    let mut text = format!("task {task} · {}\n", check.claim());
    let likely = failure.likely.as_ref().map(|likely| format!("likely: {likely}"));
    for line in failure.lines.iter().chain(&likely) {
        text += &format!("  {line}\n");
    }
    text + &format!("  next: cargo xtask check day{day} --task {task}")
}

/// Sends a line of JSON to the runner: on standard output, after the character that starts a record
/// of a JSON text sequence (RFC 7464). Everything else there was printed by the code under test.
pub fn send(line: &Value) {
    let mut out = std::io::stdout().lock();
    // Without a runner, there is nobody to tell.
    let _ = out.write_all(format!("\u{1e}{line}\n").as_bytes()).and_then(|()| out.flush());
}
