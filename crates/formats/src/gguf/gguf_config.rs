//! Converts a GGUF file's metadata back to the `config.json` it was made from.

use crate::gguf::gguf_file::Gguf;
use crate::gguf::{end_tokens, gguf_keys};
use anyhow::{bail, ensure, Context as _, Result};
use candecode_kit::config::Llama3Scaling;
use candecode_kit::error::quoted;
use candecode_kit::ModelConfig;
use candle_core::quantized::gguf_file::Value as Metadata;
use serde_json::{json, Map, Value};
use std::f64::consts::PI;

/// Returns the configuration of the file's model, with the same checks as for a folder.
///
/// # Errors
/// If the configuration is inconsistent, or requires something that day 5's model doesn't
/// implement. The message names the file and the key.
pub fn config(gguf: &Gguf) -> Result<ModelConfig> {
    let text = as_json(gguf).map(|json| json.to_string());
    text.and_then(|text| ModelConfig::from_json(&text))
        .with_context(|| format!("{}: the metadata", gguf.path.display()))
}

fn as_json(gguf: &Gguf) -> Result<Value> {
    ensure!(!gguf.content.tensor_infos.is_empty(), "no tensors: the file has a vocabulary only");
    gguf_keys::check(gguf)?;
    let architecture = gguf.architecture();
    let number = |name: &str| number(gguf, name);
    let norm = match architecture {
        "gpt2" => "attention.layer_norm_epsilon",
        _ => "attention.layer_norm_rms_epsilon",
    };
    let epsilon = number(norm)?;
    let context = number("context_length")?;
    for (key, value) in [(norm, &epsilon), ("context_length", &context)] {
        ensure!(!value.is_null(), "no {architecture}.{key}");
    }
    let layer = |name: &str| gguf.has(&format!("model.layers.0.{name}"));
    let vocabulary = gguf.shape("token_embd.weight").and_then(|shape| shape.first());
    let mut config = json!({
        "model_type": architecture,
        "vocab_size": vocabulary.context("tensor token_embd.weight is missing")?,
        "hidden_size": number("embedding_length")?,
        "intermediate_size": number("feed_forward_length")?,
        "num_hidden_layers": number("block_count")?,
        "num_attention_heads": number("attention.head_count")?,
        "num_key_value_heads": number("attention.head_count_kv")?,
        "head_dim": number("attention.key_length")?,
        "max_position_embeddings": context,
        "rms_norm_eps": epsilon,
        "tie_word_embeddings": !gguf.has("lm_head.weight"),
        "attention_bias": layer("self_attn.q_proj.bias"),
        "mlp_bias": layer("mlp.gate_proj.bias"),
        "eos_token_id": end_tokens::ids(gguf),
    });
    refuse_other_mathematics(gguf, &config)?;
    if architecture != "gpt2" {
        config["rope_parameters"] = rope(gguf, &config)?;
    }
    Ok(config)
}

/// Returns a numeric key of the architecture, or null if it is missing. A list has one number per
/// layer, and all of them must be equal.
pub fn number(gguf: &Gguf, name: &str) -> Result<Value> {
    let key = format!("{}.{name}", gguf.architecture());
    let Some(value) = gguf.content.metadata.get(&key) else { return Ok(Value::Null) };
    let value = match value {
        Metadata::Array(layers) => {
            let first = layers.first().and_then(gguf_keys::number);
            let blocks = gguf.number(&format!("{}.block_count", gguf.architecture()));
            ensure!(
                blocks == Some(layers.len() as u64)
                    && first.is_some()
                    && layers.iter().all(|layer| gguf_keys::number(layer) == first),
                "{key} is {}; candecode needs the same in every layer",
                gguf_keys::text(value)
            );
            &layers[0]
        }
        one => one,
    };
    // Keep whole numbers exact: an f64 has only 53 bits.
    let whole = value.to_u64().ok().map(Value::from);
    let number = whole.or(gguf_keys::number(value).map(Value::from));
    number.with_context(|| format!("{key} is not a number"))
}

/// Returns the head dimension: the one in the file, or else the hidden size over the number of
/// heads.
fn head_dim(config: &Value) -> Option<u64> {
    let heads = config["num_attention_heads"].as_u64().filter(|heads| *heads > 0)?;
    config["head_dim"].as_u64().or(Some(config["hidden_size"].as_u64()? / heads))
}

fn refuse_other_mathematics(gguf: &Gguf, config: &Value) -> Result<()> {
    let architecture = gguf.architecture();
    let found = |key: &str| Ok::<_, anyhow::Error>(number(gguf, key)?.as_f64());
    let width = head_dim(config).unwrap_or(0);
    for key in ["rope.dimension_count", "attention.value_length"] {
        let (found, of_rope) = (found(key)?, key.starts_with("rope"));
        ensure!(
            found.is_none_or(|found| found == width as f64) || (architecture == "gpt2" && of_rope),
            "{architecture}.{key} is {}, and a head is {width} wide; candecode rotates and \
                mixes whole heads",
            found.unwrap_or(0.0),
        );
    }
    let experts = found("expert_count")?.unwrap_or(0.0);
    ensure!(
        experts == 0.0,
        "{architecture}.expert_count is {experts}; candecode supports only full attention \
            and one MLP"
    );
    let context = config["max_position_embeddings"].as_f64().unwrap_or(0.0);
    let window = found("attention.sliding_window")?.unwrap_or(0.0);
    ensure!(
        window == 0.0 || window >= context,
        "{architecture}.attention.sliding_window is {window}; candecode supports only full \
            attention and one MLP"
    );
    let (scale, usual) = (found("attention.scale")?.unwrap_or(0.0), 1.0 / (width as f64).sqrt());
    ensure!(
        scale == 0.0 || (scale - usual).abs() < 1e-6 * usual,
        "{architecture}.attention.scale is {scale}; candecode uses 1 / √{width}"
    );
    Ok(())
}

/// Rejects scaled positions, except for Llama 3's scaling, which is stored as a tensor. As in
/// llama.cpp, scaling without a type is linear, and an older key can hold its factor.
fn refuse_other_scaling(gguf: &Gguf) -> Result<()> {
    let architecture = gguf.architecture();
    let typed = format!("{architecture}.rope.scaling.type");
    ensure!(
        gguf.text(&typed).is_some() || !gguf.content.metadata.contains_key(&typed),
        "{typed} is not a text"
    );
    let kind = gguf.text(&typed).unwrap_or("linear");
    let (key, older) = ("rope.scaling.factor", "rope.scale_linear");
    let (factor, older_factor) = (number(gguf, key)?, number(gguf, older)?);
    let (key, factor) = match (factor.as_f64(), older_factor.as_f64()) {
        (Some(factor), _) => (key, factor),
        (None, Some(factor)) => (older, factor),
        (None, None) => (key, 1.0),
    };
    match kind {
        "none" => {}
        "linear" => ensure!(
            factor == 0.0 || factor == 1.0, // 0: llama.cpp's value for no scaling
            "{architecture}.{key} is {factor}: positions are divided by it (linear scaling), which \
                candecode doesn't do"
        ),
        "llama3" if gguf.shape(FREQUENCIES).is_some() => {}
        _ => bail!(
            "{typed} is {}; candecode supports \"none\", and Llama 3's as tensor {FREQUENCIES}",
            quoted(kind)
        ),
    }
    Ok(())
}

/// The tensor with the divisor of each RoPE frequency.
const FREQUENCIES: &str = "rope_freqs.weight";

/// Returns RoPE's base and scaling. llama.cpp stores Llama 3's scaling as a tensor with each
/// frequency's divisor; this recovers the original parameters.
fn rope(gguf: &Gguf, config: &Value) -> Result<Value> {
    refuse_other_scaling(gguf)?;
    let base = number(gguf, "rope.freq_base")?.as_f64().unwrap_or(10_000.0);
    let mut rope = Map::from_iter([("rope_theta".to_string(), json!(base))]);
    if gguf.shape(FREQUENCIES).is_some() {
        let factors = gguf.read(FREQUENCIES)?.flatten_all()?.to_vec1::<f32>()?;
        let width = head_dim(config).unwrap_or(0) as usize;
        ensure!(
            factors.len() * 2 == width,
            "rope_freqs.weight has {} numbers; expected half a head's width, {width} / 2",
            factors.len()
        );
        if factors.iter().all(|factor| *factor == 1.0) {
            return Ok(rope.into());
        }
        let scaling = scaling(&factors, base).context(
            "rope_freqs.weight is not Llama 3's scaling with the factors 1 and 4; candecode \
                supports no other",
        )?;
        rope.extend([
            ("rope_type".to_string(), json!("llama3")),
            ("factor".to_string(), json!(scaling.factor)),
            ("low_freq_factor".to_string(), json!(scaling.low_freq_factor)),
            ("high_freq_factor".to_string(), json!(scaling.high_freq_factor)),
            (
                "original_max_position_embeddings".to_string(),
                json!(scaling.original_max_position_embeddings),
            ),
        ]);
    }
    Ok(rope.into())
}

/// Finds the scaling that produces these factors. Every published Llama has low and high frequency
/// factors of 1 and 4. The largest factor belongs to the lowest frequencies, and the factors in
/// between determine the original context length.
fn scaling(factors: &[f32], base: f64) -> Option<Llama3Scaling> {
    let frequencies: Vec<f32> = (0..factors.len())
        .map(|i| 1.0 / (base as f32).powf(i as f32 / factors.len() as f32))
        .collect();
    let factor = f64::from(factors.iter().copied().fold(1.0, f32::max));
    let wavelength = |i: usize| 2.0 * PI / f64::from(frequencies[i]);
    let between = (0..factors.len()).find(|i| factors[*i] > 1.0 && f64::from(factors[*i]) < factor);
    let context = match between {
        Some(i) => {
            let smooth = (1.0 / f64::from(factors[i]) - 1.0 / factor) / (1.0 - 1.0 / factor);
            (wavelength(i) * (1.0 + 3.0 * smooth)).round()
        }
        // No factors in between: any context length that separates the two groups will do.
        None => {
            let first = factors.iter().position(|f| *f > 1.0)?;
            wavelength(first) * 0.999
        }
    };
    let (low_freq_factor, high_freq_factor) = (1.0, 4.0);
    let original_max_position_embeddings = context;
    let scaling = Llama3Scaling {
        factor,
        low_freq_factor,
        high_freq_factor,
        original_max_position_embeddings,
    };
    let fits = |(frequency, factor): (&f32, &f32)| {
        let (got, want) = (scaling.apply(*frequency), frequency / factor);
        (got - want).abs() <= 1e-5 * want
    };
    frequencies.iter().zip(factors).all(fits).then_some(scaling)
}
