//! `cargo xtask bench`: measures the reference with criterion, and draws the plots of the book from what it measured.

use crate::cargo;
use crate::error::usage;
use crate::note;
use crate::repo::Repo;
use anyhow::{Context, Result};
use clap::Args;
use std::process::ExitCode;

/// The flags of `bench`.
#[derive(Args)]
pub struct Bench {
    /// A day whose benchmark to run, as day10; without one, all
    day: Option<String>,
    /// Draw what was measured before
    #[arg(long)]
    draw_only: bool,
}

/// Runs the benchmarks, then draws.
///
/// # Errors
/// Bad usage: a day without a benchmark. If cargo cannot be started.
pub fn run(repo: &Repo, args: &Bench) -> Result<ExitCode> {
    let all: Vec<_> =
        repo.days.iter().filter(|day| repo.root.join(bench(&day.name)).exists()).collect();
    let chosen = match &args.day {
        None => all,
        Some(text) => {
            let day = repo.day(text)?;
            if !all.contains(&day) {
                let names: Vec<String> =
                    all.iter().map(|day| format!("day{}", day.number)).collect();
                return Err(usage(format!(
                    "day {} has no benchmark: there are {}",
                    day.number,
                    names.join(", ")
                )));
            }
            vec![day]
        }
    };
    if !args.draw_only {
        note!("Close other programs: what runs beside a benchmark is measured with it.");
        let mut command = cargo::command(repo);
        command.args(["bench", "--profile", "dev", "--package", "benches"]);
        for day in &chosen {
            command.args(["--bench", &day.name]);
        }
        if !command.status().context("cannot start cargo")?.success() {
            return Ok(ExitCode::FAILURE);
        }
    }
    let mut command = cargo::command(repo);
    command.args(["run", "--quiet", "--package", "benches", "--bin", "draw", "--"]);
    for day in &chosen {
        command.arg(format!("day{:02}", day.number));
    }
    let status = command.status().context("cannot start cargo")?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// The benchmark of a day, relative to the root.
fn bench(name: &str) -> String {
    format!("benches/{name}.rs")
}
