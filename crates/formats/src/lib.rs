//! Model sources: the embedded models, folders in Hugging Face format, the hub's cache, GGUF files,
//! and weights made in memory: random ones, and `story-3m` widened.

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
mod widened_model;

pub use model_files::{chat_template, open_weights, read_config, read_tokenizer, ModelFiles};
pub use random_model::RandomModel;
pub use safetensors_source::SafetensorsSource;
pub use template_text::ChatTemplate;
pub use widened_model::WIDENED;
