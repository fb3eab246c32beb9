//! The proof that the checkers bite: every known mistake fails and is named, a stub is told apart from a mistake, and
//! another right way passes.

use super::report::{record, task, Finding};
use super::{run, Check, Failure, Kind, Known};
use std::io::Write as _;

fn finish(day: usize, test: &str, complaints: Vec<String>) -> Result<(), Finding> {
    let text = complaints.join("\n");
    record(day, test, if text.is_empty() { "passed" } else { "failed" }, &text);
    if text.is_empty() {
        return Ok(());
    }
    Err(Finding::new(text))
}

/// Appends a row of the table of `cargo xtask teeth` to the report: in `caught` it fails, in `alone` it is told apart.
fn tell(day: usize, kind: &str, name: &str, caught: &[&str], alone: &[&str], words: &str) {
    let Some(path) = std::env::var_os("CANDECODE_REPORT") else { return };
    let row = serde_json::json!({
        "teeth": kind, "day": day, "name": name, "caught": caught, "alone": alone, "words": words,
    });
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    if let Ok(mut file) = file {
        let _ = file.write_all(format!("{row}\n").as_bytes());
    }
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
    // Every mistake meets every check once; then the failures are compared.
    let meets = |mistake: &Known<D>| {
        checks.iter().map(|(_, check)| run(*check, &mistake.day).err()).collect()
    };
    let found: Vec<Vec<Option<Failure>>> = mistakes.iter().map(meets).collect();
    for (mistake, failures) in mistakes.iter().zip(&found) {
        let named = |at: usize, failure: &Failure| {
            let theirs = found.iter().filter_map(|failures| failures[at].as_ref());
            failure.may_be_known() && theirs.filter(|theirs| failure.same(theirs)).count() == 1
        };
        let failed = checks.iter().zip(failures).enumerate();
        let failed: Vec<(&str, bool)> = failed
            .filter_map(|(at, ((name, _), failure))| Some((*name, named(at, failure.as_ref()?))))
            .collect();
        println!("{}: caught by {failed:?}", mistake.name);
        let caught: Vec<&str> = failed.iter().map(|(name, _)| *name).collect();
        let alone: Vec<&str> =
            failed.iter().filter(|(_, alone)| *alone).map(|(name, _)| *name).collect();
        tell(day, "mistake", mistake.name, &caught, &alone, mistake.diagnosis);
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
    let (mut complaints, mut honest) = (Vec::new(), Vec::new());
    for (name, check) in checks {
        let found = run(*check, stub);
        let said = match &found {
            Err(failure) => match &failure.kind {
                Kind::Unwritten(said) => said.as_str(),
                _ => "",
            },
            Ok(()) => "",
        };
        if said.starts_with(&format!("day {day}, task ")) {
            honest.push(*name);
        } else {
            complaints.push(format!("{name} on the stub: not \"not written yet\" but {found:?}"));
        }
        if task(name).split('.').next() != Some(&day.to_string()) {
            complaints.push(format!("{name} is not named after a task of day {day}"));
        }
    }
    tell(day, "stub", "stub", &honest, &[], &format!("{} checks", checks.len()));
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
        let mut caught = Vec::new();
        for (name, check) in checks {
            if let Err(failure) = run(*check, &variant.day) {
                caught.push(*name);
                complaints
                    .push(format!("the right variant {} fails {name}: {failure:?}", variant.name));
            }
        }
        tell(day, "variant", variant.name, &caught, &[], "");
    }
    finish(day, "teeth_other_right_ways_pass", complaints)
}

/// Every check on the mutant that `CANDECODE_MUTANT` names, until one fails; the check that `CANDECODE_MUTANT_FIRST` names
/// goes first. `cargo maintain mutants` reads what is printed.
pub fn mutant<D: Copy + Send + 'static>(
    checks: &[(&str, Check<D>)],
    mutants: &[Known<D>],
) -> Result<(), Finding> {
    let named = |variable| std::env::var(variable).unwrap_or_default();
    let (name, first) = (named("CANDECODE_MUTANT"), named("CANDECODE_MUTANT_FIRST"));
    let Some(mutant) = mutants.iter().find(|mutant| mutant.name == name) else {
        return Err(Finding::new(format!("no mutant {name:?}: CANDECODE_MUTANT names one")));
    };
    let (mut order, rest): (Vec<&(&str, Check<D>)>, Vec<_>) =
        checks.iter().partition(|(name, _)| *name == first);
    order.extend(rest);
    for (name, check) in order {
        println!("mutant meets {name}");
        if let Err(failure) = run(*check, &mutant.day) {
            println!("mutant caught by {name}");
            return Err(Finding::new(failure.lines.join("\n")));
        }
    }
    println!("mutant survived");
    Ok(())
}
