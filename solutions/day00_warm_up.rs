//! Day 0: the two ends of a language model. Text becomes ids, ids become vectors, vectors become
//! scores, and scores become text.

use candecode::kit::Tokenizer;
use candle_core::{bail, Device, IndexOp, Result, Tensor};

/// Encodes a text as a u32 tensor of ids, `(1, T)`, on the CPU.
///
/// # Errors
/// If the tokenizer rejects the text.
pub fn text_to_ids(tokenizer: &Tokenizer, text: &str) -> Result<Tensor> {
    // task 0.1: Encode the text as a batch of one
    // <solution>
    let ids = tokenizer.encode(text)?;
    Tensor::new(ids, &Device::Cpu)?.unsqueeze(0)
    // </solution>
}

/// Looks up row `ids[b, t]` of the embedding table for every id (torch
/// `nn.functional.embedding`).
///
/// `table` is `(V, C)`, `ids` is `(B, T)`; the result is `(B, T, C)`.
///
/// # Errors
/// If an id is V or more.
pub fn embed(table: &Tensor, ids: &Tensor) -> Result<Tensor> {
    // task 0.2: Look up a row of the table for every id
    // <solution>
    let (b, t) = ids.dims2()?;
    let rows = table.index_select(&ids.flatten_all()?, 0)?; // (B * T, C)
    rows.reshape((b, t, ()))
    // </solution>
}

/// Scores every vector against every row of the table, by their dot product.
///
/// `table` is `(V, C)`, `hidden` is `(B, T, C)`, and the result, the *logits*, is
/// `(B, T, V)`.
///
/// # Errors
/// If the widths differ.
pub fn logits(table: &Tensor, hidden: &Tensor) -> Result<Tensor> {
    // task 0.3: Score each vector against every token of the vocabulary
    // <solution>
    hidden.broadcast_matmul(&table.t()?)
    // </solution>
}

/// Decodes the best-scoring id at each position of the first text in the batch.
///
/// `logits` is `(B, T, V)`.
///
/// # Errors
/// If the batch is empty.
pub fn best_text(tokenizer: &Tokenizer, logits: &Tensor) -> Result<String> {
    // task 0.4: Decode the best id at every position of the first text
    // <solution>
    let best = logits.i(0)?.argmax(1)?; // (T, V) -> (T), u32
    tokenizer.decode(&best.to_vec1::<u32>()?)
    // </solution>
}

/// Returns the last position of each text, `(B, T, C)` to `(B, C)`: torch's `x[:, -1]`.
///
/// # Errors
/// If there are no positions (T = 0).
pub fn last_position(x: &Tensor) -> Result<Tensor> {
    // task 0.5: Return the last position of each text
    // <solution>
    let t = x.dim(1)?;
    if t == 0 {
        bail!("last_position: {:?} has no positions", x.shape())
    }
    x.i((.., t - 1))
    // </solution>
}

/// Returns the `n` tokens whose rows point most nearly the same way as row `id`, nearest
/// first, without `id` itself. Returns fewer than `n` if the vocabulary is smaller.
///
/// `table` is `(V, C)`. No row is zero.
///
/// # Errors
/// If `id` is V or more.
pub fn nearest_tokens(table: &Tensor, id: u32, n: usize) -> Result<Vec<u32>> {
    // task 0.6 (challenge): Find the tokens that point in the same direction
    // <solution>
    let lengths = table.sqr()?.sum_keepdim(1)?.sqrt()?; // (V, 1)
    let directions = table.broadcast_div(&lengths)?;
    let cosines = directions.matmul(&directions.i(id as usize)?.unsqueeze(1)?)?; // (V, 1)
    let cosines: Vec<f32> = cosines.squeeze(1)?.to_vec1()?;
    // Not `arg_sort_last_dim`: on Metal it's wrong above 1,024 numbers (candle issue 2570).
    let mut order: Vec<u32> = (0..cosines.len() as u32).collect();
    order.sort_by(|a, b| cosines[*b as usize].total_cmp(&cosines[*a as usize]));
    Ok(order.into_iter().filter(|other| *other != id).take(n).collect())
    // </solution>
}
