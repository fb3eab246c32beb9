//! Day 5: the model. Blocks in a row, from the names in a safetensors file to logits; then GPT-2, as a difference.

use candecode::day01_attention::{merge_heads, split_heads};
use candecode::day02_positions::learned_positions;
use candecode::day03_norms_and_mlps::{gelu_mlp, layer_norm, rms_norm, swiglu, Projection};
use candecode::day04_attention_block::Attention;
use candecode::kit::device::activation_dtype;
use candecode::kit::{attend, linear, Cache, Model, ModelConfig, Step, Weight};
use candle_core::{DType, Device, Result, Tensor};

/// Rows of the embedding table for `ids`, `(B, T)`: `(B, T, C)` in the type of activations.
///
/// # Errors
/// If an id is not below V.
pub fn embed(table: &Weight, ids: &Tensor) -> Result<Tensor> {
    // task 5.1: (B, T) -> (B, T, C), in the type that activation_dtype says
    // <solution>
    let (b, t) = ids.dims2()?;
    let rows = table.tensor().index_select(&ids.flatten_all()?, 0)?;
    let dtype = activation_dtype(rows.dtype(), rows.device());
    rows.to_dtype(dtype)?.reshape((b, t, ()))
    // </solution>
}

/// One block of the Llama stack.
pub struct Block {
    /// Day 4's block.
    pub attention: Attention,
    /// The MLP's three projections.
    pub gate: Projection,
    /// See `gate`.
    pub up: Projection,
    /// See `gate`.
    pub down: Projection,
    /// Weight `(C)` of the norm before the attention.
    pub input_norm: Tensor,
    /// Weight `(C)` of the norm after the attention, before the MLP.
    pub post_attention_norm: Tensor,
    /// Epsilon of the norms.
    pub eps: f64,
}

impl Block {
    /// The first half of a block: norm, attention, and the residual. `(B, T, C)` to `(B, T, C)`.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn attend(&self, x: &Tensor, step: &Step, cache: &mut dyn Cache) -> Result<Tensor> {
        // task 5.2: x + attention(norm(x))
        // <solution>
        let normed = rms_norm(x, &self.input_norm, self.eps)?;
        x + self.attention.forward(&normed, step, cache, attend)?
        // </solution>
    }

    /// The second half: norm, MLP, and the residual. `(B, T, C)` to `(B, T, C)`.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn feed_forward(&self, x: &Tensor) -> Result<Tensor> {
        // task 5.3: x + mlp(norm(x))
        // <solution>
        let normed = rms_norm(x, &self.post_attention_norm, self.eps)?;
        x + swiglu(&normed, &self.gate, &self.up, &self.down)?
        // </solution>
    }
}

/// The Llama stack: Llama, Qwen2 and Qwen3 (HF `LlamaForCausalLM` and its kin).
pub struct Llama {
    /// Sizes, context and special ids.
    pub config: ModelConfig,
    /// Where the weights are.
    pub device: Device,
    /// The embedding table, `(V, C)`.
    pub embed_tokens: Weight,
    /// The blocks, first to last.
    pub blocks: Vec<Block>,
    /// Weight `(C)` of the last norm.
    pub norm: Tensor,
    /// The head, `(V, C)`; None: tied, the embedding table is the head.
    pub lm_head: Option<Weight>,
}

impl Llama {
    /// The last norm and the head: `(B, n, C)` to logits `(B, n, V)`, f32.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn head(&self, x: &Tensor) -> Result<Tensor> {
        // task 5.4: norm, then one score for every token, in f32; a tied head is the embedding table
        // <solution>
        let normed = rms_norm(x, &self.norm, self.config.norm_eps)?;
        let head = self.lm_head.as_ref().unwrap_or(&self.embed_tokens);
        linear(&normed, head, None)?.to_dtype(DType::F32)
        // </solution>
    }
}

impl Model for Llama {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> Result<Tensor> {
        // task 5.5: embed, every block's two halves, step.chosen, head
        // <solution>
        let mut x = embed(&self.embed_tokens, &step.ids)?;
        for block in &self.blocks {
            x = block.attend(&x, step, cache)?;
            x = block.feed_forward(&x)?;
        }
        self.head(&step.chosen(&x)?)
        // </solution>
    }
}

/// A LayerNorm of GPT-2: weight and bias, each `(C)`.
pub type Norm = (Tensor, Tensor);

/// One block of GPT-2.
pub struct Gpt2Block {
    /// Which layer of the stack this is: the cache's index.
    pub layer: usize,
    /// Number of heads.
    pub heads: usize,
    /// The norm before the attention.
    pub ln_1: Norm,
    /// Makes q, k and v at once, `(3 * C, C)`.
    pub c_attn: Projection,
    /// Mixes the heads, `(C, C)`.
    pub c_proj: Projection,
    /// The norm before the MLP.
    pub ln_2: Norm,
    /// The MLP's first projection.
    pub c_fc: Projection,
    /// The MLP's second projection (`mlp.c_proj` in the file).
    pub mlp_proj: Projection,
    /// Epsilon of the norms.
    pub eps: f64,
}

impl Gpt2Block {
    /// Norm, attention, residual. Q, K and V come out of one matrix, in this order. `(B, T, C)` to `(B, T, C)`.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn attend(&self, x: &Tensor, step: &Step, cache: &mut dyn Cache) -> Result<Tensor> {
        // task 5.6: like Block::attend, with one product for q, k and v, and no RoPE
        // <solution>
        let c = x.dim(2)?;
        let normed = layer_norm(x, &self.ln_1.0, &self.ln_1.1, self.eps)?;
        let qkv = linear(&normed, &self.c_attn.weight, self.c_attn.bias.as_ref())?; // (B, T, 3 * C)
        let part = |i: usize| split_heads(&qkv.narrow(2, i * c, c)?, self.heads);
        let mixed = attend(self.layer, &part(0)?, &part(1)?, &part(2)?, step, cache)?;
        x + linear(&merge_heads(&mixed)?, &self.c_proj.weight, self.c_proj.bias.as_ref())?
        // </solution>
    }

    /// Norm, MLP, residual. `(B, T, C)` to `(B, T, C)`.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn feed_forward(&self, x: &Tensor) -> Result<Tensor> {
        // task 5.7: x + gelu_mlp(layer_norm(x))
        // <solution>
        let normed = layer_norm(x, &self.ln_2.0, &self.ln_2.1, self.eps)?;
        x + gelu_mlp(&normed, &self.c_fc, &self.mlp_proj)?
        // </solution>
    }
}

/// GPT-2 (HF `GPT2LMHeadModel`): learned positions, LayerNorm, GELU, a fused QKV, a tied head.
pub struct Gpt2 {
    /// Sizes, context and special ids.
    pub config: ModelConfig,
    /// Where the weights are.
    pub device: Device,
    /// The embedding table, `(V, C)`.
    pub wte: Weight,
    /// The table of positions, `(context, C)`.
    pub wpe: Tensor,
    /// The blocks, first to last.
    pub blocks: Vec<Gpt2Block>,
    /// The last norm.
    pub ln_f: Norm,
}

impl Gpt2 {
    /// Token embeddings plus learned positions: `(B, T)` to `(B, T, C)`.
    ///
    /// # Errors
    /// If an id or a position is out of range.
    pub fn embed(&self, step: &Step) -> Result<Tensor> {
        // task 5.8: the token's row plus the position's row
        // <solution>
        embed(&self.wte, &step.ids)? + learned_positions(&self.wpe, &step.positions)?
        // </solution>
    }

    /// The last norm and the tied head: `(B, n, C)` to logits `(B, n, V)`, f32.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn head(&self, x: &Tensor) -> Result<Tensor> {
        // task 5.9: layer_norm, then the table itself as the head, in f32
        // <solution>
        let normed = layer_norm(x, &self.ln_f.0, &self.ln_f.1, self.config.norm_eps)?;
        linear(&normed, &self.wte, None)?.to_dtype(DType::F32)
        // </solution>
    }
}

impl Model for Gpt2 {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> Result<Tensor> {
        // task 5.10: as Llama's, with GPT-2's parts
        // <solution>
        let mut x = self.embed(step)?;
        for block in &self.blocks {
            x = block.attend(&x, step, cache)?;
            x = block.feed_forward(&x)?;
        }
        self.head(&step.chosen(&x)?)
        // </solution>
    }
}
