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
