//! The reader's progress, from the days' files and the last check of their current content.

use crate::checking::outcome::{Status, Unit};
use crate::checking::runner::DayRun;
use crate::checking::saved::{self, Inputs};
use crate::note;
use anyhow::Result;
use candecode_course::{stubs, Day, Progress, Repo, Task};
use std::collections::BTreeSet;

/// A day, with the status of each task.
#[derive(Clone, Debug)]
pub struct DayProgress {
    /// The day.
    pub day: Day,
    /// The state of its file.
    pub file: Progress,
    /// Whether the file is the reference's code, as written by `reset --ref`.
    pub given: bool,
    /// Each task and its status. `None`: written, but not checked since the last change.
    pub tasks: Vec<(Task, Option<Status>)>,
}

impl DayProgress {
    /// Returns whether the day's file differs from the stub.
    pub fn begun(&self) -> bool {
        matches!(self.file, Progress::Begun(_))
    }

    /// Returns whether every core task passed.
    pub fn done(&self) -> bool {
        self.open().is_none()
    }

    /// Updates the statuses from a check that has just run.
    pub fn take(&mut self, run: &DayRun) {
        for (task, status) in &mut self.tasks {
            *status = worst(run.units.iter(), task).or(*status);
        }
    }

    /// Returns the first core task that hasn't passed.
    pub fn open(&self) -> Option<&(Task, Option<Status>)> {
        self.tasks.iter().find(|(task, status)| !task.further && *status != Some(Status::Passed))
    }

    /// Returns the first task that hasn't passed. Core tasks come first.
    pub fn first_unfinished(&self) -> Option<&(Task, Option<Status>)> {
        let any = || self.tasks.iter().find(|(_, status)| *status != Some(Status::Passed));
        self.open().or_else(any)
    }
}

/// Returns the reader's progress on a day, task by task.
///
/// # Errors
/// If a file of the repository can't be read.
pub fn with_results(repo: &Repo, inputs: &Inputs, day: &Day) -> Result<DayProgress> {
    let file = repo.progress(day)?;
    let (mut given, mut known) = (false, None);
    if matches!(file, Progress::Begun(_)) {
        let (mine, reference) = (repo.read(&day.src())?, repo.read(&day.solution())?);
        given = stubs::unmarked(&mine) == stubs::unmarked(&reference);
        known = saved::load(repo, inputs, day);
    }
    let known = known.unwrap_or_default();
    let status = |task: &Task| match &file {
        Progress::Missing => Some(Status::Broken),
        Progress::Stub => Some(Status::Unwritten),
        Progress::Begun(left) => worst(known.values(), task)
            .or(left.contains(&task.id).then_some(Status::Unwritten))
            .or(given.then_some(Status::Passed)), // the reference's own code needs no check
    };
    let tasks = repo.tasks(day)?.into_iter().map(|task| (task.clone(), status(&task))).collect();
    Ok(DayProgress { day: day.clone(), file, given, tasks })
}

/// Returns the reader's progress on every day, in the order of the book. A file that can't be read
/// is reported, and its day counts as one that doesn't compile.
///
/// # Errors
/// If a file of the course can't be read.
pub fn all_days(repo: &Repo, inputs: &Inputs) -> Result<Vec<DayProgress>> {
    let progress = |day: &Day| {
        with_results(repo, inputs, day).or_else(|problem| {
            let tasks = repo.tasks(day)?.into_iter().map(|task| (task, Some(Status::Broken)));
            note!("{problem:#}");
            let (day, file) = (day.clone(), Progress::Begun(BTreeSet::new()));
            Ok(DayProgress { day, file, given: false, tasks: tasks.collect() })
        })
    };
    let mut days = repo.days.iter().map(progress).collect::<Result<Vec<_>>>()?;
    days.sort_by_key(|day| day.day.place());
    Ok(days)
}

/// Returns the day to continue with, if any is open. Days can be skipped, so this is the first day
/// that was started but isn't done; otherwise the first open one after the last finished day;
/// otherwise the first open one.
pub fn next(days: &[DayProgress]) -> Option<&DayProgress> {
    let last_done = days.iter().rposition(|day| day.begun() && day.done());
    let after = days.get(last_done.map_or(0, |at| at + 1)..).unwrap_or_default();
    let begun = days.iter().find(|day| day.begun() && !day.done());
    begun.or_else(|| after.iter().chain(days).find(|day| !day.done()))
}

/// Returns the day to continue with after one that has just been done, whatever an editor is doing
/// to its file.
pub fn next_after(mut days: Vec<DayProgress>, done: DayProgress) -> Option<DayProgress> {
    days.iter_mut().filter(|day| day.day == done.day).for_each(|day| *day = done.clone());
    next(&days).cloned()
}

/// Returns a task's status, which is that of its worst check, or `None` if it has no checks.
fn worst<'a>(units: impl Iterator<Item = &'a Unit>, task: &Task) -> Option<Status> {
    units.filter(|unit| unit.task().as_ref() == Some(&task.id)).map(|unit| unit.status).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(number: u32, file: Progress, status: Status) -> DayProgress {
        let task = |number: u32, further| Task {
            id: format!("0.{number}"),
            further,
            challenge: false,
            part: None,
            title: "x".into(),
            line: 1,
        };
        DayProgress {
            day: Day { number, name: format!("day{number:02}_x") },
            file,
            given: false,
            tasks: vec![(task(1, false), Some(status)), (task(2, true), Some(Status::Unwritten))],
        }
    }

    fn next_of(days: &[DayProgress]) -> Option<u32> {
        next(days).map(|day| day.day.number)
    }

    #[test]
    fn started_days_come_first_then_days_after_the_last_finished() {
        let mine = || Progress::Begun(BTreeSet::new());
        let stub = |number| day(number, Progress::Stub, Status::Unwritten);
        let done = |number| day(number, mine(), Status::Passed);
        let begun = |number| day(number, mine(), Status::Failed);
        assert_eq!(next_of(&[done(0), stub(1), stub(2)]), Some(1));
        assert_eq!(next_of(&[stub(0), begun(1), stub(2)]), Some(1));
        assert_eq!(next_of(&[stub(0), done(1), stub(2)]), Some(2), "no day blocks later ones");
        assert_eq!(next_of(&[stub(0), done(1)]), Some(0));
        assert_eq!(next_of(&[done(0), done(1)]), None);
        let gone = day(1, Progress::Missing, Status::Broken);
        let after = next_after(vec![stub(0), gone, stub(2)], done(1));
        assert_eq!(after.map(|day| day.day.number), Some(2), "day 1 is done, and no open day");
        let first = done(0).first_unfinished().map(|(task, _)| task.id.clone());
        assert_eq!(first.as_deref(), Some("0.2"), "a further task doesn't keep a day open");
    }
}
