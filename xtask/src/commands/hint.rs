//! `cargo xtask hint`: help in three steps, and no more of it than asked for.
//!
//! The hints are in `xtask/hints.toml`, one table a task; how many of them the reader has seen is
//! kept in `.candecode/hints.json`.

use crate::backup;
use crate::checks::saved::Inputs;
use crate::progress;
use crate::repo::{Day, Repo};
use crate::stubs::Task;
use crate::term::{paint, wrap, Colour};
use crate::{note, say, usage};
use anyhow::{anyhow, ensure, Context, Result};
use clap::Args;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Where the hints are, relative to the root.
const FILE: &str = "xtask/hints.toml";
/// How many tiers of each task were shown, relative to the root.
const SEEN: &str = ".candecode/hints.json";
/// Lines of prose are no longer than this.
const WIDTH: usize = 88;
/// The tiers, from the least help to the most, and what each is called on the screen.
const TIERS: [(&str, &str); 3] = [
    ("question", "a question"),
    ("idea", "a sharper question"),
    ("shape", "the shape of the code"),
];

/// The flags of `hint`.
#[derive(Args)]
pub struct Hint {
    /// Which day: `day6` or `6`, or a task: `6.1`; without it, the day you are at
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

/// Prints what was seen of a task's hints, or with `more` the next, and what to do then.
///
/// # Errors
/// If the file lacks the hint.
pub fn show(repo: &Repo, day: &Day, task: &Task, more: bool) -> Result<()> {
    let hints = read(repo)?;
    // What cannot be read counts as nothing seen.
    let seen = repo.read(SEEN).ok().and_then(|text| serde_json::from_str(&text).ok());
    let mut seen: BTreeMap<String, usize> = seen.unwrap_or_default();
    let before = seen.get(&task.id).copied().unwrap_or(0).min(TIERS.len());
    let after = if more { (before + 1).min(TIERS.len()) } else { before.max(1) };
    let from = if more && before < TIERS.len() { after - 1 } else { 0 };
    say!("{}", paint(Colour::Bold, &format!("task {}: {}", task.id, task.title)));
    for (number, (key, name)) in TIERS.iter().enumerate().take(after).skip(from) {
        let text = hints.get(&task.id).and_then(|hints| hints.get(*key));
        let text = text.with_context(|| format!("{FILE}: task {} has no `{key}`", task.id))?;
        let head = format!("hint {} of {}: {name}", number + 1, TIERS.len());
        say!("\n{}", paint(Colour::Yellow, &head));
        if *key == "shape" {
            text.trim_matches('\n').lines().for_each(|line| say!("    {line}"));
        } else {
            say!("{}", wrap(text, WIDTH));
        }
    }
    let (id, number) = (&task.id, day.number);
    match TIERS.get(after) {
        Some((_, name)) => say!("\nThe next, {name}: cargo xtask hint --task {id} --more"),
        None => say!(
            "\nThat was the last hint. The chapter: {}. The check: cargo xtask check day{number} \
             --task {id}",
            day.chapter()
        ),
    }
    if after != before {
        seen.insert(task.id.clone(), after);
        let text = serde_json::to_string(&seen)? + "\n";
        if let Err(problem) = backup::write(&repo.root.join(SEEN), text.as_bytes()) {
            note!("(which hint was shown is not remembered: {problem:#})");
        }
    }
    Ok(())
}

/// All hints: by task, the texts of the tiers.
fn read(repo: &Repo) -> Result<BTreeMap<String, BTreeMap<String, String>>> {
    toml::from_str(&repo.read(FILE)?).map_err(|e| anyhow!("{FILE}: {e}"))
}

/// The task asked for, else the first unfinished of the day, or of the day the reader is at.
fn choose(repo: &Repo, args: &Hint) -> Result<(Day, Task)> {
    if let (Some(id), None) = (args.day.as_deref().filter(|day| day.contains('.')), &args.task) {
        return repo.task_of(None, id); // `hint 6.1`: a task where a day could stand
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

/// Every task of every day has three hints, and there are no others.
fn check(repo: &Repo) -> Result<ExitCode> {
    let hints = read(repo)?;
    let mut known = Vec::new();
    for day in &repo.days {
        known.extend(repo.tasks(day)?.into_iter().map(|task| task.id));
    }
    let whole = |id: &&String| {
        let there =
            |(key, _): &(&str, _)| hints[*id].get(*key).is_some_and(|text| !text.is_empty());
        hints.contains_key(*id) && hints[*id].len() == TIERS.len() && TIERS.iter().all(there)
    };
    let mut wrong: Vec<&String> = known.iter().filter(|id| !whole(id)).collect();
    wrong.extend(hints.keys().filter(|id| !known.contains(id)));
    ensure!(wrong.is_empty(), "{FILE}: not the three hints of a task: {wrong:?}");
    say!("{} tasks have {} hints each", known.len(), TIERS.len());
    Ok(ExitCode::SUCCESS)
}

/// The flags of `hint --check`.
pub fn checking() -> Hint {
    Hint { day: None, task: None, more: false, check: true }
}
