//! Where the reader stands: each day and its tasks, from the files and from the last check of exactly these files.

use crate::checks::report::{Status, Unit};
use crate::checks::results::{self, Inputs};
use crate::checks::runner::DayRun;
use crate::progress::{self, Progress};
use crate::repo::{Day, Repo};
use crate::stubs::{self, Task};
use anyhow::Result;
use std::collections::BTreeSet;

/// Whose code a day's file in `src/` holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// There is no such file.
    Nobody,
    /// The stub: the engine takes the reference in its place.
    Stub,
    /// The reference's code, as `give` puts it there.
    Given,
    /// The reader's.
    Yours,
}

impl Whose {
    /// For the heading of a day.
    pub fn words(self) -> &'static str {
        match self {
            Whose::Nobody => "src/ lacks this file: cargo xtask reset brings the stub",
            Whose::Stub => "the stub; the engine runs the reference",
            Whose::Given => "given: the reference's code is in src/",
            Whose::Yours => "yours",
        }
    }
}

/// A day, and where each of its tasks stands.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The day.
    pub day: Day,
    /// Whose code it is.
    pub whose: Whose,
    /// Each task; `None`: written, and not checked since something changed.
    pub tasks: Vec<(Task, Option<Status>)>,
}

impl Standing {
    /// Whether a line of the day was written, or given.
    pub fn begun(&self) -> bool {
        matches!(self.whose, Whose::Yours | Whose::Given)
    }

    /// Whether every core task passed.
    pub fn done(&self) -> bool {
        self.open().is_none()
    }

    /// Takes the outcome of a check that has just run.
    pub fn take(&mut self, run: &DayRun) {
        for (task, status) in &mut self.tasks {
            *status = worst(run.units.iter(), task).or(*status);
        }
    }

    /// Whether something was written that no check has seen.
    pub fn unchecked(&self) -> bool {
        self.begun() && self.tasks.iter().any(|(_, status)| status.is_none())
    }

    /// The first core task that has not passed.
    pub fn open(&self) -> Option<&(Task, Option<Status>)> {
        self.tasks.iter().find(|(task, status)| !task.further && *status != Some(Status::Passed))
    }

    /// The first task that has not passed: of the core, else of what is further.
    pub fn first_unfinished(&self) -> Option<&(Task, Option<Status>)> {
        let any = || self.tasks.iter().find(|(_, status)| *status != Some(Status::Passed));
        self.open().or_else(any)
    }
}

/// Where the reader stands with one day.
///
/// # Errors
/// If a file of the repository cannot be read.
pub fn of(repo: &Repo, inputs: &Inputs, day: &Day) -> Result<Standing> {
    let tasks = repo.tasks(day)?;
    let (whose, known, left) = match progress::of(repo, day)? {
        Progress::Missing => (Whose::Nobody, None, BTreeSet::new()),
        Progress::Stub => (Whose::Stub, None, BTreeSet::new()),
        Progress::Begun(left) => {
            let whose = if given(repo, day)? { Whose::Given } else { Whose::Yours };
            (whose, results::load(repo, inputs, day), left)
        }
    };
    let known = known.unwrap_or_default();
    let status = |task: &Task| match (whose, worst(known.values(), task)) {
        (Whose::Nobody, _) => Some(Status::Broken),
        (Whose::Stub, _) => Some(Status::Unwritten),
        (_, None) if left.contains(&task.id) => Some(Status::Unwritten),
        (_, status) => status,
    };
    let tasks = tasks.into_iter().map(|task| (task.clone(), status(&task))).collect();
    Ok(Standing { day: day.clone(), whose, tasks })
}

/// Where the reader stands with every day.
///
/// # Errors
/// As [`of`].
pub fn all(repo: &Repo, inputs: &Inputs) -> Result<Vec<Standing>> {
    repo.days.iter().map(|day| of(repo, inputs, day)).collect()
}

/// The day to go on with, if any is open. No day is a gate: it is the first that was begun and is not done, else the
/// first after those that are done, else the first at all.
pub fn next(days: &[Standing]) -> Option<&Standing> {
    let last_done = days.iter().rposition(|day| day.begun() && day.done());
    let after = days.get(last_done.map_or(0, |at| at + 1)..).unwrap_or_default();
    let begun = days.iter().find(|day| day.begun() && !day.done());
    begun.or_else(|| after.iter().chain(days).find(|day| !day.done()))
}

/// Whether a day's file is the reference's code.
fn given(repo: &Repo, day: &Day) -> Result<bool> {
    let (mine, reference) = (repo.read(&day.src())?, repo.read(&day.solution())?);
    Ok(stubs::unmarked(&mine) == stubs::unmarked(&reference))
}

/// What the last check said of a task: its worst check.
fn worst<'a>(units: impl Iterator<Item = &'a Unit>, task: &Task) -> Option<Status> {
    units.filter(|unit| unit.task().as_ref() == Some(&task.id)).map(|unit| unit.status).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(number: u32, whose: Whose, status: Option<Status>) -> Standing {
        let task = |number: u32, further| Task {
            id: format!("0.{number}"),
            further,
            title: "x".into(),
            line: 1,
        };
        Standing {
            day: Day { number, name: format!("day{number:02}_x") },
            whose,
            tasks: vec![(task(1, false), status), (task(2, true), Some(Status::Unwritten))],
        }
    }

    fn next_of(days: &[Standing]) -> Option<u32> {
        next(days).map(|day| day.day.number)
    }

    #[test]
    fn what_is_begun_comes_first_then_what_follows() {
        let stub = |number| day(number, Whose::Stub, Some(Status::Unwritten));
        let done = |number| day(number, Whose::Yours, Some(Status::Passed));
        let begun = |number| day(number, Whose::Yours, Some(Status::Failed));
        assert_eq!(next_of(&[stub(0), stub(1)]), Some(0));
        assert_eq!(next_of(&[done(0), stub(1), stub(2)]), Some(1));
        assert_eq!(next_of(&[stub(0), begun(1), stub(2)]), Some(1));
        assert_eq!(next_of(&[stub(0), done(1), stub(2)]), Some(2), "no day is a gate");
        assert_eq!(next_of(&[stub(0), done(1)]), Some(0));
        assert_eq!(next_of(&[done(0), done(1)]), None);
    }

    #[test]
    fn further_tasks_do_not_hold_a_day_open() {
        let done = day(0, Whose::Yours, Some(Status::Passed));
        assert!(done.done() && !done.unchecked());
        assert_eq!(done.first_unfinished().map(|(task, _)| task.id.as_str()), Some("0.2"));
        assert!(day(0, Whose::Yours, None).unchecked());
    }
}
