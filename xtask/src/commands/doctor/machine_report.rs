//! `cargo xtask doctor --report`: the machine, what the reference's checks say on it, and how fast
//! it decodes, ready to paste into an issue.
//!
//! Every line is put together here: no output of a program is passed on, so that no name of a user,
//! a machine or a folder gets in.

use crate::cargo::{self, Built, Programs};
use crate::checks::outcome::Status;
use crate::checks::runner::{self, Options};
use crate::child::{self, End};
use crate::host;
use crate::repo::Repo;
use crate::{note, say};
use anyhow::{anyhow, Result};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Timed runs, the fastest counts: on Metal the first compiles kernels.
const ROUNDS: usize = 3;
/// A run that takes longer is given up.
const LIMIT: Duration = Duration::from_secs(300);

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
    let unknown = || "unknown".to_string();
    let root = repo.root.to_string_lossy();
    let git = |args: &[&str]| host::output("git", &[&["-C", &*root][..], args].concat());
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).map(|text| text.trim().to_string());
    let changed =
        git(&["status", "--porcelain", "--", "solutions", "crates/kernels", "crates/kit"]);
    let changed = if changed.is_some_and(|text| !text.is_empty()) { ", with changes" } else { "" };
    let rustc = host::output("rustc", &["--version"]);
    let rustc = rustc.and_then(|text| text.split_whitespace().nth(1).map(str::to_string));
    vec![
        format!("machine  {}, {} threads", processor().unwrap_or_else(unknown), host::threads()),
        format!("device   {device}{}", accelerator(device)),
        format!("system   {} {}", system().unwrap_or_else(unknown), std::env::consts::ARCH),
        format!("rustc    {}", rustc.unwrap_or_else(unknown)),
        format!("commit   {}{changed}", commit.unwrap_or_else(unknown)),
    ]
}

/// The processor's name.
fn processor() -> Option<String> {
    let name = if cfg!(target_os = "macos") {
        host::output("sysctl", &["-n", "machdep.cpu.brand_string"])?
    } else if cfg!(windows) {
        std::env::var("PROCESSOR_IDENTIFIER").ok()?
    } else {
        let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        line.split_once(':')?.1.to_string()
    };
    Some(name.trim().to_string())
}

/// The name of the card; on a Mac the processor's name is that of its GPU.
fn accelerator(device: &str) -> String {
    let ask = ["--query-gpu=name", "--format=csv,noheader"];
    let name = if device == "cuda" { host::output("nvidia-smi", &ask) } else { None };
    name.and_then(|text| Some(format!(", {}", text.lines().next()?.trim()))).unwrap_or_default()
}

/// The system and its version. Not `uname`'s, whose release may hold any words.
fn system() -> Option<String> {
    if cfg!(target_os = "macos") {
        let version = host::output("sw_vers", &["-productVersion"])?;
        return Some(format!("macOS {}", version.trim()));
    }
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    Some(name.map_or(std::env::consts::OS, |name| name.trim_matches('"')).to_string())
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
    let mut best: Option<f64> = None;
    for _ in 0..ROUNDS {
        let mut command = Command::new(program);
        command.current_dir(&repo.root);
        command.args(["--model", "story-3m", "--device", device, "--stats"]);
        command.args(["--max-new-tokens", "200", "-p", "Once upon a time"]);
        host::set_threads(&mut command);
        let outcome = child::run(&mut command, LIMIT, |_| {})?;
        match outcome.end {
            End::Exit(0) => {}
            End::Exit(code) => return Ok(Err(format!("the engine ended with code {code}"))),
            End::Died(why) => return Ok(Err(format!("the engine died: {why}"))),
            End::TimedOut => return Ok(Err("the engine did not end".to_string())),
        }
        let rate = rate(&outcome.stderr).or_else(|| rate(&outcome.stdout));
        let Some(rate) = rate else { return Ok(Err("the engine names no speed".to_string())) };
        best = Some(best.map_or(rate, |best| best.max(rate)));
    }
    Ok(best.ok_or_else(|| "not measured".to_string()))
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

#[cfg(test)]
mod tests {
    #[test]
    fn the_speed_is_that_of_decoding() {
        let stats = "load 3.0 ms\nprefill 2.0 ms  4 tokens, 900 tokens/s\n\
                     decode  280.1 ms  199 tokens, 711 tokens/s\n";
        assert_eq!(super::rate(stats), Some(711.0));
        assert_eq!(super::rate("load 3.0 ms"), None);
    }
}
