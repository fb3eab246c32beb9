//! `cargo xtask hint`: gives help in three tiers, one at a time.
//!
//! The number of hints the reader has seen is stored in `.candecode/hints.json`.

use crate::backup;
use crate::checking::saved::Inputs;
use crate::progress;
use crate::term::{paint, wrap, Color};
use crate::{note, say};
use anyhow::{Context, Result};
use candecode_course::hints::tiers;
use candecode_course::{is_task_id, usage, Day, Repo, Task};
use clap::Args;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Path of the file with the number of tiers shown per task, relative to the root.
const SEEN: &str = ".candecode/hints.json";
/// The maximum width of a line of prose.
const WIDTH: usize = 88;

/// The flags of `hint`.
#[derive(Args)]
pub struct Hint {
    /// A day (`day6` or `6`) or a task (`6.1`); the default is the day you're on
    #[arg(value_name = "DAY")]
    day: Option<String>,
    /// A task, such as `6.1`; the default is the day's first unfinished one
    #[arg(long)]
    task: Option<String>,
    /// Show the next hint
    #[arg(long)]
    more: bool,
}

/// Runs `hint`.
///
/// # Errors
/// Bad usage, or missing hints.
pub fn run(repo: &Repo, args: &Hint) -> Result<ExitCode> {
    let (day, task) = choose(repo, args)?;
    show(repo, &day, &task, args.more)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the hints seen so far for a task, or with `more` the next one, and suggests a next step.
///
/// # Errors
/// If the file has no such hint.
pub fn show(repo: &Repo, day: &Day, task: &Task, more: bool) -> Result<()> {
    let hints = repo.hints(day)?;
    // An unreadable file counts as no hints seen.
    let seen = repo.read(SEEN).ok().and_then(|text| serde_json::from_str(&text).ok());
    let mut seen: BTreeMap<String, usize> = seen.unwrap_or_default();
    let tiers = tiers(task);
    let before = seen.get(&task.id).copied().unwrap_or(0).min(tiers.len());
    let after = if more { (before + 1).min(tiers.len()) } else { before.max(1) };
    let from = if more && before < tiers.len() { after - 1 } else { 0 };
    say!("{}", paint(Color::Bold, &format!("task {}: {}", task.id, task.title)));
    for (number, (key, name)) in tiers.iter().enumerate().take(after).skip(from) {
        let text = hints.get(&task.id).and_then(|hints| hints.get(*key));
        let text =
            text.with_context(|| format!("{}: task {} has no `{key}`", day.hints(), task.id))?;
        let head = format!("hint {} of {}: {name}", number + 1, tiers.len());
        say!("\n{}", paint(Color::Yellow, &head));
        if *key == "shape" {
            text.trim_matches('\n').lines().for_each(|line| say!("    {line}"));
        } else {
            say!("{}", wrap(text, WIDTH));
        }
    }
    let (id, number) = (&task.id, day.number);
    match tiers.get(after) {
        Some((_, name)) => say!("\nNext, {name}: cargo xtask hint --task {id} --more"),
        None => say!(
            "\nThat was the last hint. Chapter: {}. Check: cargo xtask check day{number} --task \
             {id}",
            day.chapter()
        ),
    }
    if after != before {
        seen.insert(task.id.clone(), after);
        let text = serde_json::to_string(&seen)? + "\n";
        if let Err(problem) = backup::write(&repo.root.join(SEEN), text.as_bytes()) {
            note!("(couldn't save which hints you've seen: {problem:#})");
        }
    }
    Ok(())
}

/// Returns the requested task, or the first unfinished one of the requested or current day.
fn choose(repo: &Repo, args: &Hint) -> Result<(Day, Task)> {
    if let (Some(id), None) = (args.day.as_deref().filter(|day| is_task_id(day)), &args.task) {
        return repo.task_of(None, id); // `hint 6.1`: a task in place of a day
    }
    let named = args.day.as_ref().map(|day| repo.day(day)).transpose()?;
    if let Some(id) = &args.task {
        return repo.task_of(named, id);
    }
    let days = progress::all_days(repo, &Inputs::read(repo))?;
    let day = match named {
        Some(named) => days.iter().find(|day| day.day == *named),
        None => progress::next(&days),
    };
    let Some(day) = day else {
        return Err(usage(
            "every core task is done: name the task you want hints for, such as --task 6.1",
        ));
    };
    match day.first_unfinished() {
        Some((task, _)) => Ok((day.day.clone(), task.clone())),
        None => Err(usage(format!(
            "every task of day {} is done: name the one you want hints for, such as --task {0}.1",
            day.day.number
        ))),
    }
}
