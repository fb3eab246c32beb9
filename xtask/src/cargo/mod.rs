//! Cargo as a child: its environment, where it builds, and what a build made.

mod compile;

pub use compile::{build, explain, in_src, places, Built, Place, Programs};

use crate::host;
use crate::repo::Repo;
use anyhow::{Context, Result};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// `cargo` in the root of the repository, the one that runs us if there is one.
///
/// What cargo tells a program about its own package must not reach another cargo: build scripts
/// that read it would run again each time.
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

/// Runs a member of the workspace that is built when it is first asked for, and gives its exit
/// code; `options` are cargo's.
///
/// # Errors
/// If cargo cannot be started.
pub fn run_member(
    repo: &Repo,
    package: &str,
    options: &[&str],
    args: &[OsString],
) -> Result<ExitCode> {
    let mut command = command(repo);
    command.args(["run", "--quiet", "--package", package]).args(options).arg("--").args(args);
    let status = command.status().context("cannot start cargo")?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// Where cargo builds: `CARGO_TARGET_DIR`, `target/`, or what cargo itself says.
pub fn target_dir(repo: &Repo) -> PathBuf {
    let usual = repo.root.join("target");
    if let Some(dir) = std::env::var_os("CARGO_TARGET_DIR") {
        return repo.root.join(dir);
    }
    if candle_is_built(&usual) {
        return usual;
    }
    let mut cargo = command(repo);
    cargo.args(["metadata", "--no-deps", "--format-version", "1"]).stderr(Stdio::null());
    let said =
        cargo.output().ok().and_then(|out| serde_json::from_slice::<Value>(&out.stdout).ok());
    let dir = said.as_ref().and_then(|v| v["target_directory"].as_str());
    dir.map_or(usual, PathBuf::from)
}

/// Whether the profile that all commands share has candle.
pub fn candle_is_built(target: &Path) -> bool {
    let entries = std::fs::read_dir(target.join("debug/deps"));
    let mut names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.any(|name| name.to_string_lossy().starts_with("libcandle_core-"))
}
