//! The `candecode` command: its flags, the plan made from them, the run, and its output.

#![warn(missing_docs)]

// Without forwarding in Cargo.toml, a feature that the formats read would silently be false there.
const _: () = assert!(candecode_formats::hub::DOWNLOADS || !cfg!(feature = "hub"));

pub mod chat_terminal;
pub mod endpoint;
pub mod flags;
pub mod interrupt;
pub mod memory_need;
pub mod output;
pub mod plan;
pub mod run;
pub mod text_input;
pub mod weight_format;
