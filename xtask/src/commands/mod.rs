//! The commands, one file each: their flags and the function that runs them.

pub mod book;
pub mod check;
pub mod diff;
pub mod doctor;
pub mod explain;
pub mod hint;
pub mod list_days;
pub mod reset;
pub mod run_engine;
pub mod update;
pub mod watch;
pub mod write_stubs;

use crate::cargo;
use crate::repo::Repo;
use anyhow::Result;
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

/// The first command under the second heading in the list of commands.
pub const FIRST_OF_MORE: &str = "chat";

/// A command is a variant here, in the order of the list, a line in [`run`], and a file of its own.
#[derive(Subcommand)]
pub enum Command {
    /// Check a day: what is wrong, task by task (--watch: at every save)
    Check(check::Check),
    /// Run the engine with the days that you have written in it
    #[command(disable_help_flag = true)]
    Run(PassedOn),
    /// Help with a task: a question, a sharper one, the shape of the code
    Hint(hint::Hint),
    /// Show all days, or one day's tasks, and where to go next
    List(list_days::List),
    /// Show your code of a day next to the reference, task by task
    Diff(diff::Diff),
    /// Put a day's stub back (--ref: the reference; --undo: what was there)
    Reset(reset::Reset),
    /// Build the book (--open: and show it)
    Book(book::Book),
    /// Say what machine this is, for an issue, and what it lacks
    Doctor,

    /// Talk with a model: every line is a turn
    #[command(disable_help_flag = true)]
    Chat(PassedOn),
    /// Serve a model to the clients of OpenAI's protocol
    #[command(disable_help_flag = true)]
    Serve(PassedOn),
    /// Run prompts through every loop: time, and whether the text is equal
    #[command(disable_help_flag = true)]
    Compare(PassedOn),
    /// Measure a day, the engine or a server
    #[command(disable_help_flag = true)]
    Bench(PassedOn),
    /// Begin in the middle: earlier days that you haven't begun are given
    Start(reset::Start),
    /// Get the newest course: your code stays, changed signatures are listed
    Update(update::Update),
    /// A game: find the one mistake in an engine by what it writes
    #[command(disable_help_flag = true)]
    Hunt(PassedOn),
    /// List the models on this machine, with their sizes
    Models,
    /// Show that the checks catch and name every known mistake
    #[command(disable_help_flag = true)]
    Teeth(PassedOn),
    /// Say what a message means, and what to do
    Explain(explain::Explain),
    /// Write the stubs of src/ from solutions/
    Stubs(write_stubs::Stubs),
}

/// A command line that another program reads.
#[derive(Args)]
pub struct PassedOn {
    /// Flags; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Runs a command and returns the exit code.
///
/// # Errors
/// Any error of the command. Bad usage is a [`crate::Usage`].
pub fn run(command: Command) -> Result<ExitCode> {
    let repo = Repo::find()?;
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
        Command::Hunt(PassedOn { args }) => tool(&repo, "hunt", args),
        Command::Models => run_engine::run(&repo, &run_engine::MODELS, &[]),
        Command::Teeth(PassedOn { args }) => tool(&repo, "teeth", args),
        Command::Explain(args) => explain::run(&repo, &args),
        Command::Stubs(args) => write_stubs::run(&repo, &args),
    }
}

/// Runs a command of `crates/extras`, which is compiled on first use.
fn tool(repo: &Repo, command: &str, mut args: Vec<OsString>) -> Result<ExitCode> {
    args.insert(0, command.into());
    cargo::run_member(repo, "candecode-extras", &[], &args)
}
