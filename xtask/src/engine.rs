//! Builds the engine or the server with a mix of the reader's days and the reference's.

use crate::cargo::{self, Built};
use crate::waits::Wait;
use anyhow::Result;
use candecode_course::{Day, Progress, Repo};

/// A program of the workspace that runs the days.
pub struct Program {
    /// The package that builds it.
    pub package: &'static str,
    /// The name of its binary.
    pub name: &'static str,
}

/// The command `candecode`.
pub const ENGINE: Program = Program { package: "candecode-cli", name: "candecode" };
/// The server.
pub const SERVER: Program = Program { package: "candecode-server", name: "candecode-serve" };

/// The days that use the reader's code, and the open tasks of days in progress, which don't.
pub struct Mix {
    /// The days that use the reader's code. All others use the reference.
    pub mine: Vec<Day>,
    /// The tasks still to write in days that the reader has begun.
    pub open: Vec<String>,
}

impl Mix {
    /// Returns the mix with exactly these days of the reader's.
    pub fn of(mine: Vec<Day>) -> Mix {
        Mix { mine, open: vec![] }
    }

    /// Returns the default mix: the reader's code for every day that is fully written.
    ///
    /// # Errors
    /// If a file of the repository can't be read.
    pub fn written(repo: &Repo) -> Result<Mix> {
        let (mut mine, mut open) = (vec![], vec![]);
        for day in &repo.days {
            let (progress, tasks) = (repo.progress(day)?, repo.tasks(day)?);
            match &progress {
                Progress::Begun(left) if left.is_empty() => mine.push(day.clone()),
                Progress::Begun(left) if progress.has_a_task(&tasks) => {
                    let ids = tasks.into_iter().map(|task| task.id);
                    open.extend(ids.filter(|id| left.contains(id)));
                }
                _ => {}
            }
        }
        Ok(Mix { mine, open })
    }
}

/// Builds a program with a mix of days. `features` are the program's own, such as `hub`. `next`
/// announces the build in a sentence.
///
/// # Errors
/// If cargo can't be started.
pub fn build(
    repo: &Repo,
    program: &Program,
    mix: &Mix,
    features: &[&str],
    next: &str,
) -> Result<Built> {
    let Program { package, name } = program;
    let days = repo.features(|day| !mix.mine.contains(day)).into_iter();
    let days = days.map(|feature| format!("candecode/{feature}"));
    let own = features.iter().map(|feature| format!("{package}/{feature}"));
    let features = days.chain(own).collect::<Vec<_>>().join(",");
    let args = ["--no-default-features", "--package", package, "--bin", name, "--features"];
    let args: Vec<String> = args.into_iter().chain([&*features]).map(String::from).collect();
    cargo::build(repo, "build", &args, next, Some(Wait::Engine))
}

/// Builds the engine as `cargo xtask run` would without flags. Also returns the days for which it
/// uses the reader's code.
///
/// # Errors
/// If a file of the repository can't be read, or cargo can't be started.
pub fn build_with_written_days(repo: &Repo) -> Result<(Built, Vec<Day>)> {
    let next = "Building the engine with your days, as `cargo xtask run` does …";
    let mix = Mix::written(repo)?;
    Ok((build(repo, &ENGINE, &mix, &[], next)?, mix.mine))
}
