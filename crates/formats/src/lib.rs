//! Model sources: the embedded models, folders in Hugging Face format, the hub's cache, GGUF files,
//! and random weights in memory.

#![warn(missing_docs)]

pub mod folder;
pub mod gguf;
pub mod hub;
mod model_files;
mod random_model;
mod regular_file;
mod safetensors_source;
mod template_text;
mod tokenizer_files;

pub use model_files::{chat_template, open_weights, read_config, read_tokenizer, ModelFiles};
pub use random_model::RandomModel;
pub use safetensors_source::SafetensorsSource;
pub use template_text::ChatTemplate;
