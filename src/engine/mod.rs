//! What assembles the days: a model from its weights, a chat turn by turn, and the place where a NaN began.

pub mod chat;
pub mod chat_template;
pub mod load;
pub mod nan_trace;

pub use load::load_model;
