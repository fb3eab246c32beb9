#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 5: the model. A stack of layers from token ids to logits: Llama, Qwen2 and Qwen3. Optional:
//! GPT-2, which has a different attention.
//!
//! `engine::load` fills these structs from a safetensors file.

use candecode::day01_attention::{merge_heads, split_heads};
use candecode::day02_positions::{learned_positions, CosSin, RotaryEmbedding};
use candecode::day03_norms_and_mlps::{gelu_mlp, swiglu, Projection};
use candecode::day04_attention_block::Attention;
use candecode::kit::device::activation_dtype;
use candecode::kit::{Cache, Model, ModelConfig, SharedOps, Step, Weight};
use candle_core::{DType, Device, Result, Tensor};

/// A norm with its weights.
#[derive(Debug, Clone)]
pub enum Norm {
    /// RMSNorm, used by Llama, Qwen2 and Qwen3.
    Rms {
        /// Scales, `(C)`.
        weight: Tensor,
        /// Added to the mean square.
        eps: f64,
        /// Computes the norm: day 3's `rms_norm`, or a kernel.
        ops: SharedOps,
    },
    /// LayerNorm, used by GPT-2.
    Layer {
        /// Scales, `(C)`.
        weight: Tensor,
        /// Shifts, `(C)`.
        bias: Tensor,
        /// Added to the variance.
        eps: f64,
        /// Computes the norm: day 3's `layer_norm`, or a kernel.
        ops: SharedOps,
    },
}

impl Norm {
    /// Norms every position of `x`, `(B, T, C)`.
    ///
    /// # Errors
    /// If the widths differ.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Rms { weight, eps, ops } => ops.rms_norm(x, weight, *eps),
            Self::Layer { weight, bias, eps, ops } => ops.layer_norm(x, weight, bias, *eps),
        }
    }
}

/// The attention in a layer.
#[derive(Debug, Clone)]
pub enum SelfAttention {
    /// Day 4's, used by Llama, Qwen2 and Qwen3.
    Grouped(Attention),
    /// GPT-2's: task 5.6, optional.
    Fused(FusedAttention),
}

impl SelfAttention {
    /// Runs the attention on normed `x`, `(B, T, C)`, and returns the same shape. Only
    /// [`Attention`] uses the angles `cos_sin`; GPT-2's `x` contains the positions
    /// already.
    ///
    /// # Errors
    /// If the shapes don't match.
    pub fn forward(
        &self,
        x: &Tensor,
        step: &Step,
        cos_sin: Option<&CosSin>,
        cache: &mut dyn Cache,
    ) -> Result<Tensor> {
        match self {
            Self::Grouped(attention) => attention.forward(x, step, cos_sin, cache),
            Self::Fused(attention) => attention.forward(x, step, cache),
        }
    }
}

/// The MLP in a layer.
#[derive(Debug, Clone)]
pub enum Mlp {
    /// Day 3's `swiglu`, used by Llama, Qwen2 and Qwen3.
    Swiglu {
        /// The gate: its output goes through SiLU. `(intermediate, C)`.
        gate_proj: Projection,
        /// Its output is multiplied by the gate's. `(intermediate, C)`.
        up_proj: Projection,
        /// Projects back to the width of the stream. `(C, intermediate)`.
        down_proj: Projection,
    },
    /// Day 3's `gelu_mlp`, used by GPT-2.
    Gelu {
        /// The matrix before the GELU, `(intermediate, C)`.
        c_fc: Projection,
        /// The matrix after it, `(C, intermediate)`.
        c_proj: Projection,
    },
}

impl Mlp {
    /// Runs the MLP on normed `x`, `(B, T, C)`, and returns the same shape.
    ///
    /// # Errors
    /// If the shapes don't match.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Swiglu { gate_proj, up_proj, down_proj } => {
                swiglu(x, gate_proj, up_proj, down_proj)
            }
            Self::Gelu { c_fc, c_proj } => gelu_mlp(x, c_fc, c_proj),
        }
    }
}

/// One layer: attention and an MLP, each with a norm of its own (HF `LlamaDecoderLayer`,
/// `GPT2Block`).
#[derive(Debug, Clone)]
pub struct DecoderLayer {
    /// The attention's norm (`input_layernorm`, GPT-2's `ln_1`).
    pub attention_norm: Norm,
    /// The attention.
    pub attention: SelfAttention,
    /// The MLP's norm (`post_attention_layernorm`, GPT-2's `ln_2`).
    pub mlp_norm: Norm,
    /// The MLP.
    pub mlp: Mlp,
}

impl DecoderLayer {
    /// Runs the layer on the stream `x`, `(B, T, C)`, and returns the new stream,
    /// `(B, T, C)`. Hands `step`, `cos_sin` and `cache` to the attention.
    ///
    /// # Errors
    /// If the shapes don't match.
    pub fn forward(
        &self,
        x: &Tensor,
        step: &Step,
        cos_sin: Option<&CosSin>,
        cache: &mut dyn Cache,
    ) -> Result<Tensor> {
        // task 5.1: Add to the stream: first the attention's output, then the MLP's
        todo!("day 5, task 1: Add to the stream: first the attention's output, then the MLP's")
    }
}

/// The whole stack (HF `LlamaForCausalLM`, `Qwen2ForCausalLM`, `Qwen3ForCausalLM`,
/// `GPT2LMHeadModel`). Field names follow HF.
pub struct Transformer {
    /// Sizes, context and special ids.
    pub config: ModelConfig,
    /// The device that holds the weights.
    pub device: Device,
    /// The embedding table, `(V, C)` (GPT-2's `wte`).
    pub embed_tokens: Weight,
    /// GPT-2's table of positions, `(context, C)`. None: positions are RoPE's.
    pub wpe: Option<Tensor>,
    /// RoPE, shared by all layers. None: positions are in `wpe`.
    pub rotary_emb: Option<RotaryEmbedding>,
    /// The layers, first to last (GPT-2's `h`).
    pub layers: Vec<DecoderLayer>,
    /// The norm after the last layer (GPT-2's `ln_f`).
    pub norm: Norm,
    /// The LM head, `(V, C)`. None: tied, so the embedding table is the head.
    pub lm_head: Option<Weight>,
    /// The operations for the embedding and the head. The layers have the same ones.
    pub ops: SharedOps,
}

impl Transformer {
    /// Looks up the embeddings of the step's ids: `(B, T)` to the stream, `(B, T, C)`.
    /// If the model has a table of positions, adds its rows for the step's positions.
    ///
    /// The embedding table may be bf16 or f16 in memory; the stream has the type that
    /// [`activation_dtype`] returns, and so does the table of positions.
    ///
    /// # Errors
    /// If an id or a position is out of range.
    pub fn embed(&self, step: &Step) -> Result<Tensor> {
        // task 5.2: Look up the ids; add the positions if there is a table of them
        todo!("day 5, task 2: Look up the ids; add the positions if there is a table of them")
    }

    /// Applies the last norm and the LM head: `(B, n, C)` to logits, `(B, n, V)`, in
    /// f32.
    ///
    /// # Errors
    /// If the shapes don't match.
    pub fn head(&self, x: &Tensor) -> Result<Tensor> {
        // task 5.3: Norm the stream and multiply it by the LM head, which may be tied
        todo!("day 5, task 3: Norm the stream and multiply it by the LM head, which may be tied")
    }

    /// Returns the logits that the model would have if it ended after the embedding,
    /// after the first layer, after the second, and so on: one tensor `(B, n, V)` for
    /// each, for the positions that the step asks for (known as the *logit lens*). The
    /// last one is what [`Model::forward`] returns. Runs every layer once.
    ///
    /// # Errors
    /// If the step doesn't fit the model or the cache.
    pub fn lens(&self, step: &Step, cache: &mut dyn Cache) -> Result<Vec<Tensor>> {
        cache.begin(step)?;
        // task 5.5 (challenge): Return the logits after the embedding and after each layer
        todo!("day 5, task 5: Return the logits after the embedding and after each layer")
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
        cache.begin(step)?;
        // task 5.4: Embed, run the layers in order, and apply the head where the step asks for it
        todo!("day 5, task 4: Embed, run the layers in order, and apply the head where the step asks for it")
    }
}

/// GPT-2's attention: no groups, no RoPE, biases everywhere, and one matrix for q, k
/// and v (HF `GPT2Attention`).
#[derive(Debug, Clone)]
pub struct FusedAttention {
    /// Index of this layer, in the stack and in the cache.
    pub layer_idx: usize,
    /// Number of heads.
    pub num_heads: usize,
    /// Computes q, k and v in one product, `(3 * C, C)`: all of q, then all of k, then
    /// all of v.
    pub c_attn: Projection,
    /// Mixes the heads, `(C, C)`.
    pub c_proj: Projection,
    /// Computes the attention: days 1 and 4, or a kernel.
    pub ops: SharedOps,
}

impl FusedAttention {
    /// Runs the attention on normed `x`, `(B, T, C)`, and returns the same shape, like
    /// day 4's [`Attention::forward`].
    ///
    /// # Errors
    /// If the shapes don't match.
    pub fn forward(&self, x: &Tensor, step: &Step, cache: &mut dyn Cache) -> Result<Tensor> {
        // task 5.6 (optional): Cut one product into q, k and v, then attend as on day 4
        todo!("day 5, task 6: Cut one product into q, k and v, then attend as on day 4")
    }
}
