//! `cargo xtask book`: builds the book with a tool that is compiled on first use.

use crate::cargo;
use crate::note;
use anyhow::{Context, Result};
use candecode_course::Repo;
use clap::Args;
use std::io::IsTerminal as _;
use std::process::ExitCode;

/// The flags of `book`.
#[derive(Args)]
pub struct Book {
    /// Open the book in a browser
    #[arg(long)]
    open: bool,
    /// Show still pictures instead of the live figures
    #[arg(long)]
    still: bool,
    /// Run your days in the live figures instead of the reference
    #[arg(long, conflicts_with = "still")]
    mine: bool,
}

/// Runs the book tool to completion.
///
/// # Errors
/// If cargo cannot be started.
pub fn run(repo: &Repo, args: &Book) -> Result<ExitCode> {
    if !cargo::target_dir(repo).join("tools").exists() {
        note!("Compiling the book tool, which is only needed once: about a minute on two cores.");
    }
    let mut command = cargo::command(repo);
    command.args(["run", "--profile", "tools", "--package", "candecode-book"]);
    // On a terminal, let cargo show its progress.
    command.args((!std::io::stderr().is_terminal()).then_some("--quiet"));
    command.args(["--", "build"]).args(args.open.then_some("--open"));
    command.envs(args.still.then_some(("CANDECODE_BOOK", "still")));
    command.envs(args.mine.then_some(("CANDECODE_BOOK", "mine")));
    let status = command.status().context("cannot start cargo")?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}
