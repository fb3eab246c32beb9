//! `cargo lab messages`: updates the book's page of error messages with the commands'
//! current output.

use anyhow::{Context, Result};
use candecode_course::Repo;
use std::process::ExitCode;
use xtask::cargo;

/// Runs the test `tests/messages`, which runs every command on the page and rewrites the page with
/// the output. The exit code is 1 if
/// the test fails.
///
/// # Errors
/// If cargo can't be started.
pub fn run(repo: &Repo) -> Result<ExitCode> {
    let mut command = cargo::command(repo);
    command.args(["test", "--package", "candecode-lab", "--test", "messages"]);
    let status = command.env("MESSAGES", "write").status().context("cannot start cargo")?;
    Ok(ExitCode::from(u8::from(!status.success())))
}
