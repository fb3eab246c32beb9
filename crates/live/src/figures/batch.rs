//! Day 12, padding and masks: the reader's prompts, padded on either side, and the next token of
//! each.

use super::Answer;
use crate::model;
use candecode::day06_generate::next_logits;
use candecode::day07_greedy::argmax;
use candecode::day12_batching::{left_pad, ragged_mask, Padded};
use candecode::kit::{Logits, Model, NoCache, Step};
use candle_core::Device;
use serde::Deserialize;
use serde_json::json;

/// The parameters that the page sends.
#[derive(Deserialize)]
pub struct Question {
    prompts: Vec<String>,
    /// `left` or `right`.
    side: String,
    /// False: run the batch without the mask over the padding.
    masked: bool,
}

/// Maximum number of tokens per row that fit in the figure.
const MOST: usize = 24;

/// Returns each row's number, ids, positions and mask, and its next token compared with the one the
/// prompt produces on its own.
pub fn answer(q: Question) -> Answer {
    let model = model::transformer()?;
    let mut rows = Vec::new();
    let mut numbers = Vec::new();
    for (number, prompt) in q.prompts.iter().enumerate().filter(|(_, p)| !p.is_empty()) {
        let row = model::tokens(prompt)?;
        if row.len() > MOST {
            let len = row.len();
            let message = format!("row {number} has {len} tokens; this figure has room for {MOST}");
            return Err(message.as_str().into());
        }
        rows.push(row);
        numbers.push(number);
    }
    if rows.is_empty() {
        return Err("a batch needs at least one prompt".into());
    }
    let rows: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
    let left = q.side == "left";
    let padded = if left { left_pad(&rows) } else { right_pad(&rows) };
    let width = padded.ids.first().map_or(0, Vec::len);
    let mut mask = None;
    if left && q.masked {
        mask = Some(ragged_mask(&padded.padding, width, 0, &Device::Cpu)?);
    }
    let shown: Vec<Vec<Vec<u8>>> = match &mask {
        Some(mask) => mask.squeeze(1)?.to_vec3()?,
        None => rows
            .iter()
            .map(|_| (0..width).map(|i| (0..width).map(|j| u8::from(j <= i)).collect()).collect())
            .collect(),
    };
    let ends = if left {
        vec![width as u32 - 1; rows.len()]
    } else {
        rows.iter().map(|row| row.len() as u32 - 1).collect()
    };
    let step = Step::batch(model, &padded.ids, &padded.positions, mask)?;
    let logits = model.forward(&step.with_logits(Logits::At(ends)), &mut NoCache)?;
    let logits: Vec<Vec<f32>> = logits.squeeze(1)?.to_vec2()?;
    let mut out = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        let alone = next_logits(model, row)?;
        let pairs = alone.iter().zip(&logits[i]);
        let off = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        out.push(json!({
            "row": numbers[i], "tokens": model::all_shown(row),
            "padding": padded.padding[i], "positions": padded.positions[i],
            "mask": shown[i], "next": model::shown(argmax(&logits[i])?),
            "alone": model::shown(argmax(&alone)?), "off": off,
        }));
    }
    Ok(json!({ "width": width, "rows": out }))
}

/// Pads on the right: positions are columns, and the causal rule alone hides the padding.
fn right_pad(rows: &[&[u32]]) -> Padded {
    let width = rows.iter().map(|row| row.len()).max().unwrap_or_default();
    let mut padded = Padded::default();
    for row in rows {
        let mut ids = row.to_vec();
        ids.resize(width, 0);
        padded.ids.push(ids);
        padded.positions.push((0..width as u32).collect());
        padded.padding.push(width - row.len());
    }
    padded
}
