//! `cargo xtask bench`: runs the benchmark program in `bench/`, which parses the flags.

use anyhow::{Context as _, Result};
use candecode_course::Repo;
use clap::Args;
use std::process::{Command, ExitCode};
use xtask::{cargo, host};

/// The arguments after `bench`.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Bench {
    /// The measurement and its options; `cargo xtask bench --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Builds the programs that the benchmark needs, and runs it.
///
/// # Errors
/// If the device is unknown, or cargo can't be started.
pub fn run(repo: &Repo, args: &Bench) -> Result<ExitCode> {
    let words = &args.words;
    let device = host::device_feature(device(words).unwrap_or(host::DEFAULT_DEVICE))?;
    let asked = |word: &str| words.iter().any(|other| other == word);
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
    let mut bench = cargo::run_command(repo, "candecode-lab")?;
    bench.args(["--bin", "bench"]);
    with(&mut bench, &["bench"]);
    bench.arg("--").args(words);
    for mut command in builds.into_iter().chain([bench]) {
        let status = command.status().context("cannot start cargo")?;
        if !status.success() {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(ExitCode::from(code.unwrap_or(1)));
        }
    }
    Ok(ExitCode::SUCCESS)
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
