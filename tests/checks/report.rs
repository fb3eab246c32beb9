//! From a failure to the words for the reader.

use super::record::Row;
use super::{run, Check, Failure, Kind};
use std::io::Write as _;

/// A finished text about a failed check; the test runner prints it.
pub struct Finding(String);

impl Finding {
    /// A finding with this text.
    pub fn new(text: String) -> Self {
        Self(text)
    }
}

impl std::fmt::Debug for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Runs one check on the reader's code; a failure becomes a text, and a line of the report that the
/// runner reads.
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
        known.clear(); // what many mistakes have in common is none of them
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

/// What the record says of the known mistakes whose output in this check is the same.
fn diagnoses(test: &str, failure: &Failure) -> Vec<String> {
    if !failure.may_be_known() {
        return Vec::new();
    }
    let same = |row: &Row| row.failures.get(test).is_some_and(|theirs| failure.same(theirs));
    let rows = super::record::rows().unwrap_or_default();
    rows.into_iter().filter(same).map(|row| row.diagnosis).collect()
}

/// `task_6_1_the_last_position` → `6.1`; `teeth_…` → nothing.
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

/// Appends what came of a check to the report.
pub fn record(day: usize, test: &str, status: &str, message: &str) {
    tell(&serde_json::json!({
        "day": day, "task": task(test), "test": test, "status": status, "message": message,
    }));
}

/// Appends a line to the file that `CANDECODE_REPORT` names: how the runner learns what happened.
pub fn tell(line: &serde_json::Value) {
    let Some(path) = std::env::var_os("CANDECODE_REPORT") else { return };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    // One write for the whole line: tests run on several threads.
    if let Ok(mut file) = file {
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}
