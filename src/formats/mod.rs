//! Where weights come from: the embedded models, a folder in Hugging Face format, the hub, a GGUF file.

pub mod gguf;
pub mod hub;
