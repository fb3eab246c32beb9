//! Checks that the mutation testing reports, `tests/dayNN_*/mutants.json`, still match the reference.

use candecode_course::Repo;
use serde::Deserialize;
use std::path::Path;

/// The outcome of a day's mutants.
#[derive(Deserialize)]
struct Report {
    counts: Counts,
    survivors: Vec<Survivor>,
}

#[derive(Deserialize)]
struct Counts {
    caught: usize,
    survived: usize,
}

/// A change that no check catches, and the reason that it isn't a mistake.
#[derive(Deserialize)]
struct Survivor {
    line: String,
    change: String,
    reason: String,
}

#[test]
fn every_survivor_has_its_line_and_a_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let repo = Repo::open(&root).unwrap();
    for day in &repo.days {
        let path = day.mutants();
        let report: Report = serde_json::from_str(&repo.read(&path).unwrap()).unwrap();
        let source = repo.read(&day.solution()).unwrap();
        for Survivor { line, change, reason } in &report.survivors {
            assert!(!reason.trim().is_empty(), "{path}: {change} in `{line}` has no reason");
            let is_there = source.lines().any(|other| other.trim() == line);
            assert!(is_there, "{path}: `{line}` is gone: run the day's mutants again");
        }
        let Counts { caught, survived } = report.counts;
        assert_eq!(survived, report.survivors.len(), "{path}");
        assert!(100 * caught >= 95 * (caught + survived), "{path}: below 95 %");
    }
}
