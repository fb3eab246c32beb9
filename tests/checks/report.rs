//! Turns failures into text for the reader.

use super::record::Row;
use super::{run, Check, Failure, Kind};
use std::io::Write as _;

/// The finished text about a failed check, printed by the test runner.
pub struct Finding(String);

impl Finding {
    /// Creates a finding with this text.
    pub fn new(text: String) -> Self {
        Self(text)
    }
}

impl std::fmt::Debug for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Runs one check on the reader's code. A failure is returned as text, and the result is appended
/// to the report for the runner.
pub fn examine<D: Copy + Send + 'static>(
    day: usize,
    test: &str,
    check: Check<D>,
    yours: &D,
) -> Result<(), Finding> {
    let Err(failure) = run(check, yours) else {
        record(day, test, "passed", "");
        return Ok(());
    };
    let status = match &failure.kind {
        Kind::Wrong { .. } | Kind::Error => "failed",
        Kind::Unwritten(_) => "unwritten",
        Kind::Panicked => "panicked",
        Kind::TimedOut => "timeout",
    };
    let text = describe(day, test, &failure);
    record(day, test, status, &text);
    Err(Finding(text))
}

fn describe(day: usize, test: &str, failure: &Failure) -> String {
    let task = task(test);
    let mut text = format!("task {task} · {}\n", claim(test));
    for line in &failure.lines {
        text += &format!("  {line}\n");
    }
    let mut known = diagnoses(test, failure);
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
fn diagnoses(test: &str, failure: &Failure) -> Vec<String> {
    if !failure.may_be_known() {
        return Vec::new();
    }
    let same = |row: &Row| row.failures.get(test).is_some_and(|theirs| failure.same(theirs));
    let rows = super::record::rows().unwrap_or_default();
    rows.into_iter().filter(same).map(|row| row.diagnosis).collect()
}

/// Returns the task's number: `task_6_1_the_last_position` → `6.1`; `teeth_…` → nothing.
pub fn task(test: &str) -> String {
    let mut words = test.split('_');
    match (words.next(), words.next(), words.next()) {
        (Some("task"), Some(day), Some(task)) => format!("{day}.{task}"),
        _ => String::new(),
    }
}

fn claim(test: &str) -> String {
    let skip = if test.starts_with("task_") { 3 } else { 1 };
    test.split('_').skip(skip).collect::<Vec<_>>().join(" ")
}

/// Appends the result of a check to the report.
pub fn record(day: usize, test: &str, status: &str, message: &str) {
    tell(&serde_json::json!({
        "day": day, "task": task(test), "test": test, "status": status, "message": message,
    }));
}

/// Appends a line to the file named by `CANDECODE_REPORT`, which the runner reads.
pub fn tell(line: &serde_json::Value) {
    let Some(path) = std::env::var_os("CANDECODE_REPORT") else { return };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    // Write the whole line at once, because tests run on several threads.
    if let Ok(mut file) = file {
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}
