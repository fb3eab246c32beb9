//! Runs git as a child process.

use anyhow::{bail, Context, Result};
use candecode_course::Repo;
use std::path::Path;
use std::process::Command;

/// Runs git in the repository's root and returns its output without the final newline.
///
/// # Errors
/// Same as [`bytes`].
pub fn git(repo: &Repo, args: &[&str]) -> Result<String> {
    git_in(&repo.root, args)
}

/// Runs git in a folder and returns its output without the final newline.
///
/// # Errors
/// Same as [`bytes`].
pub fn git_in(dir: &Path, args: &[&str]) -> Result<String> {
    Ok(String::from_utf8_lossy(&bytes(dir, args)?).trim_end().to_string())
}

/// Runs git in a folder and returns its output.
///
/// Defines the merge driver for the days, for this call only. If no name is configured, commits as
/// `reader`.
///
/// # Errors
/// If git can't be started or fails. The error includes git's own message.
pub fn bytes(dir: &Path, args: &[&str]) -> Result<Vec<u8>> {
    let command = || {
        let mut git = Command::new("git");
        git.current_dir(dir);
        git.args(["-c", "merge.ours.driver=true", "-c", "merge.renames=false"]);
        git.args(["-c", "merge.autoStash=false"]);
        git
    };
    let mut git = command();
    let is_named = || {
        let named = command().args(["var", "GIT_COMMITTER_IDENT"]).output();
        named.is_ok_and(|out| out.status.success())
    };
    if ["commit", "merge"].contains(&args[0]) && !is_named() {
        git.args(["-c", "user.name=reader", "-c", "user.email=reader@localhost"]);
    }
    let out = git.args(args).output().context("cannot start git")?;
    if !out.status.success() {
        let words = [out.stdout, out.stderr].concat();
        bail!("`git {}` failed: {}", args.join(" "), String::from_utf8_lossy(&words).trim());
    }
    Ok(out.stdout)
}

/// Returns the NUL-terminated paths that a git command prints (`-z`).
///
/// # Errors
/// Same as [`bytes`].
pub fn paths(dir: &Path, args: &[&str]) -> Result<Vec<String>> {
    let said = git_in(dir, args)?;
    Ok(said.split('\0').filter(|path| !path.is_empty()).map(str::to_string).collect())
}
