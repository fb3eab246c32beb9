//! Builds the check programs for the chosen code.

use crate::cargo::{self, Built};
use crate::host;
use anyhow::Result;
use candecode_course::{usage, Day, Repo};
use clap::ValueEnum;

/// The source of a day's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CodeOf {
    /// `src/`: yours.
    #[value(name = "mine")]
    Reader,
    /// `solutions/`: the reference.
    #[value(name = "ref")]
    Reference,
}

/// The combination of the reader's days and reference days to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// One of the reader's days, with reference code for the other days.
    Mine,
    /// The reader's code for every day.
    AllMine,
    /// The reference for every day.
    Reference,
}

impl Mix {
    /// Returns the mix that `--solution` and `--rest` ask for.
    ///
    /// # Errors
    /// Bad usage: `--solution ref` uses the reference for every day, so it excludes `--rest mine`.
    pub fn of(solution: CodeOf, rest: CodeOf) -> Result<Mix> {
        match (solution, rest) {
            (CodeOf::Reader, CodeOf::Reference) => Ok(Mix::Mine),
            (CodeOf::Reader, CodeOf::Reader) => Ok(Mix::AllMine),
            (CodeOf::Reference, CodeOf::Reference) => Ok(Mix::Reference),
            (CodeOf::Reference, CodeOf::Reader) => {
                Err(usage("--solution ref uses the reference for every day: omit --rest mine"))
            }
        }
    }

    /// Describes the mix in words.
    pub fn words(self) -> &'static str {
        match self {
            Mix::Mine => "yours, among reference days",
            Mix::AllMine => "yours, among your own days",
            Mix::Reference => "the reference",
        }
    }

    /// Returns the features to enable in the package of checks.
    fn features(self) -> &'static [&'static str] {
        match self {
            Mix::Mine => &["mine", "ref"], // a module of the check program
            Mix::AllMine => &[],           // the library's, like every other day
            Mix::Reference => &["ref"],
        }
    }
}

/// Builds the check programs of some days, each named after its day.
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
    let next = match days {
        [day] => format!("Building and running the checks of day {} …", day.number),
        _ => format!("Building the checks of {} days, then running them day by day …", days.len()),
    };
    for day in days {
        args.extend(["--test", &day.name]);
    }
    let args: Vec<String> = args.into_iter().map(String::from).collect();
    cargo::build(repo, "test", &args, &next)
}
