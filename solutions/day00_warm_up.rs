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
    // <solution>
    let ids = tokenizer.encode(text)?;
    Tensor::new(ids, &Device::Cpu)?.unsqueeze(0)
    // </solution>
}

/// Ids to vectors: row `ids[b, t]` of the embedding table (torch `nn.functional.embedding`).
///
/// `table` is `(V, C)`, `ids` is `(B, T)`; the result is `(B, T, C)`.
///
/// # Errors
/// If an id is not below V.
pub fn embed(table: &Tensor, ids: &Tensor) -> Result<Tensor> {
    // task 0.2: look the ids up in the table: (B, T) -> (B, T, C)
    // <solution>
    let (b, t) = ids.dims2()?;
    let rows = table.index_select(&ids.flatten_all()?, 0)?; // (B * T, C)
    rows.reshape((b, t, ()))
    // </solution>
}

/// Vectors to scores: the dot product of every vector with every row of the table.
///
/// `hidden` is `(B, T, C)`, `table` is `(V, C)`; the result, the *logits*, is `(B, T, V)`.
///
/// # Errors
/// If the widths differ.
pub fn score(table: &Tensor, hidden: &Tensor) -> Result<Tensor> {
    // task 0.3: one score for every token of the vocabulary: (B, T, C) -> (B, T, V)
    // <solution>
    hidden.broadcast_matmul(&table.t()?)
    // </solution>
}

/// Scores to text: the best-scoring id at each position of the first row of `logits`, decoded.
///
/// `logits` is `(B, T, V)`.
///
/// # Errors
/// If there is no row.
pub fn best_text(tokenizer: &Tokenizer, logits: &Tensor) -> Result<String> {
    // task 0.4: the best id at every position of row 0, as text
    // <solution>
    let best = logits.i(0)?.argmax(1)?; // (T, V) -> (T), u32
    tokenizer.decode(&best.to_vec1::<u32>()?)
    // </solution>
}

/// Adds a bias `(C)` to every vector of `x`, `(B, T, C)`. In torch: `x + bias`.
///
/// # Errors
/// If the last dimensions differ.
pub fn add_bias(x: &Tensor, bias: &Tensor) -> Result<Tensor> {
    // task 0.5: x + bias; candle's `+` never broadcasts
    // <solution>
    x.broadcast_add(bias)
    // </solution>
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
    // <solution>
    x.transpose(1, 2)?.contiguous()
    // </solution>
}

/// Row `i` of a matrix for every `i` of `rows`: `(N, C)` to `(rows, C)`. In torch: `x[rows]`.
///
/// candle has no tensor of `usize`; indices are u32 in this course.
///
/// # Errors
/// If a row does not exist.
pub fn pick_rows(x: &Tensor, rows: &[usize]) -> Result<Tensor> {
    // task 0.7: x[rows]; an index tensor is u32
    // <solution>
    let indices: Vec<u32> = rows.iter().map(|row| *row as u32).collect();
    x.index_select(&Tensor::new(indices, x.device())?, 0)
    // </solution>
}

/// The last position of each row, `(B, T, C)` to `(B, C)`. In torch: `x[:, -1]`.
///
/// # Errors
/// If `x` has no position.
pub fn last_position(x: &Tensor) -> Result<Tensor> {
    // task 0.8: x[:, -1], without the dimension
    // <solution>
    let t = x.dim(1)?;
    if t == 0 {
        bail!("last_position: x is {:?}, it has no position", x.shape())
    }
    x.i((.., t - 1))
    // </solution>
}

/// The product of `a`, `(N, K)`, f32, and `b`, `(K, M)`, bf16 or f16 perhaps: `(N, M)`, in f32.
/// In torch, too, types must agree first.
///
/// # Errors
/// If the shapes do not fit.
pub fn product_f32(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    // task 0.9: a · b in f32; candle never converts by itself
    // <solution>
    a.matmul(&b.to_dtype(DType::F32)?)
    // </solution>
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
    // <solution>
    q.matmul(&k.t()?)
    // </solution>
}
