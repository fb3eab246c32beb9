#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 3: norms and MLPs. Between two attentions, a norm keeps the scale and an MLP does the
//! thinking.

use candecode::kit::{SharedOps, Weight};
use candle_core::{DType, Error, Result, Tensor, D};

/// LayerNorm: brings each vector to mean 0 and variance 1, then scales and shifts it
/// (Ba et al. 2016; torch `layer_norm`):
/// `(x - mean) / √(variance + eps) · weight + bias`.
///
/// `x` is `(…, C)`, `weight` and `bias` are `(C)`; the result has the shape and type of
/// `x`. Everything is computed in f32 and rounded once.
///
/// # Errors
/// If the widths differ.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
    // task 3.1: Bring each vector to mean 0 and variance 1, then apply weight and bias, all in f32
    todo!("day 3, task 1: Bring each vector to mean 0 and variance 1, then apply weight and bias, all in f32")
}

/// RMSNorm: each vector is divided by the root of its mean square, then scaled (Zhang
/// and Sennrich 2019): `x / √(mean(x²) + eps) · weight`.
///
/// The quotient is computed in f32 and rounded to the type of `x` *before* it is scaled
/// (HF `LlamaRMSNorm`). `x` is `(…, C)`, `weight` is `(C)`; the result has the shape
/// and type of `x`.
///
/// # Errors
/// If the widths differ.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    // task 3.2: Divide by the root mean square, and round to x's type before the weight
    todo!("day 3, task 2: Divide by the root mean square, and round to x's type before the weight")
}

/// GELU by its tanh approximation, GPT-2's (Hendrycks and Gimpel 2016; HF `gelu_new`):
/// `x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`, in f32, rounded to the type of `x`
/// at the end.
///
/// # Errors
/// Only if candle itself fails (out of memory, say). Every shape is fine.
pub fn gelu_tanh(x: &Tensor) -> Result<Tensor> {
    // task 3.3: Compute GELU in its tanh form
    todo!("day 3, task 3: Compute GELU in its tanh form")
}

/// The exact GELU: `x` times the probability that a standard normal variable is below
/// `x`, in f32, rounded to the type of `x` at the end (torch's default `gelu`).
///
/// # Errors
/// Only if candle itself fails (out of memory, say). Every shape is fine.
pub fn gelu_exact(x: &Tensor) -> Result<Tensor> {
    // task 3.4 (challenge): Compute GELU exactly
    todo!("day 3, task 4: Compute GELU exactly")
}

/// SiLU, or swish: `x · sigmoid(x) = x / (1 + e⁻ˣ)`, in f32, rounded to the type of `x`
/// at the end (Ramachandran et al. 2017; torch `silu`).
///
/// # Errors
/// Only if candle itself fails (out of memory, say). Every shape is fine.
pub fn silu(x: &Tensor) -> Result<Tensor> {
    // task 3.5: Multiply x by its sigmoid
    todo!("day 3, task 5: Multiply x by its sigmoid")
}

/// One linear layer: a matrix `(out, in)` and, in some models, a bias `(out)` (torch
/// `nn.Linear`).
#[derive(Debug, Clone)]
pub struct Projection {
    /// The matrix.
    pub weight: Weight,
    /// The bias.
    pub bias: Option<Tensor>,
    /// The operations it computes with: candle's `matmul`, or a kernel.
    pub ops: SharedOps,
}

impl Projection {
    /// `x · weightᵀ + bias`: `(…, in)` to `(…, out)`.
    ///
    /// # Errors
    /// If the last dimension of `x` isn't `in`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [y] = Self::forward_all([self], x)?;
        Ok(y)
    }

    /// Applies several projections to the same input and returns the results in order.
    /// A kernel can compute them as one product.
    ///
    /// # Errors
    /// As [`Projection::forward`].
    pub fn forward_all<const N: usize>(all: [&Self; N], x: &Tensor) -> Result<[Tensor; N]> {
        let products = all[0].ops.linear(x, &all.map(|one| &one.weight))?;
        let with_bias = all.iter().zip(products).map(|(one, y)| match &one.bias {
            Some(bias) => y.broadcast_add(bias),
            None => Ok(y),
        });
        let all = with_bias.collect::<Result<Vec<_>>>()?;
        let count = all.len();
        all.try_into().map_err(|_| Error::Msg(format!("{N} weights, but {count} products")))
    }
}

/// Llama's MLP: `down(silu(gate(x)) · up(x))` (Shazeer 2020; HF `LlamaMLP`).
///
/// `x` and the result are `(B, T, C)`.
///
/// # Errors
/// If the shapes don't fit.
pub fn swiglu(
    x: &Tensor,
    gate_proj: &Projection,
    up_proj: &Projection,
    down_proj: &Projection,
) -> Result<Tensor> {
    // task 3.6: Gate, up and down: Llama's MLP
    todo!("day 3, task 6: Gate, up and down: Llama's MLP")
}

/// GPT-2's MLP: `c_proj(gelu_tanh(c_fc(x)))` (HF `GPT2MLP`). `x` and the result are
/// `(B, T, C)`.
///
/// # Errors
/// If the shapes don't fit.
pub fn gelu_mlp(x: &Tensor, c_fc: &Projection, c_proj: &Projection) -> Result<Tensor> {
    // task 3.7: Widen, bend and narrow: GPT-2's MLP
    todo!("day 3, task 7: Widen, bend and narrow: GPT-2's MLP")
}
