//! `cargo xtask`: the runner of the course.

#![warn(missing_docs)]

use clap::Parser;
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use xtask::{commands, note, term, Usage};

/// The runner of the course: checks your days, runs the engine, shows the book
#[derive(Parser)]
#[command(bin_name = "cargo xtask", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse_from(arguments()) {
        Ok(cli) => cli,
        Err(said) => {
            let code = u8::try_from(said.exit_code()).unwrap_or(2);
            match said.print().and_then(|()| std::io::stdout().flush()) {
                Err(problem) if code == 0 && problem.kind() != ErrorKind::BrokenPipe => {
                    note!("error: could not write to standard output: {problem}");
                    return ExitCode::FAILURE;
                }
                _ => return ExitCode::from(code),
            }
        }
    };
    let done = commands::run(cli.command);
    if let Some(why) = term::unwritten() {
        note!("error: could not write to standard output: {why}");
        return ExitCode::FAILURE;
    }
    match done {
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
