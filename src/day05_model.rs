#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 5: the model. Blocks in a row, from token ids to logits: Llama, Qwen2, Qwen3, and GPT-2 as a difference from them.
//!
//! `engine::load` fills these structs from the names in a safetensors file.

use candecode::day01_attention::{merge_heads, split_heads};
use candecode::day02_positions::learned_positions;
use candecode::day03_norms_and_mlps::{gelu_mlp, layer_norm, rms_norm, swiglu, Projection};
use candecode::day04_attention_block::Attention;
use candecode::kit::device::activation_dtype;
use candecode::kit::{attend, linear, Cache, Model, ModelConfig, Step, Weight};
use candle_core::{DType, Device, Result, Tensor};

/// A norm with its weights.
pub enum Norm {
    /// RMSNorm, of Llama, Qwen2 and Qwen3: the weight is `(C)`.
    Rms {
        /// Scales.
        weight: Tensor,
        /// Added to the mean square.
        eps: f64,
    },
    /// LayerNorm, of GPT-2: weight and bias are `(C)`.
    Layer {
        /// Scales.
        weight: Tensor,
        /// Shifts.
        bias: Tensor,
        /// Added to the variance.
        eps: f64,
    },
}

impl Norm {
    /// `x`, `(B, T, C)`, normed; the shape stays.
    ///
    /// # Errors
    /// If the widths differ.
    pub fn apply(&self, x: &Tensor) -> Result<Tensor> {
        // task 5.1: day 3's norm of each kind
        todo!("day 5, task 1: day 3's norm of each kind")
    }
}

/// The attention inside a block.
pub enum SelfAttention {
    /// Day 4's: Llama, Qwen2, Qwen3.
    Grouped(Attention),
    /// GPT-2's.
    Fused(FusedAttention),
}

/// The MLP inside a block.
pub enum Mlp {
    /// Llama's, Qwen2's and Qwen3's: day 3's `swiglu`.
    Swiglu {
        /// Goes through SiLU, `(intermediate, C)`.
        gate: Projection,
        /// Does not, `(intermediate, C)`.
        up: Projection,
        /// Back to the width of the stream, `(C, intermediate)`.
        down: Projection,
    },
    /// GPT-2's: day 3's `gelu_mlp`.
    Gelu {
        /// Before the GELU, `(intermediate, C)`.
        fc: Projection,
        /// After it, `(C, intermediate)`.
        projection: Projection,
    },
}

/// One block: attention, then the MLP, each behind a norm, and each added to what came in.
pub struct Block {
    /// The norm before the attention (`input_layernorm`, GPT-2's `ln_1`).
    pub attention_norm: Norm,
    /// The attention.
    pub attention: SelfAttention,
    /// The norm before the MLP (`post_attention_layernorm`, GPT-2's `ln_2`).
    pub mlp_norm: Norm,
    /// The MLP.
    pub mlp: Mlp,
}

impl Block {
    /// The first half of a block, `(B, T, C)` to `(B, T, C)`; both kinds of attention go through the door
    /// [`candecode::kit::attend`].
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn attend(&self, x: &Tensor, step: &Step, cache: &mut dyn Cache) -> Result<Tensor> {
        // task 5.2: norm, attention of either kind, residual
        todo!("day 5, task 2: norm, attention of either kind, residual")
    }

    /// The second half, `(B, T, C)` to `(B, T, C)`.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn feed_forward(&self, x: &Tensor) -> Result<Tensor> {
        // task 5.3: norm, MLP of either kind, residual
        todo!("day 5, task 3: norm, MLP of either kind, residual")
    }
}

/// The whole stack (HF `LlamaForCausalLM`, `Qwen2ForCausalLM`, `Qwen3ForCausalLM`, `GPT2LMHeadModel`).
pub struct Transformer {
    /// Sizes, context and special ids.
    pub config: ModelConfig,
    /// Where the weights are.
    pub device: Device,
    /// The embedding table, `(V, C)`.
    pub tokens: Weight,
    /// GPT-2's table of positions, `(context, C)`; None: RoPE, inside the attention.
    pub positions: Option<Tensor>,
    /// The blocks, first to last.
    pub blocks: Vec<Block>,
    /// The norm after the last block.
    pub norm: Norm,
    /// The head, `(V, C)`; None: tied, the embedding table is the head.
    pub lm_head: Option<Weight>,
}

impl Transformer {
    /// The rows of the step's ids, and of its positions where there is a table of them: `(B, T)` to `(B, T, C)`.
    ///
    /// The table may be bf16 or f16 in memory: what comes out is of the type that [`activation_dtype`] says.
    ///
    /// # Errors
    /// If an id or a position is out of range.
    pub fn embed(&self, step: &Step) -> Result<Tensor> {
        // task 5.4: look the ids up, and add the positions if there is a table
        todo!("day 5, task 4: look the ids up, and add the positions if there is a table")
    }

    /// The last norm, then one score for every token: `(B, n, C)` to logits `(B, n, V)`, f32.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn head(&self, x: &Tensor) -> Result<Tensor> {
        // task 5.5: norm, head, f32; mind the tied head
        todo!("day 5, task 5: norm, head, f32; mind the tied head")
    }
}

impl Model for Transformer {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> Result<Tensor> {
        // task 5.6: every stage in order; the head only for the positions that the step asks for
        todo!("day 5, task 6: every stage in order; the head only for the positions that the step asks for")
    }
}

/// GPT-2's attention: as many key/value heads as heads, biases everywhere, no RoPE, and one matrix for q, k and v
/// (HF `GPT2Attention`).
pub struct FusedAttention {
    /// Which layer of the stack this is: the cache's index.
    pub layer: usize,
    /// Number of heads.
    pub num_heads: usize,
    /// Makes q, k and v in one product, `(3 * C, C)`: first all of q, then all of k, then all of v.
    pub c_attn: Projection,
    /// Mixes the heads, `(C, C)`.
    pub c_proj: Projection,
}

impl FusedAttention {
    /// As day 4's [`Attention::forward`], through the door [`candecode::kit::attend`]: `x` and the result are `(B, T, C)`.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn forward(&self, x: &Tensor, step: &Step, cache: &mut dyn Cache) -> Result<Tensor> {
        // task 5.7: one product, cut in three, split into heads; attend, merge, project back
        todo!("day 5, task 7: one product, cut in three, split into heads; attend, merge, project back")
    }
}
