//! The proof that the checks work: every known mistake is caught and named, a stub is reported as
//! unwritten, and correct variants pass.

use super::record::{self, Row};
use super::report::{self, task, tell, Finding};
use super::{run, Check, Failure, Kind, Known};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

fn finish(day: usize, test: &str, complaints: Vec<String>) -> Result<(), Finding> {
    let text = complaints.join("\n");
    report::record(day, test, if text.is_empty() { "passed" } else { "failed" }, &text);
    if text.is_empty() {
        return Ok(());
    }
    Err(Finding::new(text))
}

/// Checks that every known mistake fails, and that at least one check tells it apart from all other
/// mistakes.
pub fn mistakes<D: Copy + Send + Sync + 'static>(
    day: usize,
    checks: &[(&str, Check<D>)],
    mistakes: &[Known<D>],
) -> Result<(), Finding> {
    let mut complaints = Vec::new();
    if mistakes.len() < 6 {
        complaints.push(format!("day {day} has {} known mistakes; it needs six", mistakes.len()));
    }
    // Run every mistake through every check once, on all cores, then compare the failures.
    let meets = |mistake: &Known<D>| Row {
        name: mistake.name.to_string(),
        diagnosis: mistake.diagnosis.to_string(),
        failures: checks
            .iter()
            .filter_map(|(name, check)| Some((name.to_string(), run(*check, &mistake.day).err()?)))
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
        tell(&json!({
            "teeth": "mistake", "name": row.name, "words": row.diagnosis, "failures": row.failures,
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
    finish(day, "teeth_every_known_mistake_is_caught_and_named", complaints)
}

/// Applies `f` to every item. Doesn't use rayon, because a check blocks while it waits for its own
/// thread, and that thread may need rayon's pool.
fn on_all_cores<T: Sync, R: Send>(items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = || {
        let at = next.fetch_add(1, Ordering::Relaxed);
        Some((at, f(items.get(at)?)))
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let work = || std::iter::from_fn(take).collect::<Vec<_>>();
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
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
    let words = format!("{} checks", checks.len());
    tell(&json!({"teeth": "stub", "name": "stub", "words": words, "caught": honest, "alone": []}));
    finish(day, "teeth_every_check_reports_a_stub_as_not_written_yet", complaints)
}

/// Checks that every correct variant passes: checks must not over-constrain.
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
                    .push(format!("correct variant {} fails {name}: {failure:?}", variant.name));
            }
        }
        let name = variant.name;
        tell(
            &json!({"teeth": "variant", "name": name, "words": "", "caught": caught, "alone": []}),
        );
    }
    finish(day, "teeth_correct_variants_pass", complaints)
}
