//! The reader's progress, from the days' files and the last check of their current content.

use crate::checking::outcome::{Status, Unit};
use crate::checking::runner::DayRun;
use crate::checking::saved::{self, Inputs};
use crate::repo::{Day, Repo};
use crate::stubs::{self, Task};
use anyhow::Result;
use std::collections::BTreeSet;

/// The state of a day's file in `src/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The file doesn't exist.
    Missing,
    /// The unchanged stub.
    Stub,
    /// Changed, with these tasks still `todo!`. If none are left, the day is written.
    Begun(BTreeSet<String>),
}

/// Returns the state of a day's file.
///
/// # Errors
/// If the reference or the file can't be read.
pub fn of(repo: &Repo, day: &Day) -> Result<Progress> {
    if !repo.root.join(day.src()).exists() {
        return Ok(Progress::Missing);
    }
    let source = repo.read(&day.src())?;
    if source.lines().eq(repo.stub(day)?.lines()) {
        return Ok(Progress::Stub);
    }
    Ok(Progress::Begun(unwritten(&source, day.number)))
}

/// Returns the tasks that still have their `todo!` in `source`, ignoring comments.
pub fn unwritten(source: &str, day: u32) -> BTreeSet<String> {
    let (mut code, mut in_comment) = (String::new(), false);
    for line in source.lines().map(str::trim) {
        in_comment |= line.starts_with("/*");
        if !in_comment && !line.starts_with("//") {
            code += line.split(" // ").next().unwrap_or_default();
        }
        in_comment &= !line.contains("*/");
    }
    let label = format!("\"day {day}, task ");
    let labels = code.split("todo!(").skip(1).filter_map(|after| after.trim().strip_prefix(&label));
    labels
        .map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>())
        .map(|number| format!("{day}.{number}"))
        .collect()
}

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
    let file = of(repo, day)?;
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

/// Returns the reader's progress on every day.
///
/// # Errors
/// Same as [`with_results`].
pub fn all_days(repo: &Repo, inputs: &Inputs) -> Result<Vec<DayProgress>> {
    repo.days.iter().map(|day| with_results(repo, inputs, day)).collect()
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

/// Returns a task's status, which is that of its worst check, or `None` if it has no checks.
fn worst<'a>(units: impl Iterator<Item = &'a Unit>, task: &Task) -> Option<Status> {
    units.filter(|unit| unit.task().as_ref() == Some(&task.id)).map(|unit| unit.status).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn todos_are_found_except_in_comments() {
        let left = |source: &str| unwritten(source, 6).into_iter().collect::<Vec<_>>();
        assert_eq!(left("fn a() { todo!(\"day 6, task 1: x\") }"), ["6.1"]);
        assert_eq!(left("\"http://x\"; todo!(\n    \"day 6, task 12: x\"\n)"), ["6.12"]);
        assert_eq!(left("/* a\n*/\n\"/*\"; todo!(\"day 6, task 2: x\")"), ["6.2"]);
        assert!(left("    //todo!(\"day 6, task 1: x\")\n").is_empty());
        assert!(left("1; // was todo!(\"day 6, task 1: x\")").is_empty());
        assert!(left("/*\ntodo!(\"day 6, task 1: x\")\n*/").is_empty());
        assert!(left("todo!(\"later\"); todo!(\"day 7, task 1: x\"); todo!()").is_empty());
    }

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
        let first = done(0).first_unfinished().map(|(task, _)| task.id.clone());
        assert_eq!(first.as_deref(), Some("0.2"), "a further task doesn't keep a day open");
    }
}
