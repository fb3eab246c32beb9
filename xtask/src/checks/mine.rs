//! The reader's own days among reference days, one at a time: built, run, and the outcome kept.

use crate::checks::plan::{self, Whose};
use crate::checks::report::Status;
use crate::checks::results::{self, Inputs};
use crate::checks::runner::{self, DayRun, Options};
use crate::checks::table;
use crate::compile::Built;
use crate::progress::{self, Progress};
use crate::repo::{Day, Repo};
use anyhow::Result;

/// Checks the reader's day, prints nothing but what cargo says, and keeps the outcome if there is room for it.
///
/// A day without a line of the reader's is not built: all of it is not written.
///
/// # Errors
/// If a file of the repository cannot be read, or a program not be started.
pub fn check(repo: &Repo, inputs: &Inputs, day: &Day) -> Result<DayRun> {
    if progress::of(repo, day)? == Progress::Stub {
        return table::not_run(repo, day, Status::Unwritten);
    }
    let key = inputs.key(repo, day);
    let plan = plan::plan(repo, Some(day), Whose::Mine, Whose::Ref)?;
    let mut run = table::not_run(repo, day, Status::Broken)?;
    for job in &plan.jobs {
        if let Built::Done(programs) = runner::build(repo, &job.features, &job.days, None)? {
            run = runner::run_day(
                repo,
                day,
                &programs,
                &Options { waiting: true, ..Options::default() },
            )?;
        }
    }
    let _ = results::save(repo, &key, &run);
    Ok(run)
}
