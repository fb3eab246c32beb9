//! `cargo maintain`: what maintainers run, and what readers run now and then (`cargo xtask
//! compare`, `bench`, `hunt` and `teeth` start it): it is compiled when it is first asked for.

#![warn(missing_docs)]

mod bench;
mod ci;
mod claims;
mod client_stage;
mod columns;
mod compare_loops;
mod compare_methods;
mod hunt;
mod live_mistakes;
mod messages;
mod mutants;
mod printed;
mod prose;
mod python_packages;
mod stages;
mod steps;
mod stock_book;
mod teeth_table;

use anyhow::Result;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use std::process::ExitCode;
use xtask::note;
use xtask::repo::Repo;
use xtask::Usage;

/// What maintainers run
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the same prompts through every loop: time, speed-up, and whether the text is equal; with
    /// --methods through every decoding method, with its text
    Compare(compare_loops::Compare),
    /// Measure the reference, and draw the plots of the book
    Bench(bench::Bench),
    /// A game: find the one mistake in an engine by what it writes
    Hunt(hunt::Hunt),
    /// Show that the checks work: every known mistake is caught and named, every right variant passes
    Teeth(teeth_table::Teeth),
    /// Run what continuous integration runs
    Ci(ci::Ci),
    /// Compile the known mistakes that the book's live figures can switch on
    LiveMistakes,
    /// Write what the commands say today into the book's page of messages
    Messages,
    /// Run the commands of the book, and compare what they say with what it prints
    Printed(printed::Printed),
    /// List sentences of the book that a reader may stumble over, in what a change adds
    Prose(prose::Prose),
    /// Change a day's reference in small ways, and see whether its checks notice
    Mutants(mutants::command::Mutants),
}

fn main() -> ExitCode {
    let matches = Cli::command().bin_name(typed(std::env::args().nth(1).as_deref())).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|said| said.exit());
    let outcome = run(cli.command);
    outcome.unwrap_or_else(|problem| {
        note!("error: {problem:#}");
        ExitCode::from(if problem.is::<Usage>() { 2 } else { 1 })
    })
}

/// What the reader typed before the name of the command, for help and usage lines: `cargo xtask
/// compare` starts `cargo maintain compare`.
fn typed(command: Option<&str>) -> &'static str {
    match command {
        Some("compare" | "bench" | "hunt" | "teeth") => "cargo xtask",
        _ => "cargo maintain",
    }
}

fn run(command: Command) -> Result<ExitCode> {
    let repo = Repo::find()?;
    match command {
        Command::Compare(args) => compare_loops::run(&repo, &args),
        Command::Bench(args) => bench::run(&repo, &args),
        Command::Hunt(args) => hunt::run(&repo, &args),
        Command::Teeth(args) => teeth_table::run(&repo, &args),
        Command::Ci(args) => ci::run(&repo, &args),
        Command::LiveMistakes => live_mistakes::run(&repo),
        Command::Messages => messages::run(&repo),
        Command::Printed(args) => printed::run(&repo, &args),
        Command::Prose(args) => prose::run(&repo, &args),
        Command::Mutants(args) => mutants::command::run(&repo, &args),
    }
}
