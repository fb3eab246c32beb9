//! The keys in a GGUF file's metadata that change what a model computes, and must have a value that
//! changes nothing, because day 5's model doesn't do it. All others have no effect, as in
//! llama.cpp, or are read where they're needed.

use crate::gguf::gguf_file::Gguf;
use anyhow::{ensure, Result};
use candecode_kit::error::{quoted, shown};
use candle_core::quantized::gguf_file::Value;

/// Keys of the architecture (`llama.…`), with the values that change nothing. They follow
/// llama.cpp's graphs for these four architectures.
const REFUSED: &[(&str, &[f64])] = &[
    ("attention.causal", &[1.0]),
    ("attention.clamp_kqv", &[0.0]),
    ("attention.max_alibi_bias", &[0.0]),
    ("attention.output_scale", &[0.0, 1.0]),
    ("attention.temperature_length", &[0.0]),
    ("attention.temperature_scale", &[0.0]),
    ("attention.value_scale", &[0.0, 1.0]),
    ("attn_logit_softcapping", &[0.0]),
    ("final_logit_softcapping", &[0.0]),
    ("embedding_scale", &[0.0, 1.0]),
    ("logit_scale", &[0.0, 1.0]),
    ("residual_scale", &[0.0, 1.0]),
    ("use_parallel_residual", &[0.0]),
    ("rope.dimension_sections", &[0.0]),
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
    let architecture = gguf.architecture();
    for (name, neutral) in REFUSED {
        let key = format!("{architecture}.{name}");
        let Some(value) = gguf.content.metadata.get(&key) else { continue };
        let of_no_rope = architecture == "gpt2" && name.starts_with("rope.");
        ensure!(
            of_no_rope || is_neutral(value, neutral),
            "{key} is {}; candecode doesn't implement it",
            text(value)
        );
    }
    Ok(())
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
