//! Day 4: the attention block of a real model: grouped heads, positions, biases, masks, and a cache's place in it.

use candecode::day01_attention::{merge_heads, scaled_dot_product_attention, split_heads};
use candecode::day02_positions::Rope;
use candecode::day03_norms_and_mlps::{rms_norm, Projection};
use candecode::kit::{linear, linear_many, Attend, Cache, Step};
use candle_core::{bail, Device, Result, Tensor};

/// Attention in which `H / Hkv` query heads share each key/value head (Ainslie et al. 2023): GQA; MQA for `Hkv = 1`.
///
/// `q` is `(B, H, T, D)`, `k` and `v` are `(B, Hkv, S + T, D)`, `mask` is `(B or 1, 1, T, S + T)`, 1 = may attend; the
/// result is `(B, H, T, D)`. Query head `h` uses key/value head `h / (H / Hkv)` (HF `repeat_kv`), but no key or value is copied:
/// the queries that share a head lie below each other, as more rows of one product.
///
/// # Errors
/// If `Hkv` does not divide `H`, or the shapes do not fit.
pub fn grouped_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
) -> Result<Tensor> {
    // task 4.1: attention in groups, without a copy of k or v; mind the mask
    // <solution>
    let (b, heads, t, d) = q.dims4()?;
    let kv_heads = k.dim(1)?;
    if kv_heads == 0 || heads % kv_heads != 0 {
        bail!("{heads} query heads cannot share {kv_heads} key/value heads evenly")
    }
    let group = heads / kv_heads;
    let q = q.reshape((b, kv_heads, group * t, d))?;
    let mask = match mask {
        Some(mask) => Some(mask.repeat((1, 1, group, 1))?), // (B or 1, 1, group * T, S + T)
        None => None,
    };
    let mixed = scaled_dot_product_attention(&q, k, v, mask.as_ref())?;
    mixed.reshape((b, heads, t, d))
    // </solution>
}

/// The attention block of Llama, Qwen2 and Qwen3 (HF `LlamaAttention`, `Qwen2Attention`, `Qwen3Attention`).
pub struct Attention {
    /// Which layer of the stack this is: the cache's index.
    pub layer: usize,
    /// Query heads.
    pub num_heads: usize,
    /// Key/value heads.
    pub num_kv_heads: usize,
    /// Makes queries, `(H * D, C)`; Qwen2 has biases here and on K and V.
    pub q_proj: Projection,
    /// Makes keys, `(Hkv * D, C)`.
    pub k_proj: Projection,
    /// Makes values, `(Hkv * D, C)`.
    pub v_proj: Projection,
    /// Mixes the heads, `(C, H * D)`.
    pub o_proj: Projection,
    /// Qwen3: weights `(D)` of the RMSNorm over each head of q, and of k.
    pub qk_norm: Option<(Tensor, Tensor)>,
    /// Epsilon of these norms.
    pub norm_eps: f64,
    /// Turns q and k to their positions.
    pub rope: Rope,
}

impl Attention {
    /// Queries `(B, H, T, D)`, keys and values `(B, Hkv, T, D)` of `x`, `(B, T, C)`, at `positions`, `(B, T)`.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn project(&self, x: &Tensor, positions: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
        // task 4.2: q, k and v in heads, normed where there is a QK-norm, q and k turned to their positions
        // <solution>
        let all = [&self.q_proj, &self.k_proj, &self.v_proj].map(|p| (&p.weight, p.bias.as_ref()));
        let all = linear_many(x, &all)?;
        let mut q = split_heads(&all[0], self.num_heads)?;
        let mut k = split_heads(&all[1], self.num_kv_heads)?;
        let v = split_heads(&all[2], self.num_kv_heads)?;
        if let Some((q_weight, k_weight)) = &self.qk_norm {
            q = rms_norm(&q, q_weight, self.norm_eps)?;
            k = rms_norm(&k, k_weight, self.norm_eps)?;
        }
        Ok((self.rope.apply(&q, positions)?, self.rope.apply(&k, positions)?, v))
        // </solution>
    }

    /// The whole block: `x` and the result are `(B, T, C)`. `attend` is the door that appends to the cache and attends.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn forward(
        &self,
        x: &Tensor,
        step: &Step,
        cache: &mut dyn Cache,
        attend: Attend,
    ) -> Result<Tensor> {
        // task 4.3: from the stream to q, k and v, through attend, and back to the stream
        // <solution>
        let (q, k, v) = self.project(x, &step.positions)?;
        let mixed = attend(self.layer, &q, &k, &v, step, cache)?; // (B, H, T, D)
        linear(&merge_heads(&mixed)?, &self.o_proj.weight, self.o_proj.bias.as_ref())
        // </solution>
    }
}

/// The mask of attention whose window slides: each token sees itself and the `window - 1` tokens before it, `(1, 1, T, S + T)`,
/// u8, 1 = may attend (Jiang et al. 2023, Mistral 7B; HF `create_sliding_window_causal_mask`).
///
/// # Errors
/// If `window` is 0: every row would see nothing.
pub fn sliding_mask(window: usize, new: usize, past: usize, device: &Device) -> Result<Tensor> {
    // task 4.4 (further): causal, and not further back than the window
    // <solution>
    if window == 0 {
        bail!("sliding_mask: a window of 0 sees nothing; it must be at least 1")
    }
    let all = past + new;
    let row = |i: usize| (0..all).map(move |j| u8::from(j <= i && i < j + window));
    let mask: Vec<u8> = (past..all).flat_map(row).collect();
    Tensor::from_vec(mask, (1, 1, new, all), device)
    // </solution>
}
