//! `cargo xtask`: the runner of the course.

#![warn(missing_docs)]

use candecode_course::Usage;
use clap::error::ContextKind;
use clap::{CommandFactory, FromArgMatches, Parser};
use std::ffi::OsString;
use std::process::ExitCode;
use xtask::{commands, note, term};

/// The runner of the course: checks your days, runs the engine, shows the book
#[derive(Parser)]
#[command(bin_name = "cargo xtask", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let parsed = Cli::command().override_help(help()).try_get_matches_from(arguments());
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(mut said) => {
            // Clap's tip "to pass '--x' as a value, use '-- --x'" misleads: no argument begins with
            // a dash.
            said.remove(ContextKind::Suggested);
            said.exit() // --help ends up here, too
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

/// Lists all commands on one screen: the everyday ones, and the others under a second heading.
fn help() -> String {
    let mut text = "cargo xtask COMMAND (with --help: its flags)\n\n".to_string();
    for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
        if command.get_name() == commands::FIRST_OF_MORE {
            text += "\nMore:\n";
        }
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        text += &format!("  {:<8} {about}\n", command.get_name());
    }
    text
}

/// Returns the command line. For commands that pass their arguments to another program, inserts
/// `--`, so that clap leaves the arguments alone.
fn arguments() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let name = arguments.get(1).map(|name| name.to_string_lossy().into_owned());
    if name.is_some_and(|name| PASSED_ON.contains(&name.as_str())) {
        arguments.insert(2, "--".into());
    }
    arguments
}

/// The commands that pass their arguments to another program.
const PASSED_ON: [&str; 6] = ["run", "chat", "serve", "compare", "bench", "mistakes"];
