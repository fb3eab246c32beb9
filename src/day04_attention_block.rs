#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 4: the attention block of a real model: grouped heads, positions, biases, masks, and the
//! place of a cache in it.

use candecode::day01_attention::{merge_heads, scaled_dot_product_attention, split_heads};
use candecode::day02_positions::CosSin;
use candecode::day03_norms_and_mlps::Projection;
use candecode::kit::{Cache, SharedOps, Step};
use candle_core::{bail, Device, Result, Tensor};

/// Attention in which `H / Hkv` query heads share each key/value head (Ainslie et al.
/// 2023): GQA; MQA for `Hkv = 1`.
///
/// `q` is `(B, H, T, D)`, `k` and `v` are `(B, Hkv, S + T, D)`, `mask` is
/// `(B or 1, 1, T, S + T)`, 1 = may attend; the result is `(B, H, T, D)`. Query head
/// `h` uses key/value head `h / (H / Hkv)` (HF `repeat_kv`), but no key or value is
/// copied: the queries that share a head are stacked as more rows of one product.
///
/// # Errors
/// If `Hkv` is 0 or doesn't divide `H`, or the shapes don't fit.
pub fn grouped_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
) -> Result<Tensor> {
    // task 4.1: Compute attention in groups without copying k or v
    todo!("day 4, task 1: Compute attention in groups without copying k or v")
}

/// The attention of Llama, Qwen2 and Qwen3 (HF `LlamaAttention`, `Qwen2Attention`,
/// `Qwen3Attention`).
#[derive(Debug, Clone)]
pub struct Attention {
    /// This layer's number, counted from 0. The cache uses it as the key for this layer.
    pub layer_idx: usize,
    /// Query heads.
    pub num_heads: usize,
    /// Key/value heads.
    pub num_kv_heads: usize,
    /// The projection to queries, `(H * D, C)`. Qwen2 has biases here and on K and V.
    pub q_proj: Projection,
    /// The projection to keys, `(Hkv * D, C)`.
    pub k_proj: Projection,
    /// The projection to values, `(Hkv * D, C)`.
    pub v_proj: Projection,
    /// Mixes the heads, `(C, H * D)`.
    pub o_proj: Projection,
    /// Qwen3: weights `(D)` of the RMSNorm over each head of q, and of k.
    pub qk_norm: Option<(Tensor, Tensor)>,
    /// Epsilon of these norms.
    pub norm_eps: f64,
    /// The operations it computes with: norms, RoPE and attention of days 1 to 4, or
    /// kernels.
    pub ops: SharedOps,
}

impl Attention {
    /// Returns queries `(B, H, T, D)`, keys and values `(B, Hkv, T, D)` for `x`,
    /// `(B, T, C)`.
    ///
    /// `cos_sin` has the angles of the positions of `x`, from
    /// [`RotaryEmbedding::cos_sin`](candecode::day02_positions::RotaryEmbedding::cos_sin);
    /// without them nothing is rotated.
    ///
    /// # Errors
    /// If the shapes don't fit.
    pub fn project(
        &self,
        x: &Tensor,
        cos_sin: Option<&CosSin>,
    ) -> Result<(Tensor, Tensor, Tensor)> {
        // task 4.2: Project x to q, k and v in heads, with QK-norm and positions
        todo!("day 4, task 2: Project x to q, k and v in heads, with QK-norm and positions")
    }

    /// The whole block: `x` and the result are `(B, T, C)`. The new keys and values
    /// join the cache, and each query attends to itself and to what comes before it
    /// there, or to what the step's mask allows.
    ///
    /// # Errors
    /// If the shapes don't fit.
    pub fn forward(
        &self,
        x: &Tensor,
        step: &Step,
        cos_sin: Option<&CosSin>,
        cache: &mut dyn Cache,
    ) -> Result<Tensor> {
        // task 4.3: Write the whole block, with a past that the cache keeps
        todo!("day 4, task 3: Write the whole block, with a past that the cache keeps")
    }
}

/// The mask of attention whose window slides: each token may attend to itself and the
/// `window - 1` tokens before it, `(1, 1, T, S + T)`, u8, 1 = may attend (Jiang et al.
/// 2023, Mistral 7B; HF `create_sliding_window_causal_mask`).
///
/// # Errors
/// If `window` is 0, because a token must at least see itself.
pub fn sliding_mask(window: usize, new: usize, past: usize, device: &Device) -> Result<Tensor> {
    // task 4.4 (challenge): Build the mask of a sliding window
    todo!("day 4, task 4: Build the mask of a sliding window")
}
