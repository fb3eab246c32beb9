//! Running a day's checkers and telling what came of it.

pub mod builds;
pub mod libtest;
pub mod outcome;
pub mod runner;
pub mod saved;
pub mod table;

use crate::cargo::Built;
use crate::progress::{self, Progress};
use crate::repo::{Day, Repo};
use anyhow::Result;
use builds::CodeOf;
use outcome::Status;
use runner::{DayRun, Options};
use saved::Inputs;

/// Checks a day of the reader's among reference days, prints nothing but what cargo says, and keeps
/// the outcome if there is room for it.
///
/// A day without a line of the reader's is not built: all of it is not written. An outcome on another
/// device than the CPU is not kept.
///
/// # Errors
/// If a file of the repository cannot be read, or a program not be started.
pub fn of_reader(repo: &Repo, inputs: &Inputs, day: &Day, device: Option<&str>) -> Result<DayRun> {
    if progress::of(repo, day)? == Progress::Stub {
        return table::not_run(repo, day, Status::Unwritten);
    }
    let key = inputs.key(repo, day);
    let plan = builds::plan(repo, Some(day), CodeOf::Reader, CodeOf::Reference)?;
    let mut run = table::not_run(repo, day, Status::Broken)?;
    for job in &plan.jobs {
        if let Built::Done(programs) = runner::build(repo, &job.features, &job.days, device)? {
            run = runner::run_day(
                repo,
                day,
                &programs,
                &Options {
                    waiting: true,
                    device: device.map(str::to_string),
                    ..Options::default()
                },
            )?;
        }
    }
    if device.is_none() {
        let _ = saved::save(repo, &key, &run);
    }
    Ok(run)
}
