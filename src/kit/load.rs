//! From the names in a safetensors file to the structs of days 4 and 5. With this, a model's folder becomes a [`Model`].

use crate::day02_positions::Rope;
use crate::day03_norms_and_mlps::Projection;
use crate::day04_attention_block::Attention;
use crate::day05_model::{Block, Gpt2, Gpt2Block, Llama, Norm};
use crate::kit::{Family, Model, ModelConfig, Weights};
use candle_core::{DType, Device, Result, Tensor};
use std::path::Path;

/// Loads the model of a folder in Hugging Face format; `dtype` is the type of its weights in memory.
///
/// # Errors
/// If the configuration makes no sense, a file is damaged, or a tensor is missing or of another shape.
pub fn load_model(dir: &Path, dtype: DType, device: &Device) -> anyhow::Result<Box<dyn Model>> {
    let config = ModelConfig::from_dir(dir)?;
    let weights = Weights::open(dir, dtype, device)?;
    let named = |e: candle_core::Error| {
        anyhow::anyhow!("{}: {}", dir.display(), crate::kit::report::plain(&e))
    };
    Ok(match config.family {
        Family::Gpt2 => Box::new(gpt2(&weights, config).map_err(named)?),
        _ => Box::new(llama(&weights, config).map_err(named)?),
    })
}

/// The Llama stack.
///
/// # Errors
/// If a tensor is missing or of another shape.
pub fn llama(w: &Weights, config: ModelConfig) -> Result<Llama> {
    let (v, c) = (config.vocab_size, config.hidden_size);
    let lm_head = match config.tie_word_embeddings {
        true => None,
        false => Some(w.matrix("lm_head.weight", v, c)?),
    };
    let blocks = (0..config.num_hidden_layers).map(|layer| llama_block(w, &config, layer));
    Ok(Llama {
        device: w.device().clone(),
        embed_tokens: w.matrix("model.embed_tokens.weight", v, c)?,
        blocks: blocks.collect::<Result<_>>()?,
        norm: w.tensor("model.norm.weight", &[c])?,
        lm_head,
        config,
    })
}

fn llama_block(w: &Weights, config: &ModelConfig, layer: usize) -> Result<Block> {
    let (c, inner) = (config.hidden_size, config.intermediate_size);
    let at = |name: &str| format!("model.layers.{layer}.{name}");
    Ok(Block {
        attention: llama_attention(w, config, layer)?,
        gate: projection(w, &at("mlp.gate_proj"), inner, c, config.mlp_bias)?,
        up: projection(w, &at("mlp.up_proj"), inner, c, config.mlp_bias)?,
        down: projection(w, &at("mlp.down_proj"), c, inner, config.mlp_bias)?,
        input_norm: w.tensor(&at("input_layernorm.weight"), &[c])?,
        post_attention_norm: w.tensor(&at("post_attention_layernorm.weight"), &[c])?,
        eps: config.norm_eps,
    })
}

/// The attention of one layer; Qwen3 has norms on q and k, Qwen2 has biases.
///
/// # Errors
/// If a tensor is missing or of another shape.
pub fn llama_attention(w: &Weights, config: &ModelConfig, layer: usize) -> Result<Attention> {
    let (c, d) = (config.hidden_size, config.head_dim);
    let (q, kv) = (config.num_attention_heads * d, config.num_key_value_heads * d);
    let at = |name: &str| format!("model.layers.{layer}.self_attn.{name}");
    let qk_norm = match config.family {
        Family::Qwen3 => {
            Some((w.tensor(&at("q_norm.weight"), &[d])?, w.tensor(&at("k_norm.weight"), &[d])?))
        }
        _ => None,
    };
    Ok(Attention {
        layer,
        num_heads: config.num_attention_heads,
        num_kv_heads: config.num_key_value_heads,
        q_proj: projection(w, &at("q_proj"), q, c, config.qkv_bias)?,
        k_proj: projection(w, &at("k_proj"), kv, c, config.qkv_bias)?,
        v_proj: projection(w, &at("v_proj"), kv, c, config.qkv_bias)?,
        o_proj: projection(w, &at("o_proj"), c, q, config.output_bias)?,
        qk_norm,
        norm_eps: config.norm_eps,
        rope: Rope::new(d, config.rope_theta, config.rope_scaling, w.device())?,
    })
}

fn projection(w: &Weights, name: &str, out: usize, inner: usize, bias: bool) -> Result<Projection> {
    let weight = w.matrix(&format!("{name}.weight"), out, inner)?;
    let bias = match bias {
        true => Some(w.tensor(&format!("{name}.bias"), &[out])?),
        false => None,
    };
    Ok(Projection { weight, bias })
}

/// GPT-2. Its `Conv1D` stores `(in, out)`: every matrix is transposed here.
///
/// # Errors
/// If a tensor is missing or of another shape.
pub fn gpt2(w: &Weights, config: ModelConfig) -> Result<Gpt2> {
    let (v, c) = (config.vocab_size, config.hidden_size);
    let blocks = (0..config.num_hidden_layers).map(|layer| gpt2_block(w, &config, layer));
    Ok(Gpt2 {
        device: w.device().clone(),
        wte: w.matrix("transformer.wte.weight", v, c)?,
        wpe: w.tensor("transformer.wpe.weight", &[config.max_position_embeddings, c])?,
        blocks: blocks.collect::<Result<_>>()?,
        ln_f: layer_norm(w, "transformer.ln_f", c)?,
        config,
    })
}

fn gpt2_block(w: &Weights, config: &ModelConfig, layer: usize) -> Result<Gpt2Block> {
    let (c, inner) = (config.hidden_size, config.intermediate_size);
    let at = |name: &str| format!("transformer.h.{layer}.{name}");
    let conv = |name: &str, out: usize, inner: usize| -> Result<Projection> {
        let weight = w.transposed(&at(&format!("{name}.weight")), out, inner)?;
        let bias = Some(w.tensor(&at(&format!("{name}.bias")), &[out])?);
        Ok(Projection { weight, bias })
    };
    Ok(Gpt2Block {
        layer,
        heads: config.num_attention_heads,
        ln_1: layer_norm(w, &at("ln_1"), c)?,
        c_attn: conv("attn.c_attn", 3 * c, c)?,
        c_proj: conv("attn.c_proj", c, c)?,
        ln_2: layer_norm(w, &at("ln_2"), c)?,
        c_fc: conv("mlp.c_fc", inner, c)?,
        mlp_proj: conv("mlp.c_proj", c, inner)?,
        eps: config.norm_eps,
    })
}

fn layer_norm(w: &Weights, name: &str, width: usize) -> Result<Norm> {
    let part = |part: &str| -> Result<Tensor> { w.tensor(&format!("{name}.{part}"), &[width]) };
    Ok((part("weight")?, part("bias")?))
}
