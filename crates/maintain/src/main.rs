//! `cargo maintain`: commands for the course's maintainers.

#![warn(missing_docs)]

mod claims;
mod live_mistakes;
mod messages;
mod printed;

use anyhow::Result;
use clap::Parser;
use std::process::ExitCode;
use xtask::repo::Repo;
use xtask::{note, Usage};

/// What maintainers run
#[derive(Parser)]
#[command(bin_name = "cargo maintain", version, arg_required_else_help = true)]
enum Command {
    /// Run the commands of the book, and compare what they say with what it prints
    Printed(printed::Printed),
    /// Write what the commands say today into the book's page of messages
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
