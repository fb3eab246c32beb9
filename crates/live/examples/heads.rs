//! Generates `book/src/live/heads.js`: the weights of all 36 heads of `story-3m` for ten sentences.
//! Day 1's figure shows them next to the four heads of `story-230k`. (The model itself would be
//! five megabytes.)
//!
//! ```console
//! $ cargo run -p candecode-live --features ref --example heads > book/src/live/heads.js
//! ```
//!
//! Each weight is a byte, with 255 for 1. For each head, the file has only the triangle that the
//! mask leaves.

use anyhow::{ensure, Result};
use base64::Engine as _;
use candecode_live::{figures, model};
use serde_json::{json, Value};
use std::fs;

const SENTENCES: [&str; 10] = [
    "Tom had a red ball. One day, Tom lost the",
    "Lily and Tom found a cat. The cat was sad.",
    "The dog ran to the park and the dog was happy.",
    "Mom said, \"Do not touch the hot oven.\"",
    "Ben gave Mia a flower, and Mia gave Ben",
    "The little bird could not fly, so the bird",
    "Once upon a time, there was a little girl named Lily",
    "He was tired because he had played all day.",
    "The big bear ate the small fish in the river.",
    "Anna looked up and saw the moon. It was",
];

fn main() -> Result<()> {
    let file = |name: &str| fs::read(format!("models/story-3m/{name}"));
    let (config, tokenizer) = (file("config.json")?, file("tokenizer.json")?);
    model::open(&config, &tokenizer, file("model.safetensors")?).map_err(anyhow::Error::msg)?;
    let mut all = Vec::new();
    for sentence in SENTENCES {
        let question = json!({ "ask": "attention", "text": sentence, "causal": true });
        let answer =
            figures::answer(question.to_string().as_bytes()).map_err(anyhow::Error::msg)?;
        ensure!(answer["cut"] == 0, "{sentence}: too long");
        let mut bytes = Vec::new();
        for weight in triangle(&answer["layers"]) {
            bytes.push((weight * 255.0).round() as u8);
        }
        let packed = base64::engine::general_purpose::STANDARD.encode(bytes);
        all.push(json!({ "text": sentence, "tokens": answer["tokens"], "weights": packed }));
    }
    println!("candecode.part(\"heads\", [");
    for sentence in all {
        println!("{sentence},");
    }
    println!("]);");
    Ok(())
}

/// Returns the weights of all heads in all layers, row by row, each up to the last position that
/// the mask allows.
fn triangle(layers: &Value) -> Vec<f64> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut weights = Vec::new();
    for head in list(layers).iter().flat_map(list) {
        for (row, all) in list(&head).iter().enumerate() {
            weights.extend(list(all).iter().take(row + 1).filter_map(Value::as_f64));
        }
    }
    weights
}
