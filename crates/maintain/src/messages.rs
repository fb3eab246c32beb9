//! `cargo maintain messages`: the book's page of messages, with what the commands say today.

use anyhow::{Context, Result};
use std::process::ExitCode;
use xtask::cargo;
use xtask::repo::Repo;

/// Runs every command of the page (`crates/maintain/tests/messages.rs`), and writes what it says in place of
/// what it said.
///
/// # Errors
/// If cargo cannot be started.
pub fn run(repo: &Repo) -> Result<ExitCode> {
    let mut command = cargo::command(repo);
    command.args(["test", "--package", "maintain", "--test", "messages"]);
    let status = command.env("TRYCMD", "overwrite").status().context("cannot start cargo")?;
    Ok(ExitCode::from(u8::from(!status.success())))
}
