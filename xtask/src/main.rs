//! `cargo xtask`: the runner of the course.

#![warn(missing_docs)]

use clap::Parser;
use std::ffi::OsString;
use std::process::ExitCode;
use xtask::{commands, note, Usage};

/// The runner of the course: checks your days, runs the engine, shows the book
#[derive(Parser)]
#[command(bin_name = "cargo xtask", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let cli = Cli::parse_from(arguments());
    match commands::run(cli.command) {
        Ok(code) => code,
        Err(problem) => {
            note!("error: {problem:#}");
            ExitCode::from(if problem.is::<Usage>() { 2 } else { 1 })
        }
    }
}

/// The command line. What follows these commands is for another program, also a `--`: so clap is
/// told to leave it alone.
fn arguments() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let passed_on = ["run", "chat", "serve", "compare", "bench", "hunt", "teeth"];
    if arguments.get(1).is_some_and(|command| passed_on.iter().any(|name| command == name)) {
        arguments.insert(2, OsString::from("--"));
    }
    arguments
}
