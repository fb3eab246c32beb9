//! A model with random weights, generated in memory. The text it generates is noise, but its cost
//! is real, so batches, kernels and quantized weights can be measured on any machine, at any size,
//! without a download.

use anyhow::{bail, Result};
use candecode_kit::weights::TensorSource;
use candecode_kit::{Family, ModelConfig};
use candle_core::{Device, Tensor};
use rayon::prelude::*;
use std::collections::HashMap;

/// The prefix of the names: `random-135m` is a model with 135 million weights.
const PREFIX: &str = "random-";

/// Sizes that a name may ask for, in millions of weights. In the narrowest model, the head alone
/// has 9.4.
const SIZES: std::ops::RangeInclusive<u64> = 10..=100_000;

/// Vocabulary size, as in SmolLM2. With the story models' 2,048 tokens, the head would cost almost
/// nothing.
const VOCAB: usize = 49_152;
const CONTEXT: usize = 8_192;
const HEAD_DIM: usize = 64;

/// Query heads per key/value head.
const GROUP: usize = 3;

/// Standard deviation of the embedding table: transformers' `initializer_range`.
const TABLE_DEVIATION: f64 = 0.02;

/// The embedding table, which is also the output head.
const TABLE: &str = "model.embed_tokens.weight";

/// A Llama-shaped model with random tensors that are the same on every machine.
#[derive(Debug, Clone)]
pub struct RandomModel {
    config: ModelConfig,
    /// Shape of every tensor, by name.
    shapes: HashMap<String, Vec<usize>>,
}

impl RandomModel {
    /// Returns the model with this name. None if the name doesn't have the prefix, or is a path or
    /// a repository.
    ///
    /// # Errors
    /// If the name has the prefix but no valid size.
    pub fn named(name: &str) -> Result<Option<Self>> {
        let Some(rest) = name.strip_prefix(PREFIX) else { return Ok(None) };
        if rest.contains(['/', '\\']) || rest.ends_with(".gguf") {
            return Ok(None);
        }
        let digits = rest.strip_suffix('m').filter(|n| n.bytes().all(|byte| byte.is_ascii_digit()));
        match digits.and_then(|digits| digits.parse().ok()).filter(|n| SIZES.contains(n)) {
            Some(millions) => Ok(Some(Self::of_size(millions))),
            None => bail!(
                "{name}: a model with random weights is called {PREFIX}<N>m, for N million \
                 weights, from {PREFIX}{}m to {PREFIX}{}m; {PREFIX}135m is one",
                SIZES.start(),
                SIZES.end()
            ),
        }
    }

    /// Returns a model of about this many million weights, in the proportions of SmolLM2.
    /// `random-135m` has exactly the shape of SmolLM2-135M.
    fn of_size(millions: u64) -> Self {
        let wanted = millions as f64 * 1e6;
        let mut best: Option<(f64, ModelConfig)> = None;
        for kv_heads in 1.. {
            let one_layer = config_of(kv_heads, 1);
            let head = (VOCAB * one_layer.hidden_size) as f64;
            let layers = ((wanted - head) / (one_layer.size() as f64 - head)).round();
            if layers < 1.0 {
                break;
            }
            // SmolLM2-135M has ten layers per key/value head.
            let proportion = (layers / (10.0 * kv_heads as f64)).ln().abs();
            if best.as_ref().is_none_or(|(least, _)| proportion < *least) {
                best = Some((proportion, config_of(kv_heads, layers as usize)));
            }
        }
        let config = best.map_or(config_of(1, 1), |(_, config)| config);
        let shapes = shapes_of(&config);
        Self { config, shapes }
    }

    /// Returns the model's configuration.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }
}

fn config_of(kv_heads: usize, layers: usize) -> ModelConfig {
    let heads = GROUP * kv_heads;
    let hidden = heads * HEAD_DIM;
    ModelConfig {
        family: Family::Llama,
        vocab_size: VOCAB,
        hidden_size: hidden,
        intermediate_size: hidden / 3 * 8,
        num_hidden_layers: layers,
        num_attention_heads: heads,
        num_key_value_heads: kv_heads,
        head_dim: HEAD_DIM,
        max_position_embeddings: CONTEXT,
        norm_eps: 1e-5,
        rope_theta: 10_000.0,
        rope_scaling: None,
        tie_word_embeddings: true,
        qkv_bias: false,
        output_bias: false,
        mlp_bias: false,
        eos_token_ids: Vec::new(), // no early end
    }
}

/// Returns the tensors of a Llama with a tied head, under their Hugging Face names.
fn shapes_of(config: &ModelConfig) -> HashMap<String, Vec<usize>> {
    let (c, inner) = (config.hidden_size, config.intermediate_size);
    let q = config.num_attention_heads * config.head_dim;
    let kv = config.num_key_value_heads * config.head_dim;
    let mut shapes = HashMap::new();
    shapes.insert(TABLE.to_string(), vec![config.vocab_size, c]);
    shapes.insert("model.norm.weight".to_string(), vec![c]);
    for layer in 0..config.num_hidden_layers {
        for (name, shape) in [
            ("input_layernorm", vec![c]),
            ("self_attn.q_proj", vec![q, c]),
            ("self_attn.k_proj", vec![kv, c]),
            ("self_attn.v_proj", vec![kv, c]),
            ("self_attn.o_proj", vec![c, q]),
            ("post_attention_layernorm", vec![c]),
            ("mlp.gate_proj", vec![inner, c]),
            ("mlp.up_proj", vec![inner, c]),
            ("mlp.down_proj", vec![c, inner]),
        ] {
            shapes.insert(format!("model.layers.{layer}.{name}.weight"), shape);
        }
    }
    shapes
}

impl TensorSource for RandomModel {
    fn find(&self, name: &str) -> Option<String> {
        self.shapes.contains_key(name).then(|| name.to_string())
    }

    fn load(&self, stored: &str, device: &Device) -> candle_core::Result<Tensor> {
        let Some(shape) = self.shapes.get(stored) else {
            candle_core::bail!("there is no tensor {stored}")
        };
        let mut numbers = vec![1f32; shape.iter().product()]; // norm weights
        if let [_, inner] = shape[..] {
            // This scale makes a product's outputs about as large as its inputs. With smaller
            // weights, the layers would change little, and the same token would be chosen again and
            // again.
            let deviation = match stored {
                TABLE => TABLE_DEVIATION,
                _ => 1.0 / (inner as f64).sqrt(),
            };
            fill(&mut numbers, deviation, seed_of(stored));
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

/// Returns a tensor's seed: its hashed name (FNV-1a).
pub(crate) fn seed_of(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Fills a slice with uniformly distributed values of mean 0 and the given standard deviation.
/// Value `i` depends only on the seed and `i`, so threads can share the work.
pub(crate) fn fill(numbers: &mut [f32], deviation: f64, seed: u64) {
    const CHUNK: usize = 1 << 16;
    let scale = (2.0 * deviation * 3f64.sqrt() / f64::from(1u32 << 24)) as f32;
    numbers.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, part)| {
        for (i, number) in part.iter_mut().enumerate() {
            let bits = (split_mix((chunk * CHUNK + i) as u64, seed) >> 40) as i32; // 24 bits
            *number = (bits - (1 << 23)) as f32 * scale;
        }
    });
}

/// Returns the `i`-th value of SplitMix64 (Steele, Lea and Flood 2014) for a seed.
fn split_mix(i: u64, seed: u64) -> u64 {
    let mut z = seed.wrapping_add((i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
