//! `cargo lab live-mistakes`: compiles the lessons with each of the known mistakes that the
//! book's live figures can switch on.
//!
//! The figures in `book/src/live/figures/*.js` name their mistakes: `mistake: 'day08 NAME'`. The
//! next build of the book includes everything in `target/live/mistakes`.

use crate::mistaken_engine::{mistaken_course, named};
use anyhow::{ensure, Context, Result};
use candecode_course::Repo;
use regex::Regex;
use std::collections::BTreeSet;
use std::fs;
use std::process::ExitCode;
use xtask::cargo;
use xtask::say;

/// Compiles every mistake that a figure names.
///
/// # Errors
/// If a mistake isn't one of its day's, or doesn't compile.
pub fn run(repo: &Repo) -> Result<ExitCode> {
    let target = cargo::target_dir(repo).join("live");
    let kept = target.join("mistakes");
    if kept.exists() {
        fs::remove_dir_all(&kept).with_context(|| kept.display().to_string())?;
    }
    fs::create_dir_all(&kept).with_context(|| kept.display().to_string())?;
    for (day, name) in switches(repo)? {
        let (of, mistake) = named(repo, &day, &name)?;
        let (course, features) = mistaken_course(repo, &of, &mistake)?;
        let features: Vec<String> =
            features.iter().map(|feature| format!("candecode/{feature}")).collect();
        let to = kept.join(format!("mistake-{day}-{name}.wasm"));
        let status = cargo::command(repo)
            .args(["run", "--quiet", "--config", "profile.dev.opt-level=0"])
            .args(["--package", "candecode-book", "--"])
            .arg("lessons")
            .arg(&course)
            .arg(features.join(","))
            .arg(&target)
            .arg(&to)
            .status()
            .context("cannot start cargo")?;
        ensure!(status.success(), "{day}, {name}: compiling failed");
        say!("{}", to.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the day and name of every mistake that a figure can switch on.
fn switches(repo: &Repo) -> Result<BTreeSet<(String, String)>> {
    let pattern = Regex::new(r"mistake: '(day\d\d) (\w+)'")?;
    let dir = repo.root.join("book/src/live/figures");
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
        let text = fs::read_to_string(entry?.path())?;
        for named in pattern.captures_iter(&text) {
            found.insert((named[1].to_string(), named[2].to_string()));
        }
    }
    Ok(found)
}
