//! The commands, one file each: flags, and a function that runs them.

pub mod book;
pub mod check;
pub mod diff;
pub mod doctor;
pub mod give;
pub mod hint;
pub mod list_days;
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

/// A command is a variant here, a line in [`run`], and a file of its own.
#[derive(Subcommand)]
pub enum Command {
    /// Check a day, or all of them: what is wrong, and a table of tasks
    Check(check::Check),
    /// Check a day again whenever you save it, and show the first task that fails
    Watch(watch::Watch),
    /// Build and run the engine, with the days you have written in it (run --help: all flags)
    #[command(disable_help_flag = true)]
    Run(PassedOn),
    /// Talk with a model: every line is a turn (chat --help: all flags)
    #[command(disable_help_flag = true)]
    Chat(PassedOn),
    /// Serve a model to the clients of OpenAI's protocol (serve --help: all flags)
    #[command(disable_help_flag = true)]
    Serve(PassedOn),
    /// List the models on this machine, with their sizes
    Models,
    /// Run the same prompts through every loop: time, speed-up, and whether the text is equal
    #[command(disable_help_flag = true)]
    Compare(PassedOn),
    /// Measure the reference, and draw the plots of the book
    #[command(disable_help_flag = true)]
    Bench(PassedOn),
    /// Show all days and tasks, and where to go next
    #[command(alias = "progress")]
    List(list_days::List),
    /// Help with a task, in three steps: a question, a sharper one, the shape of the code
    Hint(hint::Hint),
    /// Show your code of a day next to the reference, task by task
    Diff(diff::Diff),
    /// Put the reference's code of a day into src/; a copy of yours is kept
    Give(give::One),
    /// Begin in the middle: the days before this one that you haven't begun are given
    Start(give::One),
    /// Put the stub of a day back into src/; a copy of yours is kept
    Reset(give::One),
    /// A game: find the one mistake in an engine by what it writes
    #[command(disable_help_flag = true)]
    Hunt(PassedOn),
    /// Bring the course up to date: your code stays, and signatures that changed are listed
    Update(update::Update),
    /// List the copies of your code that were kept, or bring one back
    Restore(give::Restore),
    /// Build the book, or serve it
    Book(book::Book),
    /// Check what this machine lacks, and how to fix it
    Doctor(doctor::Doctor),
    /// Write the stubs of src/ from solutions/
    Stubs(write_stubs::Stubs),
    /// Show that the checks work: every known mistake is caught and named
    #[command(disable_help_flag = true)]
    Teeth(PassedOn),
}

/// A command line that another program reads.
#[derive(Args)]
pub struct PassedOn {
    /// Flags; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Runs a command; the exit code is the runner's.
///
/// # Errors
/// Whatever the command cannot do; bad usage is told apart by [`crate::Usage`].
pub fn run(command: Command) -> Result<ExitCode> {
    let repo = Repo::find()?;
    match command {
        Command::Check(args) => check::run(&repo, &args),
        Command::Watch(args) => watch::run(&repo, &args),
        Command::Run(PassedOn { args }) => run_engine::run(&repo, &args),
        Command::Chat(PassedOn { args }) => run_engine::chat(&repo, &args),
        Command::Serve(PassedOn { args }) => run_engine::serve(&repo, &args),
        Command::Models => run_engine::run(&repo, &["--models".into()]),
        Command::Compare(PassedOn { args }) => tool(&repo, "compare", args),
        Command::Bench(PassedOn { args }) => tool(&repo, "bench", args),
        Command::List(args) => list_days::run(&repo, &args),
        Command::Hint(args) => hint::run(&repo, &args),
        Command::Diff(args) => diff::run(&repo, &args),
        Command::Give(args) => give::give(&repo, &args),
        Command::Start(args) => give::start(&repo, &args),
        Command::Reset(args) => give::reset(&repo, &args),
        Command::Hunt(PassedOn { args }) => tool(&repo, "hunt", args),
        Command::Update(args) => update::run(&repo, &args),
        Command::Restore(args) => give::restore(&repo, &args),
        Command::Book(args) => book::run(&repo, &args),
        Command::Doctor(args) => doctor::run(&repo, &args),
        Command::Stubs(args) => write_stubs::run(&repo, &args),
        Command::Teeth(PassedOn { args }) => tool(&repo, "teeth", args),
    }
}

/// Runs a command of `tools/`, which is compiled when it is first asked for.
fn tool(repo: &Repo, command: &str, mut args: Vec<OsString>) -> Result<ExitCode> {
    args.insert(0, command.into());
    cargo::run_member(repo, "maintain", &[], &args)
}
