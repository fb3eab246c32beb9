//! GGUF, llama.cpp's format: one file with a model's weights, configuration and tokenizer.
//!
//! This module presents a GGUF file as if it were a folder in Hugging Face format, with the same
//! configuration, the same tokenizer, and the same tensor names. Quantized tensors are widened on
//! loading, or kept as they are if the kernels can read their blocks.

mod end_tokens;
mod gguf_config;
mod gguf_file;
mod gguf_keys;
mod gguf_tensors;
mod gguf_tokenizer;
mod tensor_names;

pub use gguf_config::config;
pub use gguf_file::Gguf;
pub use gguf_tokenizer::tokenizer;

use crate::ChatTemplate;
use candle_core::quantized::gguf_file::Value;
use serde_json::Map;

/// Returns the chat template in the metadata and the special tokens that it can refer to.
pub fn chat_template(gguf: &Gguf) -> ChatTemplate {
    const KEY: &str = "tokenizer.chat_template";
    let text = gguf.text(KEY).filter(|text| !text.trim().is_empty());
    let mut special_tokens = Map::new();
    for name in ["bos_token", "eos_token"] {
        if let Some(piece) = gguf.piece(&format!("tokenizer.ggml.{name}_id")) {
            special_tokens.insert(name.into(), piece.into());
        }
    }
    ChatTemplate { source: Ok(text.map(|text| (KEY.into(), text.into()))), special_tokens }
}

/// Returns the sampling settings in the metadata, with their values as JSON. None if the metadata
/// has no such settings.
pub fn sampling(gguf: &Gguf) -> Option<serde_json::Value> {
    let asks =
        |key: &str| key.starts_with("general.sampling.") || key == "tokenizer.ggml.suppress_tokens";
    let metadata = gguf.content.metadata.iter().filter(|(key, _)| asks(key));
    let asked: Map<_, _> = metadata.map(|(key, value)| (key.clone(), as_json(value))).collect();
    (!asked.is_empty()).then_some(asked.into())
}

fn as_json(value: &Value) -> serde_json::Value {
    match value {
        Value::Bool(flag) => (*flag).into(),
        Value::String(text) => text.as_str().into(),
        Value::Array(values) => values.iter().map(as_json).collect(),
        other => gguf_keys::number(other).into(),
    }
}
