//! The whole engine: prefill and decode by batch size and weights, the cost of verification,
//! caches, and speculation. With `--peers`, it alternates with candle-transformers, transformers
//! and llama.cpp, all with the same weights, prompt and greedy sampling.
//!
//! Each run is a separate process. Memory bandwidth is probed before and after each round. If the
//! two probes differ by more than a tenth, something else was running, and the round is repeated.

mod contender;
mod ours;
mod table;

use crate::args::Args;
use crate::plot;
use crate::shared::{best, locate, results};
use anyhow::Result;
use candecode_engine::kernels;
use candecode_formats::read_config;
use contender::{line, Contender};
pub use ours::play;
use ours::{Drafted, Job, Run, What};

/// Maximum relative difference between the probes before and after a round.
const UNSTEADY: f64 = 0.1;

/// Measures every contender in rounds and prints the table.
pub fn measure(args: &Args) -> Result<()> {
    let dir = locate(args.model())?;
    let config = read_config(&dir)?;
    // Scaled to the context, because the story models have only 512 positions.
    let prompt = (config.max_position_embeddings / 2).min(256) as u32;
    let new = (config.max_position_embeddings / 8).min(64);
    let ids = (0..prompt).map(|i| 300 + i * 7 % (config.vocab_size as u32 - 300));
    let device = args.device.clone();
    let job = Job::new(dir, device, ids.collect(), new);
    let contenders = contender::all(args, &job)?;
    // The first run after a pause is slow, whoever is first.
    line::<Run>(&contenders[0].name, &contenders[0].command)?;
    let mut rounds: Vec<Vec<Run>> = contenders.iter().map(|_| vec![]).collect();
    let mut probes: Vec<[f64; 2]> = vec![];
    let mut before = kernels::bandwidth(5);
    let (mut repeated, mut tried) = (0, 0);
    while probes.len() < args.rounds().into() {
        let number = probes.len() + 1;
        // The contenders alternate, and each round starts with a different one, because the first
        // may find the machine in a different state.
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
        if (probe[0] / probe[1] - 1.0).abs() > UNSTEADY && repeated < args.rounds() {
            repeated += 1;
            let [from, to] = probe.map(|bytes| bytes / 1e9);
            eprintln!("repeating round {number}: memory read {from:.0}, then {to:.0} GB/s");
            continue;
        }
        probes.push(probe);
        for (run, runs) in round.into_iter().zip(&mut rounds) {
            runs.push(run);
        }
    }
    let mut verify: Vec<Vec<f64>> = vec![];
    let mut drafted: Vec<Drafted> = vec![];
    for _ in 0..args.rounds() {
        verify.push(line("verify", &Job { what: What::Verify, ..job.clone() }.command()?)?);
        drafted.push(line("speculate", &Job { what: What::Speculate, ..job.clone() }.command()?)?);
    }
    let rows = table::rows(&contenders, &rounds, &probes, &job);
    let head = table::head(args, &job, &probes);
    let text = head + &table::text(&rows, &verify, &drafted);
    print!("{text}");
    let folder = results(args)?;
    let name = if args.peers { "engine.svg" } else { "engine_alone.svg" };
    plot::save(&folder, name, &table::bars(&rows, args))
}
