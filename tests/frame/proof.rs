//! The proof that the checks work: every known mistake is caught and named, a stub is reported as
//! unwritten, and correct variants pass.

use super::program::{also_id, on_all_cores, problem, Test};
use super::record::{self, Row};
use super::report::{send, Report};
use super::{run, Check, Failure, Kind, Known};
use serde_json::json;
use std::collections::BTreeSet;
use std::process::ExitCode;

/// Tests a day's checks, and sends what each known mistake, the stub and each variant does. With
/// the argument `record`, stops after the known mistakes.
pub fn main<D: Copy + Send + Sync + 'static>(
    args: &[String],
    checks: &[Check<D>],
    also: &[(&str, Test)],
    stub: &D,
    mistakes: &[Known<D>],
    variants: &[Known<D>],
) -> ExitCode {
    let finish = |name: &str, complaints: Vec<String>| {
        let status = if complaints.is_empty() { "passed" } else { "failed" };
        Report { status, message: complaints.join("\n") }.send(&format!("proof_{name}"));
    };
    finish("every_known_mistake_is_caught_and_named", self::mistakes(checks, mistakes));
    if args.iter().any(|arg| arg == "record") {
        return ExitCode::SUCCESS;
    }
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

/// Checks that every known mistake fails, and that at least one check tells it apart from all other
/// mistakes.
fn mistakes<D: Copy + Send + Sync + 'static>(
    checks: &[Check<D>],
    mistakes: &[Known<D>],
) -> Vec<String> {
    let (day, mut complaints) = (day_of(checks), Vec::new());
    if mistakes.len() < 6 {
        complaints.push(format!("day {day} has {} known mistakes; it needs six", mistakes.len()));
    }
    // Run every mistake through every check once, on all cores, then compare the failures.
    let meets = |mistake: &Known<D>| Row {
        name: mistake.name.to_string(),
        diagnosis: mistake.diagnosis.to_string(),
        failures: checks
            .iter()
            .filter_map(|check| Some((check.id(), run(check, &mistake.day).err()?)))
            .collect(),
    };
    let found = on_all_cores(mistakes, meets);
    for row in &found {
        let told_apart = |(check, failure): &(&String, &Failure)| {
            let theirs = found.iter().filter_map(|other| other.failures.get(*check));
            failure.may_be_known() && theirs.filter(|theirs| failure.same(theirs)).count() == 1
        };
        let alone = row.failures.iter().filter(told_apart).map(|(check, _)| check);
        let alone: Vec<&String> = alone.collect();
        send(&json!({
            "row": "mistake", "name": row.name, "words": row.diagnosis, "failures": row.failures,
            "caught": row.failures.keys().collect::<Vec<_>>(), "alone": alone,
        }));
        let name = &row.name;
        if row.failures.is_empty() {
            complaints.push(format!("the mistake {name} passes every check"));
        } else if alone.is_empty() {
            let failed: Vec<&String> = row.failures.keys().collect();
            complaints
                .push(format!("the mistake {name} fails, but no check tells it apart: {failed:?}"));
        }
    }
    complaints.extend(record::rows().map(|kept| differences(&kept, &found)).unwrap_or_default());
    complaints
}

/// Returns the differences between the runner's record and what the mistakes do now.
fn differences(kept: &[Row], found: &[Row]) -> Vec<String> {
    let mut complaints = Vec::new();
    for row in found {
        let name = &row.name;
        let Some(kept) = kept.iter().find(|kept| kept.name == *name) else {
            complaints.push(format!("the record lacks the mistake {name}"));
            continue;
        };
        if kept.diagnosis != row.diagnosis {
            complaints.push(format!("the record has a different diagnosis for {name}"));
        }
        let checks: BTreeSet<&String> = kept.failures.keys().chain(row.failures.keys()).collect();
        for check in checks {
            let (was, is) = (kept.failures.get(check), row.failures.get(check));
            if !was.zip(is).is_some_and(|(was, is)| was.same(is)) {
                let text =
                    format!("{name} in {check}: the record has {was:?}, and now it is {is:?}");
                complaints.push(text);
            }
        }
    }
    complaints
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
    send(&json!({"row": "stub", "name": "stub", "words": words, "caught": honest, "alone": []}));
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
        send(&json!({"row": "variant", "name": name, "words": "", "caught": caught, "alone": []}));
    }
    complaints
}
