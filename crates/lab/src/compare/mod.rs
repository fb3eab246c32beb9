//! `cargo xtask compare`: the same prompts through every loop, or with `--methods` through every
//! decoding method.

mod args;
mod loops;
mod methods;
mod texts;

pub use args::Compare;

use anyhow::Result;
use candecode_course::Repo;
use std::path::PathBuf;
use std::process::ExitCode;
use xtask::cargo::{self, Built};
use xtask::{host, note};

/// Builds the reference and compares its loops or methods. The exit code is 1 if texts that must be
/// equal differ.
///
/// # Errors
/// If the reference can't be built or refuses a flag, or the server fails.
pub fn run(repo: &Repo, args: &Compare) -> Result<ExitCode> {
    let Some(program) = program(repo, args)? else { return Ok(ExitCode::FAILURE) };
    if args.methods {
        methods::run(&program, args)
    } else {
        loops::run(&program, args)
    }
}

/// Builds the engine with the reference's days. If it doesn't compile, explains why and returns
/// `None`.
fn program(repo: &Repo, args: &Compare) -> Result<Option<PathBuf>> {
    let feature = host::device_feature(&args.device)?;
    if args.program.is_some() {
        return Ok(args.program.clone());
    }
    let features = ["ref"].into_iter().chain(feature).collect::<Vec<_>>().join(",");
    let flags = ["--package", "candecode-cli", "--features", &features].map(str::to_string);
    let task = "Building the reference; then each row runs for a few seconds.";
    match cargo::build(repo, "build", &flags, task)? {
        Built::Done(programs) => Ok(Some(programs.get("candecode")?.to_path_buf())),
        Built::Broken(places) => {
            note!("\n{}", cargo::explain(&places));
            Ok(None)
        }
    }
}
