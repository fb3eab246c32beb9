//! The commands, one file each, with their flags and the function that runs them.

mod book;
mod check;
mod diff;
mod doctor;
mod explain;
mod hint;
mod list_days;
mod migrate;
mod reset;
pub mod run_engine;
mod update;
mod watch;
mod write_stubs;

use crate::cargo;
use anyhow::Result;
use candecode_course::Repo;
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

/// The first command under the second heading in the list of commands.
pub const FIRST_OF_MORE: &str = "chat";

/// The commands, in the order of the help. Each also has an arm in [`run`], and a file.
#[derive(Subcommand)]
pub enum Command {
    /// Check a day, task by task (--watch: again at every save)
    Check(check::Check),
    /// Run the engine with the days you've written
    #[command(disable_help_flag = true)]
    Run(PassedOn),
    /// Show a hint: a question, a sharper one, or the shape of the code
    Hint(hint::Hint),
    /// Show all days, or one day's tasks, and where to go next
    List(list_days::List),
    /// Compare your code for a day with the reference, task by task
    Diff(diff::Diff),
    /// Restore a day's stub (--ref: the reference; --undo: an older copy)
    Reset(reset::Reset),
    /// Build the book (--open: and open it in a browser)
    Book(book::Book),
    /// Describe this machine, for an issue, and check for problems
    Doctor,

    /// Chat with a model: every line is a turn
    #[command(disable_help_flag = true)]
    Chat(PassedOn),
    /// Serve a model to clients of OpenAI's protocol
    #[command(disable_help_flag = true)]
    Serve(PassedOn),
    /// Run prompts through every loop, and compare times and texts
    #[command(disable_help_flag = true)]
    Compare(PassedOn),
    /// Measure a day, the engine or a server
    #[command(disable_help_flag = true)]
    Bench(PassedOn),
    /// Start at a later day: the reference fills in days you haven't started
    Start(reset::Start),
    /// Get the latest course, keep your code, and list changed signatures
    Update(update::Update),
    /// Bring days that you began before an update up to it
    #[command(hide = true)] // what it's for is said where it's needed
    Migrate(migrate::Migrate),
    /// List the models on this machine, with their sizes
    Models,
    /// Show that the checks catch and name every known mistake
    #[command(disable_help_flag = true)]
    Mistakes(PassedOn),
    /// Explain an error message and what to do about it
    Explain(explain::Explain),
    /// Generate the stubs in src/ from solutions/
    #[command(hide = true)] // for contributors
    Stubs(write_stubs::Stubs),
}

/// Arguments that another program parses.
#[derive(Args)]
pub struct PassedOn {
    /// Flags (--help lists them)
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Runs a command and returns the exit code.
///
/// # Errors
/// Any error from the command. Bad usage is a [`candecode_course::Usage`].
pub fn run(command: Command) -> Result<ExitCode> {
    let repo = Repo::find()?;
    if let Command::Check(_)
    | Command::Run(_)
    | Command::Chat(_)
    | Command::Serve(_)
    | Command::List(_) = command
    {
        migrate::note_old_days(&repo);
    }
    match command {
        Command::Check(args) => check::run(&repo, &args),
        Command::Run(PassedOn { args }) => run_engine::run(&repo, &run_engine::RUN, &args),
        Command::Hint(args) => hint::run(&repo, &args),
        Command::List(args) => list_days::run(&repo, &args),
        Command::Diff(args) => diff::run(&repo, &args),
        Command::Reset(args) => reset::run(&repo, &args),
        Command::Book(args) => book::run(&repo, &args),
        Command::Doctor => Ok(doctor::run(&repo)),
        Command::Chat(PassedOn { args }) => run_engine::run(&repo, &run_engine::CHAT, &args),
        Command::Serve(PassedOn { args }) => run_engine::run(&repo, &run_engine::SERVE, &args),
        Command::Compare(PassedOn { args }) => tool(&repo, "compare", args),
        Command::Bench(PassedOn { args }) => tool(&repo, "bench", args),
        Command::Start(args) => reset::start(&repo, &args),
        Command::Update(args) => update::run(&repo, &args),
        Command::Migrate(args) => migrate::run(&repo, &args),
        Command::Models => run_engine::run(&repo, &run_engine::MODELS, &[]),
        Command::Mistakes(PassedOn { args }) => tool(&repo, "mistakes", args),
        Command::Explain(args) => explain::run(&repo, &args),
        Command::Stubs(args) => write_stubs::run(&repo, &args),
    }
}

/// Runs a command from `crates/lab`.
fn tool(repo: &Repo, command: &str, mut args: Vec<OsString>) -> Result<ExitCode> {
    args.insert(0, command.into());
    cargo::run_lab(repo, &args)
}
