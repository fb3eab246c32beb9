//! The `candecode` command: its flags, the plan made from them, the run, and its output.

pub mod chat_terminal;
pub mod endpoint;
pub mod flags;
pub mod generation_config;
pub mod interrupt;
pub mod memory_check;
pub mod output;
pub mod plan;
pub mod run;
pub mod score;
pub mod text_input;
pub mod weight_format;
