//! A build for one mix of days: what it made, or which file the error is in.

use crate::cargo;
use crate::note;
use crate::paint;
use crate::repo::Repo;
use anyhow::{anyhow, ensure, Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::time::Duration;

/// A build is quiet for this long.
const PATIENCE: Duration = Duration::from_secs(4);

/// What a build gave.
pub enum Built {
    /// The programs it made, by target name.
    Done(Programs),
    /// It failed, with errors in these files; cargo's own words are on standard error already.
    Broken(BTreeSet<String>),
}

/// What a build made.
#[derive(Default)]
pub struct Programs {
    paths: BTreeMap<String, PathBuf>,
    /// How many warnings the compiler had.
    pub warnings: usize,
}

impl Programs {
    /// The program of a target.
    ///
    /// # Errors
    /// If the build made none of that name.
    pub fn get(&self, target: &str) -> Result<&Path> {
        self.paths
            .get(target)
            .map(PathBuf::as_path)
            .with_context(|| format!("cargo made no program `{target}`"))
    }
}

/// What cargo said in the course of a build.
#[derive(Default)]
struct Messages {
    programs: Programs,
    broken: BTreeSet<String>,
    stale: bool,
}

/// Runs `cargo SUBCOMMAND ARGS` and says what it made. Its own messages are shown as they are.
///
/// Ctrl-C in the middle of a build can leave rustc's incremental cache in a state that no later build links with
/// (rust-lang/rust#81280, open since 2021). So a build that fails in this one way is done again from a clean cache.
///
/// # Errors
/// If cargo cannot be started.
pub fn build(repo: &Repo, subcommand: &str, args: &[String]) -> Result<Built> {
    let (mut messages, mut succeeded) = attempt(repo, subcommand, args, false)?;
    if !succeeded && messages.stale {
        note!("An interrupted build left the compiler's cache unusable: building the crate anew.");
        let clean =
            cargo::command(repo).args(["clean", "--quiet", "--package", "candecode"]).status()?;
        ensure!(clean.success(), "cargo clean failed");
        (messages, succeeded) = attempt(repo, subcommand, args, true)?;
    }
    Ok(if succeeded { Built::Done(messages.programs) } else { Built::Broken(messages.broken) })
}

/// One run of cargo; `last` if what looks like a stale cache is to be shown like any other error.
fn attempt(repo: &Repo, subcommand: &str, args: &[String], last: bool) -> Result<(Messages, bool)> {
    let cold = cargo::announce_cold(repo);
    let format = if paint::stderr_colours() { "json-diagnostic-rendered-ansi" } else { "json" };
    let mut command = cargo::command(repo);
    command.arg(subcommand).arg(format!("--message-format={format}")).args(args);
    if !cold {
        command.arg("--quiet");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|e| anyhow!("cannot start cargo: {e}"))?;
    let (done, waiting) = channel::<()>();
    std::thread::spawn(move || {
        if !cold && waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            note!("building …");
        }
    });
    let messages = collect(&mut child, last)?;
    drop(done);
    Ok((messages, child.wait()?.success()))
}

/// Reads cargo's messages to its end.
fn collect(child: &mut Child, last: bool) -> Result<Messages> {
    let mut messages = Messages::default();
    let pipe = child.stdout.take().context("cargo has no output")?;
    for line in BufReader::new(pipe).lines() {
        let Ok(value) = serde_json::from_str::<Value>(&line?) else { continue };
        match value["reason"].as_str() {
            Some("compiler-artifact") => {
                let (name, path) = (value["target"]["name"].as_str(), value["executable"].as_str());
                let made =
                    name.zip(path).map(|(name, path)| (name.to_string(), PathBuf::from(path)));
                messages.programs.paths.extend(made);
            }
            Some("compiler-message") => messages.take(&value["message"], last),
            _ => {}
        }
    }
    Ok(messages)
}

impl Messages {
    /// Prints a compiler message, and remembers the file if it is an error.
    fn take(&mut self, message: &Value, last: bool) {
        let rendered = message["rendered"].as_str().unwrap_or_default();
        if is_stale(message["message"].as_str().unwrap_or_default(), rendered) {
            self.stale = true;
            if !last {
                return;
            }
        }
        // on a terminal cargo may have a progress bar on this line
        let clear = if paint::stderr_colours() { "\r\x1b[K" } else { "" };
        let _ = write!(std::io::stderr(), "{clear}{rendered}");
        let level = message["level"].as_str().unwrap_or_default();
        self.programs.warnings += usize::from(level == "warning");
        let spans = message["spans"].as_array().filter(|_| level.starts_with("error"));
        for span in spans.into_iter().flatten().filter(|span| span["is_primary"] == true) {
            self.broken.extend(span["file_name"].as_str().map(|name| name.replace('\\', "/")));
        }
    }
}

/// Whether a linker misses a symbol of the compiler's own making: only a cache that contradicts itself asks for one.
fn is_stale(text: &str, rendered: &str) -> bool {
    let rendered = rendered.to_lowercase();
    let missing = rendered.contains("undefined") || rendered.contains("unresolved");
    text.starts_with("linking with") && missing && rendered.contains(".llvm.")
}

/// One line about a failed build: where the error is, and what still works.
pub fn explain(broken: &BTreeSet<String>) -> String {
    let files = broken.iter().cloned().collect::<Vec<_>>().join(", ");
    if broken.is_empty() {
        "cargo could not build; its own words are above. `cargo xtask doctor` looks for usual causes.".to_string()
    } else if broken.iter().all(|file| file.starts_with("src/day")) {
        format!(
            "The error is in {files}. Days from the reference are not affected: the same command with \
             `--solution ref` goes without your file."
        )
    } else {
        format!("The error is in {files}.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_cache_is_told_apart_from_an_error_of_the_readers() {
        let lld =
            "rust-lld: error: undefined hidden symbol: anon.18cc6ee7.1.llvm.16499941698224808006";
        assert!(is_stale("linking with `cc` failed: exit status: 1", lld));
        let apple =
            "Undefined symbols for architecture arm64: \"_anon.18cc.1.llvm.164\", referenced from";
        assert!(is_stale("linking with `cc` failed: exit status: 1", apple));
        assert!(!is_stale("linking with `cc` failed: exit status: 1", "ld: cannot find -lfoo"));
        assert!(!is_stale("cannot find value `undefined`", "cannot find value `undefined.llvm.`"));
    }

    #[test]
    fn the_file_of_an_error_is_named() {
        let broken = |files: &[&str]| files.iter().map(|file| file.to_string()).collect();
        assert!(explain(&broken(&["src/day06_generate.rs"])).contains("not affected"));
        assert_eq!(explain(&broken(&["src/kit/mod.rs"])), "The error is in src/kit/mod.rs.");
        assert!(explain(&broken(&[])).contains("cargo xtask doctor"));
    }
}
