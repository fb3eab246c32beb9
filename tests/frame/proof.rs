//! The proof that the checks work: what every known mistake does, a stub is reported as unwritten,
//! and correct variants pass. The runner judges whether each mistake is caught and told apart.

use super::program::{also_id, on_all_cores, problem, Test};
use super::report::{send, Report};
use super::{run, Check, Failure, Kind, Known};
use serde_json::{json, Map, Value};
use std::process::ExitCode;

/// Tests a day's checks, and sends what each known mistake, the stub and each variant does.
pub fn main<D: Copy + Send + Sync + 'static>(
    checks: &[Check<D>],
    also: &[(&str, Test)],
    stub: &D,
    mistakes: &[Known<D>],
    variants: &[Known<D>],
) -> ExitCode {
    let finish = |name: &str, complaints: Vec<String>| {
        let status = if complaints.is_empty() { "passed" } else { "failed" };
        Report::plain(status, complaints.join("\n")).send(&format!("proof_{name}"));
    };
    self::mistakes(checks, mistakes);
    finish("every_check_reports_a_stub_as_not_written_yet", self::stub(checks, stub));
    finish("correct_variants_pass", self::variants(checks, variants));
    for (name, test) in also {
        finish(name, problem(*test).into_iter().collect());
    }
    ExitCode::SUCCESS
}

/// Returns the number of the day that these checks belong to.
fn day_of<D>(checks: &[Check<D>]) -> &'static str {
    checks.first().and_then(|check| check.task.split('.').next()).unwrap_or_default()
}

/// Runs every mistake through every check, on all cores, and sends how it fails them.
fn mistakes<D: Copy + Send + Sync + 'static>(checks: &[Check<D>], mistakes: &[Known<D>]) {
    let meets = |mistake: &Known<D>| -> Map<String, Value> {
        let fails = |check: &Check<D>| {
            let failure = run(check, &mistake.day).err()?;
            let (status, words) = (failure.status(), failure.words());
            Some((check.id(), json!({ "status": status, "words": words })))
        };
        checks.iter().filter_map(fails).collect()
    };
    for (mistake, failures) in mistakes.iter().zip(on_all_cores(mistakes, meets)) {
        send(&json!({ "row": "mistake", "name": mistake.name, "failures": failures }));
    }
}

/// Checks that every check on the stub reports "not written yet" and names its own day and task.
fn stub<D: Copy + Send + 'static>(checks: &[Check<D>], stub: &D) -> Vec<String> {
    let day = day_of(checks);
    let (mut complaints, mut honest) = (Vec::new(), Vec::new());
    for check in checks {
        let id = check.id();
        let found = run(check, stub);
        let said = match &found {
            Err(Failure { kind: Kind::Unwritten(said), .. }) => said.as_str(),
            _ => "",
        };
        if check.task.split('.').next() != Some(day) {
            complaints.push(format!("{id} is not named after a task of day {day}"));
        }
        if said.starts_with(&format!("day {day}, task ")) {
            honest.push(id);
        } else {
            complaints.push(format!("{id} on the stub: not \"not written yet\" but {found:?}"));
        }
    }
    let words = format!("{} checks", checks.len());
    send(&json!({"row": "stub", "name": "stub", "words": words, "caught": honest}));
    complaints
}

/// Checks that every correct variant passes: checks must not over-constrain.
fn variants<D: Copy + Send + 'static>(checks: &[Check<D>], variants: &[Known<D>]) -> Vec<String> {
    let mut complaints = Vec::new();
    for Known { name, day, .. } in variants {
        let mut caught = Vec::new();
        for check in checks {
            if let Err(failure) = run(check, day) {
                complaints
                    .push(format!("correct variant {name} fails {}: {failure:?}", check.id()));
                caught.push(check.id());
            }
        }
        send(&json!({"row": "variant", "name": name, "words": "", "caught": caught}));
    }
    complaints
}
