//! Builds the check programs for the chosen code.

use crate::cargo::{self, Built};
use crate::host;
use anyhow::{Context, Result};
use candecode_course::{usage, Day, Repo};
use clap::ValueEnum;
use toml::{Table, Value};

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

/// Returns the flags with which cargo compiles the check programs, for a program that the runner
/// compiles without cargo: the edition, and the profile in the root's `Cargo.toml`. Debug info and
/// incremental compilation are left out, since no result depends on them.
///
/// # Errors
/// If the manifests can't be read.
pub fn flags(repo: &Repo) -> Result<Vec<String>> {
    let root: Table = repo.read("Cargo.toml")?.parse().context("Cargo.toml")?;
    let dev = root.get("profile").and_then(|profiles| profiles.get("dev"));
    let package = dev.and_then(|dev| dev.get("package")?.get("candecode-checks"));
    let setting = |name: &str| package.and_then(|own| own.get(name)).or(dev?.get(name));
    let is_on = |name: &str, usual: bool| setting(name).and_then(Value::as_bool).unwrap_or(usual);
    let level = match setting("opt-level") {
        Some(Value::String(level)) => level.clone(),
        Some(level) => level.as_integer().unwrap_or(0).to_string(),
        None => "0".to_string(),
    };
    let assertions = is_on("debug-assertions", true);
    let overflow = is_on("overflow-checks", assertions);
    let mut flags = vec!["--edition=2021".to_string(), format!("-Copt-level={level}")];
    flags.push(format!("-Cdebug-assertions={assertions}"));
    flags.push(format!("-Coverflow-checks={overflow}"));
    let own = std::env::var("RUSTFLAGS").unwrap_or_default();
    flags.extend(own.split_whitespace().map(String::from));
    Ok(flags)
}
