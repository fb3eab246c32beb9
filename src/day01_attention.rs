#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 1: attention. Every token asks the tokens before it a question, and takes home a mixture of
//! their answers.

use candle_core::{bail, DType, Device, Result, Tensor};

/// Softmax along `dim`: `exp(x - max)` divided by its sum, so that the slice sums to 1.
///
/// Subtracting the maximum of each slice changes nothing but keeps `exp` from overflowing (torch
/// `softmax`). Everything is computed in f32, because candle's sums of bf16 stop growing early; the
/// result has the type of `x` (HF's attention: `softmax(…, dtype=torch.float32)`).
///
/// # Errors
/// If `x` has no such dimension.
pub fn softmax(x: &Tensor, dim: usize) -> Result<Tensor> {
    // task 1.1: exponentials of x minus its maximum along dim, divided by their sum
    todo!("day 1, task 1: exponentials of x minus its maximum along dim, divided by their sum")
}

/// Who may attend to whom: `(1, 1, T, S + T)`, u8, 1 = may attend.
///
/// Row `i` is new token `i`, at position `past + i`: it may attend to positions 0 to `past + i`,
/// itself included.
///
/// # Errors
/// If the tensor cannot be made on `device`.
pub fn causal_mask(new: usize, past: usize, device: &Device) -> Result<Tensor> {
    // task 1.2: one row a new token, one column a position; 1 up to the token itself
    todo!("day 1, task 2: one row a new token, one column a position; 1 up to the token itself")
}

/// `softmax(q · kᵀ / √D) · v`, where the mask allows (Vaswani et al. 2017; torch
/// `scaled_dot_product_attention`).
///
/// `q` is `(B, H, T, D)`, `k` and `v` are `(B, H, S + T, D)`, `mask` broadcasts to
/// `(B, H, T, S + T)`, 1 = may attend; the result is `(B, H, T, D)`.
///
/// # Errors
/// If the shapes do not fit.
pub fn scaled_dot_product_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
) -> Result<Tensor> {
    // task 1.3: scores, scaled, masked, softmaxed, times the values
    todo!("day 1, task 3: scores, scaled, masked, softmaxed, times the values")
}

/// Cuts the width into heads: `(B, T, H * D)` to `(B, H, T, D)`.
///
/// # Errors
/// If `heads` is 0 or does not divide the width.
pub fn split_heads(x: &Tensor, heads: usize) -> Result<Tensor> {
    // task 1.4: cut the width into heads, and put the heads before the tokens
    todo!("day 1, task 4: cut the width into heads, and put the heads before the tokens")
}

/// Puts the heads side by side again: `(B, H, T, D)` to `(B, T, H * D)`.
///
/// # Errors
/// If `x` has not four dimensions.
pub fn merge_heads(x: &Tensor) -> Result<Tensor> {
    // task 1.5: the reverse of split_heads
    todo!("day 1, task 5: the reverse of split_heads")
}

/// The four matrices of multi-head attention, each `(C, C)` as torch stores them: `(out, in)`.
#[derive(Debug, Clone)]
pub struct MultiHeadWeights {
    /// Makes queries.
    pub q: Tensor,
    /// Makes keys.
    pub k: Tensor,
    /// Makes values.
    pub v: Tensor,
    /// Mixes the heads' outputs.
    pub o: Tensor,
}

/// Multi-head attention of a sequence with itself (torch `nn.MultiheadAttention`, without biases).
///
/// `x` is `(B, T, C)`, `mask` as in [`scaled_dot_product_attention`]; the result is `(B, T, C)`.
///
/// # Errors
/// If the shapes do not fit.
pub fn multi_head_attention(
    x: &Tensor,
    w: &MultiHeadWeights,
    heads: usize,
    mask: Option<&Tensor>,
) -> Result<Tensor> {
    // task 1.6: project to q, k and v, split, attend, merge, project
    todo!("day 1, task 6: project to q, k and v, split, attend, merge, project")
}
