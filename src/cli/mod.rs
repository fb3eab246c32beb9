//! The `candecode` command: its flags, what they ask for, the run, and what is shown of it.

pub mod chat_terminal;
pub mod endpoint;
pub mod flags;
pub mod generation_config;
pub mod interrupt;
pub mod memory_check;
pub mod output;
pub mod plan;
pub mod run;
pub mod text_input;
pub mod weight_format;
