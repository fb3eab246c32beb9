//! The course's own files: every task has its hints, and every known mistake fits the reference.

use candecode_course::hints::tiers;
use candecode_course::{Hints, Repo};
use std::collections::BTreeSet;
use std::path::Path;

fn course() -> Repo {
    Repo::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
}

#[test]
fn every_task_has_its_hints_and_every_hint_has_a_task() {
    let (repo, mut known) = (course(), BTreeSet::new());
    let mut hints = Hints::new();
    for day in &repo.days {
        let of_day = repo.hints(day).unwrap();
        for task in repo.tasks(day).unwrap() {
            let place = format!("{}: task {}", day.hints(), task.id);
            let of_task = of_day.get(&task.id).unwrap_or_else(|| panic!("{place} has no hints"));
            let there = |key: &str| of_task.get(key).is_some_and(|text| !text.trim().is_empty());
            let tiers = tiers(&task);
            let all = of_task.len() == tiers.len() && tiers.iter().all(|(key, _)| there(key));
            assert!(all, "{place} needs {} hints", tiers.len());
            known.insert(task.id);
        }
        hints.extend(of_day);
    }
    hints.retain(|id, _| !known.contains(id));
    assert!(hints.is_empty(), "no such tasks: {:?}", hints.keys());
}

#[test]
fn every_mistake_and_variant_changes_the_reference() {
    let repo = course();
    for day in &repo.days {
        let (source, all) = (repo.read(&day.solution()).unwrap(), repo.mistakes(day).unwrap());
        assert!(!all.mistakes.is_empty(), "{}", day.mistakes());
        let mistakes = all.mistakes.iter().map(|one| (&one.name, &one.change));
        let variants = all.variants.iter().map(|one| (&one.name, &one.change));
        for (name, change) in mistakes.chain(variants) {
            let place = format!("{}: {name}", day.mistakes());
            let changed = change.applied_to(&source).unwrap_or_else(|e| panic!("{place}: {e}"));
            assert_ne!(changed, source, "{place}");
        }
    }
}
