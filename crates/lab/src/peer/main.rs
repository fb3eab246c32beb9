//! Runs one round of candle-transformers' Llama and prints a line of JSON, for
//! `cargo xtask bench engine --peers`.
//!
//! `peer MODEL_DIR BATCH NEW_TOKENS IDS` (IDS such as 5,9,77): greedy prefill and decode of equal
//! rows, in f32.

use anyhow::{ensure, Context as _, Result};
use candecode::day07_greedy::argmax;
use candle_core::{DType, Device, Tensor};
use candle_transformers::models::llama::{Cache, Llama, LlamaConfig};
use serde_json::{json, Value};
use std::path::PathBuf;
use std::time::Instant;

/// Returns the most likely token of every row.
fn best(logits: &Tensor) -> Result<Vec<u32>> {
    let rows: Vec<Vec<f32>> = logits.to_vec2()?;
    Ok(rows.iter().map(|row| argmax(row)).collect::<candle_core::Result<_>>()?)
}

fn main() -> Result<()> {
    candecode_allocator::keep_freed_memory();
    // The same number of threads as our engine. CANDLE_NUM_THREADS isn't set, so candle keeps its
    // default for elementwise operations.
    if std::env::var_os("RAYON_NUM_THREADS").is_none() {
        std::env::set_var("RAYON_NUM_THREADS", num_cpus::get_physical().max(1).to_string());
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    ensure!(args.len() == 4, "usage: peer MODEL_DIR BATCH NEW_TOKENS IDS");
    let (dir, batch, new) = (PathBuf::from(&args[0]), args[1].parse()?, args[2].parse()?);
    let ids: Vec<u32> = args[3].split(',').map(str::parse).collect::<Result<_, _>>()?;
    let text = std::fs::read_to_string(dir.join("config.json")).context("config.json")?;
    let mut json: Value = serde_json::from_str(&text)?;
    ensure!(json["model_type"] == "llama", "candle-transformers' llama loads only Llama models");
    // transformers 5 writes `rope_theta` inside `rope_parameters`. candle-transformers doesn't look
    // there, and would silently use 10,000.
    if let Some(theta) = json["rope_parameters"].get("rope_theta").cloned() {
        json["rope_theta"] = theta;
    }
    let config: LlamaConfig = serde_json::from_value(json)?;
    let config = config.into_config(false);
    let tensors = candle_core::safetensors::load(dir.join("model.safetensors"), &Device::Cpu)?;
    let weights = candle_nn::VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu);
    let model = Llama::load(weights, &config)?;
    let round = |new: usize| -> Result<Value> {
        let mut cache = Cache::new(true, DType::F32, &config, &Device::Cpu)?;
        let input = Tensor::from_vec(ids.repeat(batch), (batch, ids.len()), &Device::Cpu)?;
        let begun = Instant::now();
        let mut last = best(&model.forward(&input, 0, &mut cache)?)?;
        let prefill_s = begun.elapsed().as_secs_f64();
        let (begun, mut tokens) = (Instant::now(), vec![last[0]]);
        for i in 1..new {
            let input = Tensor::from_vec(last, (batch, 1), &Device::Cpu)?;
            last = best(&model.forward(&input, ids.len() + i - 1, &mut cache)?)?;
            tokens.push(last[0]);
        }
        let decode_s = begun.elapsed().as_secs_f64();
        Ok(json!({ "prefill_s": prefill_s, "decode_s": decode_s, "tokens": tokens }))
    };
    round(2)?; // warm up
    println!("{}", round(new)?);
    Ok(())
}
