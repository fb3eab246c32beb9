//! `cargo maintain`: commands for the course's maintainers.

#![warn(missing_docs)]

mod claims;
mod live_mistakes;
mod messages;
mod printed;

use anyhow::Result;
use candecode_course::{Repo, Usage};
use clap::Parser;
use std::process::ExitCode;
use xtask::note;

/// Commands for the course's maintainers
#[derive(Parser)]
#[command(bin_name = "cargo maintain", version, arg_required_else_help = true)]
enum Command {
    /// Run the book's commands and compare their output with what the pages show
    Printed(printed::Printed),
    /// Update the book's page of error messages with the commands' current output
    Messages,
    /// Compile the known mistakes that the book's live figures can switch on
    LiveMistakes,
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
        Command::Printed(args) => printed::run(&repo, &args),
        Command::Messages => messages::run(&repo),
        Command::LiveMistakes => live_mistakes::run(&repo),
    }
}
