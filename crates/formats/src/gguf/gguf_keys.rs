//! Classifies the keys in a GGUF file's metadata: read, without effect here, or allowed only with a
//! neutral value.
//!
//! Keys of the architecture (`llama.…`) describe the computation. One that isn't listed here, known
//! or not, is rejected unless its value is 0, false or empty, because it could change the output.
//! The list follows llama.cpp's `llama-arch.cpp` and its graphs for these four architectures.

use crate::gguf::gguf_file::Gguf;
use anyhow::{ensure, Result};
use candecode_kit::error::{quoted, shown};
use candle_core::quantized::gguf_file::Value;

/// Keys that the configuration is built from or checked against.
const READ: &[&str] = &[
    "context_length",
    "embedding_length",
    "block_count",
    "feed_forward_length",
    "expert_count",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",
    "attention.scale",
    "attention.sliding_window",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scale_linear",
];

/// Keys that have no effect here, whatever their value.
const WITHOUT_EFFECT: &[&str] = &[
    "vocab_size",         // known from the embedding table
    "tensor_data_layout", // the converter's row order, which is the same in every file
    "pooling_type",       // for embeddings
    "classifier.output_labels",
    "classifier.pooling_type",
    // For mixtures of experts. These models aren't: their expert_count is 0.
    "leading_dense_block_count",
    "expert_feed_forward_length",
    "expert_shared_feed_forward_length",
    "expert_chunk_feed_forward_length",
    "expert_used_count",
    "expert_shared_count",
    "expert_group_count",
    "expert_group_used_count",
    "expert_weights_scale",
    "expert_weights_norm",
    "expert_gating_func",
    "expert_group_scale",
    "experts_per_group",
    "moe_every_n_layers",
    "interleave_moe_layer_step",
    "router_logit_softcapping",
    // For layers with a sliding window, which these models don't have.
    "attention.sliding_window_pattern",
    "attention.key_length_swa",
    "attention.value_length_swa",
    "rope.dimension_count_swa",
    "rope.freq_base_swa",
    // For YaRN, which needs rope.scaling.type to turn it on, or for information only.
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    "rope.scaling.yarn_log_multiplier",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
];

/// Keys with neutral values. For every other key, the neutral values are 0, false and empty.
const NEUTRAL: &[(&str, &[f64])] = &[
    ("attention.causal", &[1.0]),
    ("attention.output_scale", &[0.0, 1.0]),
    ("attention.value_scale", &[0.0, 1.0]),
    ("embedding_scale", &[0.0, 1.0]),
    ("logit_scale", &[0.0, 1.0]),
    ("residual_scale", &[0.0, 1.0]),
    ("rope.scaling.alpha", &[0.0, 1.0]),
    ("rope.scaling.attn_factor", &[1.0]),
    ("rope.scaling.yarn_attn_factor", &[-1.0, 1.0]), // -1: not set
    ("rope.scaling.yarn_ext_factor", &[-1.0, 0.0]),
];

/// Checks that the metadata doesn't ask for anything that day 5's model doesn't compute.
///
/// # Errors
/// If the metadata does. The message names the key and its value.
pub fn check(gguf: &Gguf) -> Result<()> {
    let kind = gguf.text("general.type").unwrap_or("model");
    ensure!(kind == "model", "general.type is {}; candecode runs whole models", quoted(kind));
    let version = gguf.number("general.quantization_version").unwrap_or(2);
    ensure!(
        version == 2 || gguf.quantized_types().is_empty(),
        "general.quantization_version is {version}; candecode reads version 2"
    );
    let mut keys: Vec<(&String, &Value)> = gguf.content.metadata.iter().collect();
    keys.sort_by_key(|(key, _)| *key);
    for (key, value) in keys {
        let architecture = gguf.architecture();
        let name = key.strip_prefix(architecture).and_then(|rest| rest.strip_prefix('.'));
        let Some(name) = name.or(Some(key.as_str()).filter(|key| of_another_model(key))) else {
            continue;
        };
        let rope_of_gpt2 = architecture == "gpt2" && name.starts_with("rope.");
        if rope_of_gpt2 || READ.contains(&name) || WITHOUT_EFFECT.contains(&name) {
            continue;
        }
        let neutral = NEUTRAL.iter().find(|(key, _)| *key == name);
        let neutral = neutral.map_or(&[0.0][..], |(_, values)| values);
        ensure!(
            is_neutral(value, neutral),
            "{} is {}; candecode doesn't implement it",
            shown(key),
            text(value)
        );
    }
    Ok(())
}

/// Returns true for keys that only other kinds of models have: adapters, image encoders, diffusion
/// models, and Apertus' activation.
fn of_another_model(key: &str) -> bool {
    ["adapter.", "clip.", "diffusion.", "xielu."].iter().any(|start| key.starts_with(start))
}

fn is_neutral(value: &Value, neutral: &[f64]) -> bool {
    match value {
        Value::Array(values) => values.iter().all(|value| is_neutral(value, neutral)),
        Value::String(text) => text.is_empty(),
        Value::Bool(flag) => neutral.contains(&f64::from(u8::from(*flag))),
        other => number(other).is_some_and(|n| neutral.contains(&n)),
    }
}

/// Returns a number of any type. An f32 is read as the shortest decimal that rounds to it: 1e-5,
/// not 0.00000999999975.
pub fn number(value: &Value) -> Option<f64> {
    Some(match value {
        Value::I8(n) => f64::from(*n),
        Value::I16(n) => f64::from(*n),
        Value::I32(n) => f64::from(*n),
        Value::I64(n) => *n as f64,
        Value::U8(n) => f64::from(*n),
        Value::U16(n) => f64::from(*n),
        Value::U32(n) => f64::from(*n),
        Value::U64(n) => *n as f64,
        Value::F32(n) => n.to_string().parse().ok()?,
        Value::F64(n) => *n,
        Value::Bool(_) | Value::String(_) | Value::Array(_) => return None,
    })
}

/// Formats a value for a message.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Bool(flag) => flag.to_string(),
        Value::Array(values) => {
            let first: Vec<String> = values.iter().take(8).map(text).collect();
            let more = if values.len() > first.len() { ", …" } else { "" };
            shown(format_args!("[{}{more}]", first.join(", ")))
        }
        other => number(other).map_or(String::new(), |n| n.to_string()),
    }
}
