//! The `candecode` command: its flags, the plan made from them, the run, and its output.

#![warn(missing_docs)]

pub mod chat_terminal;
pub mod endpoint;
pub mod flags;
pub mod interrupt;
pub mod locate;
pub mod memory_need;
pub mod output;
pub mod plan;
pub mod run;
pub mod text_input;
pub mod weight_format;
