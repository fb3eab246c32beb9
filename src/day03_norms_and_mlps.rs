#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 3: norms and MLPs. Between two attentions, a norm keeps the scale and an MLP does the
//! thinking.

use candecode::kit::{SharedOps, Weight};
use candle_core::{DType, Error, Result, Tensor, D};

/// LayerNorm: brings each vector to mean 0 and variance 1, then scales it by `weight` and
/// shifts it by `bias` (Ba et al. 2016; torch `layer_norm`).
///
/// `x` is `(…, C)`, `weight` and `bias` are `(C)`. The result has the shape and type of
/// `x`. Everything is computed in f32 and rounded once.
///
/// # Errors
/// If the widths differ.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
    // task 3.1: Bring each vector to mean 0 and variance 1, then apply weight and bias, all in f32
    todo!("day 3, task 1: Bring each vector to mean 0 and variance 1, then apply weight and bias, all in f32")
}

/// RMSNorm: divides each vector by its root mean square, then scales it by `weight`
/// (Zhang and Sennrich 2019).
///
/// The quotient is computed in f32, and rounding happens where HF `LlamaRMSNorm` rounds.
/// `x` is `(…, C)`, `weight` is `(C)`. The result has the shape and type of `x`.
///
/// # Errors
/// If the widths differ.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    // task 3.2: Divide by the root mean square, scale, and round where Llama does
    todo!("day 3, task 2: Divide by the root mean square, scale, and round where Llama does")
}

/// GELU by its tanh approximation, GPT-2's (Hendrycks and Gimpel 2016; HF `gelu_new`), in
/// f32, rounded to the type of `x` at the end.
///
/// # Errors
/// If candle fails (for example, out of memory). Accepts any shape.
pub fn gelu_tanh(x: &Tensor) -> Result<Tensor> {
    // task 3.3: Compute GELU in its tanh form
    todo!("day 3, task 3: Compute GELU in its tanh form")
}

/// The exact GELU: `x` times the probability that a standard normal variable is below
/// `x`, in f32, rounded to the type of `x` at the end (torch's default `gelu`).
///
/// # Errors
/// If candle fails (for example, out of memory). Accepts any shape.
pub fn gelu_exact(x: &Tensor) -> Result<Tensor> {
    // task 3.4 (challenge): Compute GELU exactly
    todo!("day 3, task 4: Compute GELU exactly")
}

/// SiLU, or swish: `x` times its sigmoid, in f32, rounded to the type of `x` at the end
/// (Ramachandran et al. 2017; torch `silu`).
///
/// # Errors
/// If candle fails (for example, out of memory). Accepts any shape.
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
    /// Returns `x · weightᵀ + bias`: `(…, in)` to `(…, out)`.
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

/// Llama's MLP, SwiGLU (Shazeer 2020; HF `LlamaMLP`).
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

/// GPT-2's MLP (HF `GPT2MLP`). `x` and the result are `(B, T, C)`.
///
/// # Errors
/// If the shapes don't fit.
pub fn gelu_mlp(x: &Tensor, c_fc: &Projection, c_proj: &Projection) -> Result<Tensor> {
    // task 3.7 (optional): Widen, bend and narrow: GPT-2's MLP
    todo!("day 3, task 7: Widen, bend and narrow: GPT-2's MLP")
}

/// One hidden unit of a GPT-2 MLP, for vectors of five numbers.
#[derive(Debug, Clone, Copy)]
pub struct HiddenUnit {
    /// Its row of `c_fc`.
    pub row: [f32; 5],
    /// Its number in the bias of `c_fc`.
    pub bias: f32,
    /// Its column of `c_proj`, which has no bias.
    pub column: [f32; 5],
}

/// Chooses the weights of a hidden unit that notices a red ball.
///
/// A vector's numbers are *red*, *green*, *ball* and *hat*, each 1 if the word has
/// arrived and 0 if not, and the answer. The unit adds 1 to the answer if *red* and
/// *ball* are there, and otherwise 0, each to within 0.01. The answer so far makes no
/// difference, and the other four numbers stay as they are.
pub fn red_ball() -> HiddenUnit {
    // task 3.8: Choose the weights of a hidden unit that fires for a red ball
    todo!("day 3, task 8: Choose the weights of a hidden unit that fires for a red ball")
}
