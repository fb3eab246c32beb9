//! The whole engine: prefill and decode by batch and weights, the cost of verifying, caches,
//! speculation; with `--peers` also candle-transformers, transformers and llama.cpp, with the same
//! weights, prompt and greedy tokens, in turn.
//!
//! `cargo xtask bench engine [--model DIR] [--peers]`. Each run is a process of its own; how fast
//! memory reads is probed before and after each round, and a round whose two probes are more than a
//! tenth apart is repeated: something else was running.

#![warn(missing_docs)]

mod contender;
mod engine_table;
mod ours;

use anyhow::{ensure, Context as _, Result};
use candecode::engine::operations::Kernels;
use candecode::formats::hub;
use candecode::kernels;
use candecode::kit::ModelConfig;
use clap::Parser;
use contender::{Contender, Run};
use std::path::PathBuf;

/// How far apart the probes before and after a round may be.
const UNSTEADY: f64 = 0.1;

/// As in the `candecode` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The flags.
#[derive(Parser, Clone)]
pub struct Args {
    /// An embedded model or a folder
    #[arg(long, default_value = "story-3m")]
    model: String,
    /// Tokens in the prompt
    #[arg(long, default_value_t = 256)]
    prompt: usize,
    /// Tokens to decode
    #[arg(long, default_value_t = 128)]
    new: usize,
    /// Rounds, every run once in each
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Also candle-transformers, transformers and llama.cpp
    #[arg(long)]
    peers: bool,
    /// A Python with what benches/peers/requirements.txt names
    #[arg(long, default_value = "python3")]
    python: String,
    /// Where our runs are: cpu, metal or cuda, for which this must be built
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Write engine.json, engine.md and engine.svg into this folder
    #[arg(long)]
    save: Option<PathBuf>,
    /// Only the rows with this in their names, as "f32, batch 8"; may be given again
    #[arg(long)]
    only: Vec<String>,
    /// One run of ours in this process: engine, verify, speculate
    #[arg(long, hide = true)]
    one: Option<String>,
    #[arg(long, hide = true, default_value_t = 1)]
    batch: usize,
    #[arg(long, hide = true, default_value = "f32")]
    dtype: String,
    #[arg(long, hide = true, value_enum, default_value_t = Kernels::Fast)]
    kernels: Kernels,
    #[arg(long, hide = true, default_value = "static")]
    cache: String,
}

/// The ids of the prompt: any will do, as long as all have the same.
fn prompt(config: &ModelConfig, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| 300 + i * 7 % (config.vocab_size as u32 - 300)).collect()
}

fn main() -> Result<()> {
    kernels::set_threads();
    kernels::in_pool(measure)
}

fn measure() -> Result<()> {
    let args = Args::parse();
    let dir = hub::locate(&args.model, false)?;
    let config = candecode::formats::read_config(&dir)?;
    let most = config.max_position_embeddings;
    ensure!(args.prompt > 0, "--prompt must be at least 1");
    ensure!(args.new > 1, "--new must be at least 2: the first token is the prompt's");
    ensure!(
        args.prompt + args.new <= most,
        "--prompt {} and --new {} do not fit the context of {}, {most}",
        args.prompt,
        args.new,
        args.model
    );
    if let Some(dir) = &args.save {
        let made = std::fs::create_dir_all(dir);
        made.with_context(|| format!("--save {}: cannot make the folder", dir.display()))?;
    }
    let ids = prompt(&config, args.prompt);
    if let Some(what) = &args.one {
        println!("{}", ours::run(what, &dir, &ids, &args)?);
        return Ok(());
    }
    let contenders = contender::all(&args, &dir, &ids)?;
    let mut rounds: Vec<Vec<Run>> = contenders.iter().map(|_| vec![]).collect();
    let mut probes: Vec<[f64; 2]> = vec![];
    let mut before = kernels::bandwidth(5);
    let (mut repeated, mut tried) = (0, 0);
    while probes.len() < args.rounds {
        let number = probes.len() + 1;
        // In turn, and the first in turn, too: what runs first may find the machine in another state.
        let first = tried * contenders.len() / 3 % contenders.len();
        tried += 1;
        let mut round = vec![];
        for contender in contenders[first..].iter().chain(&contenders[..first]) {
            let run = contender.play()?;
            let Contender { name, batch, .. } = contender;
            eprintln!(
                "round {number}, {name}, batch {batch}: prefill {:.2} s, decode {:.2} s",
                run.prefill_s, run.decode_s
            );
            round.push(run);
        }
        round.rotate_right(first);
        let probe = [before, kernels::bandwidth(5)];
        before = probe[1];
        if (probe[0] / probe[1] - 1.0).abs() > UNSTEADY && repeated < args.rounds {
            repeated += 1;
            eprintln!(
                "round {number} again: memory read {:.0}, then {:.0} GB/s",
                probe[0] / 1e9,
                probe[1] / 1e9
            );
            continue;
        }
        probes.push(probe);
        for (run, runs) in round.into_iter().zip(&mut rounds) {
            runs.push(run);
        }
    }
    let verify = ours::measure("verify", &args, args.rounds)?;
    let speculate = ours::measure("speculate", &args, args.rounds)?;
    let report =
        engine_table::Report::new(&args, &contenders, &rounds, &probes, &verify, &speculate);
    print!("{}", report.table());
    match &args.save {
        Some(dir) => report.save(dir),
        None => Ok(()),
    }
}
