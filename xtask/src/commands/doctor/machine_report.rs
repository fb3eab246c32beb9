//! `cargo xtask doctor --report`: the machine, what the reference's checks say on it, and how fast
//! it decodes, ready to paste into an issue.
//!
//! Every line is put together here: no output of a program is passed on, so that no name of a user,
//! a machine or a folder gets in.

use crate::cargo::{self, Built, Programs};
use crate::checks::outcome::Status;
use crate::checks::runner::{self, Options};
use crate::git::git;
use crate::host;
use crate::repo::Repo;
use crate::{note, say};
use anyhow::{anyhow, Context, Result};
use std::process::{Command, ExitCode};

/// Timed runs, the fastest counts: on Metal the first compiles kernels.
const ROUNDS: usize = 3;

/// Prints the report. The exit code is 0 only if every check passed and the engine ran.
///
/// # Errors
/// Bad usage: a device that this machine lacks. If the checks or the engine do not build.
pub fn print(repo: &Repo, device: &str) -> Result<ExitCode> {
    let feature = host::device_feature(device)?;
    note!("Every check of the reference runs on {device}, then the engine. This takes minutes.");
    let mut lines = about(repo, device);
    let (checks, mut good) = checks(repo, device)?;
    lines.push(String::new());
    lines.extend(checks);
    lines.push(String::new());
    match speed(repo, device, feature)? {
        Ok(rate) => lines.push(format!("story-3m, f32: {rate:.0} tokens/s (best of {ROUNDS})")),
        Err(why) => {
            good = false;
            lines.push(format!("story-3m, f32: {why}"));
        }
    }
    say!("```text\n{}\n```", lines.join("\n"));
    Ok(ExitCode::from(u8::from(!good)))
}

/// Machine, system, compiler and commit.
fn about(repo: &Repo, device: &str) -> Vec<String> {
    let known =
        |text: Option<String>| text.map_or("unknown".into(), |text| text.trim().to_string());
    let threads = host::threads();
    let rustc = host::output("rustc", &["--version"]);
    let rustc = rustc.and_then(|text| text.split_whitespace().nth(1).map(str::to_string));
    let commit = git(repo, &["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]).ok();
    let arch = std::env::consts::ARCH;
    vec![
        format!("machine  {}, {threads} threads", known(processor())),
        format!("device   {device}{}", card(device)),
        format!("system   {} {arch}", known(system())),
        format!("rustc    {}", known(rustc)),
        format!("commit   {}", known(commit)),
    ]
}

/// The processor's name; on a Mac it is also that of the GPU.
fn processor() -> Option<String> {
    if cfg!(target_os = "macos") {
        host::output("sysctl", &["-n", "machdep.cpu.brand_string"])
    } else if cfg!(windows) {
        std::env::var("PROCESSOR_IDENTIFIER").ok()
    } else {
        value("/proc/cpuinfo", "model name", ':')
    }
}

/// The name of the graphics card.
fn card(device: &str) -> String {
    let ask = ["--query-gpu=name", "--format=csv,noheader"];
    let names = (device == "cuda").then(|| host::output("nvidia-smi", &ask)).flatten();
    names
        .as_deref()
        .and_then(|text| text.lines().next())
        .map_or(String::new(), |name| format!(", {name}"))
}

/// The system and its version. Not `uname`'s, whose release may hold any words.
fn system() -> Option<String> {
    if cfg!(target_os = "macos") {
        return Some(format!("macOS {}", host::output("sw_vers", &["-productVersion"])?));
    }
    let name = value("/etc/os-release", "PRETTY_NAME", '=');
    Some(name.unwrap_or(std::env::consts::OS.into()).trim_matches('"').to_string())
}

/// The value of a key in a file of such lines.
fn value(file: &str, key: &str, sign: char) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(sign)?.1.to_string())
}

/// One line a day, and the names of checks that failed; whether there was none.
fn checks(repo: &Repo, device: &str) -> Result<(Vec<String>, bool)> {
    let features = repo.features(|_| true);
    let built = runner::build(repo, &features, &repo.days, Some(device))?;
    let programs = done(built)?;
    let options = Options { device: Some(device.to_string()), waiting: true, ..Options::default() };
    let (mut lines, mut good) = (vec![], true);
    for day in &repo.days {
        let run = runner::run_day(repo, day, &programs, &options)?;
        let failed: Vec<_> =
            run.units.iter().filter(|unit| unit.status != Status::Passed).collect();
        let passed = run.units.len() - failed.len();
        lines.push(format!("day {:<4} {passed} of {} checks", day.number, run.units.len()));
        lines.extend(failed.iter().map(|unit| format!("         failed: {}", unit.test)));
        good &= failed.is_empty();
    }
    Ok((lines, good))
}

/// Tokens per second of the reference, or why there are none.
fn speed(repo: &Repo, device: &str, feature: Option<&str>) -> Result<Result<f64, String>> {
    let mut features = repo.features(|_| true);
    features.push("cli".to_string());
    features.extend(feature.map(str::to_string));
    let args = ["--no-default-features", "--bin", "candecode", "--features"];
    let args: Vec<String> =
        args.map(String::from).into_iter().chain([features.join(",")]).collect();
    let programs = done(cargo::build(repo, "build", &args, "Building the engine; then it runs.")?)?;
    let program = programs.get("candecode")?;
    let mut best: f64 = 0.0;
    for _ in 0..ROUNDS {
        let mut command = Command::new(program);
        command.current_dir(&repo.root);
        command.args(["--model", "story-3m", "--device", device, "--stats"]);
        command.args(["--max-new-tokens", "200", "-p", "Once upon a time"]);
        host::set_threads(&mut command);
        let out = command.output().context("cannot start the engine")?;
        match rate(&String::from_utf8_lossy(&out.stderr)).filter(|_| out.status.success()) {
            Some(rate) => best = best.max(rate),
            None => return Ok(Err(format!("the engine ended with {}", out.status))),
        }
    }
    Ok(Ok(best))
}

/// The speed in the line `decode  …, N tokens/s` of `--stats`.
fn rate(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.contains("decode ") && line.ends_with("tokens/s"))?;
    line.strip_suffix(" tokens/s")?.split_whitespace().last()?.parse().ok()
}

fn done(built: Built) -> Result<Programs> {
    match built {
        Built::Done(programs) => Ok(programs),
        Built::Broken(places) => Err(anyhow!("{}", cargo::explain(&places))),
    }
}
