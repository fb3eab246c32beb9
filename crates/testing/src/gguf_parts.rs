//! Writes an embedded model as a GGUF file.

use crate::{story, Folder};
use candle_core::quantized::gguf_file::{write, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use std::path::{Path, PathBuf};

const CPU: Device = Device::Cpu;

/// A model to be written as a GGUF file, which a test can modify first.
#[derive(Clone)]
pub struct GgufParts {
    /// The keys and values.
    pub metadata: Vec<(String, Value)>,
    /// The tensors by llama.cpp's names.
    pub tensors: Vec<(String, Tensor)>,
}

impl GgufParts {
    /// Returns the parts of an embedded model.
    pub fn of(model: &str) -> Self {
        let read = |file: &str| -> serde_json::Value {
            serde_json::from_slice(&std::fs::read(story(model).join(file)).unwrap()).unwrap()
        };
        let (config, tokenizer) = (read("config.json"), read("tokenizer.json"));
        let family = config["model_type"].as_str().unwrap();
        let number = |key: &str| Value::U32(config[key].as_u64().unwrap() as u32);
        let float = |key: &str| Value::F32(config[key].as_f64().unwrap() as f32);
        let mut keys = vec![
            ("general.architecture".to_string(), Value::String(family.into())),
            ("general.alignment".to_string(), Value::U32(32)),
        ];
        let mut set = |key: &str, value: Value| keys.push((format!("{family}.{key}"), value));
        if family == "gpt2" {
            set("block_count", number("n_layer"));
            set("context_length", number("n_positions"));
            set("embedding_length", number("n_embd"));
            set("attention.head_count", number("n_head"));
            set("attention.layer_norm_epsilon", float("layer_norm_epsilon"));
        } else {
            set("block_count", number("num_hidden_layers"));
            set("context_length", number("max_position_embeddings"));
            set("embedding_length", number("hidden_size"));
            set("feed_forward_length", number("intermediate_size"));
            set("attention.head_count", number("num_attention_heads"));
            set("attention.head_count_kv", number("num_key_value_heads"));
            set("attention.layer_norm_rms_epsilon", float("rms_norm_eps"));
            set("rope.freq_base", Value::F32(10_000.0));
        }
        let vocab = tokenizer["model"]["vocab"].as_object().unwrap();
        let mut pieces = vec![String::new(); vocab.len()];
        vocab.iter().for_each(|(piece, id)| pieces[id.as_u64().unwrap() as usize] = piece.clone());
        let kinds = (0..pieces.len()).map(|id| Value::I32(if id == 0 { 3 } else { 1 }));
        let merges = tokenizer["model"]["merges"].as_array().unwrap().iter();
        let merge = |pair: &serde_json::Value| {
            format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap())
        };
        for (key, value) in [
            ("model", Value::String("gpt2".into())),
            ("pre", Value::String("gpt-2".into())),
            ("tokens", Value::Array(pieces.into_iter().map(Value::String).collect())),
            ("token_type", Value::Array(kinds.collect())),
            ("merges", Value::Array(merges.map(|pair| Value::String(merge(pair))).collect())),
            ("eos_token_id", Value::U32(0)),
        ] {
            keys.push((format!("tokenizer.ggml.{key}"), value));
        }
        let file = story(model).join("model.safetensors");
        let stored = candle_core::safetensors::load(file, &CPU).unwrap();
        let mut tensors: Vec<_> = stored.into_iter().map(|(name, t)| renamed(&name, t)).collect();
        tensors.sort_by(|a, b| a.0.cmp(&b.0));
        Self { metadata: keys, tensors }
    }

    /// Sets a key of the metadata, or removes it.
    pub fn set(mut self, key: &str, value: Option<Value>) -> Self {
        self.metadata.retain(|(name, _)| name != key);
        self.metadata.extend(value.map(|value| (key.to_string(), value)));
        self
    }

    /// Keeps only these tensors.
    pub fn with_tensors(mut self, names: &[&str]) -> Self {
        self.tensors.retain(|(name, _)| names.contains(&name.as_str()));
        self
    }

    /// Renames a token.
    pub fn token(mut self, id: usize, name: &str) -> Self {
        for (key, value) in &mut self.metadata {
            if let ("tokenizer.ggml.tokens", Value::Array(tokens)) = (key.as_str(), value) {
                tokens[id] = Value::String(name.into());
            }
        }
        // Merges that need the old token must go too.
        let gone = |merge: &str| {
            let tokens = self.metadata.iter().find(|(key, _)| key == "tokenizer.ggml.tokens");
            let Some((_, Value::Array(tokens))) = tokens else { return true };
            let has = |piece: &str| {
                tokens.iter().any(|token| matches!(token, Value::String(text) if text == piece))
            };
            merge.split(' ').any(|piece| !has(piece)) || !has(&merge.replace(' ', ""))
        };
        let merges = self.metadata.iter().find(|(key, _)| key == "tokenizer.ggml.merges");
        let Some((_, Value::Array(merges))) = merges else { return self };
        let kept = merges.iter().filter(|m| matches!(m, Value::String(text) if !gone(text)));
        let kept = Value::Array(kept.cloned().collect());
        self.set("tokenizer.ggml.merges", Some(kept))
    }

    /// Writes `model.gguf`, with matrices as `dtype` and everything else as f32.
    pub fn write(&self, folder: &Folder, dtype: GgmlDType) -> PathBuf {
        let path = folder.0.join("model.gguf");
        self.write_to(&path, dtype);
        path
    }

    /// Same as [`GgufParts::write`], to a file of any name.
    pub fn write_to(&self, path: &Path, dtype: GgmlDType) {
        let of = |t: &Tensor| if t.rank() == 2 { dtype } else { GgmlDType::F32 };
        let quantize = |t: &Tensor| {
            QTensor::quantize(&t.to_dtype(DType::F32).unwrap().contiguous().unwrap(), of(t))
        };
        let tensors: Vec<_> =
            self.tensors.iter().map(|(name, t)| (name.as_str(), quantize(t).unwrap())).collect();
        let tensors: Vec<_> = tensors.iter().map(|(name, t)| (*name, t)).collect();
        let metadata: Vec<_> = self.metadata.iter().map(|(key, v)| (key.as_str(), v)).collect();
        write(&mut std::fs::File::create(path).unwrap(), &metadata, &tensors).unwrap();
    }
}

/// Returns a tensor under llama.cpp's name, with GPT-2's matrices as (out, in).
fn renamed(name: &str, tensor: Tensor) -> (String, Tensor) {
    let (place, kind) = name.rsplit_once('.').unwrap();
    let mut words = place.split('.').rev();
    let last = words.next().unwrap();
    let layer = words.find_map(|word| word.parse::<usize>().ok());
    let attention = place.contains("attn");
    let (new, turned) = match (last, layer) {
        ("embed_tokens" | "wte", None) => ("token_embd", false),
        ("wpe", None) => ("position_embd", false),
        ("norm" | "ln_f", None) => ("output_norm", false),
        ("input_layernorm" | "ln_1", _) => ("attn_norm", false),
        ("post_attention_layernorm" | "ln_2", _) => ("ffn_norm", false),
        ("q_proj", _) => ("attn_q", false),
        ("k_proj", _) => ("attn_k", false),
        ("v_proj", _) => ("attn_v", false),
        ("o_proj", _) => ("attn_output", false),
        ("c_attn", _) => ("attn_qkv", true),
        ("c_proj", _) if attention => ("attn_output", true),
        ("gate_proj", _) => ("ffn_gate", false),
        ("up_proj", _) => ("ffn_up", false),
        ("down_proj", _) => ("ffn_down", false),
        ("c_fc", _) => ("ffn_up", true),
        ("c_proj", _) => ("ffn_down", true),
        other => panic!("{other:?}"),
    };
    let layer = layer.map_or(String::new(), |layer| format!("blk.{layer}."));
    let tensor = if turned && tensor.rank() == 2 { tensor.t().unwrap() } else { tensor };
    (format!("{layer}{new}.{kind}"), tensor)
}
