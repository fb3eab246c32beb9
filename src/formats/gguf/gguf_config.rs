//! The configuration in a GGUF file's metadata, as the `config.json` that it was made from.

use crate::formats::gguf::Gguf;
use crate::kit::config::Llama3Scaling;
use crate::kit::ModelConfig;
use anyhow::{bail, ensure, Context as _, Result};
use serde_json::{json, Map, Value};
use std::f64::consts::PI;

/// The configuration of the file's model, checked as that of a folder.
///
/// # Errors
/// If it makes no sense, or asks for what day 5's stack does not do: the file and the key are named.
pub fn config(gguf: &Gguf) -> Result<ModelConfig> {
    let text = as_json(gguf).map(|json| json.to_string());
    text.and_then(|text| ModelConfig::from_json(&text))
        .with_context(|| format!("{}: the metadata", gguf.path.display()))
}

fn as_json(gguf: &Gguf) -> Result<Value> {
    let architecture = gguf.architecture();
    let key = |key: &str| format!("{architecture}.{key}");
    let number = |name: &str| -> Result<Value> {
        let key = key(name);
        let number = gguf.number(&key).map(Value::from);
        match number.or(gguf.float(&key).map(Value::from)) {
            Some(number) => Ok(number),
            None if gguf.content.metadata.contains_key(&key) => bail!("{key} is not a number"),
            None => Ok(Value::Null),
        }
    };
    let norm = match architecture {
        "gpt2" => "attention.layer_norm_epsilon",
        _ => "attention.layer_norm_rms_epsilon",
    };
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
        "max_position_embeddings": number("context_length")?,
        "rms_norm_eps": gguf.float(&key(norm)),
        "tie_word_embeddings": !gguf.has("lm_head.weight"),
        "attention_bias": layer("self_attn.q_proj.bias"),
        "mlp_bias": layer("mlp.gate_proj.bias"),
        "eos_token_id": ends(gguf),
    });
    if architecture != "gpt2" {
        refuse_other_mathematics(gguf, &config)?;
        config["rope_parameters"] = rope(gguf, &config)?;
    }
    Ok(config)
}

/// The ids that end a text, or a turn.
fn ends(gguf: &Gguf) -> Vec<u64> {
    let keys = ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"];
    let mut ids: Vec<u64> = keys.iter().filter_map(|key| gguf.number(key)).collect();
    ids.dedup();
    ids
}

/// A head's width: what is said, or what is left for each head.
fn head_dim(config: &Value) -> Option<u64> {
    let heads = config["num_attention_heads"].as_u64().filter(|heads| *heads > 0)?;
    config["head_dim"].as_u64().or(Some(config["hidden_size"].as_u64()? / heads))
}

fn refuse_other_mathematics(gguf: &Gguf, config: &Value) -> Result<()> {
    let architecture = gguf.architecture();
    let number = |key: &str| gguf.number(&format!("{architecture}.{key}"));
    let width = head_dim(config);
    for key in ["rope.dimension_count", "attention.value_length"] {
        let found = number(key);
        ensure!(
            found.is_none() || found == width,
            "{architecture}.{key} is {}, and a head is {} wide; candecode turns and mixes whole heads",
            found.unwrap_or(0),
            width.unwrap_or(0)
        );
    }
    for key in ["attention.sliding_window", "expert_count"] {
        let found = number(key).unwrap_or(0);
        ensure!(
            found == 0,
            "{architecture}.{key} is {found}; candecode has full attention and one MLP only"
        );
    }
    let kind = gguf.text(&format!("{architecture}.rope.scaling.type")).unwrap_or("none");
    ensure!(
        ["none", "llama3"].contains(&kind),
        "{architecture}.rope.scaling.type is \"{kind}\"; candecode has \"none\" and Llama 3's"
    );
    Ok(())
}

/// Base and scaling of RoPE. llama.cpp keeps Llama 3's scaling as the tensor of what each frequency is divided by: here are
/// the parameters that it was made of.
fn rope(gguf: &Gguf, config: &Value) -> Result<Value> {
    let base = gguf.float(&format!("{}.rope.freq_base", gguf.architecture())).unwrap_or(10_000.0);
    let mut rope = Map::from_iter([("rope_theta".to_string(), json!(base))]);
    if gguf.shape("rope_freqs.weight").is_some() {
        let factors = gguf.read("rope_freqs.weight")?.flatten_all()?.to_vec1::<f32>()?;
        let width = head_dim(config).unwrap_or(0) as usize;
        ensure!(
            factors.len() * 2 == width,
            "rope_freqs.weight has {} numbers; half of a head of {width} is wanted",
            factors.len()
        );
        let scaling = scaling(&factors, base).context(
            "rope_freqs.weight is not a scaling of Llama 3's kind with the factors 1 and 4; candecode has no other",
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

/// The scaling that gives these factors. Every published Llama has 1 and 4 as its low and high frequency factors; the largest
/// factor is the one of the lowest frequencies; and what lies between tells the context that was trained for.
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
        // None between: any context whose bounds part the two.
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
