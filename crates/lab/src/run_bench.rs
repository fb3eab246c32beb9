//! `cargo xtask bench`: runs the benchmark program in `bench/`, which parses the flags.

use anyhow::{Context as _, Result};
use candecode_course::{Day, Repo};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};
use xtask::cargo::Built;
use xtask::commands::run_engine;
use xtask::engine::{Mix, Program};
use xtask::{cargo, engine, host, note};

/// The arguments after `bench`.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Bench {
    /// The measurement and its options; `cargo xtask bench --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// The program in `bench/`.
const PROGRAM: Program = Program { package: "candecode-lab", name: "bench" };

/// The days whose plots show the reference's points beside the reader's.
const DRAWN: [u32; 4] = [10, 12, 13, 17];

/// Builds the programs that the benchmark needs, and runs it: on the reader's day, if its core is
/// written, or on the days that the flags name.
///
/// # Errors
/// If the device is unknown, or cargo can't be started.
pub fn run(repo: &Repo, args: &Bench) -> Result<ExitCode> {
    let words: Vec<OsString> = args.words.iter().map(OsString::from).collect();
    let (chosen, words) = run_engine::chosen(repo, &words)?;
    let words: Vec<String> = words.into_iter().filter_map(|word| word.into_string().ok()).collect();
    let asked = |word: &str| words.iter().any(|other| other == word);
    let day = day(repo, &words);
    let mix = match (chosen, day) {
        (Some(mix), _) => mix,
        (None, Some(day)) => if_written(repo, day)?,
        (None, None) => Mix::of(vec![]),
    };
    let device = host::device_feature(device(&words).unwrap_or(host::DEFAULT_DEVICE))?;
    let with = |command: &mut Command, features: &[&str]| {
        let features: Vec<&str> = features.iter().copied().chain(device).collect();
        if !features.is_empty() {
            command.args(["--features", &features.join(",")]);
        }
    };
    let mut builds = Vec::new();
    if asked("serve") {
        let mut server = cargo::command(repo);
        server.args(["build", "--quiet", "--package", "candecode-server"]);
        with(&mut server, &["ref"]);
        builds.push(server);
    }
    if asked("--peers") {
        let mut peers = cargo::command(repo);
        peers.args(["build", "--quiet", "--package", "candecode-lab", "--bin", "peer"]);
        peers.args(["--features", "peers"]);
        builds.push(peers);
    }
    for mut command in builds {
        let status = command.status().context("cannot start cargo")?;
        if !status.success() {
            return Ok(code(status));
        }
    }
    let features: Vec<&str> = ["bench"].into_iter().chain(device).collect();
    let times = cargo::target_dir(repo).join("bench/reference.json");
    let counts_only = words.windows(2).any(|pair| pair == ["--rounds", "0"]);
    let drawn = day.is_some_and(|day| DRAWN.contains(&day.number)) && !asked("--only");
    let beside = drawn && !counts_only && !mix.mine.is_empty();
    if beside {
        std::fs::create_dir_all(times.with_file_name(""))?;
        note!("First the reference, for the plot, then yours:");
        let reference =
            start(repo, &Mix::of(vec![]), &features, &words, Some(("--times", &times)))?;
        if reference != ExitCode::SUCCESS {
            return Ok(reference);
        }
    }
    start(repo, &mix, &features, &words, beside.then_some(("--beside", &times)))
}

/// Builds the benchmark with a mix of days, and runs it.
fn start(
    repo: &Repo,
    mix: &Mix,
    features: &[&str],
    words: &[String],
    file: Option<(&str, &PathBuf)>,
) -> Result<ExitCode> {
    let next = "Building the benchmark …";
    let programs = match engine::build(repo, &PROGRAM, mix, features, next)? {
        Built::Done(programs) => programs,
        Built::Broken(places) => {
            note!("\n{}", cargo::explain(&places));
            return Ok(ExitCode::FAILURE);
        }
    };
    let mut command = Command::new(programs.get(PROGRAM.name)?);
    host::set_threads(&mut command);
    command.args(words);
    if let Some((flag, file)) = file {
        command.arg(flag).arg(file);
    }
    Ok(code(command.status().context("cannot start the benchmark")?))
}

fn code(status: ExitStatus) -> ExitCode {
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) => ExitCode::from(code),
        None => ExitCode::FAILURE,
    }
}

/// Returns the reader's day if its core is written. If it is only begun, says which tasks are left.
fn if_written(repo: &Repo, day: &Day) -> Result<Mix> {
    let written = Mix::written(repo)?;
    if written.mine.contains(day) {
        return Ok(Mix::of(vec![day.clone()]));
    }
    let of_day = format!("{}.", day.number);
    let open: Vec<&str> =
        written.open.iter().map(String::as_str).filter(|task| task.starts_with(&of_day)).collect();
    if !open.is_empty() {
        let noun = if open.len() == 1 { "task" } else { "tasks" };
        let open = open.join(", ");
        note!("[this measures the reference; your day still lacks {noun} {open}]");
    }
    Ok(Mix::of(vec![]))
}

/// Returns the day that is measured. The roofline is day 16's.
fn day<'a>(repo: &'a Repo, words: &[String]) -> Option<&'a Day> {
    let mut days = words.iter().enumerate().filter_map(|(at, word)| match word.as_str() {
        "roofline" => repo.day("day16").ok(),
        word if word.starts_with("day") || at == 0 => repo.day(word).ok(),
        _ => None,
    });
    days.next()
}

/// Returns the device in `--device NAME` or `--device=NAME`.
fn device(words: &[String]) -> Option<&str> {
    let at = words.iter().position(|word| word == "--device" || word.starts_with("--device="))?;
    words[at].strip_prefix("--device=").or(words.get(at + 1).map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_flag_accepts_an_equals_sign() {
        for (line, want) in [
            ("engine --device cuda --runs 3", Some("cuda")),
            ("engine --device=cuda --runs 3", Some("cuda")),
            ("engine --device", None),
            ("engine --runs 3", None),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_string).collect();
            assert_eq!(device(&words), want, "{line}");
        }
    }
}
