//! `cargo xtask messages`: the book's page of messages, of what the tests provoke.

use crate::backup;
use crate::cargo;
use crate::messages::{self, PAGE};
use crate::repo::Repo;
use crate::say;
use anyhow::{bail, ensure, Context, Result};
use clap::Args;
use std::path::Path;
use std::process::{ExitCode, Stdio};

/// The test programs that provoke messages: the command's, and the runner's own.
const TESTS: [&[&str]; 2] = [
    &[
        "--features",
        "ref",
        "--test",
        "bad_input",
        "--test",
        "chat",
        "--test",
        "hub",
        "--test",
        "kit",
    ],
    &["--package", "xtask", "--test", "files", "--test", "check"],
];

/// The flags of `messages`.
#[derive(Args)]
pub struct Messages {
    /// Write nothing: fail if the page is not what the tests provoke
    #[arg(long)]
    check: bool,
    /// Run no test: take what the last run kept (for work on the advice)
    #[arg(long, conflicts_with = "check")]
    kept: bool,
}

impl Messages {
    /// The flags of `messages --check`.
    pub fn checking() -> Messages {
        Messages { check: true, kept: false }
    }
}

/// Runs `messages`.
///
/// # Errors
/// If a test fails, a message has no entry, or, with `--check`, the page is another.
pub fn run(repo: &Repo, args: &Messages) -> Result<ExitCode> {
    let dir = cargo::target_dir(repo).join("xtask/messages");
    if !args.kept {
        provoke(repo, &dir)?;
    }
    let page = messages::page(repo, &messages::read(repo, &dir)?)?;
    let now = repo.read(PAGE).unwrap_or_default();
    if !args.check {
        backup::write(&repo.root.join(PAGE), page.as_bytes())?;
        say!("wrote {PAGE}");
        return Ok(ExitCode::SUCCESS);
    }
    let mut lines = now.lines().zip(page.lines()).enumerate();
    match lines.find(|(_, (is, should))| is != should) {
        None if now == page => Ok(ExitCode::SUCCESS),
        None => bail!("{PAGE} ends too soon or too late: `cargo xtask messages` writes it"),
        Some((at, (is, should))) => bail!(
            "{PAGE}:{}: `cargo xtask messages` writes another line\n  is      {is}\n  should  {should}",
            at + 1
        ),
    }
}

/// Runs the tests, which keep what they provoke in a folder.
fn provoke(repo: &Repo, dir: &Path) -> Result<()> {
    let _ = std::fs::remove_dir_all(dir);
    std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    for tests in TESTS {
        let mut command = cargo::command(repo);
        // A test is named by its thread, so there must be more threads than one.
        command.args(["test", "--quiet"]).args(tests).args(["--", "--test-threads=4"]);
        command.env("CANDECODE_MESSAGES", dir).stdout(Stdio::null());
        let status = command.status().context("cannot start cargo")?;
        ensure!(status.success(), "`cargo test {}` failed", tests.join(" "));
    }
    Ok(())
}
