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
    /// Measure so often, one after another; of each figure the fastest counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=20))]
    rounds: u8,
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
        for day in &chosen {
            forget(repo, &format!("day{:02}_", day.number))?;
        }
        for round in 1..=args.rounds {
            let mut command = cargo::command(repo);
            command.args(["bench", "--profile", "dev", "--package", "benches"]);
            for day in &chosen {
                command.args(["--bench", &day.name]);
            }
            command.args(["--", "--save-baseline", &format!("round{round}")]);
            if !command.status().context("cannot start cargo")?.success() {
                return Ok(ExitCode::FAILURE);
            }
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

/// Removes what was measured before of the groups whose names begin so.
fn forget(repo: &Repo, prefix: &str) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(cargo::target_dir(repo).join("criterion")) else {
        return Ok(());
    };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            std::fs::remove_dir_all(entry.path())
                .with_context(|| format!("{}: cannot be removed", entry.path().display()))?;
        }
    }
    Ok(())
}

/// The benchmark of a day, relative to the root.
fn bench(name: &str) -> String {
    format!("benches/{name}.rs")
}
