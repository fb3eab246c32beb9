//! `story-135m`: a model that computes the same function as `story-3m`, at the cost of 135 million
//! weights. Its stories are as good as `story-3m`'s, and no better; its time and memory are those
//! of a model of its size, so what batches, drafts, pages and a server gain can be seen on a clock,
//! with text that one can read.
//!
//! In every dimension, what `story-3m` has comes first:
//!
//! - The embedding table is zero in the added columns, and so are the added rows of the two
//!   projections that write into a state. So a state's added values are zero, always.
//! - A norm then sees the same squares among four times as many values: the mean is a quarter, and
//!   with a quarter of epsilon, the root is exactly half. Norm weights are halved to make up for
//!   it.
//! - Zeros also keep what the added heads, MLP rows and layers compute out of the states. Their
//!   other weights are random, so that the processor has the work of a real model. They are finite
//!   in f16, too: 0 times infinity would be NaN.
//!
//! A power of two changes no digit, and zeros add nothing to a sum. So logits are the same to the
//! bit wherever a kernel sums the added values last or apart. Rows of `story-3m` are whole blocks
//! of 32, so that's also true of quantized weights.

use crate::random_model::{fill, seed_of};
use candecode_kit::weights::TensorSource;
use candecode_kit::ModelConfig;
use candle_core::{bail, DType, Device, Result, Tensor};
use std::collections::HashMap;
use std::sync::Arc;

/// The widened model's name.
pub const WIDENED: &str = "story-135m";

/// How many times as wide it is: hidden size, heads, key/value heads and MLP. A head's width stays,
/// because RoPE and the scale of attention depend on it.
const TIMES: usize = 4;

/// Its layers. `story-3m` has six.
const LAYERS: usize = 21;

/// Standard deviation of the random weights: transformers' `initializer_range`.
const DEVIATION: f64 = 0.02;

/// The tensors of the widened model, made from those of the model inside.
pub struct WidenedModel {
    /// Shape of every tensor, by name.
    shapes: HashMap<String, Vec<usize>>,
    inner: Arc<dyn TensorSource>,
}

impl WidenedModel {
    /// Widens a Qwen2 model with a tied head, given its configuration and its tensors.
    pub fn new(config: &ModelConfig, inner: Arc<dyn TensorSource>) -> Self {
        Self { shapes: shapes_of(&Self::widened(config)), inner }
    }

    /// Returns the widened model's configuration, given that of the model inside.
    pub fn widened(config: &ModelConfig) -> ModelConfig {
        ModelConfig {
            hidden_size: TIMES * config.hidden_size,
            intermediate_size: TIMES * config.intermediate_size,
            num_hidden_layers: LAYERS,
            num_attention_heads: TIMES * config.num_attention_heads,
            num_key_value_heads: TIMES * config.num_key_value_heads,
            norm_eps: config.norm_eps / TIMES as f64,
            ..config.clone()
        }
    }
}

/// Returns the tensors of a Qwen2 with a tied head, under their Hugging Face names.
fn shapes_of(config: &ModelConfig) -> HashMap<String, Vec<usize>> {
    let (c, inner) = (config.hidden_size, config.intermediate_size);
    let q = config.num_attention_heads * config.head_dim;
    let kv = config.num_key_value_heads * config.head_dim;
    let mut shapes = HashMap::from([
        ("model.embed_tokens.weight".to_string(), vec![config.vocab_size, c]),
        ("model.norm.weight".to_string(), vec![c]),
    ]);
    for layer in 0..config.num_hidden_layers {
        for (name, shape) in [
            ("input_layernorm.weight", vec![c]),
            ("self_attn.q_proj.weight", vec![q, c]),
            ("self_attn.q_proj.bias", vec![q]),
            ("self_attn.k_proj.weight", vec![kv, c]),
            ("self_attn.k_proj.bias", vec![kv]),
            ("self_attn.v_proj.weight", vec![kv, c]),
            ("self_attn.v_proj.bias", vec![kv]),
            ("self_attn.o_proj.weight", vec![c, q]),
            ("post_attention_layernorm.weight", vec![c]),
            ("mlp.gate_proj.weight", vec![inner, c]),
            ("mlp.up_proj.weight", vec![inner, c]),
            ("mlp.down_proj.weight", vec![c, inner]),
        ] {
            shapes.insert(format!("model.layers.{layer}.{name}"), shape);
        }
    }
    shapes
}

/// Fills the numbers of an added part before the model's own are copied in.
fn fill_added(name: &str, numbers: &mut [f32]) {
    // Zeros are written over random numbers. Memory that the allocator returns zeroed is one
    // shared page, which stays in the processor's cache, so reading it would be too fast for a
    // real weight.
    fill(numbers, DEVIATION, seed_of(name));
    let writes_into_states = ["embed_tokens.", "o_proj.", "down_proj."];
    if name.contains("norm.") {
        numbers.fill(1.0);
    } else if writes_into_states.iter().any(|part| name.contains(part)) {
        numbers.fill(0.0);
    }
}

impl TensorSource for WidenedModel {
    fn find(&self, name: &str) -> Option<String> {
        self.shapes.contains_key(name).then(|| name.to_string())
    }

    fn load(&self, stored: &str, device: &Device) -> Result<Tensor> {
        let Some(shape) = self.shapes.get(stored) else { bail!("there is no tensor {stored}") };
        let mut numbers = vec![0f32; shape.iter().product()];
        fill_added(stored, &mut numbers);
        if let Some(own) = self.inner.find(stored) {
            let own = self.inner.load(&own, &Device::Cpu)?.to_dtype(DType::F32)?;
            let Some(width) = own.dims().last().copied() else { bail!("{stored} has no width") };
            // Norm weights make up for a mean over more values; see the top of this file.
            let factor = if stored.contains("norm.") { (TIMES as f32).sqrt().recip() } else { 1.0 };
            let own = own.affine(f64::from(factor), 0.0)?.flatten_all()?.to_vec1::<f32>()?;
            let rows = numbers.chunks_mut(shape.last().copied().unwrap_or(1));
            for (row, own) in rows.zip(own.chunks(width)) {
                row[..width].copy_from_slice(own);
            }
        }
        Tensor::from_vec(numbers, shape.as_slice(), device)
    }

    fn names(&self) -> Vec<String> {
        self.shapes.keys().cloned().collect()
    }

    fn config_name(&self) -> &'static str {
        "the configuration"
    }
}
