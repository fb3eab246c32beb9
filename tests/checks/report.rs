//! From a failure to the words for the reader.

use super::{run, Check, Failure, Kind, Known};
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

/// Runs one check on the reader's code; a failure becomes a text, and a line of the report that the runner reads.
pub fn examine<D: Copy + Send + 'static>(
    day: usize,
    test: &str,
    check: Check<D>,
    yours: &D,
    mistakes: &[Known<D>],
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
    let text = describe(day, test, check, &failure, mistakes);
    record(day, test, status, &text);
    Err(Finding(text))
}

fn describe<D: Copy + Send + 'static>(
    day: usize,
    test: &str,
    check: Check<D>,
    failure: &Failure,
    mistakes: &[Known<D>],
) -> String {
    let task = task(test);
    let mut text = format!("task {task} · {}\n", claim(test));
    for line in &failure.lines {
        text += &format!("  {line}\n");
    }
    let mut known = diagnoses(check, failure, mistakes);
    if known.len() > 2 {
        known.clear(); // what many mistakes have in common is none of them
    }
    match known[..] {
        [one, other] => {
            text += &format!("  this is what you get, for one of two reasons: {}\n", one.diagnosis);
            text += &format!("  or: {}\n", other.diagnosis);
        }
        _ => known.iter().for_each(|one| {
            text += &format!("  this is what you get: {}\n", one.diagnosis);
        }),
    }
    if let (true, Some(likely)) = (known.is_empty(), &failure.likely) {
        text += &format!("  likely: {likely}\n");
    }
    text + &format!("  next: cargo xtask check day{day} --task {task}")
}

/// The known mistakes whose output in this check is the same.
pub fn diagnoses<'a, D: Copy + Send + 'static>(
    check: Check<D>,
    failure: &Failure,
    mistakes: &'a [Known<D>],
) -> Vec<&'a Known<D>> {
    if !failure.may_be_known() {
        return Vec::new();
    }
    let same = |mistake: &&Known<D>| {
        run(check, &mistake.day).err().is_some_and(|theirs| failure.same(&theirs))
    };
    mistakes.iter().filter(same).collect()
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

/// Appends a line to the file that `CANDECODE_REPORT` names: how the runner learns what happened.
pub fn record(day: usize, test: &str, status: &str, message: &str) {
    let Some(path) = std::env::var_os("CANDECODE_REPORT") else { return };
    let line = serde_json::json!({
        "day": day, "task": task(test), "test": test, "status": status, "message": message,
    });
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    // One write for the whole line: tests run on several threads.
    if let Ok(mut file) = file {
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}
