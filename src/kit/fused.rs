//! What a layer computes between its products, and what choosing a token computes over the vocabulary.
//! A kernel does each in one go over the numbers, on the CPU: norms, SiLU and RoPE where days 2 and 3 are
//! the reference's, log-softmax and argmax where day 7 is. Else the days' own code computes, for some
//! tokens or heads at a time. The names are those of the days, and vLLM's `silu_and_mul`.

use crate::day02_positions::{self, CosSin};
use crate::day03_norms_and_mlps as day03;
use crate::day07_greedy as day07;
use crate::kernels;
use candle_core::{Result, Tensor};
use rayon::prelude::*;

/// Day 3's `rms_norm`: `x` is `(B, T, C)`, `weight` is `(C)`; the result has the shape and type of
/// `x`.
///
/// # Errors
/// If the widths differ.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    if kernels::fused_for(x) {
        return kernels::rms_norm(x, weight, eps);
    }
    in_parts([x], |[x]| day03::rms_norm(x, weight, eps))
}

/// `silu(gate) · up`, with day 3's `silu`: both, and the result, are `(B, T, C)`.
///
/// # Errors
/// If the shapes differ.
pub fn silu_and_mul(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    if kernels::fused_for(gate) {
        return kernels::silu_and_mul(gate, up);
    }
    in_parts([gate, up], |[gate, up]| day03::silu(gate)? * up)
}

/// Day 2's `rotate`: `x` and the result are `(B, H, T, D)`, cosines and sines `(B, T, D / 2)`.
///
/// # Errors
/// If the shapes do not fit.
pub fn rotate(x: &Tensor, (cos, sin): &CosSin) -> Result<Tensor> {
    if kernels::fused_for(x) {
        return kernels::rotate(x, cos, sin);
    }
    in_parts([x], |[x]| day02_positions::rotate(x, cos, sin))
}

/// Day 7's `log_softmax`: logits `(V)` to log-probabilities `(V)`.
///
/// # Errors
/// As day 7's.
pub fn log_softmax(logits: &[f32]) -> Result<Vec<f32>> {
    match kernels::choice_is_fast().then(|| kernels::log_softmax(logits)).flatten() {
        Some(logprobs) => Ok(logprobs),
        None => day07::log_softmax(logits), // which says what is wrong, too
    }
}

/// Day 7's `argmax`, of logits `(V)`.
///
/// # Errors
/// As day 7's.
pub fn argmax(logits: &[f32]) -> Result<u32> {
    match kernels::choice_is_fast().then(|| kernels::argmax(logits)).flatten() {
        Some(best) => Ok(best as u32),
        None => day07::argmax(logits),
    }
}

/// Numbers of a part: few enough that the second cache holds them and what is made of them.
const PART: usize = 1 << 14;

/// `f(x)` for an `f` that computes every index of dimension 1, a token or a head, from that index
/// alone. On the CPU it gets some indexes at a time: threads share the work, and what one operation
/// leaves is still in a cache for the next. The numbers are the same, bit for bit.
fn in_parts<const N: usize>(
    x: [&Tensor; N],
    f: impl Fn([&Tensor; N]) -> Result<Tensor> + Sync,
) -> Result<Tensor> {
    let all = x[0].dims().get(1).copied().unwrap_or(0);
    let parts = all.min(x[0].elem_count() / PART);
    if parts < 2 || !x[0].device().is_cpu() || cfg!(target_arch = "wasm32") {
        return f(x);
    }
    let part = |i: usize| {
        let (start, end) = (all * i / parts, all * (i + 1) / parts);
        let x = x.iter().map(|x| x.narrow(1, start, end - start));
        let x = x.collect::<Result<Vec<_>>>()?;
        f(std::array::from_fn(|i| &x[i]))
    };
    let done = (0..parts).into_par_iter().map(part).collect::<Result<Vec<_>>>()?;
    Tensor::cat(&done, 1)
}
