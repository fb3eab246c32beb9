#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 1: attention. Every token scores the tokens before it and takes in a mixture of what they
//! offer.

use candle_core::{bail, DType, Device, Result, Tensor};

/// Softmax along `dim`: exponentials divided by their sum, so every slice along `dim`
/// sums to 1 (torch `softmax`).
///
/// Scores of any size are accepted, and so is a score of `-inf`. Computed in f32 and
/// returned in the type of `x`, as in transformers.
///
/// # Errors
/// If `x` has no such dimension.
pub fn softmax(x: &Tensor, dim: usize) -> Result<Tensor> {
    // task 1.1: Turn the scores along dim into weights that sum to 1
    todo!("day 1, task 1: Turn the scores along dim into weights that sum to 1")
}

/// The causal mask for `new` tokens that follow `past` earlier ones: `(1, 1, new, past + new)`, u8,
/// 1 = may attend.
///
/// Row `i` is new token `i`, at position `past + i`. It may attend to positions 0 to
/// `past + i`, including its own.
///
/// # Errors
/// If the tensor can't be created on `device`.
pub fn causal_mask(new: usize, past: usize, device: &Device) -> Result<Tensor> {
    // task 1.2: Let each new token see everything up to itself
    todo!("day 1, task 2: Let each new token see everything up to itself")
}

/// Keeps `scores` where `mask` is 1 and writes `value` where it is 0. `mask` broadcasts
/// to the shape of `scores`; the result has the type of `scores`.
///
/// torch's `masked_fill` has the opposite polarity: it fills where the mask is true.
///
/// # Errors
/// If the shapes don't match.
pub fn masked_fill(scores: &Tensor, mask: &Tensor, value: f32) -> Result<Tensor> {
    let mask = mask.broadcast_as(scores.shape())?;
    let value = Tensor::new(value, scores.device())?.to_dtype(scores.dtype())?;
    mask.where_cond(scores, &value.broadcast_as(scores.shape())?)
}

/// `softmax(q · kᵀ / √D) · v` (Vaswani et al. 2017; torch
/// `scaled_dot_product_attention`).
///
/// `q` and the result are `(B, H, T, D)`, `k` and `v` are `(B, H, S + T, D)`. `mask`
/// broadcasts to `(B, H, T, S + T)`, 1 = may attend. A key whose mask is 0 gets an
/// attention weight of 0. Without a mask, every query sees every key. The arguments may
/// be views, such as those from [`split_heads`].
///
/// # Errors
/// If the shapes don't match.
pub fn scaled_dot_product_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
) -> Result<Tensor> {
    // task 1.3: Score the keys, scale, mask, and mix the values
    todo!("day 1, task 3: Score the keys, scale, mask, and mix the values")
}

/// Splits the width into heads, `(B, T, H * D)` to `(B, H, T, D)`. Head 0 gets the first
/// `D` numbers of every token.
///
/// # Errors
/// If `heads` is 0 or doesn't divide the width.
pub fn split_heads(x: &Tensor, heads: usize) -> Result<Tensor> {
    // task 1.4: Give each head its slice of every token
    todo!("day 1, task 4: Give each head its slice of every token")
}

/// Undoes [`split_heads`]: `(B, H, T, D)` to `(B, T, H * D)`.
///
/// # Errors
/// If `x` doesn't have four dimensions.
pub fn merge_heads(x: &Tensor) -> Result<Tensor> {
    // task 1.5: Put the heads of each token side by side again
    todo!("day 1, task 5: Put the heads of each token side by side again")
}

/// Attention with a sink: every query also gets the score `sinks[h]` from a key that
/// belongs to no token and has no value, so the attention weights of the real keys sum
/// to less than 1 (gpt-oss).
///
/// Shapes as in [`scaled_dot_product_attention`]; `sinks` is `(H)`, one number per
/// head, not divided by √D and never masked.
///
/// # Errors
/// If the shapes don't match.
pub fn attention_with_sinks(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
    sinks: &Tensor,
) -> Result<Tensor> {
    // task 1.6 (challenge): Give every head a key that belongs to no token
    todo!("day 1, task 6: Give every head a key that belongs to no token")
}
