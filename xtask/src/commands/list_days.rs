//! `cargo xtask list`: prints a line per day, or the tasks of one day, and the next step.

use crate::checking::outcome::Status;
use crate::checking::saved::Inputs;
use crate::checking::table;
use crate::progress::{self, DayProgress};
use crate::term::{paint, Color};
use crate::{day_done, say, score};
use anyhow::Result;
use candecode_course::{Progress, Repo};
use clap::Args;
use std::process::ExitCode;

/// The flags of `list`.
#[derive(Args)]
pub struct List {
    /// List the tasks of this day
    #[arg(value_name = "DAY")]
    day: Option<String>,
    /// Score your days by replaying 24 requests: passes, tokens per second, and the last score
    #[arg(long, conflicts_with = "day")]
    score: bool,
}

/// Runs `list`. Doesn't run any checks: a task that has changed since its last check is shown as
/// "not checked".
///
/// # Errors
/// Bad usage, a file of the repository that can't be read, or an engine that can't be measured.
pub fn run(repo: &Repo, args: &List) -> Result<ExitCode> {
    let only = args.day.as_ref().map(|day| repo.day(day)).transpose()?;
    let inputs = Inputs::read(repo);
    let days = progress::all_days(repo, &inputs)?;
    if args.score {
        score::measure(repo)?;
    }
    let shown = days.iter().find(|day| only.is_some_and(|only| *only == day.day));
    let next_day = shown.filter(|day| !day.done()).or_else(|| progress::next(&days));
    match shown {
        Some(day) => {
            tasks(day);
            if let Some(needed) = day_done::needed_first(repo, &day.day)? {
                say!("{needed}");
            }
            say!("Chapter: {}\n{}", day.day.chapter(), sum(&days));
        }
        None if args.score => say!("{}", sum(&days)),
        None => {
            days.iter().for_each(overview);
            let example = next_day.or(days.first()).map_or(0, |day| day.day.number);
            say!("{}; a day's tasks: cargo xtask list day{example}", sum(&days));
        }
    }
    let needed = match next_day {
        Some(day) => repo.open_tasks_for(&day.day)?.into_iter().next(),
        None => None,
    };
    match (needed, next_day) {
        (Some(task), Some(day)) => {
            let (id, number) = (&task.id, day.day.number);
            let (other, _) = repo.task_of(None, id)?;
            let (src, other) = (other.src(), other.number);
            say!("Next: task {id} in {src}, for day {number}, then cargo xtask check day{other}");
        }
        _ => say!("{}", next(next_day)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a day on one line: its state, its name, how many tasks passed, and whose code it is.
pub fn overview(day: &DayProgress) {
    let core = || day.tasks.iter().filter(|(task, _)| !task.further);
    let unchecked = core().any(|(_, status)| status.is_none());
    let worst = if unchecked { None } else { core().filter_map(|(_, status)| *status).max() };
    let passed = day.tasks.iter().filter(|(_, status)| *status == Some(Status::Passed)).count();
    let whose = match (&day.file, day.given) {
        (Progress::Missing, _) => ", absent",
        (Progress::Stub, _) => "",
        (_, true) => ", given",
        (_, false) => ", yours",
    };
    let (number, name) = (format!("day {}", day.day.number), day.day.words());
    let noun = if day.tasks.len() == 1 { "task" } else { "tasks" };
    let elective = if day.day.is_elective() { ", elective" } else { "" };
    let tasks = format!("{passed:>4} of {} {noun}{whose}{elective}", day.tasks.len());
    table::print_row(worst, &format!("{number:<6}"), &format!("{name:<20}"), &tasks);
}

/// Prints a day and its tasks.
fn tasks(day: &DayProgress) {
    let words = match (&day.file, day.given) {
        (Progress::Missing, _) => {
            format!("(the file is missing: cargo xtask reset day{})", day.day.number)
        }
        (Progress::Stub, _) => "(the stub; the engine runs the reference)".into(),
        (_, true) => "(given: the reference's code is in src/)".into(),
        (_, false) => "(yours)".into(),
    };
    say!("{}  {}", paint(Color::Bold, &day.day.title()), paint(Color::Dim, &words));
    for (task, status) in &day.tasks {
        table::print_row(*status, &task.id, &table::title(task), "");
    }
}

/// Summarizes the reader's own progress through the whole course.
pub fn sum(days: &[DayProgress]) -> String {
    let all: usize = days.iter().map(|day| day.tasks.len()).sum();
    let own = || days.iter().filter(|day| day.begun() && !day.given);
    let passed = |day: &DayProgress| {
        day.tasks.iter().filter(|(_, status)| *status == Some(Status::Passed)).count()
    };
    let (done, tasks) = (own().filter(|day| day.done()).count(), own().map(passed).sum::<usize>());
    let given = match days.iter().filter(|day| day.given).count() {
        0 => String::new(),
        given => format!(", {given} more given"),
    };
    format!("{done} of {} days done{given}, {tasks} of {all} tasks", days.len())
}

/// Returns the next step, with its command.
fn next(day: Option<&DayProgress>) -> String {
    let Some((day, (task, status))) = day.and_then(|day| Some((&day.day, day.open()?))) else {
        return "Every core task is done.".to_string();
    };
    let (id, src, number) = (&task.id, day.src(), day.number);
    match status {
        None => format!("Next: check task {id}: cargo xtask check day{number}"),
        Some(_) => format!("Next: task {id} in {src}, then cargo xtask check day{number}"),
    }
}
