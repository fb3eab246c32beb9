//! Cargo as a child process: its environment, its target directory, and the results of a build.

mod compile;

pub use compile::{build, explain, places, Built, Place, Programs};

use crate::{backup, host};
use anyhow::{Context, Result};
use candecode_course::Repo;
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Returns a `cargo` command in the repository's root, using the cargo that runs this program if
/// there is one.
///
/// Removes the variables cargo sets for the running package. If another cargo inherited them, build
/// scripts that read them would rerun every time.
pub fn command(repo: &Repo) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.current_dir(&repo.root);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    host::set_threads(&mut command);
    command
}

/// Runs a command of `crates/lab`, which is built on first use, and returns its exit code. It runs
/// in the current directory, because its arguments may be relative paths.
///
/// # Errors
/// If the current directory is gone, or cargo cannot be started.
pub fn run_lab(repo: &Repo, args: &[OsString]) -> Result<ExitCode> {
    let mut command = command(repo);
    command.current_dir(std::env::current_dir().context("the current directory is gone")?);
    if let Some(dir) = std::env::var_os("CARGO_TARGET_DIR") {
        command.env("CARGO_TARGET_DIR", repo.root.join(dir)); // as in `target_dir`
    }
    command.args(["run", "--quiet", "--package", "candecode-lab"]);
    command.arg("--manifest-path").arg(repo.root.join("Cargo.toml")).arg("--").args(args);
    exit_code_of(&mut command)
}

/// Runs a cargo command to completion, and returns its exit code.
///
/// # Errors
/// If cargo cannot be started.
pub fn exit_code_of(command: &mut Command) -> Result<ExitCode> {
    let status = command.status().context("cannot start cargo")?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// Returns cargo's target directory: `CARGO_TARGET_DIR`, `target/`, or the one cargo reports.
pub fn target_dir(repo: &Repo) -> PathBuf {
    let usual = repo.root.join("target");
    if let Some(dir) = std::env::var_os("CARGO_TARGET_DIR") {
        return repo.root.join(dir);
    }
    if has_built(&usual) {
        return usual;
    }
    let mut cargo = command(repo);
    cargo.args(["metadata", "--no-deps", "--format-version", "1"]).stderr(Stdio::null());
    let said =
        cargo.output().ok().and_then(|out| serde_json::from_slice::<Value>(&out.stdout).ok());
    let dir = said.as_ref().and_then(|v| v["target_directory"].as_str());
    dir.map_or(usual, PathBuf::from)
}

/// A file in the target directory that is written after the first build.
const BUILT: &str = "candecode/built";

/// Returns whether the runner has built the course in this target directory, and so candle.
pub fn has_built(target: &Path) -> bool {
    target.join(BUILT).exists()
}

/// Notes that the runner has built the course. Without the note, it only announces the next build
/// as the first.
fn note_built(target: &Path) {
    if !has_built(target) {
        let _ = backup::write(&target.join(BUILT), b"");
    }
}
