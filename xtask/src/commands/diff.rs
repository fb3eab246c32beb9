//! `cargo xtask diff`: what the reader wrote beside the reference, task by task.

use crate::compare;
use crate::lift;
use crate::paint::{paint, Colour};
use crate::progress;
use crate::repo::{Day, Repo};
use crate::say;
use crate::stubs;
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

/// The flags of `diff`.
#[derive(Args)]
pub struct Diff {
    /// Which day: `day6` or `6`
    #[arg(value_name = "DAY")]
    day: String,
    /// Only this task, as `6.1`
    #[arg(long)]
    task: Option<String>,
}

/// Runs `diff`. A task that is not written is not shown: its reference would give it away.
///
/// # Errors
/// Bad usage; or a file that cannot be read.
pub fn run(repo: &Repo, args: &Diff) -> Result<ExitCode> {
    show_day(repo, repo.day(&args.day)?, args.task.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a day's tasks, or one of them.
///
/// # Errors
/// If a file cannot be read.
pub fn show_day(repo: &Repo, day: &Day, only: Option<&str>) -> Result<()> {
    // whoever pasted the reference has its markers, too
    let text = |path: String| repo.read(&path).map(|source| stubs::unmarked(&source));
    let (mine, reference) = (text(day.src())?, text(day.solution())?);
    let unwritten = progress::unwritten(&mine, day.number);
    let (mine, reference): (Vec<_>, Vec<_>) = (mine.lines().collect(), reference.lines().collect());
    say!("{}   - yours   + the reference", paint(Colour::Bold, &day.title()));
    for task in repo.tasks(day)?.iter().filter(|task| only.is_none_or(|id| id == task.id)) {
        say!("\n{}", paint(Colour::Bold, &format!("task {}: {}", task.id, task.title)));
        let place = lift::function_of(&reference, &task.id);
        let body = |lines| {
            let (name, nth) = place.as_ref()?;
            lift::body(lines, name, *nth)
        };
        let theirs = body(&reference).map(|(start, end)| &reference[start..end]);
        let yours = body(&mine).map(|(start, end)| &mine[start..end]);
        match (theirs, yours) {
            _ if unwritten.contains(&task.id) => say!("  ○ not written yet"),
            (Some(theirs), Some(yours)) => show(yours, theirs),
            _ => say!("  your file has no such function: see {} and {}", day.src(), day.solution()),
        }
    }
    Ok(())
}

/// Prints the lines of both, those in common once.
fn show(yours: &[&str], theirs: &[&str]) {
    if yours == theirs {
        return say!("  ✓ the same as the reference");
    }
    for (sign, line) in compare::lines(yours, theirs) {
        match sign {
            '-' => say!("{}", paint(Colour::Red, &format!("- {line}"))),
            '+' => say!("{}", paint(Colour::Green, &format!("+ {line}"))),
            _ => say!("  {line}"),
        }
    }
}
