//! Day 19, one block of weights: its scale, its integers, and what comes back.

use super::Answer;
use candecode::day19_quantized_weights::{
    dequantize_block_q4_0, dequantize_block_q8_0, largest_error, quantize_block_q4_0,
    quantize_block_q8_0,
};
use candecode::kit::QuantType;
use serde::Deserialize;
use serde_json::json;

/// The page's question.
#[derive(Deserialize)]
pub struct Question {
    /// `Q8_0` or `Q4_0`.
    format: String,
    /// The 32 numbers of a block.
    numbers: Vec<f32>,
}

/// Returns the block's scale, the steps that each number became, the restored numbers, and the
/// bound of task 19.4.
pub fn answer(q: Question) -> Answer {
    let Ok(numbers) = <&[f32; 32]>::try_from(q.numbers.as_slice()) else {
        return Err("a block has 32 numbers".into());
    };
    let (kind, scale, restored) = if q.format == "Q4_0" {
        let block = quantize_block_q4_0(numbers)?;
        (QuantType::Q4_0, block.scale.to_f32(), dequantize_block_q4_0(&block))
    } else {
        let block = quantize_block_q8_0(numbers)?;
        (QuantType::Q8_0, block.scale.to_f32(), dequantize_block_q8_0(&block))
    };
    let steps = restored.map(|x| if scale == 0.0 { 0.0 } else { (x / scale).round() });
    let largest = numbers.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    Ok(json!({
        "scale": scale, "steps": steps, "restored": restored,
        "bound": largest_error(kind, largest),
    }))
}
