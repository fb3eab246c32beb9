//! Runs the days' checkers and reports the results.

pub mod builds;
pub mod known;
pub mod mistakes;
pub mod outcome;
pub mod runner;
pub mod saved;
pub mod table;
mod workers;

use crate::cargo::{self, Built};
use crate::note;
use anyhow::{bail, Result};
use builds::Mix;
use candecode_course::{Day, Progress, Repo};
use known::Known;
use outcome::Status;
use runner::{DayRun, Options};
use saved::Inputs;
use std::path::Path;
use std::rc::Rc;

/// Checks days one after another, calling `show` as each finishes. Saves results for the reader's
/// code, for `list`.
///
/// A day the reader hasn't touched isn't built: all its tasks count as not written.
///
/// # Errors
/// If a file of the repository can't be read, or a program can't be started.
pub fn check(
    repo: &Repo,
    mix: Mix,
    days: &[Day],
    options: &Options,
    mut show: impl FnMut(&DayRun) -> Result<()>,
) -> Result<Vec<DayRun>> {
    let (mut stubs, mut begun) = (vec![], vec![]);
    for day in days {
        let file = if mix == Mix::Reference { None } else { Some(repo.progress(day)?) };
        match file {
            Some(Progress::Stub) => stubs.push(day.clone()),
            Some(Progress::Missing) => bail!(repo.missing(day)),
            _ => begun.push(day.clone()),
        }
    }
    // Build the reader's days one at a time, so a compile error in one can't hide errors in
    // another.
    let at_once = if mix == Mix::Mine { 1 } else { begun.len().max(1) };
    // Read before the build: a file that changes in the meantime invalidates the saved result.
    let inputs = Inputs::read(repo);
    let mut runs = Vec::new();
    for days in begun.chunks(at_once) {
        let keys: Vec<String> = days.iter().map(|day| inputs.key(repo, day)).collect();
        let built = Rc::new(builds::build(repo, mix, days, options.device.as_deref())?);
        if let Built::Broken(places) = &*built {
            note!("\n{}\n", cargo::explain(places));
        }
        for (day, key) in days.iter().zip(keys) {
            let mut run = run_day(repo, mix, day, &built, options)?;
            run.keep_tasks(&options.tasks);
            run.built = Some(built.clone());
            let usual = mix == Mix::Mine && options.device.is_none();
            if usual && std::env::var_os("CANDECODE_KERNELS").is_none() {
                if let Err(problem) = saved::save(repo, &key, &run) {
                    note!("(couldn't save the results for `cargo xtask list`: {problem:#})");
                }
            }
            show(&run)?;
            runs.push(run);
        }
    }
    for day in &stubs {
        let mut run = table::not_run(repo, day, Status::Unwritten)?;
        run.keep_tasks(&options.tasks);
        show(&run)?;
        runs.push(run);
    }
    Ok(runs)
}

/// Runs a day's checks with the programs from a build.
fn run_day(repo: &Repo, mix: Mix, day: &Day, built: &Built, options: &Options) -> Result<DayRun> {
    match built {
        Built::Broken(_) => table::not_run(repo, day, Status::Broken),
        Built::Done(programs) => {
            let program = programs.get(&day.name)?;
            let mut run = runner::run_day(repo, day, program, options)?;
            // The record is about a day among reference days.
            if mix == Mix::Mine && run.units.iter().any(|unit| unit.status == Status::Failed) {
                if let Err(problem) = name_mistakes(repo, &mut run, program, options) {
                    note!("(couldn't compare with the known mistakes: {problem:#})");
                }
            }
            Ok(run)
        }
    }
}

/// Names the known mistakes that explain the failures of a run. If only some tasks were asked for,
/// runs the other checks that decide.
fn name_mistakes(repo: &Repo, run: &mut DayRun, program: &Path, options: &Options) -> Result<()> {
    if !repo.root.join(run.day.record()).is_file() {
        return Ok(());
    }
    let known = Known::read(repo, &run.day)?;
    let undecided = known.undecided(&run.units);
    let others = runner::run_checks(repo, &run.day, program, options, &undecided)?;
    known.explain(&mut run.units, &others);
    Ok(())
}

/// Checks one of the reader's days, with reference code for the others. Prints only cargo's
/// messages.
///
/// # Errors
/// Same as [`check`].
pub fn of_reader(repo: &Repo, day: &Day, device: Option<&str>) -> Result<DayRun> {
    let device = device.map(str::to_string);
    let options = Options { device, waiting: true, ..Options::default() };
    let mut runs = check(repo, Mix::Mine, std::slice::from_ref(day), &options, |_| Ok(()))?;
    Ok(runs.remove(0))
}
