//! `cargo xtask check`: runs the checkers of a day, on the reader's code or on the reference.
//!
//! `--part 2` runs the checks of one part of a day. Which tasks are of it is written in the day's
//! file: a line `// part 2: title` above the first function of the part, in the reference and so in
//! the stub (see [`crate::stubs`]).

use crate::cargo::{self, Built};
use crate::checks::builds::{plan, CodeOf, Job};
use crate::checks::outcome::{Status, Unit};
use crate::checks::runner::{self, DayRun, Options, Teeth};
use crate::checks::saved::{self, Inputs};
use crate::checks::table::{self, Sum};
use crate::host;
use crate::repo::{Day, Repo};
use crate::{note, say, usage};
use anyhow::Result;
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

/// The flags of `check`.
#[derive(Args)]
pub struct Check {
    /// Which day: `day6`, `6` or `all`
    #[arg(value_name = "DAY", default_value = "all", hide_default_value = true)]
    day: String,
    /// Whose code of the day is checked
    #[arg(long, value_enum, default_value = "mine")]
    solution: CodeOf,
    /// Whose code the other days are
    #[arg(long, value_enum, default_value = "ref")]
    rest: CodeOf,
    /// cpu, metal or cuda
    #[arg(long)]
    device: Option<String>,
    /// What whole models compute with, where a check has one [default: plain, the days' own code]
    #[arg(long, value_parser = ["plain", "candle", "fast"])]
    kernels: Option<String>,
    /// Only this task, as `6.1`
    #[arg(long)]
    task: Option<String>,
    /// Only the tasks of this part of the day
    #[arg(long, value_name = "N", conflicts_with = "task")]
    part: Option<u32>,
    /// Also show what your code printed (`println!`, `dbg!`), where a check passes, too
    #[arg(long)]
    show_output: bool,
}

/// Runs `check`. The exit code is 0 only if every check passed.
///
/// # Errors
/// Bad usage; or files or programs of the repository that cannot be used.
pub fn run(repo: &Repo, args: &Check) -> Result<ExitCode> {
    let (day, tasks) = chosen(repo, args)?;
    if let Some(device) = &args.device {
        host::device_feature(device)?; // refused before anything is built
    }
    if let Some(kernels) = &args.kernels {
        std::env::set_var("CANDECODE_KERNELS", kernels); // the checks inherit it
    }
    let plan = plan(repo, day.as_ref(), args.solution, args.rest)?;
    let options = Options {
        device: args.device.clone(),
        teeth: Teeth::Without,
        waiting: args.solution == CodeOf::Reader,
        tasks,
    };
    let inputs = Inputs::read(repo);
    let keys: BTreeMap<u32, String> =
        repo.days.iter().map(|day| (day.number, inputs.key(repo, day))).collect();
    let mut all: Vec<DayRun> = Vec::new();
    for job in &plan.jobs {
        all.extend(run_job(repo, job, &options, args.show_output)?);
    }
    for day in &plan.stubs {
        let mut run = table::not_run(repo, day, Status::Unwritten)?;
        run.keep_tasks(&options.tasks);
        table::tasks(repo, &run, "the stub, nothing written yet", &options.tasks)?;
        say!("");
        all.push(run);
    }
    let usual = args.solution == CodeOf::Reader
        && args.rest == CodeOf::Reference
        && args.device.is_none()
        && args.kernels.is_none();
    if usual && options.tasks.is_empty() {
        keep(repo, &keys, &all);
    }
    if let ([run], CodeOf::Reader, None) = (all.as_slice(), args.solution, &args.task) {
        next(repo, args.part, run)?;
    }
    let mut sum = Sum::default();
    all.iter().for_each(|run| sum.add(Sum::of(&run.units)));
    say!("{}", last_line(sum, &all));
    if let ([day], []) = (plan.stubs.as_slice(), plan.jobs.as_slice()) {
        say!(
            "Next: {}; write in {}, and `cargo xtask watch` checks it at every save",
            day.chapter(),
            day.src()
        );
    }
    Ok(ExitCode::from(u8::from(sum.failed > 0 || sum.passed == 0)))
}

/// The last line: how many checks passed and failed, and how many could not, because their task is
/// not written or their day does not compile. Before anything is written, checks mean nothing yet.
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

/// The day asked for, `None` for all, and the tasks, none of them for all. A task tells its day.
fn chosen(repo: &Repo, args: &Check) -> Result<(Option<Day>, Vec<String>)> {
    let named = if args.day == "all" { None } else { Some(repo.day(&args.day)?.clone()) };
    if let Some(id) = &args.task {
        let (day, task) = repo.task_of(named.as_ref(), id)?;
        return Ok((Some(day), vec![task.id]));
    }
    let Some(part) = args.part else { return Ok((named, vec![])) };
    let Some(day) = named else {
        return Err(usage("--part is of one day: name it, as `cargo xtask check day10 --part 1`"));
    };
    let all = repo.tasks(&day)?;
    let parts: BTreeSet<u32> = all.iter().filter_map(|task| task.part).collect();
    let number = day.number;
    if parts.is_empty() {
        return Err(usage(format!("day {number} has no parts: leave --part out")));
    }
    if !parts.contains(&part) {
        let parts: Vec<String> = parts.iter().map(u32::to_string).collect();
        return Err(usage(format!("no part {part}: day {number} has {}", parts.join(", "))));
    }
    let of_part = all.into_iter().filter(|task| task.part == Some(part));
    Ok((Some(day), of_part.map(|task| task.id).collect()))
}

/// Keeps the outcomes for `list`. A disk without room does not hold back what the checks said.
fn keep(repo: &Repo, keys: &BTreeMap<u32, String>, runs: &[DayRun]) {
    for run in runs {
        let kept = keys.get(&run.day.number).map(|key| saved::save(repo, key, run));
        if let Some(Err(problem)) = kept {
            note!("(the outcome is not kept for `cargo xtask list`: {problem:#})");
        }
    }
}

/// Builds and runs one job, and prints each of its days as it ends.
fn run_job(repo: &Repo, job: &Job, options: &Options, show_output: bool) -> Result<Vec<DayRun>> {
    let built = runner::build(repo, &job.features, &job.days, options.device.as_deref())?;
    if let Built::Broken(places) = &built {
        note!("\n{}\n", cargo::explain(places));
    }
    let mut runs = Vec::new();
    for day in &job.days {
        let run = match &built {
            Built::Done(programs) => {
                let run = runner::run_day(repo, day, programs, options)?;
                table::messages(&run, show_output, &options.tasks);
                table::tasks(repo, &run, job.words, &options.tasks)?;
                run
            }
            Built::Broken(places) => {
                let mut run = table::not_run(repo, day, Status::Broken)?;
                run.keep_tasks(&options.tasks);
                table::broken(&run, job.words, places);
                run
            }
        };
        say!("");
        runs.push(run);
    }
    Ok(runs)
}

/// Says what comes next, if the reader's day (or its core, or the part of it) is done.
fn next(repo: &Repo, part: Option<u32>, run: &DayRun) -> Result<()> {
    let tasks = repo.tasks(&run.day)?;
    let further = |unit: &Unit| {
        let task = unit.task().and_then(|id| tasks.iter().find(|task| task.id == id));
        task.is_some_and(|task| task.further)
    };
    let open: Vec<_> = run.units.iter().filter(|unit| unit.status != Status::Passed).collect();
    if run.units.is_empty() || !open.iter().all(|unit| further(unit)) {
        return Ok(());
    }
    let number = run.day.number;
    let done =
        if open.is_empty() { "is done" } else { "has its core done; what is open is further" };
    if let Some(part) = part {
        say!("Part {part} of day {number} {done}.");
        let next = part + 1;
        if tasks.iter().any(|task| task.part == Some(next)) {
            say!("Next: cargo xtask check day{number} --part {next}\n");
            return Ok(());
        }
        say!("That was its last part; the whole day: cargo xtask check day{number}\n");
        return Ok(());
    }
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
