//! What follows once a day is done: whether the engine compiles with it, and where to go next.

use crate::cargo::{self, Built};
use crate::checking::outcome::{Status, Unit};
use crate::checking::runner::DayRun;
use crate::{engine, note, say};
use anyhow::Result;
use candecode_course::{Day, Repo, SCORED_DAYS};

/// Prints the next step if the reader's day (or its core, or the chosen part) is done. Returns
/// false if the engine doesn't compile with the day.
pub fn next(repo: &Repo, part: Option<u32>, run: &DayRun) -> Result<bool> {
    let tasks = repo.tasks(&run.day)?;
    let further = |unit: &Unit| {
        let task = unit.task().and_then(|id| tasks.iter().find(|task| task.id == id));
        task.is_some_and(|task| task.further)
    };
    let open: Vec<_> = run.units.iter().filter(|unit| unit.status != Status::Passed).collect();
    if run.units.is_empty() || !open.iter().all(|unit| further(unit)) {
        return Ok(true);
    }
    let number = run.day.number;
    let done =
        if open.is_empty() { "is done" } else { "has its core done; only optional tasks are left" };
    if let Some(part) = part {
        say!("Part {part} of day {number} {done}.");
        let next = part + 1;
        if tasks.iter().any(|task| task.part == Some(next)) {
            say!("Next: cargo xtask check day{number} --part {next}\n");
        } else {
            say!("That was the last part. To check the whole day: cargo xtask check day{number}\n");
        }
        return Ok(true);
    }
    say!("Day {number} {done}.");
    if !fits(repo, &run.day)? {
        return Ok(false);
    }
    if let Some(command) = repo.demo(&run.day) {
        say!("See it run: {command}");
    }
    offer_numbers(&run.day);
    let after = repo.days.iter().filter(|day| day.place() > run.day.place());
    match after.min_by_key(|day| day.place()) {
        Some(day) => say!("Next: day {}, {}\n", day.number, day.chapter()),
        None => say!("That was the last day.\n"),
    }
    Ok(true)
}

/// Names the open tasks of other days that a day's engine needs, in a sentence.
///
/// # Errors
/// If a file of the repository can't be read.
pub fn needed_first(repo: &Repo, day: &Day) -> Result<Option<String>> {
    let open: Vec<String> = repo.open_tasks_for(day)?.into_iter().map(|task| task.id).collect();
    let tasks = match &open[..] {
        [] => return Ok(None),
        [one] => format!("task {one}"),
        [others @ .., last] => format!("tasks {} and {last}", others.join(", ")),
    };
    Ok(Some(format!("Your engine runs day {} once you've written {tasks}.", day.number)))
}

/// Names the commands that measure what the day gained, and the whole engine if the day can change
/// its score.
pub fn offer_numbers(day: &Day) {
    say!("See what it gained: cargo xtask bench day{}", day.number);
    if SCORED_DAYS.contains(&day.number) {
        say!("Your engine's score: cargo xtask list --score");
    }
}

/// Builds the engine as `run` would, and returns whether it compiles with the day. The day's checks
/// compile it only with the reference's other days, so they can't show that. If the engine needs
/// another day's open tasks first, says so instead.
pub fn fits(repo: &Repo, day: &Day) -> Result<bool> {
    let number = day.number;
    if let Some(needed) = needed_first(repo, day)? {
        say!("{needed}");
        return Ok(true);
    }
    match engine::build_with_written_days(repo)?.0 {
        Built::Done(_) => {
            say!("The engine compiles with it: `cargo xtask run` now uses your code.");
            Ok(true)
        }
        Built::Broken(places) => {
            note!("\n{}", cargo::explain(&places));
            if places.is_empty() {
                say!("But the engine could not be built, so this doesn't show whether it fits.\n");
                return Ok(false);
            }
            // Another day may be wrong by itself, or because this day's signatures have changed.
            let in_another_day = places.iter().any(|place| place.file.starts_with("src/day"))
                && places.iter().all(|place| place.file != day.src());
            let places = cargo::places(&places);
            if in_another_day {
                say!(
                    "But `cargo xtask run` does not compile: {places}. If that day is right, are \
                     day {number}'s types and signatures the same as in the stub?\n"
                );
            } else {
                say!(
                    "But `cargo xtask run` does not compile with day {number}: {places}. Are its \
                     types and signatures the same as in the stub?\n"
                );
            }
            Ok(false)
        }
    }
}
