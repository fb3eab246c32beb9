//! Day 5: the model. Layers in a row, from token ids to logits: Llama, Qwen2, Qwen3, and GPT-2 as a
//! difference from them.
//!
//! `engine::load` fills these structs from the names in a safetensors file.

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
    /// RMSNorm, of Llama, Qwen2 and Qwen3: the weight is `(C)`.
    Rms {
        /// Scales.
        weight: Tensor,
        /// Added to the mean square.
        eps: f64,
        /// The operations it computes with: day 3's `rms_norm`, or a kernel.
        ops: SharedOps,
    },
    /// LayerNorm, of GPT-2: weight and bias are `(C)`.
    Layer {
        /// Scales.
        weight: Tensor,
        /// Shifts.
        bias: Tensor,
        /// Added to the variance.
        eps: f64,
        /// The operations it computes with: day 3's `layer_norm`, or a kernel.
        ops: SharedOps,
    },
}

impl Norm {
    /// `x`, `(B, T, C)`, normed; the shape stays.
    ///
    /// # Errors
    /// If the widths differ.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        // task 5.1: day 3's norm of each kind
        // <solution>
        match self {
            Self::Rms { weight, eps, ops } => ops.rms_norm(x, weight, *eps),
            Self::Layer { weight, bias, eps, ops } => ops.layer_norm(x, weight, bias, *eps),
        }
        // </solution>
    }
}

/// The attention inside a layer.
#[derive(Debug, Clone)]
pub enum SelfAttention {
    /// Day 4's: Llama, Qwen2, Qwen3.
    Grouped(Attention),
    /// GPT-2's.
    Fused(FusedAttention),
}

impl SelfAttention {
    /// `x` and the result are `(B, T, C)`. Only [`Attention`] takes the angles, `cos_sin`: GPT-2's
    /// positions are in `x` already.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn forward(
        &self,
        x: &Tensor,
        step: &Step,
        cos_sin: Option<&CosSin>,
        cache: &mut dyn Cache,
    ) -> Result<Tensor> {
        // task 5.2: the attention of each kind
        // <solution>
        match self {
            Self::Grouped(attention) => attention.forward(x, step, cos_sin, cache),
            Self::Fused(attention) => attention.forward(x, step, cache),
        }
        // </solution>
    }
}

/// The MLP inside a layer.
#[derive(Debug, Clone)]
pub enum Mlp {
    /// Llama's, Qwen2's and Qwen3's: day 3's `swiglu`.
    Swiglu {
        /// Goes through SiLU, `(intermediate, C)`.
        gate_proj: Projection,
        /// Does not, `(intermediate, C)`.
        up_proj: Projection,
        /// Back to the width of the stream, `(C, intermediate)`.
        down_proj: Projection,
    },
    /// GPT-2's: day 3's `gelu_mlp`.
    Gelu {
        /// Before the GELU, `(intermediate, C)`.
        c_fc: Projection,
        /// After it, `(C, intermediate)`.
        c_proj: Projection,
    },
}

impl Mlp {
    /// `x` and the result are `(B, T, C)`.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        // task 5.3: day 3's MLP of each kind
        // <solution>
        match self {
            Self::Swiglu { gate_proj, up_proj, down_proj } => {
                swiglu(x, gate_proj, up_proj, down_proj)
            }
            Self::Gelu { c_fc, c_proj } => gelu_mlp(x, c_fc, c_proj),
        }
        // </solution>
    }
}

/// One layer: attention, then the MLP, each behind a norm, and each added to what came in (HF
/// `LlamaDecoderLayer`, `GPT2Block`).
#[derive(Debug, Clone)]
pub struct DecoderLayer {
    /// The norm before the attention (`input_layernorm`, GPT-2's `ln_1`).
    pub attention_norm: Norm,
    /// The attention.
    pub attention: SelfAttention,
    /// The norm before the MLP (`post_attention_layernorm`, GPT-2's `ln_2`).
    pub mlp_norm: Norm,
    /// The MLP.
    pub mlp: Mlp,
}

impl DecoderLayer {
    /// `x` and the result are `(B, T, C)`.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn forward(
        &self,
        x: &Tensor,
        step: &Step,
        cos_sin: Option<&CosSin>,
        cache: &mut dyn Cache,
    ) -> Result<Tensor> {
        // task 5.4: norm, attention, residual; then norm, MLP, residual
        // <solution>
        let normed = self.attention_norm.forward(x)?;
        let x = (x + self.attention.forward(&normed, step, cos_sin, cache)?)?;
        let normed = self.mlp_norm.forward(&x)?;
        &x + self.mlp.forward(&normed)?
        // </solution>
    }
}

/// The whole stack (HF `LlamaForCausalLM`, `Qwen2ForCausalLM`, `Qwen3ForCausalLM`,
/// `GPT2LMHeadModel`), with HF's names.
pub struct Transformer {
    /// Sizes, context and special ids.
    pub config: ModelConfig,
    /// Where the weights are.
    pub device: Device,
    /// The embedding table, `(V, C)` (GPT-2's `wte`).
    pub embed_tokens: Weight,
    /// GPT-2's table of positions, `(context, C)`; None: RoPE, inside the attention.
    pub wpe: Option<Tensor>,
    /// RoPE, one for all layers; None: GPT-2.
    pub rotary_emb: Option<RotaryEmbedding>,
    /// The layers, first to last (GPT-2's `h`).
    pub layers: Vec<DecoderLayer>,
    /// The norm after the last layer (GPT-2's `ln_f`).
    pub norm: Norm,
    /// The head, `(V, C)`; None: tied, the embedding table is the head.
    pub lm_head: Option<Weight>,
    /// The operations that look up ids and multiply with the head. Every layer has the same ones.
    pub ops: SharedOps,
}

impl Transformer {
    /// The rows of the step's ids, and of its positions where there is a table of them: `(B, T)` to
    /// `(B, T, C)`.
    ///
    /// `ops.embed` looks the rows up. The table may be bf16 or f16 in memory; [`activation_dtype`]
    /// says the type of the result.
    ///
    /// # Errors
    /// If an id or a position is out of range.
    pub fn embed(&self, step: &Step) -> Result<Tensor> {
        // task 5.5: look the ids up, and add the positions if there is a table
        // <solution>
        let rows = self.ops.embed(&step.ids, &self.embed_tokens)?; // (B, T, C)
        let dtype = activation_dtype(rows.dtype(), rows.device());
        let x = rows.to_dtype(dtype)?;
        match &self.wpe {
            Some(table) => x + learned_positions(table, &step.positions)?,
            None => Ok(x),
        }
        // </solution>
    }

    /// The last norm, then one score for every token: `(B, n, C)` to logits `(B, n, V)`, f32.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn head(&self, x: &Tensor) -> Result<Tensor> {
        // task 5.6: norm, head, f32; mind the tied head
        // <solution>
        let head = self.lm_head.as_ref().unwrap_or(&self.embed_tokens);
        let logits = self.ops.linear(&self.norm.forward(x)?, &[head])?.remove(0);
        logits.to_dtype(DType::F32)
        // </solution>
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
        // task 5.7: cosines and sines once, the layers, the head where the step asks
        // <solution>
        let cos_sin = match &self.rotary_emb {
            Some(rotary) => Some(rotary.cos_sin(&step.positions)?),
            None => None,
        };
        let mut x = self.embed(step)?;
        for layer in &self.layers {
            x = layer.forward(&x, step, cos_sin.as_ref(), cache)?;
        }
        self.head(&step.chosen(&x)?)
        // </solution>
    }
}

/// GPT-2's attention: as many key/value heads as heads, biases everywhere, no RoPE, and one matrix
/// for q, k and v (HF `GPT2Attention`).
#[derive(Debug, Clone)]
pub struct FusedAttention {
    /// Which layer of the stack this is: the cache's index.
    pub layer_idx: usize,
    /// Number of heads.
    pub num_heads: usize,
    /// Makes q, k and v in one product, `(3 * C, C)`: first all of q, then all of k, then all of v.
    pub c_attn: Projection,
    /// Mixes the heads, `(C, C)`.
    pub c_proj: Projection,
    /// The operations it computes with: attention of days 1 and 4, or a kernel.
    pub ops: SharedOps,
}

impl FusedAttention {
    /// As day 4's [`Attention::forward`]: `x` and the result are `(B, T, C)`.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn forward(&self, x: &Tensor, step: &Step, cache: &mut dyn Cache) -> Result<Tensor> {
        // task 5.8: one product, cut in three, split; append, attend, merge, project back
        // <solution>
        let c = x.dim(2)?;
        let qkv = self.c_attn.forward(x)?; // (B, T, 3 * C)
        let q = split_heads(&qkv.narrow(2, 0, c)?, self.num_heads)?; // (B, H, T, D)
        let k = split_heads(&qkv.narrow(2, c, c)?, self.num_heads)?;
        let v = split_heads(&qkv.narrow(2, 2 * c, c)?, self.num_heads)?;
        let view = cache.append(self.layer_idx, &k, &v)?;
        let out = self.ops.attend(&q, &view, step.mask.as_ref())?;
        self.c_proj.forward(&merge_heads(&out)?)
        // </solution>
    }
}
