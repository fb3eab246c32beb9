//! Occasional commands: `cargo xtask compare`, `bench` and `mistakes`, which the runner passes on
//! to this program and compiles when one of them is first used; and `cargo lab`, for the course's
//! maintainers.

#![warn(missing_docs)]

mod book;
mod compare;
mod live_mistakes;
mod measure;
mod mistaken_engine;
mod mistakes_table;
mod run_bench;

use anyhow::Result;
use candecode_course::{Repo, Usage};
use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use std::process::ExitCode;
use xtask::note;

/// Occasional commands: for readers as `cargo xtask`, for maintainers as `cargo lab`
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
enum Command {
    /// Run the same prompts through every loop, or with --methods every decoding method
    Compare(Box<compare::Compare>),
    /// Count and measure what a day gains: yours, once its core is written
    Bench(run_bench::Bench),
    /// Show that the checks work: every known mistake is caught and named, and every correct
    /// variant passes
    Mistakes(mistakes_table::Mistakes),
    /// Compare the book's code, figures, outputs and messages with their sources, or rewrite them
    Book(book::Book),
    /// Measure the book's numbers again, and write down on which machine and at which commit. Close
    /// other programs first
    Measure(measure::Args),
    /// Compile the known mistakes that the book's live figures can switch on
    LiveMistakes,
}

/// The commands that readers know as commands of `cargo xtask`.
const READERS: [&str; 3] = ["compare", "bench", "mistakes"];

fn main() -> ExitCode {
    let first = std::env::args().nth(1).unwrap_or_default();
    let name = if READERS.contains(&first.as_str()) { "cargo xtask" } else { "cargo lab" };
    let matches = Command::command().bin_name(name).get_matches();
    let command = Command::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match run(command) {
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
        Command::Compare(args) => compare::run(&repo, &args),
        Command::Bench(args) => run_bench::run(&repo, &args),
        Command::Mistakes(args) => mistakes_table::run(&repo, &args),
        Command::Book(args) => book::run(&repo, &args),
        Command::Measure(args) => measure::run(&repo, &args),
        Command::LiveMistakes => live_mistakes::run(&repo),
    }
}
