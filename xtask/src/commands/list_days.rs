//! `cargo xtask list`: every day and task, what is done, and where to go next.

use crate::checks::outcome::Status;
use crate::checks::saved::Inputs;
use crate::checks::{self, table};
use crate::note;
use crate::progress::{self, DayProgress};
use crate::repo::Repo;
use crate::say;
use crate::term::{paint, Colour};
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

/// The flags of `list`.
#[derive(Args)]
pub struct List {
    /// Only this day
    #[arg(value_name = "DAY")]
    day: Option<String>,
    /// Run no checks: what changed since the last is "not checked"
    #[arg(long)]
    quick: bool,
}

/// Runs `list`. Days that changed since their last check are checked first; all others are known.
///
/// # Errors
/// Bad usage; or a file of the repository that cannot be read.
pub fn run(repo: &Repo, args: &List) -> Result<ExitCode> {
    let only = args.day.as_ref().map(|day| repo.day(day)).transpose()?;
    let inputs = Inputs::read(repo);
    let mut days = progress::all_days(repo, &inputs)?;
    for day in &mut days {
        let shown = only.is_none_or(|only| *only == day.day);
        if shown && day.unchecked() && !args.quick {
            note!("checking {} …", day.day.title());
            day.take(&checks::of_reader(repo, &inputs, &day.day, None)?);
        }
    }
    for day in days.iter().filter(|day| only.is_none_or(|only| *only == day.day)) {
        show(day);
    }
    say!("\n{}", sum(&days));
    let of_day = |day: &&DayProgress| only.is_some_and(|only| *only == day.day) && !day.done();
    say!("{}", next(days.iter().find(of_day).or_else(|| progress::next(&days))));
    Ok(ExitCode::SUCCESS)
}

/// Prints a day with its tasks.
pub fn show(day: &DayProgress) {
    let words = format!("({})", day.origin.words());
    say!("{}  {}", paint(Colour::Bold, &day.day.title()), paint(Colour::Dim, &words));
    for (task, status) in &day.tasks {
        table::print_row(*status, &task.id, &table::title(task), "");
    }
}

/// How much of the course is done.
pub fn sum(days: &[DayProgress]) -> String {
    let tasks = || days.iter().flat_map(|day| &day.tasks);
    let passed = tasks().filter(|(_, status)| *status == Some(Status::Passed)).count();
    let done = days.iter().filter(|day| day.begun() && day.done()).count();
    format!("{passed} of {} tasks, {done} of {} days done", tasks().count(), days.len())
}

/// Where to go, in words.
pub fn next(day: Option<&DayProgress>) -> String {
    let Some((day, (task, status))) = day.and_then(|day| Some((&day.day, day.open()?))) else {
        return "Every core task is done.".to_string();
    };
    match status {
        None => {
            format!(
                "Next: task {} is not checked yet: cargo xtask check day{}",
                task.id, day.number
            )
        }
        Some(_) => {
            format!("Next: task {}, {} in {} ({})", task.id, task.title, day.src(), day.chapter())
        }
    }
}
