#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 0: the warm-up. Text becomes ids, ids become vectors, vectors become scores, scores become
//! text; and six one-line tensor functions that fail the way candle fails.

use candecode::kit::Tokenizer;
use candle_core::{bail, DType, Device, IndexOp, Result, Tensor};

/// Text to ids: the tokenizer's ids as a u32 tensor `(1, T)`.
///
/// # Errors
/// If the tokenizer refuses the text.
pub fn text_to_ids(tokenizer: &Tokenizer, text: &str) -> Result<Tensor> {
    // task 0.1: encode the text, as a (1, T) tensor of u32 on the CPU
    todo!("day 0, task 1: encode the text, as a (1, T) tensor of u32 on the CPU")
}

/// Ids to vectors: row `ids[b, t]` of the embedding table (torch `nn.functional.embedding`).
///
/// `table` is `(V, C)`, `ids` is `(B, T)`; the result is `(B, T, C)`.
///
/// # Errors
/// If an id is not below V.
pub fn embed(table: &Tensor, ids: &Tensor) -> Result<Tensor> {
    // task 0.2: look the ids up in the table: (B, T) -> (B, T, C)
    todo!("day 0, task 2: look the ids up in the table: (B, T) -> (B, T, C)")
}

/// Vectors to scores: the dot product of every vector with every row of the table.
///
/// `hidden` is `(B, T, C)`, `table` is `(V, C)`; the result, the *logits*, is `(B, T, V)`.
///
/// # Errors
/// If the widths differ.
pub fn score(table: &Tensor, hidden: &Tensor) -> Result<Tensor> {
    // task 0.3: one score for every token of the vocabulary: (B, T, C) -> (B, T, V)
    todo!("day 0, task 3: one score for every token of the vocabulary: (B, T, C) -> (B, T, V)")
}

/// Scores to text: the best-scoring id at each position of the first row of `logits`, decoded.
///
/// `logits` is `(B, T, V)`.
///
/// # Errors
/// If there is no row.
pub fn best_text(tokenizer: &Tokenizer, logits: &Tensor) -> Result<String> {
    // task 0.4: the best id at every position of row 0, as text
    todo!("day 0, task 4: the best id at every position of row 0, as text")
}

/// Adds a bias `(C)` to every vector of `x`, `(B, T, C)`. In torch: `x + bias`.
///
/// # Errors
/// If the last dimensions differ.
pub fn add_bias(x: &Tensor, bias: &Tensor) -> Result<Tensor> {
    // task 0.5: x + bias; candle's `+` never broadcasts
    todo!("day 0, task 5: x + bias; candle's `+` never broadcasts")
}

/// Swaps the middle dimensions, `(B, T, H, D)` to `(B, H, T, D)`, and copies the elements into that
/// order, because candle's `matmul` refuses a tensor whose batch it cannot walk with one stride.
///
/// In torch: `x.transpose(1, 2)`, whose `matmul` copies by itself.
///
/// # Errors
/// If `x` has not four dimensions.
pub fn heads_first(x: &Tensor) -> Result<Tensor> {
    // task 0.6: (B, T, H, D) -> (B, H, T, D), contiguous
    todo!("day 0, task 6: (B, T, H, D) -> (B, H, T, D), contiguous")
}

/// Row `i` of a matrix for every `i` of `rows`: `(N, C)` to `(rows, C)`. In torch: `x[rows]`.
///
/// candle has no tensor of `usize`; indices are u32 in this course.
///
/// # Errors
/// If a row does not exist.
pub fn pick_rows(x: &Tensor, rows: &[usize]) -> Result<Tensor> {
    // task 0.7: x[rows]; an index tensor is u32
    todo!("day 0, task 7: x[rows]; an index tensor is u32")
}

/// The last position of each row, `(B, T, C)` to `(B, C)`. In torch: `x[:, -1]`.
///
/// # Errors
/// If `x` has no position.
pub fn last_position(x: &Tensor) -> Result<Tensor> {
    // task 0.8: x[:, -1], without the dimension
    todo!("day 0, task 8: x[:, -1], without the dimension")
}

/// The product of `a`, `(N, K)`, f32, and `b`, `(K, M)`, bf16 or f16 perhaps: `(N, M)`, in f32.
/// In torch, too, types must agree first.
///
/// # Errors
/// If the shapes do not fit.
pub fn product_f32(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    // task 0.9: a · b in f32; candle never converts by itself
    todo!("day 0, task 9: a · b in f32; candle never converts by itself")
}

/// The dot product of each row of `q`, `(T, D)`, with each row of `k`, `(S, D)`: `(T, S)`.
///
/// The first attempt, `q.matmul(k)`, says `shape mismatch in matmul, lhs: [4, 8], rhs: [5, 8]`.
/// Read the shapes.
///
/// # Errors
/// If the widths differ.
pub fn dot_products(q: &Tensor, k: &Tensor) -> Result<Tensor> {
    // task 0.10: (T, D) and (S, D) -> (T, S)
    todo!("day 0, task 10: (T, D) and (S, D) -> (T, S)")
}
