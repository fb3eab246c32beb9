//! Padding on the right, as in much of the code around transformers. It's enough for a pass that
//! nothing continues, such as scoring; to generate, rows are padded on the left (day 12).

use candecode::kit::{Logits, Model, NoCache, Step};
use candle_core::{bail, Result};

/// Runs rows of different lengths in one pass, and returns the logits after the last token of each,
/// `(B, V)`. Rows are padded on the right with the id `pad`, often EOS.
///
/// No token sees what comes after it, so the padding needs no mask and shifts no position. Only the
/// column of the logits differs from row to row.
///
/// # Errors
/// If a row is empty, or doesn't fit the model.
pub fn logits_of_right_padded(
    model: &dyn Model,
    rows: &[Vec<u32>],
    pad: u32,
) -> Result<Vec<Vec<f32>>> {
    let width = rows.iter().map(Vec::len).max().unwrap_or(0);
    let (mut ids, mut last) = (Vec::new(), Vec::new());
    for (i, row) in rows.iter().enumerate() {
        if row.is_empty() {
            bail!("row {i} is empty")
        }
        let mut padded = row.clone();
        padded.resize(width, pad);
        ids.push(padded);
        last.push(row.len() as u32 - 1);
    }
    let positions: Vec<Vec<u32>> = vec![(0..width as u32).collect(); rows.len()];
    let step = Step::batch(model, &ids, &positions, None)?.with_logits(Logits::At(last));
    model.forward(&step, &mut NoCache)?.squeeze(1)?.to_vec2() // (B, 1, V)
}
