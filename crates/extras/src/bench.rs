//! `cargo xtask bench`: measures the reference with criterion, and draws the plots of the book from
//! what it measured; and the whole engine, alone or beside its peers.

use anyhow::{Context, Result};
use clap::Args;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use xtask::cargo::{self, Built};
use xtask::host;
use xtask::note;
use xtask::repo::Repo;
use xtask::usage;

/// The model of the engine's runs, if none is named.
const DEFAULT_MODEL: &str = "story-3m";

/// The flags of `bench`.
#[derive(Args)]
pub struct Bench {
    /// A day, such as day10 (default: every day that has a benchmark), or one of these. parts:
    /// products and attention alone; engine: whole runs; roofline: this machine, and day 16's
    /// predictions for it; day19: what quantized weights cost a text; quality: the same for the
    /// kernels, with --python next to llama.cpp; serve: a load on the server
    what: Option<String>,
    /// Rounds to measure; the fastest one counts
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=20))]
    rounds: u8,
    /// Only draw what was measured before
    #[arg(long)]
    draw_only: bool,
    /// The model of engine and day19 [default: story-3m]; for roofline, one in addition to story-3m
    /// and random-135m
    #[arg(long)]
    model: Option<String>,
    /// Also measure candle-transformers, transformers and llama.cpp, where this machine has them
    #[arg(long)]
    peers: bool,
    /// A Python that has them; without one, a virtual environment is made under target/
    #[arg(long)]
    python: Option<PathBuf>,
    /// llama.cpp's llama-server, to compare with ours (bench serve); benches/llama-server.sh builds
    /// it
    #[arg(long, value_name = "PROGRAM", requires = "gguf")]
    llama_server: Option<PathBuf>,
    /// The model of bench serve as a GGUF file, for llama-server
    #[arg(long, value_name = "FILE")]
    gguf: Option<PathBuf>,
    /// How many tokens `bench quality` reads
    #[arg(long, value_name = "N", default_value_t = 2000)]
    tokens: usize,
    /// A text of your own for `bench quality`, read in one pass
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Where the engine or the server runs (bench engine, bench serve): cpu, metal or cuda
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Write what the engine or the server did, or the roofline, into the book
    #[arg(long)]
    save: bool,
}

/// Runs the benchmarks, then draws.
///
/// # Errors
/// Bad usage: a day without a benchmark. If cargo cannot be started.
pub fn run(repo: &Repo, args: &Bench) -> Result<ExitCode> {
    let feature = host::device_feature(&args.device)?;
    if feature.is_some() && !matches!(args.what.as_deref(), Some("engine" | "serve")) {
        return Err(usage(
            "--device is for `bench engine` and `bench serve`: the others measure the CPU's kernels",
        ));
    }
    if feature.is_some() && args.save {
        return Err(usage(
            "the book prints what was measured on the CPU: leave --save or --device out",
        ));
    }
    match args.what.as_deref() {
        Some("engine") => return engine(repo, args),
        Some("parts") => return parts(repo),
        Some("roofline") => return roofline(repo, args),
        Some("day19") => return quality(repo, args, "quality"),
        Some("quality") => return quality(repo, args, "quality_peers"),
        Some("serve") => return serve(repo, args),
        _ => {}
    }
    let all: Vec<_> =
        repo.days.iter().filter(|day| repo.root.join(bench(&day.name)).exists()).collect();
    let chosen = match &args.what {
        None => all,
        Some(text) => {
            let day = repo.day(text)?;
            if !all.contains(&day) {
                let names: Vec<String> =
                    all.iter().map(|day| format!("day{}", day.number)).collect();
                return Err(usage(format!(
                    "day {} has no benchmark: there are {}, day19, parts, engine, roofline, quality, serve",
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
    done(command)
}

/// Products and attention alone.
fn parts(repo: &Repo) -> Result<ExitCode> {
    let mut command = cargo::command(repo);
    command.args(["bench", "--profile", "dev", "--package", "benches", "--bench", "parts"]);
    done(command)
}

/// Whole runs, in processes of their own.
fn engine(repo: &Repo, args: &Bench) -> Result<ExitCode> {
    note!("Close other programs: what runs beside a benchmark is measured with it.");
    let rounds = args.rounds.to_string();
    let model = args.model.as_deref().unwrap_or(DEFAULT_MODEL);
    let mut command = cargo::command(repo);
    command.args(["run", "--quiet", "--package", "benches", "--bin", "engine"]);
    if let Some(feature) = host::device_feature(&args.device)? {
        command.args(["--features", feature]);
    }
    command.args(["--", "--model", model, "--rounds", &rounds, "--device", &args.device]);
    if model.starts_with("story-") {
        // Their context is 512 tokens, and they end no text early.
        command.args(["--prompt", "128"]);
    }
    if args.peers {
        let mut build = cargo::command(repo);
        build.args(["build", "--quiet", "--package", "peers"]);
        if !build.status().context("cannot start cargo")?.success() {
            return Ok(ExitCode::FAILURE);
        }
        let python = match &args.python {
            Some(python) => python.clone(),
            None => environment(repo)?,
        };
        command.arg("--peers").arg("--python").arg(python);
    }
    if args.save {
        command.arg("--save").arg(repo.root.join("book/src/bench"));
    }
    done(command)
}

/// What day 16 predicts beside what is measured.
fn roofline(repo: &Repo, args: &Bench) -> Result<ExitCode> {
    note!("Close other programs: what runs beside a benchmark is measured with it.");
    let mut command = cargo::command(repo);
    command.args(["run", "--quiet", "--package", "benches", "--bin", "roofline", "--"]);
    if let Some(model) = &args.model {
        command.args(["--model", model]);
    }
    if args.save {
        command.arg("--save");
    }
    done(command)
}

/// Perplexity and KL divergence of quantised weights beside f32.
fn quality(repo: &Repo, args: &Bench, program: &str) -> Result<ExitCode> {
    let mut command = cargo::command(repo);
    command.args(["run", "--quiet", "--package", "benches", "--bin", program, "--"]);
    command.args(["--model", args.model.as_deref().unwrap_or(DEFAULT_MODEL)]);
    if program == "quality_peers" {
        command.args(["--tokens", &args.tokens.to_string()]);
        if let Some(text) = &args.text {
            command.arg("--text").arg(text);
        }
        if let Some(python) = &args.python {
            command.arg("--python").arg(python);
        }
    }
    done(command)
}

/// A load on our server, and on llama.cpp's beside it.
fn serve(repo: &Repo, args: &Bench) -> Result<ExitCode> {
    note!("Close other programs: what runs beside a benchmark is measured with it.");
    let device = host::device_feature(&args.device)?;
    let features = ["ref"].into_iter().chain(device).collect::<Vec<_>>().join(",");
    let build = ["--package", "candecode-serve", "--features", &features].map(str::to_string);
    let built = cargo::build(repo, "build", &build, "Building the server.")?;
    let Built::Done(programs) = built else { return Ok(ExitCode::FAILURE) };
    let mut command = cargo::command(repo);
    command.args(["run", "--quiet", "--package", "benches", "--bin", "serve_load", "--"]);
    command.arg("--server").arg(programs.get("candecode-serve")?).args(["--device", &args.device]);
    command.args(["--model", args.model.as_deref().unwrap_or(DEFAULT_MODEL)]);
    if let (Some(program), Some(gguf)) = (&args.llama_server, &args.gguf) {
        command.arg("--llama-server").arg(program).arg("--gguf").arg(gguf);
    }
    if args.save {
        command.arg("--save").arg(repo.root.join("book/src/bench"));
    }
    done(command)
}

/// A virtual environment with the peers in it, made once. Where it cannot be made, the system's
/// Python, which says what it lacks.
fn environment(repo: &Repo) -> Result<PathBuf> {
    let dir = cargo::target_dir(repo).join("peers-venv");
    let python = dir.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let done = dir.join("complete");
    let wanted = repo.root.join("benches/peers/requirements.txt");
    if std::fs::read(&done).ok() != Some(std::fs::read(&wanted)?) {
        note!("Making {} with the peers in it: torch alone is over a gigabyte.", dir.display());
        let made = Command::new("python3").args(["-m", "venv"]).arg(&dir).status();
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "-r"]).arg(&wanted);
        if !made.is_ok_and(|status| status.success()) || !pip.status().is_ok_and(|s| s.success()) {
            note!(
                "SKIPPED: the peers could not be installed; candle-transformers alone runs beside \
                 us."
            );
            return Ok("python3".into());
        }
        std::fs::copy(&wanted, &done)?;
    }
    Ok(python)
}

fn done(mut command: Command) -> Result<ExitCode> {
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
