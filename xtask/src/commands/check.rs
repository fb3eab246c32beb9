//! `cargo xtask check`: runs a day's checkers on the reader's code or on the reference.
//!
//! `--part 2` runs the checks of one part of a day. Each part starts with a line `// part 2: title`
//! above its first function, in the reference and therefore in the stub (see
//! [`candecode_course::stubs`]).

use crate::cargo::Built;
use crate::checking;
use crate::checking::builds::{CodeOf, Mix};
use crate::checking::outcome::{Status, Unit};
use crate::checking::runner::{DayRun, Options};
use crate::checking::table::{self, Sum};
use crate::commands::watch;
use crate::{day_done, host, say};
use anyhow::Result;
use candecode_course::{usage, Day, Repo};
use clap::Args;
use std::collections::BTreeSet;
use std::process::ExitCode;

/// The flags of `check`.
#[derive(Args)]
pub struct Check {
    /// Which day: `day6`, `6` or `all`
    #[arg(value_name = "DAY", default_value = "all", hide_default_value = true)]
    day: String,
    /// Whose code to check
    #[arg(long, value_enum, default_value = "mine")]
    solution: CodeOf,
    /// Whose code to use for the other days
    #[arg(long, value_enum, default_value = "ref")]
    rest: CodeOf,
    /// cpu, metal or cuda
    #[arg(long)]
    device: Option<String>,
    /// Kernels for checks that run a whole model [default: plain, the days' own code]
    #[arg(long, value_parser = ["plain", "candle", "fast"])]
    kernels: Option<String>,
    /// Only this task, such as `6.1`
    #[arg(long)]
    task: Option<String>,
    /// Only the tasks of this part of the day
    #[arg(long, value_name = "N", conflicts_with = "task")]
    part: Option<u32>,
    /// Show what your code printed (`println!`, `dbg!`), even in checks that pass
    #[arg(long)]
    show_output: bool,
    /// Check at every save and show the first task that fails; the default is the day you're on
    #[arg(long)]
    #[arg(conflicts_with_all = ["solution", "rest", "kernels", "task", "part", "show_output"])]
    watch: bool,
}

/// Runs `check`. The exit code is 0 only if every check passed.
///
/// # Errors
/// Bad usage, or if a file or program of the repository can't be used.
pub fn run(repo: &Repo, args: &Check) -> Result<ExitCode> {
    if let Some(device) = &args.device {
        host::device_feature(device)?; // rejected before anything is built
    }
    if args.watch {
        let day = (args.day != "all").then_some(args.day.as_str());
        return watch::run(repo, day, args.device.as_deref());
    }
    let (day, tasks) = chosen(repo, args)?;
    if let Some(kernels) = &args.kernels {
        std::env::set_var("CANDECODE_KERNELS", kernels); // the checks inherit it
    }
    let mix = Mix::of(args.solution, args.rest)?;
    let device = args.device.clone();
    let waiting = mix != Mix::Reference;
    let options = Options { device, tasks, waiting };
    let days = day.map_or_else(|| repo.days.clone(), |day| vec![day]);
    let runs = checking::check(repo, mix, &days, &options, |run| {
        show(repo, run, mix, &options.tasks, args.show_output)
    })?;
    let mut sum = Sum::default();
    runs.iter().for_each(|run| sum.add(Sum::of(&run.units)));
    let mut failed = sum.failed > 0 || sum.passed == 0;
    if let ([run], true, None) = (&runs[..], waiting, &args.task) {
        failed |= !day_done::next(repo, args.part, run)?;
        if let Some(needed) = day_done::needed_first(repo, &run.day)?.filter(|_| failed) {
            say!("{needed}\n");
        }
    }
    say!("{}", last_line(sum, &runs));
    if let [DayRun { day, built: None, .. }] = &runs[..] {
        say!(
            "Next: read {}, then write your code in {}; `cargo xtask check --watch` checks it at \
             every save",
            day.chapter(),
            day.src()
        );
    }
    Ok(ExitCode::from(u8::from(failed)))
}

/// Prints the results of a day.
fn show(repo: &Repo, run: &DayRun, mix: Mix, tasks: &[String], show_output: bool) -> Result<()> {
    match run.built.as_deref() {
        None => table::tasks(repo, run, "the stub, nothing written yet", tasks)?,
        Some(Built::Broken(places)) => table::broken(run, mix.words(), places),
        Some(Built::Done(_)) => {
            table::messages(run, show_output, tasks);
            table::tasks(repo, run, mix.words(), tasks)?;
        }
    }
    say!("");
    Ok(())
}

/// Formats the last line: the number of checks that passed, that failed, and that couldn't run
/// because their task isn't written or their day doesn't compile. If nothing is written yet, counts
/// tasks instead.
fn last_line(sum: Sum, runs: &[DayRun]) -> String {
    let units = || runs.iter().flat_map(|run| &run.units);
    let count = |status| units().filter(|unit| unit.status == status).count();
    let (unwritten, broken) = (count(Status::Unwritten), count(Status::Broken));
    if unwritten > 0 && unwritten == units().count() {
        let tasks: BTreeSet<String> = units().filter_map(Unit::task).collect();
        return match tasks.len() {
            1 => "1 task, not written yet".to_string(),
            tasks => format!("{tasks} tasks, none written yet"),
        };
    }
    let mut line = format!("{} passed, {} failed", sum.passed, sum.failed - unwritten - broken);
    for (count, words) in [(unwritten, "not written"), (broken, "not run")] {
        if count > 0 {
            line += &format!(", {count} {words}");
        }
    }
    line
}

/// Returns the chosen day (`None` for all) and tasks (empty for all). A task implies its day.
fn chosen(repo: &Repo, args: &Check) -> Result<(Option<Day>, Vec<String>)> {
    let named = if args.day == "all" { None } else { Some(repo.day(&args.day)?.clone()) };
    if let Some(id) = &args.task {
        let (day, task) = repo.task_of(named.as_ref(), id)?;
        return Ok((Some(day), vec![task.id]));
    }
    let Some(part) = args.part else { return Ok((named, vec![])) };
    let Some(day) = named else {
        return Err(usage("--part needs a day, as in `cargo xtask check day10 --part 1`"));
    };
    let all = repo.tasks(&day)?;
    let parts: BTreeSet<u32> = all.iter().filter_map(|task| task.part).collect();
    let number = day.number;
    if parts.is_empty() {
        return Err(usage(format!("day {number} has no parts: omit --part")));
    }
    if !parts.contains(&part) {
        let parts: Vec<String> = parts.iter().map(u32::to_string).collect();
        return Err(usage(format!("no part {part}: day {number} has {}", parts.join(", "))));
    }
    let of_part = all.into_iter().filter(|task| task.part == Some(part));
    Ok((Some(day), of_part.map(|task| task.id).collect()))
}
