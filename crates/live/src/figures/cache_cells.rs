//! Day 10, the cache step by step: positions computed, positions kept, and memory used.

use super::Answer;
use crate::model;
use candecode::day07_greedy::argmax;
use candecode::day10_kv_cache::{cache_bytes, Cached, DynamicCache, StaticCache};
use candecode::kit::{Cache, Model, ModelConfig, NoCache};
use candle_core::DType;
use serde::Deserialize;
use serde_json::json;

/// The parameters that the page sends.
#[derive(Deserialize)]
pub struct Question {
    text: String,
    new: usize,
    /// `none`, `dynamic` or `static`.
    kind: String,
    /// Capacity of a static cache, in positions.
    capacity: usize,
    /// For the memory estimate: positions per row, and number of rows.
    positions: usize,
    rows: usize,
    /// Layers, KV heads and head size of the reader's own model.
    yours: [usize; 3],
}

/// Returns each step of the loop, with the positions it computed and the positions in the cache,
/// and memory estimates for a few models.
pub fn answer(q: Question) -> Answer {
    let model = model::transformer()?;
    let config = model.config();
    let mut tokens = model::tokens(&q.text)?;
    let prompt = tokens.len();
    let layers = config.num_hidden_layers;
    let cache: Box<dyn Cache> = match q.kind.as_str() {
        "static" => Box::new(StaticCache::new(layers, q.capacity)),
        "dynamic" => Box::new(DynamicCache::new(layers)),
        _ => Box::new(NoCache),
    };
    let mut cached = Cached::new(model, cache);
    let mut steps = Vec::new();
    let mut refused = None;
    for _ in 0..q.new {
        let before = cached.computed;
        let logits = match cached.logits(&tokens, 1) {
            Ok(logits) => logits,
            Err(error) => {
                refused = Some(error.to_string());
                break;
            }
        };
        let id = argmax(&logits[0])?;
        steps.push(json!({
            "length": tokens.len(), "computed": cached.computed - before,
            "kept": cached.cache.len(),
        }));
        tokens.push(id);
        if config.eos_token_ids.contains(&id) {
            break;
        }
    }
    let models = [
        ("story-230k", config.clone()),
        ("yours", shaped(config, q.yours)?),
        ("Qwen3 0.6B", qwen3()),
        ("Llama 3 8B", llama3()),
    ];
    // One position's bytes fit in WebAssembly's 32-bit integers; a batch's might not.
    let positions = q.rows as f64 * q.positions as f64;
    let weigh = |(name, config): &(&str, ModelConfig)| {
        let a_position = cache_bytes(config, 1, 1, DType::BF16);
        json!({ "name": name, "a_position": a_position, "all": a_position as f64 * positions })
    };
    Ok(json!({
        "tokens": model::all_shown(&tokens), "prompt": prompt, "steps": steps,
        "computed": cached.computed,
        "refused": refused, "bytes": models.iter().map(weigh).collect::<Vec<_>>(),
    }))
}

/// Returns a configuration with these layers, KV heads and head size, which is all that the size of
/// a cache depends on.
fn shaped(like: &ModelConfig, shape: [usize; 3]) -> Result<ModelConfig, String> {
    if shape.iter().zip(MOST).any(|(n, most)| !(1..=most).contains(n)) {
        let [layers, heads, size] = MOST;
        return Err(format!(
            "your model: 1 to {layers} layers, 1 to {heads} KV heads, a head size of 1 to {size}"
        ));
    }
    let mut config = like.clone();
    [config.num_hidden_layers, config.num_key_value_heads, config.head_dim] = shape;
    Ok(config)
}

/// The largest shape the reader can enter.
const MOST: [usize; 3] = [1000, 256, 1024];

/// `Qwen/Qwen3-0.6B`, from its `config.json`.
pub fn qwen3() -> ModelConfig {
    of(r#"{"model_type":"qwen3","vocab_size":151936,"hidden_size":1024,"intermediate_size":3072,
        "num_hidden_layers":28,"num_attention_heads":16,"num_key_value_heads":8,"head_dim":128,
        "max_position_embeddings":40960,"rms_norm_eps":1e-6,"rope_theta":1000000,
        "tie_word_embeddings":true,"eos_token_id":151645}"#)
}

/// `meta-llama/Meta-Llama-3-8B`, from its `config.json`.
pub fn llama3() -> ModelConfig {
    of(r#"{"model_type":"llama","vocab_size":128256,"hidden_size":4096,"intermediate_size":14336,
        "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,
        "max_position_embeddings":8192,"rms_norm_eps":1e-5,"rope_theta":500000,
        "tie_word_embeddings":false,"eos_token_id":128001}"#)
}

fn of(json: &str) -> ModelConfig {
    match ModelConfig::from_json(json) {
        Ok(config) => config,
        Err(error) => unreachable!("a configuration of this file: {error:#}"),
    }
}
