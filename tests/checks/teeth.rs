//! The proof that the checkers bite: every known mistake fails and is named, a stub is told apart from a mistake, and
//! another right way passes.

use super::report::{alike, record, task, Finding};
use super::{run, Check, Failure, Kind, Known};

fn finish(day: usize, test: &str, complaints: Vec<String>) -> Result<(), Finding> {
    let text = complaints.join("\n");
    record(day, test, if text.is_empty() { "passed" } else { "failed" }, &text);
    if text.is_empty() {
        return Ok(());
    }
    Err(Finding::new(text))
}

/// Every known mistake fails at least one check, and there it is the only one that is named.
pub fn mistakes<D: Copy + Send + 'static>(
    day: usize,
    checks: &[(&str, Check<D>)],
    mistakes: &[Known<D>],
) -> Result<(), Finding> {
    let mut complaints = Vec::new();
    if mistakes.len() < 6 {
        complaints.push(format!("day {day} knows {} mistakes; six at least", mistakes.len()));
    }
    // Every mistake once on every check: the failures are compared with one another after that.
    let outcomes = |check: &Check<D>| mistakes.iter().map(|m| run(*check, &m.day).err()).collect();
    let table: Vec<(&str, Vec<Option<Failure>>)> =
        checks.iter().map(|(name, check)| (*name, outcomes(check))).collect();
    for (at, mistake) in mistakes.iter().enumerate() {
        let failed = table.iter().filter_map(|(name, outcomes)| {
            let failure = outcomes[at].as_ref()?;
            let named = outcomes.iter().flatten().filter(|other| alike(failure, other)).count();
            Some((*name, named == 1))
        });
        let failed: Vec<(&str, bool)> = failed.collect();
        println!("{}: caught by {failed:?}", mistake.name);
        if failed.is_empty() {
            complaints.push(format!("the mistake {} passes every check", mistake.name));
        } else if !failed.iter().any(|(_, alone)| *alone) {
            complaints.push(format!(
                "the mistake {} fails, but is never told apart: {failed:?}",
                mistake.name
            ));
        }
    }
    finish(day, "teeth_every_known_mistake_is_caught_and_named", complaints)
}

/// Every check on the stub says "not written yet", and names its own day and task.
pub fn stub<D: Copy + Send + 'static>(
    day: usize,
    checks: &[(&str, Check<D>)],
    stub: &D,
) -> Result<(), Finding> {
    let mut complaints = Vec::new();
    for (name, check) in checks {
        let found = run(*check, stub);
        let said = match &found {
            Err(failure) => match &failure.kind {
                Kind::Unwritten(said) => said.as_str(),
                _ => "",
            },
            Ok(()) => "",
        };
        if !said.starts_with(&format!("day {day}, task ")) {
            complaints.push(format!("{name} on the stub: not \"not written yet\" but {found:?}"));
        }
        if task(name).split('.').next() != Some(&day.to_string()) {
            complaints.push(format!("{name} is not named after a task of day {day}"));
        }
    }
    finish(day, "teeth_a_stub_is_not_written_yet", complaints)
}

/// A different but right way passes every check: checks must not over-constrain.
pub fn variants<D: Copy + Send + 'static>(
    day: usize,
    checks: &[(&str, Check<D>)],
    variants: &[Known<D>],
) -> Result<(), Finding> {
    let mut complaints = Vec::new();
    for variant in variants {
        for (name, check) in checks {
            if let Err(failure) = run(*check, &variant.day) {
                complaints
                    .push(format!("the right variant {} fails {name}: {failure:?}", variant.name));
            }
        }
    }
    finish(day, "teeth_other_right_ways_pass", complaints)
}
