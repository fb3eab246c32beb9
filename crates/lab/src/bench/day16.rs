//! Day 16: tokens per second of a model that is larger than any cache: what the reader guessed,
//! what day 16 predicts for this machine, and what it does.

use crate::args::Args;
use crate::shared::{machine, transformer};
use crate::times::median;
use anyhow::Result;
use candecode::day10_kv_cache::DynamicCache;
use candecode::day16_cost_of_a_token::{Machine, Pass, Precision};
use candecode::kit::{Logits, Model, Step};
use candecode_engine::forecast;
use candle_core::DType;
use std::time::Instant;

const MODEL: &str = "random-135m";
/// Positions in the cache before the measured tokens.
const PAST: usize = 64;
/// Number of measured tokens.
const TOKENS: usize = 24;

/// Measures the machine and the model, and prints the three numbers.
pub fn measure(args: &Args) -> Result<()> {
    let model = transformer(MODEL)?;
    let before = forecast::this_machine();
    let mut cache = DynamicCache::new(model.config().num_hidden_layers);
    let ids: Vec<u32> = (300..300 + PAST as u32).collect();
    let mut step = Step::new(&model, &ids, 0)?;
    let mut seconds = vec![];
    for token in 0..=TOKENS {
        let begun = Instant::now();
        model.forward(&step.with_logits(Logits::Last(1)), &mut cache)?.to_vec3::<f32>()?;
        seconds.push(begun.elapsed().as_secs_f64());
        step = Step::new(&model, &[400], PAST + token)?;
    }
    seconds.remove(0); // the prompt
    let measured = 1.0 / median(seconds);
    let after = forecast::this_machine();
    // Other load on the machine can only make it look slower.
    let here = Machine {
        bandwidth: before.bandwidth.max(after.bandwidth),
        peak: before.peak.max(after.peak),
    };
    let precision = Precision::new(DType::F32, DType::F32);
    let pass = Pass::decode(1, PAST + TOKENS / 2);
    let predicted = 1.0 / here.predict_pass(model.config(), &pass, &precision).seconds;
    println!("{}", machine());
    println!("memory {:.1} GB/s, {:.0} GFLOP/s", here.bandwidth / 1e9, here.peak / 1e9);
    println!("{MODEL} in f32, one row: tokens per second");
    if let Some(guess) = args.guess {
        println!("{:<20}{guess:>8.1}{:>8.0} %", "your guess", 100.0 * guess / measured);
    }
    println!("{:<20}{predicted:>8.1}{:>8.0} %", "day 16 predicts", 100.0 * predicted / measured);
    println!("{:<20}{measured:>8.1}{:>8.0} %", "measured", 100.0);
    Ok(())
}
