//! `cargo maintain ci`: what continuous integration runs, stage by stage.

use crate::stages::{Outcome, Place, Stage, STAGES};
use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::Value;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use xtask::checks::table::Sum;
use xtask::progress::{self, Progress};
use xtask::repo::Repo;
use xtask::say;
use xtask::term::{paint, Colour};
use xtask::usage;

/// The flags of `ci`.
#[derive(Args)]
pub struct Ci {
    /// All stages, or only those without heavy tools
    #[arg(value_enum, default_value = "full")]
    extent: Extent,
    /// Only this stage (repeatable)
    #[arg(long, value_name = "STAGE")]
    only: Vec<String>,
    /// This is a reader's copy: check the days that are written in place of the stubs (a fork on
    /// GitHub tells so itself)
    #[arg(long)]
    fork: bool,
    /// Show all stages and run none
    #[arg(long)]
    list: bool,
}

/// How much is run.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Extent {
    /// Without the book, its documentation and Metal
    Fast,
    /// Everything
    Full,
}

/// Runs the stages one after another; a failing one does not keep the others from running.
///
/// # Errors
/// Bad usage: a stage that does not exist.
pub fn run(repo: &Repo, args: &Ci) -> Result<ExitCode> {
    let chosen = choose(args, args.fork || reader(repo)?)?;
    if args.list {
        for stage in chosen {
            say!("{:<14} {}", stage.name, stage.what);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let (mut sum, mut rows) = (Sum::default(), Vec::new());
    for stage in chosen {
        say!("{}", paint(Colour::Bold, &format!("==> {}: {}", stage.name, stage.what)));
        let start = Instant::now();
        let outcome = (stage.run)(repo).unwrap_or_else(|problem| {
            say!("{}", paint(Colour::Red, &format!("{problem:#}")));
            Outcome::Done(Sum { passed: 0, failed: 1 })
        });
        let row = row(stage, &outcome, start.elapsed());
        say!("{row}\n");
        rows.push(row);
        if let Outcome::Done(part) = outcome {
            sum.add(part);
        }
    }
    rows.iter().for_each(|row| say!("{row}"));
    say!("{}", sum.line());
    Ok(ExitCode::from(u8::from(sum.failed > 0)))
}

/// Whether this runs for a fork in which a day is begun, as GitHub's description of the event
/// tells.
fn reader(repo: &Repo) -> Result<bool> {
    let event = std::env::var_os("GITHUB_EVENT_PATH").and_then(|path| std::fs::read(path).ok());
    let event = event.and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    if !event.is_some_and(|event| event["repository"]["fork"] == true) {
        return Ok(false);
    }
    let begun = |day| progress::of(repo, day).map(|day| matches!(day, Progress::Begun(_)));
    let begun: Vec<bool> = repo.days.iter().map(begun).collect::<Result<_>>()?;
    Ok(begun.contains(&true))
}

/// The stages that the flags ask for, in their order.
fn choose(args: &Ci, reader: bool) -> Result<Vec<&'static Stage>> {
    if let Some(unknown) =
        args.only.iter().find(|name| STAGES.iter().all(|stage| stage.name != *name))
    {
        let names = STAGES.iter().map(|stage| stage.name).collect::<Vec<_>>().join(", ");
        return Err(usage(format!("no stage `{unknown}`: there are {names}")));
    }
    let wanted = |stage: &&Stage| match args.only.as_slice() {
        [] => {
            let other = if reader { Place::Course } else { Place::Reader };
            stage.place != other && (args.extent == Extent::Full || stage.fast)
        }
        names => names.iter().any(|name| name == stage.name),
    };
    Ok(STAGES.iter().filter(wanted).collect())
}

/// One line about a stage that ended.
fn row(stage: &Stage, outcome: &Outcome, time: Duration) -> String {
    let (colour, word, rest) = match outcome {
        Outcome::Done(Sum { passed: 0, failed: 0 }) => (Colour::Green, "✓ passed", String::new()),
        Outcome::Done(sum) if sum.failed == 0 => (Colour::Green, "✓ passed", sum.line()),
        Outcome::Done(sum) => (Colour::Red, "✗ failed", sum.line()),
        Outcome::Skipped(why) => (Colour::Yellow, "! SKIPPED", why.clone()),
    };
    format!(
        "{} {:<14} {:>6.1} s  {rest}",
        paint(colour, &format!("{word:<9}")),
        stage.name,
        time.as_secs_f64()
    )
}
