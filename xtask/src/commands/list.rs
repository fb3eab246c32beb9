//! `cargo xtask list`: every day and task, what is done, and where to go next.

use crate::checks::report::{Status, Unit};
use crate::checks::{results, table};
use crate::paint::{paint, Colour};
use crate::progress::{self, Progress};
use crate::repo::{Day, Repo};
use crate::say;
use crate::stubs::Task;
use anyhow::Result;
use clap::Args;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// The flags of `list`.
#[derive(Args)]
pub struct List {
    /// Only this day
    #[arg(value_name = "DAY")]
    day: Option<String>,
}

/// Where a task stands. `None`: written, and not checked since something changed.
type Standing = Option<Status>;

/// Runs `list`. It builds nothing: what it says comes from the files and from the last check of exactly these files.
///
/// # Errors
/// Bad usage; or a file of the repository that cannot be read.
pub fn run(repo: &Repo, args: &List) -> Result<ExitCode> {
    let only = args.day.as_ref().map(|day| repo.day(day)).transpose()?;
    let mut next = None;
    for day in repo.days.iter().filter(|day| only.is_none_or(|only| only == *day)) {
        let (words, standings) = standings(repo, day)?;
        say!(
            "{}  {}",
            paint(Colour::Bold, &day.title()),
            paint(Colour::Dim, &format!("({words})"))
        );
        for (task, standing) in &standings {
            row(task, *standing);
        }
        if next.is_none() {
            let open = standings
                .into_iter()
                .find(|(task, standing)| !task.further && *standing != Some(Status::Passed));
            next = open.map(|(task, standing)| (day, task, standing));
        }
    }
    say!("");
    match next {
        Some((day, task, None)) => {
            say!("Next: task {} is not checked yet: cargo xtask check day{}", task.id, day.number)
        }
        Some((day, task, _)) => {
            say!("Next: task {}, {} in {} ({})", task.id, task.title, day.src(), day.chapter())
        }
        None => say!("Every core task is done."),
    }
    Ok(ExitCode::SUCCESS)
}

/// A day in words, and each of its tasks with its standing.
fn standings(repo: &Repo, day: &Day) -> Result<(&'static str, Vec<(Task, Standing)>)> {
    let tasks = repo.tasks(day)?;
    let (words, known, left) = match progress::of(repo, day)? {
        Progress::Missing => {
            return Ok((
                "src/ lacks this file: cargo xtask reset brings the stub",
                all(tasks, Status::Broken),
            ))
        }
        Progress::Stub => return Ok(("the stub", all(tasks, Status::Unwritten))),
        Progress::Begun(left) => ("yours", results::load(repo, day).unwrap_or_default(), left),
    };
    let standing = |task: &Task| match worst(&known, task) {
        None if left.contains(&task.id) => Some(Status::Unwritten),
        standing => standing,
    };
    let standings = tasks.into_iter().map(|task| (task.clone(), standing(&task))).collect();
    Ok((words, standings))
}

/// The same standing for all.
fn all(tasks: Vec<Task>, status: Status) -> Vec<(Task, Standing)> {
    tasks.into_iter().map(|task| (task, Some(status))).collect()
}

/// What the last check said of a task.
fn worst(known: &BTreeMap<String, Unit>, task: &Task) -> Standing {
    let of_task = known.values().filter(|unit| unit.task().as_ref() == Some(&task.id));
    of_task.map(|unit| unit.status).max()
}

/// One row.
fn row(task: &Task, standing: Standing) {
    let (symbol, word) = standing.map_or(("?", "not checked"), Status::words);
    table::print_row(standing, symbol, word, &task.id, &table::title(task), "");
}
