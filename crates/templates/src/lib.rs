//! Chat templates: the Jinja programs, shipped with models, that turn a conversation into text.
//!
//! Compiled when a command first needs one, since no story does.

#![warn(missing_docs)]

mod chat_template;
pub mod jinja;

pub use chat_template::{date, setting, RenderOptions, Template};
