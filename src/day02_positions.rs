#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 2: positions. Attention sees a set, so a position is added to the vector (GPT-2) or turned
//! into an angle (RoPE).

use candecode::day00_warm_up::embed;
use candecode::kit::config::Llama3Scaling;
use candle_core::{bail, DType, Device, Result, Tensor};

/// Looks up the learned vector of each position, to be added to the embeddings (GPT-2's
/// `wpe`).
///
/// `table` is `(context, C)` and `positions` is `(B, T)` in u32. The result is
/// `(B, T, C)`.
///
/// # Errors
/// If a position is past the end of the table.
pub fn learned_positions(table: &Tensor, positions: &Tensor) -> Result<Tensor> {
    // task 2.1: Look the positions up in the table: (B, T) -> (B, T, C)
    todo!("day 2, task 1: Look the positions up in the table: (B, T) -> (B, T, C)")
}

/// Returns the speed of each pair of elements in radians per token (Su et al. 2021; HF
/// `inv_freq`).
///
/// There are `head_dim / 2` pairs. The first turns by 1 radian per token, and each is
/// slower than the one before by the same factor. A pair after the last would turn
/// `theta` times slower than the first.
///
/// # Errors
/// If `head_dim` is odd or zero.
pub fn inverse_frequencies(head_dim: usize, theta: f64) -> Result<Vec<f32>> {
    // task 2.2: Compute one frequency for each pair
    todo!("day 2, task 2: Compute one frequency for each pair")
}

/// The cosines and sines of all angles of a pass, each `(B, T, D / 2)` in f32 (HF
/// `position_embeddings`).
pub type CosSin = (Tensor, Tensor);

/// Rotary position embedding, RoPE, for heads of one width (HF `LlamaRotaryEmbedding`).
///
/// A model has one. It computes cosines and sines once per pass, and every layer passes
/// them to [`rotate`] with its queries and keys.
#[derive(Debug, Clone)]
pub struct RotaryEmbedding {
    inv_freq: Tensor, // (1, 1, D / 2), f32
}

impl RotaryEmbedding {
    /// Creates RoPE with base `theta`. If the model scales its frequencies, some of them
    /// are lowered.
    ///
    /// # Errors
    /// If `head_dim` is odd or zero.
    pub fn new(
        head_dim: usize,
        theta: f64,
        scaling: Option<Llama3Scaling>,
        device: &Device,
    ) -> Result<Self> {
        let inv_freq: Vec<f32> = inverse_frequencies(head_dim, theta)?
            .into_iter()
            .map(|frequency| scaling.map_or(frequency, |scaling| scaling.apply(frequency)))
            .collect();
        Ok(Self { inv_freq: Tensor::from_vec(inv_freq, (1, 1, head_dim / 2), device)? })
    }

    /// Returns the cosines and sines of all angles, each `(B, T, D / 2)` in f32, for
    /// `positions`, `(B, T)` in u32.
    ///
    /// # Errors
    /// If `positions` isn't a matrix.
    pub fn cos_sin(&self, positions: &Tensor) -> Result<CosSin> {
        // task 2.3: Compute the cosines and sines of the angles of the given positions
        todo!("day 2, task 3: Compute the cosines and sines of the angles of the given positions")
    }
}

/// Rotates every head of `x`, `(B, H, T, D)`, by its token's angles. The result has the
/// type of `x`.
///
/// `cos` and `sin` are `(B, T, D / 2)`, from [`RotaryEmbedding::cos_sin`]. Which two
/// elements of a head make a pair depends on the weights. These are HF's: see
/// `apply_rotary_pos_emb`.
///
/// # Errors
/// If the shapes don't match.
pub fn rotate(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    // task 2.4: Rotate each pair of elements by its angle
    todo!("day 2, task 4: Rotate each pair of elements by its angle")
}

/// Reorders the rows of weights trained with interleaved pairs, so that their queries
/// and keys can be rotated in NeoX style (`permute` in HF's conversion of the original
/// Llama weights; llama.cpp's `permute` is the way back).
///
/// `w` is `(H * D, C)`, and so is the result.
///
/// # Errors
/// If `heads` is 0, or the rows don't divide into `heads` heads of an even width.
pub fn interleaved_to_neox(w: &Tensor, heads: usize) -> Result<Tensor> {
    // task 2.5 (challenge): Reorder the rows of each head for the other layout
    todo!("day 2, task 5: Reorder the rows of each head for the other layout")
}
