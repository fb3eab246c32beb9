//! What a model's files say of its chat template; the engine renders it.

use serde_json::{Map, Value};

/// A chat template as a model ships it.
#[derive(Debug, Default)]
pub struct ChatTemplate {
    /// Where it comes from, for errors, and the text of the Jinja program; None if the model has
    /// none.
    pub source: Option<(String, String)>,
    /// The special tokens that it may name, as `eos_token`.
    pub special_tokens: Map<String, Value>,
}
