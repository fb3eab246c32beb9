//! Day 18: one layer of attention in SmolLM2-135M's shape (9 query heads on 3 KV heads, 64 wide)
//! against the context length, for a single new token and for a whole prompt. Compares plain tensor
//! operations (day 4), tiles (day 18), and the fast kernel.

use crate::shared::random;
use crate::times::Times;
use anyhow::Result;
use candecode::day01_attention::causal_mask;
use candecode::day04_attention_block::grouped_attention;
use candecode::day18_flash_attention::{tiled_attention, BLOCK, TILE};
use candecode::kit::units::bytes;
use candecode_engine::kernels;
use candle_core::Device;
use std::path::Path;

const HEADS: usize = 9;
const KV_HEADS: usize = 3;
const WIDTH: usize = 64;

/// Context lengths for a single new token.
const CONTEXTS: [usize; 5] = [64, 256, 1024, 4096, 8192];
/// Prompt lengths.
const PROMPTS: [usize; 4] = [64, 256, 1024, 2048];

pub fn measure(times: &mut Times) -> Result<()> {
    for (name, sizes) in [("decode", &CONTEXTS[..]), ("prefill", &PROMPTS)] {
        for &all in sizes {
            let new = if name == "decode" { 1 } else { all };
            let q = random(&[1, HEADS, new, WIDTH])?;
            let [k, v] = [(); 2].map(|()| random(&[1, KV_HEADS, all, WIDTH]));
            let (k, v) = (k?, v?);
            let mask = if new > 1 { Some(causal_mask(new, 0, &Device::Cpu)?) } else { None };
            times.measure(&format!("{name}_plain_{all}"), || {
                grouped_attention(&q, &k, &v, mask.as_ref())
            })?;
            times.measure(&format!("{name}_tiled_{all}"), || tiled_attention(&q, &k, &v, None))?;
            times.measure(&format!("{name}_kit_{all}"), || kernels::attention(&q, &k, &v, None))?;
        }
    }
    Ok(())
}

pub fn report(times: &Times, _: &Path) -> Result<()> {
    println!("a new token, in µs: plain, tiled, fast kernel");
    for all in CONTEXTS {
        let micros = |kind| anyhow::Ok(1e6 * times.of(&format!("decode_{kind}_{all}"))?);
        let [plain, tiled, kit] = ["plain", "tiled", "kit"].map(micros);
        println!("{all:6} columns: {:7.0} {:7.0} {:7.0}", plain?, tiled?, kit?);
    }
    let millis = |kind: &str| -> Result<Vec<(f64, f64)>> {
        let line = times.line(&format!("prefill_{kind}"), &PROMPTS)?;
        Ok(line.into_iter().map(|(new, seconds)| (new, 1e3 * seconds)).collect())
    };
    let (plain, tiled, kit) = (millis("plain")?, millis("tiled")?, millis("kit")?);
    println!("a prompt, in ms: plain, tiled, fast kernel; memory for its scores: plain, tiled");
    let threads = std::env::var("RAYON_NUM_THREADS").ok().and_then(|n| n.parse().ok());
    // One tile per thread.
    let tiles = threads.unwrap_or(1) * HEADS / KV_HEADS * BLOCK * TILE * size_of::<f32>();
    for (i, new) in PROMPTS.iter().enumerate() {
        let scores = 2 * HEADS * new * new * size_of::<f32>(); // scores and probabilities
        let (scores, tiles) = (bytes(scores as f64), bytes(tiles as f64));
        let [plain, tiled, kit] = [&plain, &tiled, &kit].map(|line| line[i].1);
        println!("{new:6} tokens: {plain:8.1} {tiled:8.1} {kit:8.1}; {scores}, {tiles}");
    }
    Ok(())
}
