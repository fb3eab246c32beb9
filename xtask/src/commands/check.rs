//! `cargo xtask check`: runs the checkers of a day, on the reader's code or on the reference.

use crate::checks::plan::{plan, Job, Whose};
use crate::checks::report::Status;
use crate::checks::results::{self, Inputs};
use crate::checks::runner::{self, DayRun, Options, Teeth};
use crate::checks::table::{self, Sum};
use crate::compile::{self, Built};
use crate::error::usage;
use crate::note;
use crate::repo::{Day, Repo};
use crate::say;
use anyhow::Result;
use clap::Args;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// The flags of `check`.
#[derive(Args)]
pub struct Check {
    /// Which day: `day6`, `6` or `all`
    #[arg(value_name = "DAY", default_value = "all", hide_default_value = true)]
    day: String,
    /// Whose code of the day is checked
    #[arg(long, value_enum, default_value = "mine")]
    solution: Whose,
    /// Whose code the other days are
    #[arg(long, value_enum, default_value = "ref")]
    rest: Whose,
    /// cpu, metal or cuda
    #[arg(long)]
    device: Option<String>,
    /// Only this task, as `6.1`
    #[arg(long)]
    task: Option<String>,
    /// Also show what failing checks printed (your own `dbg!`, for example)
    #[arg(long)]
    show_output: bool,
}

/// Runs `check`. The exit code is 0 only if every check passed.
///
/// # Errors
/// Bad usage; or files or programs of the repository that cannot be used.
pub fn run(repo: &Repo, args: &Check) -> Result<ExitCode> {
    let day = day(repo, args)?;
    if let Some(device) = &args.device {
        known_device(device)?;
    }
    let plan = plan(repo, day.as_ref(), args.solution, args.rest)?;
    let options = Options {
        device: args.device.clone(),
        task: args.task.clone(),
        teeth: match args.solution == Whose::Ref && args.task.is_none() {
            true => Teeth::With,
            false => Teeth::Without,
        },
        waiting: args.solution == Whose::Mine,
    };
    let inputs = Inputs::read(repo);
    let keys: BTreeMap<u32, String> =
        repo.days.iter().map(|day| (day.number, inputs.key(repo, day))).collect();
    let mut all: Vec<DayRun> = Vec::new();
    for job in &plan.jobs {
        all.extend(run_job(repo, job, &options, args.show_output)?);
    }
    for day in &plan.stubs {
        let run = table::not_run(repo, day, Status::Unwritten)?;
        table::tasks(repo, &run, "the stub, nothing written yet", None)?;
        say!("");
        all.push(run);
    }
    if args.solution == Whose::Mine
        && args.rest == Whose::Ref
        && args.task.is_none()
        && args.device.is_none()
    {
        keep(repo, &keys, &all);
    }
    let not_run =
        all.iter().flat_map(|run| &run.units).filter(|unit| unit.status == Status::Broken).count();
    let mut sum = Sum::default();
    all.iter().for_each(|run| sum.add(Sum::of(&run.units)));
    next(repo, args, &all)?;
    let failed = sum.failed > 0 || sum.passed == 0;
    sum.failed -= not_run;
    match not_run {
        0 => say!("{}", sum.line()),
        _ => say!("{}, {not_run} not run", sum.line()),
    }
    Ok(ExitCode::from(u8::from(failed)))
}

/// Keeps the outcomes for `list`. A disk without room is no reason to hold back what the checks said.
fn keep(repo: &Repo, keys: &BTreeMap<u32, String>, runs: &[DayRun]) {
    for run in runs {
        let kept = keys.get(&run.day.number).map(|key| results::save(repo, key, run));
        if let Some(Err(problem)) = kept {
            note!("(the outcome is not kept for `cargo xtask list`: {problem:#})");
        }
    }
}

/// The day asked for; `None` for all. A task tells its day.
fn day(repo: &Repo, args: &Check) -> Result<Option<Day>> {
    let named = match args.day.as_str() {
        "all" => None,
        text => Some(repo.day(text)?),
    };
    let Some(id) = &args.task else {
        return Ok(named.cloned());
    };
    let (day, _) = repo.task(id)?;
    match named {
        Some(named) if *named != day => Err(usage(format!(
            "task {id} is not of day {}: leave one of the two out",
            named.number
        ))),
        _ => Ok(Some(day)),
    }
}

/// An error for a device that no build has.
fn known_device(device: &str) -> Result<()> {
    match device.split(':').next() {
        Some("cpu" | "metal" | "cuda") => Ok(()),
        _ => Err(usage(format!("no device `{device}`: use cpu, metal or cuda"))),
    }
}

/// Builds and runs one job, and prints each of its days as it ends.
fn run_job(repo: &Repo, job: &Job, options: &Options, show_output: bool) -> Result<Vec<DayRun>> {
    let built = runner::build(repo, &job.features, &job.days, options.device.as_deref())?;
    let mut runs = Vec::new();
    if let Built::Broken(places) = &built {
        note!("\n{}\n", compile::explain(places));
    }
    for day in &job.days {
        let mut run = match &built {
            Built::Done(programs) => runner::run_day(repo, day, programs, options)?,
            Built::Broken(_) => table::not_run(repo, day, Status::Broken)?,
        };
        if let Some(id) = &options.task {
            run.units.retain(|unit| unit.task().as_ref() == Some(id));
        }
        match &built {
            Built::Broken(places) => table::broken(&run, job.words, places),
            Built::Done(_) => {
                table::messages(&run, show_output);
                table::tasks(repo, &run, job.words, options.task.as_deref())?;
            }
        }
        say!("");
        runs.push(run);
    }
    Ok(runs)
}

/// Says what comes next, if the reader's day (or its core) is done.
fn next(repo: &Repo, args: &Check, runs: &[DayRun]) -> Result<()> {
    let [run] = runs else { return Ok(()) };
    if args.solution == Whose::Ref || args.task.is_some() {
        return Ok(());
    }
    let further: Vec<String> =
        repo.tasks(&run.day)?.into_iter().filter(|task| task.further).map(|task| task.id).collect();
    if run.units.is_empty() {
        return Ok(());
    }
    let open: Vec<_> = run.units.iter().filter(|unit| unit.status != Status::Passed).collect();
    let beyond = |task: Option<String>| task.is_some_and(|id| further.contains(&id));
    if !open.iter().all(|unit| beyond(unit.task())) {
        return Ok(());
    }
    let number = run.day.number;
    let done =
        if open.is_empty() { "is done" } else { "has its core done; what is open is further" };
    say!("Day {number} {done}.");
    if let Some(command) = run.day.hear(repo) {
        say!("Hear it: {command}");
    }
    match repo.days.iter().find(|day| day.number > number) {
        Some(day) => say!("Next: day {}, {}\n", day.number, day.chapter()),
        None => say!("That was the last day.\n"),
    }
    Ok(())
}
