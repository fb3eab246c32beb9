//! Cargo as a child: builds for one mix of days, what it made, and which file an error is in.

use crate::machine;
use crate::note;
use crate::paint;
use crate::repo::Repo;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, Sender};
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

/// `cargo` in the root of the repository, the one that runs us if there is one.
///
/// What cargo tells a program about its own package must not reach another cargo: build scripts that read it would run
/// again each time.
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
    machine::set_threads(&mut command);
    command
}

/// Runs `cargo SUBCOMMAND ARGS` and says what it made. Its own messages are shown as they are.
///
/// # Errors
/// If cargo cannot be started.
pub fn build(repo: &Repo, subcommand: &str, args: &[String]) -> Result<Built> {
    let cold = announce_cold(repo);
    let format = if paint::stderr_colours() { "json-diagnostic-rendered-ansi" } else { "json" };
    let mut cargo = command(repo);
    cargo.arg(subcommand).arg(format!("--message-format={format}")).args(args);
    if !cold {
        cargo.arg("--quiet");
    }
    let mut child = cargo.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let child = child.as_mut().map_err(|e| anyhow::anyhow!("cannot start cargo: {e}"))?;
    let (done, waiting) = channel::<()>();
    std::thread::spawn(move || {
        if !cold
            && waiting
                .recv_timeout(PATIENCE)
                .is_err_and(|e| e == std::sync::mpsc::RecvTimeoutError::Timeout)
        {
            note!("building …");
        }
    });
    collect(child, done)
}

/// Reads cargo's messages to its end.
fn collect(child: &mut Child, done: Sender<()>) -> Result<Built> {
    let (mut programs, mut broken) = (Programs::default(), BTreeSet::new());
    let pipe = child.stdout.take().context("cargo has no output")?;
    for line in BufReader::new(pipe).lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line?) else {
            continue;
        };
        match message["reason"].as_str() {
            Some("compiler-artifact") => {
                if let (Some(name), Some(path)) =
                    (message["target"]["name"].as_str(), message["executable"].as_str())
                {
                    programs.paths.insert(name.to_string(), PathBuf::from(path));
                }
            }
            Some("compiler-message") => {
                show(&message["message"], &mut broken);
                programs.warnings += usize::from(message["message"]["level"] == "warning");
            }
            _ => {}
        }
    }
    drop(done);
    let status = child.wait()?;
    Ok(if status.success() { Built::Done(programs) } else { Built::Broken(broken) })
}

/// Prints a compiler message, and remembers the file if it is an error.
fn show(message: &Value, broken: &mut BTreeSet<String>) {
    // on a terminal cargo may have a progress bar on this line
    let clear = if paint::stderr_colours() { "\r\x1b[K" } else { "" };
    let _ =
        write!(std::io::stderr(), "{clear}{}", message["rendered"].as_str().unwrap_or_default());
    let error = message["level"].as_str().is_some_and(|level| level.starts_with("error"));
    let spans = message["spans"].as_array().filter(|_| error);
    for span in spans.into_iter().flatten().filter(|span| span["is_primary"] == true) {
        broken.extend(span["file_name"].as_str().map(|name| name.replace('\\', "/")));
    }
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

/// Before the first build of all: how long it takes, and what to read meanwhile. Says whether it is that build.
fn announce_cold(repo: &Repo) -> bool {
    if candle_is_built(&target_dir(repo)) {
        return false;
    }
    note!(
        "The first build compiles candle and its friends: 3 to 6 minutes on two cores, once.\n\
         Meanwhile read book/src/preface.md and book/src/setup.md; afterwards `cargo xtask book` shows the whole book."
    );
    true
}

/// Where cargo builds: `CARGO_TARGET_DIR`, `target/`, or, if candle is in neither, what cargo itself says.
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
