//! The whole engine: prefill and decode by batch and weights, the cost of verifying, caches,
//! speculation; with `--peers` also candle-transformers, transformers and llama.cpp, with the same
//! weights, prompt and greedy tokens, in turn.
//!
//! Each run is a process of its own; how fast memory reads is probed before and after each round,
//! and a round whose two probes are more than a tenth apart is repeated: something else was
//! running.

mod contender;
mod ours;
mod table;

use crate::shared::best;
use crate::{plot, Args};
use anyhow::Result;
use candecode::formats::{hub, read_config};
use candecode::kernels;
pub use contender::quantized_file;
use contender::{line, Contender};
pub use ours::play;
use ours::{Drafted, Job, Run, What};

/// How far apart the probes before and after a round may be.
const UNSTEADY: f64 = 0.1;

/// Measures every contender in rounds, and prints the table.
pub fn measure(args: &Args) -> Result<()> {
    let dir = hub::locate(args.model(), false)?;
    let config = read_config(&dir)?;
    // The story models have room for 512 tokens.
    let prompt = (config.max_position_embeddings / 4).min(256) as u32;
    let new = (config.max_position_embeddings / 4).min(128);
    let ids = (0..prompt).map(|i| 300 + i * 7 % (config.vocab_size as u32 - 300));
    let device = args.device.clone();
    let job = Job::new(dir, device, ids.collect(), new);
    let contenders = contender::all(args, &job)?;
    let mut rounds: Vec<Vec<Run>> = contenders.iter().map(|_| vec![]).collect();
    let mut probes: Vec<[f64; 2]> = vec![];
    let mut before = kernels::bandwidth(5);
    let (mut repeated, mut tried) = (0, 0);
    while probes.len() < args.rounds.into() {
        let number = probes.len() + 1;
        // In turn, and the first in turn, too: what runs first may find the machine in another
        // state.
        let first = tried * contenders.len() / 3 % contenders.len();
        tried += 1;
        let mut round = vec![];
        for Contender { name, batch, command } in
            contenders[first..].iter().chain(&contenders[..first])
        {
            let run: Run = line(name, command)?;
            let (prefill, decode) = (run.prefill_s, run.decode_s);
            eprintln!(
                "round {number}, {name}, batch {batch}: prefill {prefill:.2} s, decode \
                 {decode:.2} s"
            );
            round.push(run);
        }
        round.rotate_right(first);
        let probe = [before, kernels::bandwidth(5)];
        before = probe[1];
        if (probe[0] / probe[1] - 1.0).abs() > UNSTEADY && repeated < args.rounds {
            repeated += 1;
            let [from, to] = probe.map(|bytes| bytes / 1e9);
            eprintln!("round {number} again: memory read {from:.0}, then {to:.0} GB/s");
            continue;
        }
        probes.push(probe);
        for (run, runs) in round.into_iter().zip(&mut rounds) {
            runs.push(run);
        }
    }
    let mut verify: Vec<Vec<f64>> = vec![];
    let mut drafted: Vec<Drafted> = vec![];
    for _ in 0..args.rounds {
        verify.push(line("verify", &Job { what: What::Verify, ..job.clone() }.command()?)?);
        drafted.push(line("speculate", &Job { what: What::Speculate, ..job.clone() }.command()?)?);
    }
    let rows = table::rows(&contenders, &rounds, &probes, &job);
    let head = table::head(args, &job, &probes);
    let text = head + &table::text(&rows, &verify, &drafted);
    print!("{text}");
    if args.save {
        plot::save("engine.md", &text)?;
        plot::save("engine.svg", &table::bars(&rows, args))?;
    }
    Ok(())
}
