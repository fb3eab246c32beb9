//! The check programs of some days: whose code they check, and how they are built.

use crate::cargo::{self, Built, Programs};
use crate::host;
use crate::repo::{Day, Repo};
use crate::usage;
use anyhow::Result;
use clap::ValueEnum;

/// Whose file a day is compiled from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CodeOf {
    /// `src/`: yours.
    #[value(name = "mine")]
    Reader,
    /// `solutions/`: the reference.
    #[value(name = "ref")]
    Reference,
}

/// Whose code is checked, and among whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// A day of the reader's, among reference days.
    Mine,
    /// Days of the reader's, among days of the reader's.
    AllMine,
    /// The reference.
    Reference,
}

impl Mix {
    /// What `--solution` and `--rest` ask for.
    ///
    /// # Errors
    /// Bad usage: the reference takes every day, so no day is left for the rest to be the reader's.
    pub fn of(solution: CodeOf, rest: CodeOf) -> Result<Mix> {
        match (solution, rest) {
            (CodeOf::Reader, CodeOf::Reference) => Ok(Mix::Mine),
            (CodeOf::Reader, CodeOf::Reader) => Ok(Mix::AllMine),
            (CodeOf::Reference, CodeOf::Reference) => Ok(Mix::Reference),
            (CodeOf::Reference, CodeOf::Reader) => Err(usage(
                "--solution ref takes every day from the reference: leave --rest mine out",
            )),
        }
    }

    /// Whose code this is.
    pub fn words(self) -> &'static str {
        match self {
            Mix::Mine => "yours, among reference days",
            Mix::AllMine => "yours, among days of yours",
            Mix::Reference => "the reference",
        }
    }

    /// The features of the package of checks.
    fn features(self) -> &'static [&'static str] {
        match self {
            Mix::Mine => &["mine", "ref"], // a module of the check program
            Mix::AllMine => &[],           // the library's, as every other day
            Mix::Reference => &["ref"],
        }
    }
}

/// Builds the check programs of some days, each named as its day. A day without checkers has none.
///
/// # Errors
/// If this machine cannot build for the device, or cargo cannot be started.
pub fn build(repo: &Repo, mix: Mix, days: &[Day], device: Option<&str>) -> Result<Built> {
    let mut features = mix.features().to_vec();
    if let Some(device) = device {
        features.extend(host::device_feature(device)?);
    }
    let features = features.join(",");
    let mut args = vec!["--no-run", "--package", "candecode-checks", "--no-default-features"];
    args.extend(["--features", &features]);
    let days: Vec<&Day> = days.iter().filter(|day| has_checkers(repo, day)).collect();
    let next = match days[..] {
        [] => return Ok(Built::Done(Programs::default())),
        [day] => format!("Building the checks of day {}; then they run.", day.number),
        _ => format!("Building the checks of {} days; then they run, day after day.", days.len()),
    };
    for day in days {
        args.extend(["--test", &day.name]);
    }
    let args: Vec<String> = args.into_iter().map(String::from).collect();
    cargo::build(repo, "test", &args, &next)
}

/// Whether there are checkers of a day.
pub fn has_checkers(repo: &Repo, day: &Day) -> bool {
    repo.root.join(day.tests()).is_file()
}
