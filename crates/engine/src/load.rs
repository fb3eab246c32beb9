//! Maps the tensor names in a safetensors file to the structs of days 4 and 5, turning a model's
//! folder into a [`Model`].

use crate::{extras, operations};
use candecode::day02_positions::RotaryEmbedding;
use candecode::day03_norms_and_mlps::Projection;
use candecode::day04_attention_block::Attention;
use candecode::day05_model::{DecoderLayer, FusedAttention, Mlp, Norm, SelfAttention, Transformer};
use candecode::day19_quantized_weights::quantize_row;
use candecode::kit::error::plain;
use candecode::kit::{
    Family, Model, ModelConfig, QuantType, QuantizedMatrix, SharedOps, Weight, WeightFormat,
    Weights,
};
use candecode_formats::ModelFiles;
use candle_core::{bail, DType, Device, Result, Tensor};
use rayon::prelude::*;
use std::path::Path;

/// Loads a model from a folder in Hugging Face format or a GGUF file, with plain operations, so the
/// days' own code does all the computing. `format` is how to store the matrices in memory; a dtype
/// converts into one.
///
/// # Errors
/// If the configuration is invalid, a file is damaged, or a tensor is missing or has the wrong
/// shape.
pub fn load_model(
    path: &Path,
    format: impl Into<WeightFormat>,
    device: &Device,
) -> anyhow::Result<Box<dyn Model>> {
    Ok(Box::new(load_transformer(path, format, device, &operations::plain())?))
}

/// Same as [`load_model`], with these operations, and returns the concrete type.
///
/// # Errors
/// Same as [`load_model`].
pub fn load_transformer(
    path: &Path,
    format: impl Into<WeightFormat>,
    device: &Device,
    ops: &SharedOps,
) -> anyhow::Result<Transformer> {
    load_files(&ModelFiles::at(path)?, format, device, ops)
}

/// Same as [`load_transformer`], for files that are already open.
///
/// # Errors
/// Same as [`load_model`].
pub fn load_files(
    files: &ModelFiles,
    format: impl Into<WeightFormat>,
    device: &Device,
    ops: &SharedOps,
) -> anyhow::Result<Transformer> {
    let format = format.into();
    check_extras(files, format, ops)?;
    let weights = files.weights(format, device)?.in_tiles(ops.reads_tiles());
    build(files.config().clone(), &weights, ops).map_err(|error| {
        anyhow::anyhow!("{}: {}", files.path().display(), candecode::kit::error::plain(&error))
    })
}

/// Refuses a model that needs a task beyond the core of its day, if that isn't written.
fn check_extras(files: &ModelFiles, format: WeightFormat, ops: &SharedOps) -> anyhow::Result<()> {
    if files.config().family == Family::Gpt2 {
        extras::check("a GPT-2 model", || extras::gpt2(ops))?;
    }
    let has_minimums = files.quantized_types().iter().any(|(name, _)| name == "Q4_1");
    let as_stored = matches!(format, WeightFormat::AsStored);
    if has_minimums && as_stored && !ops.reads_tiles() {
        extras::check("a model with Q4_1 weights", extras::q4_1)?;
    }
    Ok(())
}

/// Reads the weight of a model's last norm, `(C)`, on the CPU, and nothing else.
///
/// # Errors
/// If the weights can't be opened, or this tensor is missing or has the wrong shape.
pub fn last_norm(files: &ModelFiles) -> anyhow::Result<Tensor> {
    let name = match files.config().family {
        Family::Gpt2 => "transformer.ln_f.weight",
        _ => "model.norm.weight",
    };
    let weights = files.weights(DType::F32, &Device::Cpu)?;
    weights.tensor(name, &[files.config().hidden_size]).map_err(|error| {
        anyhow::anyhow!("{}: {}", files.path().display(), candecode::kit::error::plain(&error))
    })
}

/// Returns the default format of a model's matrices in memory: quantized if that is how they are
/// stored, otherwise f32.
pub fn own_format(files: &ModelFiles, device: &Device) -> WeightFormat {
    let can_stay = files.quantized_types().iter().any(|(_, can_stay)| *can_stay);
    if can_stay && device.is_cpu() {
        WeightFormat::AsStored
    } else {
        WeightFormat::Tensors(DType::F32)
    }
}

/// Quantizes weights with day 19's code as they are loaded. Rows are independent, so threads share
/// the work.
pub fn quantized_format(kind: QuantType) -> WeightFormat {
    WeightFormat::Quantized(kind, |kind, matrix| {
        let (out, inner) = matrix.dims2()?;
        if !inner.is_multiple_of(kind.block_size()) {
            let size = kind.block_size();
            bail!(
                "a row has {inner} numbers, which isn't a multiple of {kind}'s block size, {size}"
            )
        }
        let rows = matrix.to_vec2::<f32>()?;
        let blocks = rows.par_iter().enumerate().map(|(at, row)| match quantize_row(kind, row) {
            Ok(blocks) => Ok(blocks),
            Err(error) => bail!("row {at}: {}", plain(&error)),
        });
        let blocks = blocks.collect::<Result<Vec<_>>>()?;
        QuantizedMatrix::new(kind, out, inner, blocks.concat())
    })
}

/// Builds a model from its parts, wherever they come from.
///
/// # Errors
/// If a tensor is missing or has the wrong shape, or layers in the file would go unused.
pub fn build(mut config: ModelConfig, weights: &Weights, ops: &SharedOps) -> Result<Transformer> {
    config.tie_word_embeddings = config.tie_word_embeddings && !has_its_own_head(weights, &config)?;
    let model = match config.family {
        Family::Gpt2 => gpt2(weights, config, ops)?,
        _ => llama(weights, config, ops)?,
    };
    weights.check_all_were_loaded()?;
    Ok(model)
}

/// Builds the layer stack of Llama, Qwen2 and Qwen3.
///
/// # Errors
/// If a tensor is missing or has the wrong shape.
pub fn llama(w: &Weights, config: ModelConfig, ops: &SharedOps) -> Result<Transformer> {
    let layers = (0..config.num_hidden_layers).map(|layer| llama_layer(w, &config, layer, ops));
    let rotary_emb =
        RotaryEmbedding::new(config.head_dim, config.rope_theta, config.rope_scaling, w.device())?;
    Ok(Transformer {
        device: w.device().clone(),
        embed_tokens: embeddings(w, &config, "model.embed_tokens.weight")?,
        wpe: None,
        rotary_emb: Some(rotary_emb),
        layers: layers.collect::<Result<_>>()?,
        norm: rms_norm(w, &config, "model.norm.weight", ops)?,
        lm_head: lm_head(w, &config)?,
        ops: ops.clone(),
        config,
    })
}

const HEAD: &str = "lm_head.weight";

/// Returns true if the weights have a head that differs from the embedding table. It is then used,
/// whatever `tie_word_embeddings` says (HF `tie_weights`).
fn has_its_own_head(w: &Weights, config: &ModelConfig) -> Result<bool> {
    let table = match config.family {
        Family::Gpt2 => "transformer.wte.weight",
        _ => "model.embed_tokens.weight",
    };
    w.differ(table, HEAD, &[config.vocab_size, config.hidden_size])
}

/// Returns the embedding table. In a tied model it is also the head, and a file may store it only
/// under the head's name.
fn embeddings(w: &Weights, config: &ModelConfig, name: &str) -> Result<Weight> {
    let under_the_head = config.tie_word_embeddings && !w.has(name) && w.has(HEAD);
    let name = if under_the_head { HEAD } else { name };
    if config.tie_word_embeddings {
        return w.tied_head(name, config.vocab_size, config.hidden_size);
    }
    w.matrix(name, config.vocab_size, config.hidden_size)
}

/// Returns a separate head. None: tied, so the embedding table is the head.
fn lm_head(w: &Weights, config: &ModelConfig) -> Result<Option<Weight>> {
    if config.tie_word_embeddings {
        return Ok(None);
    }
    w.matrix(HEAD, config.vocab_size, config.hidden_size).map(Some)
}

// ANCHOR: layer
fn llama_layer(
    w: &Weights,
    config: &ModelConfig,
    layer: usize,
    ops: &SharedOps,
) -> Result<DecoderLayer> {
    let (c, inner) = (config.hidden_size, config.intermediate_size);
    let at = |name: &str| format!("model.layers.{layer}.{name}");
    let bias = config.mlp_bias;
    Ok(DecoderLayer {
        attention_norm: rms_norm(w, config, &at("input_layernorm.weight"), ops)?,
        attention: SelfAttention::Grouped(llama_attention(w, config, layer, ops)?),
        mlp_norm: rms_norm(w, config, &at("post_attention_layernorm.weight"), ops)?,
        mlp: Mlp::Swiglu {
            gate_proj: projection(w, &at("mlp.gate_proj"), inner, c, bias, ops)?,
            up_proj: projection(w, &at("mlp.up_proj"), inner, c, bias, ops)?,
            down_proj: projection(w, &at("mlp.down_proj"), c, inner, bias, ops)?,
        },
    })
}
// ANCHOR_END: layer

/// Builds one layer's attention. Qwen3 has norms on q and k; Qwen2 has biases.
///
/// # Errors
/// If a tensor is missing or has the wrong shape.
pub fn llama_attention(
    w: &Weights,
    config: &ModelConfig,
    layer: usize,
    ops: &SharedOps,
) -> Result<Attention> {
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
        layer_idx: layer,
        num_heads: config.num_attention_heads,
        num_kv_heads: config.num_key_value_heads,
        q_proj: projection(w, &at("q_proj"), q, c, config.qkv_bias, ops)?,
        k_proj: projection(w, &at("k_proj"), kv, c, config.qkv_bias, ops)?,
        v_proj: projection(w, &at("v_proj"), kv, c, config.qkv_bias, ops)?,
        o_proj: projection(w, &at("o_proj"), c, q, config.output_bias, ops)?,
        qk_norm,
        norm_eps: config.norm_eps,
        ops: ops.clone(),
    })
}

fn projection(
    w: &Weights,
    name: &str,
    out: usize,
    inner: usize,
    bias: bool,
    ops: &SharedOps,
) -> Result<Projection> {
    let weight = w.matrix(&format!("{name}.weight"), out, inner)?;
    let bias = if bias { Some(w.tensor(&format!("{name}.bias"), &[out])?) } else { None };
    Ok(Projection { weight, bias, ops: ops.clone() })
}

/// Builds GPT-2. Its `Conv1D` stores `(in, out)`, so every matrix is transposed here.
///
/// # Errors
/// If a tensor is missing or has the wrong shape.
pub fn gpt2(w: &Weights, config: ModelConfig, ops: &SharedOps) -> Result<Transformer> {
    let c = config.hidden_size;
    let layers = (0..config.num_hidden_layers).map(|layer| gpt2_layer(w, &config, layer, ops));
    Ok(Transformer {
        device: w.device().clone(),
        embed_tokens: embeddings(w, &config, "transformer.wte.weight")?,
        wpe: Some(w.tensor("transformer.wpe.weight", &[config.max_position_embeddings, c])?),
        rotary_emb: None,
        layers: layers.collect::<Result<_>>()?,
        norm: layer_norm(w, &config, "transformer.ln_f", ops)?,
        lm_head: lm_head(w, &config)?,
        ops: ops.clone(),
        config,
    })
}

fn gpt2_layer(
    w: &Weights,
    config: &ModelConfig,
    layer: usize,
    ops: &SharedOps,
) -> Result<DecoderLayer> {
    let (c, inner) = (config.hidden_size, config.intermediate_size);
    let at = |name: &str| format!("transformer.h.{layer}.{name}");
    let conv = |name: &str, out: usize, inner: usize| -> Result<Projection> {
        let weight = w.transposed(&at(&format!("{name}.weight")), out, inner)?;
        let bias = Some(w.tensor(&at(&format!("{name}.bias")), &[out])?);
        Ok(Projection { weight, bias, ops: ops.clone() })
    };
    Ok(DecoderLayer {
        attention_norm: layer_norm(w, config, &at("ln_1"), ops)?,
        attention: SelfAttention::Fused(FusedAttention {
            layer_idx: layer,
            num_heads: config.num_attention_heads,
            c_attn: conv("attn.c_attn", 3 * c, c)?,
            c_proj: conv("attn.c_proj", c, c)?,
            ops: ops.clone(),
        }),
        mlp_norm: layer_norm(w, config, &at("ln_2"), ops)?,
        mlp: Mlp::Gelu { c_fc: conv("mlp.c_fc", inner, c)?, c_proj: conv("mlp.c_proj", c, inner)? },
    })
}

fn rms_norm(w: &Weights, config: &ModelConfig, name: &str, ops: &SharedOps) -> Result<Norm> {
    let weight = w.tensor(name, &[config.hidden_size])?;
    Ok(Norm::Rms { weight, eps: config.norm_eps, ops: ops.clone() })
}

fn layer_norm(w: &Weights, config: &ModelConfig, name: &str, ops: &SharedOps) -> Result<Norm> {
    let part = |part: &str| w.tensor(&format!("{name}.{part}"), &[config.hidden_size]);
    let (weight, bias) = (part("weight")?, part("bias")?);
    Ok(Norm::Layer { weight, bias, eps: config.norm_eps, ops: ops.clone() })
}
