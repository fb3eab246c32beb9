//! `cargo maintain messages`: updates the book's page of messages with the commands' current
//! output.

use anyhow::{Context, Result};
use std::process::ExitCode;
use xtask::cargo;
use xtask::repo::Repo;

/// Runs every command on the page (`tests/messages.rs`) and writes its output to the page.
///
/// # Errors
/// If cargo can't be started.
pub fn run(repo: &Repo) -> Result<ExitCode> {
    let mut command = cargo::command(repo);
    command.args(["test", "--package", "candecode-maintain", "--test", "messages"]);
    let status = command.env("MESSAGES", "write").status().context("cannot start cargo")?;
    Ok(ExitCode::from(u8::from(!status.success())))
}
