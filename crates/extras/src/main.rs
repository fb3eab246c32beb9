//! Occasional commands for readers: `cargo xtask compare`, `bench`, `hunt` and `teeth`. The runner
//! compiles this crate when one of them is first used.

#![warn(missing_docs)]

mod bench;
mod compare_loops;
mod compare_methods;
mod hunt;
mod teeth_table;

use anyhow::Result;
use candecode_course::{Repo, Usage};
use clap::Parser;
use std::process::ExitCode;
use xtask::note;

/// Occasional commands for readers
#[derive(Parser)]
#[command(bin_name = "cargo xtask", version, arg_required_else_help = true)]
enum Command {
    /// Run the same prompts through every loop, or with --methods every decoding method
    Compare(Box<compare_loops::Compare>),
    /// Measure the reference, and draw the book's plots
    Bench(bench::Bench),
    /// Play a game: find the one mistake in an engine from its output
    Hunt(hunt::Hunt),
    /// Show that the checks work: every known mistake is caught and named, and every correct
    /// variant passes
    Teeth(teeth_table::Teeth),
}

fn main() -> ExitCode {
    match run(Command::parse()) {
        Ok(code) => code,
        Err(problem) => {
            note!("error: {problem:#}");
            ExitCode::from(if problem.is::<Usage>() { 2 } else { 1 })
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    let repo = Repo::find()?;
    match command {
        Command::Compare(args) => compare_loops::run(&repo, &args),
        Command::Bench(args) => bench::run(&repo, &args),
        Command::Hunt(args) => hunt::run(&repo, &args),
        Command::Teeth(args) => teeth_table::run(&repo, &args),
    }
}
