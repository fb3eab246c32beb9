//! `cargo xtask hint`: help in three steps, and no more of it than asked for.

use crate::checks::results::Inputs;
use crate::error::usage;
use crate::hints::{self, Hints, Seen, TIERS};
use crate::note;
use crate::paint::{paint, Colour};
use crate::repo::{Day, Repo};
use crate::say;
use crate::standing;
use crate::stubs::Task;
use anyhow::{bail, Result};
use clap::Args;
use std::process::ExitCode;

/// Lines of prose are no longer than this.
const WIDTH: usize = 88;

/// The flags of `hint`.
#[derive(Args)]
pub struct Hint {
    /// Which day: `day6` or `6`; without it, the one you are at
    #[arg(value_name = "DAY")]
    day: Option<String>,
    /// Which task, as `6.1`; without it, the day's first unfinished
    #[arg(long)]
    task: Option<String>,
    /// One step further than last time
    #[arg(long)]
    more: bool,
    /// Show nothing: fail with a list if a task lacks a hint
    #[arg(long, conflicts_with_all = ["day", "task", "more"])]
    check: bool,
}

/// Runs `hint`.
///
/// # Errors
/// Bad usage; or hints that are absent.
pub fn run(repo: &Repo, args: &Hint) -> Result<ExitCode> {
    if args.check {
        return check(repo);
    }
    let (day, task) = choose(repo, args)?;
    show(repo, &day, &task, args.more)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what was seen of a task's hints, or with `more` the next of them, and what to do after it.
///
/// # Errors
/// If the file lacks the hint.
pub fn show(repo: &Repo, day: &Day, task: &Task, more: bool) -> Result<()> {
    let hints = Hints::read(repo)?;
    let mut seen = Seen::read(repo);
    let before = seen.of(&task.id);
    let after = if more { (before + 1).min(TIERS.len()) } else { before.max(1) };
    let from = if more && before < TIERS.len() { after - 1 } else { 0 };
    say!("{}", paint(Colour::Bold, &format!("task {}: {}", task.id, task.title)));
    for (tier, (key, name)) in TIERS.iter().enumerate().take(after).skip(from) {
        let text = hints.tier(&task.id, tier)?;
        say!(
            "\n{}",
            paint(Colour::Yellow, &format!("hint {} of {}: {name}", tier + 1, TIERS.len()))
        );
        match *key {
            "shape" => text.lines().for_each(|line| say!("    {line}")),
            _ => say!("{}", hints::wrap(text, WIDTH)),
        }
    }
    match after {
        n if n < TIERS.len() => {
            say!("\nThe next, {}: cargo xtask hint --task {} --more", TIERS[n].1, task.id);
        }
        _ => say!("\nThat was the last hint. The chapter: {}. The check: cargo xtask check day{} --task {}", day.chapter(), day.number, task.id),
    }
    if after != before {
        if let Err(problem) = seen.set(repo, &task.id, after) {
            note!("(which hint was shown is not remembered: {problem:#})");
        }
    }
    Ok(())
}

/// The task asked for; without one, the first unfinished of the day; without a day, of the one the reader is at.
fn choose(repo: &Repo, args: &Hint) -> Result<(Day, Task)> {
    let named = args.day.as_ref().map(|day| repo.day(day)).transpose()?;
    if let Some(id) = &args.task {
        let (day, task) = repo.task(id)?;
        return match named {
            Some(named) if *named != day => Err(usage(format!(
                "task {id} is not of day {}: leave one of the two out",
                named.number
            ))),
            _ => Ok((day, task)),
        };
    }
    let inputs = Inputs::read(repo);
    let days = standing::all(repo, &inputs)?;
    let day = match named {
        Some(named) => days.iter().find(|day| day.day == *named),
        None => standing::next(&days),
    };
    let Some(day) = day else {
        return Err(usage("every core task is done: name a task for its hints, as --task 6.1"));
    };
    match day.first_unfinished() {
        Some((task, _)) => Ok((day.day.clone(), task.clone())),
        None => Err(usage(format!(
            "every task of day {} is done: name one for its hints, as --task {0}.1",
            day.day.number
        ))),
    }
}

/// Every task of every day has three hints.
fn check(repo: &Repo) -> Result<ExitCode> {
    let complaints = Hints::read(repo)?.complaints(repo)?;
    complaints.iter().for_each(|line| say!("{line}"));
    if !complaints.is_empty() {
        bail!("{} hints to mend", complaints.len());
    }
    let mut tasks = 0;
    for day in &repo.days {
        tasks += repo.tasks(day)?.len();
    }
    say!("{tasks} tasks have {} hints each", TIERS.len());
    Ok(ExitCode::SUCCESS)
}

/// The flags of `hint --check`.
pub fn checking() -> Hint {
    Hint { day: None, task: None, more: false, check: true }
}
