//! The stage `clients`: a server of ours, and the packages that people talk to servers with, in Python and JavaScript.

use crate::python_packages;
use crate::stages::Outcome;
use anyhow::{bail, ensure, Context as _, Result};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use xtask::cargo::{self, Built};
use xtask::checks::table::Sum;
use xtask::child::{self, End};
use xtask::repo::Repo;
use xtask::say;

/// The key that `clients.py` shows.
const KEY: &str = "sesame";

/// The page that `clients.py` asks for.
const ORIGIN: &str = "http://app.example:3000";

/// A server that ends with the stage.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the server, and runs the clients; skipped where their packages cannot be had.
pub fn run(repo: &Repo, limit: Duration) -> Result<Outcome> {
    let python = match environment(repo)? {
        Ok(python) => python,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let build = ["--package", "candecode-serve", "--features", "ref"].map(str::to_string);
    let built = cargo::build(repo, "build", &build, "Building the server.")?;
    let Built::Done(programs) = built else { bail!("the server does not build") };
    let mut command = Command::new(programs.get("candecode-serve")?);
    command.args(["--model", "story-230k", "--port", "0"]).env("CANDECODE_API_KEY", KEY);
    command.args(["--served-model-name", "me/story", "--allowed-origins", ORIGIN]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut server = Server(child);
    let out = server.0.stdout.take().context("the server has no output")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    let address = line.trim().strip_prefix("listening on ");
    let address = address.with_context(|| format!("the server says {line:?}"))?;
    let mut clients = Command::new(python);
    clients.arg(repo.root.join("crates/server/tests/clients/clients.py")).arg(address);
    let mut sum = answers(&mut clients, limit)?;
    match javascript(repo)? {
        Ok(script) => {
            let in_javascript = answers(Command::new("node").arg(script).arg(address), limit)?;
            sum.passed += in_javascript.passed;
            sum.failed += in_javascript.failed;
        }
        Err(why) => say!("JavaScript's client is left out: {why}"),
    }
    Ok(Outcome::Done(sum))
}

/// Runs one of the scripts. Its last line says how many checks have passed and failed.
fn answers(clients: &mut Command, limit: Duration) -> Result<Sum> {
    let outcome = child::run(clients, limit, |line| say!("{line}"))?;
    let number = |word: &str| {
        let line = outcome.stdout.lines().find(|line| line.starts_with("test result:"))?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|found| *found == word)?;
        words.get(at.checked_sub(1)?)?.parse::<usize>().ok()
    };
    let (passed, failed) = (number("passed;").unwrap_or(0), number("failed;").unwrap_or(0));
    ensure!(
        passed > 0 && (outcome.end == End::Exit(0) || failed > 0),
        "the clients did not run to their end: {:?}\n{}",
        outcome.end,
        outcome.stderr
    );
    Ok(Sum { passed, failed })
}

/// The script for JavaScript, in a folder with its package; or why it can't run.
fn javascript(repo: &Repo) -> Result<Result<PathBuf, String>> {
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let npm = if cfg!(windows) { "npm.cmd" } else { "npm" };
    if !has("node") || !has(npm) {
        return Ok(Err("there is no node with npm here".to_string()));
    }
    let dir = cargo::target_dir(repo).join("clients-javascript");
    std::fs::create_dir_all(&dir)?;
    let from = repo.root.join("crates/server/tests/clients");
    for file in ["package.json", "clients.mjs"] {
        std::fs::copy(from.join(file), dir.join(file)).context(file)?;
    }
    let mut install = Command::new(npm);
    install.args(["install", "--silent", "--no-fund", "--no-audit"]).current_dir(&dir);
    if !install.status().is_ok_and(|status| status.success()) {
        return Ok(Err(
            "npm cannot bring what crates/server/tests/clients/package.json names".to_string()
        ));
    }
    Ok(Ok(dir.join("clients.mjs")))
}

/// A Python with the clients in it, or why there is none.
fn environment(repo: &Repo) -> Result<Result<PathBuf, String>> {
    if Command::new("curl").arg("--version").output().is_err() {
        return Ok(Err("there is no curl here".to_string()));
    }
    python_packages::environment(
        repo,
        "clients-venv",
        "crates/server/tests/clients/requirements.txt",
    )
}
