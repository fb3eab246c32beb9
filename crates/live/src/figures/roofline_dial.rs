//! Day 16, the roofline calculator.

use super::cache_cells::{llama3, qwen3};
use super::Answer;
use crate::model;
use candecode::day16_cost_of_a_token::{bytes_moved, critical_batch, intensity, operations};
use candecode::day16_cost_of_a_token::{Bound, Machine, Pass, Precision};
use candecode::kit::Model;
use serde::Deserialize;
use serde_json::json;

/// The parameters that the page sends.
#[derive(Deserialize)]
pub struct Question {
    /// `story-230k`, `Qwen3 0.6B` or `Llama 3 8B`.
    model: String,
    /// Bytes per second.
    bandwidth: f64,
    /// Operations per second.
    peak: f64,
    weight_bytes: f64,
    cache_bytes: f64,
    rows: usize,
    new: usize,
    past: usize,
}

/// Returns the bytes and operations of one pass and of its two stages, and a lower bound on its
/// time. `curve` has the intensity of decode steps at several batch sizes, and the most operations
/// per second that they can reach.
pub fn answer(q: Question) -> Answer {
    let config = match q.model.as_str() {
        "Llama 3 8B" => llama3(),
        "Qwen3 0.6B" => qwen3(),
        _ => model::transformer()?.config().clone(),
    };
    if !(q.bandwidth > 0.0 && q.peak > 0.0) || q.rows == 0 || q.new == 0 {
        return Err("bandwidth, peak, rows and new tokens must be above 0".into());
    }
    let precision = Precision { weight_bytes: q.weight_bytes, cache_bytes: q.cache_bytes };
    let machine = Machine { bandwidth: q.bandwidth, peak: q.peak };
    let pass = Pass { rows: q.rows, new: q.new, past: q.past, logits: 1 };
    let bytes = bytes_moved(&config, &pass, &precision);
    let work = operations(&config, &pass);
    let prediction = machine.predict_pass(&config, &pass, &precision);
    let batches = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
    let curve = batches.iter().map(|rows| {
        let pass = Pass::decode(*rows, q.past);
        let bytes = bytes_moved(&config, &pass, &precision).total();
        let work = operations(&config, &pass).total();
        let seconds = machine.predict_pass(&config, &pass, &precision).seconds;
        json!({ "intensity": intensity(bytes, work), "attained": work / seconds })
    });
    Ok(json!({
        "stages": [
            { "name": "products", "bytes": bytes.weights + bytes.logits,
              "operations": work.weights },
            { "name": "attention", "bytes": bytes.cache, "operations": work.attention },
        ],
        "intensity": intensity(bytes.total(), work.total()),
        "attained": work.total() / prediction.seconds, "seconds": prediction.seconds,
        "memory_bound": prediction.bound == Bound::Memory,
        "critical_batch": critical_batch(&config, &precision, &machine),
        "curve": curve.collect::<Vec<_>>(),
    }))
}
