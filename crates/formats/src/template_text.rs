//! The chat template in a model's files. The engine renders it.

use anyhow::Result;
use serde_json::{Map, Value};

/// A chat template, as shipped with a model.
#[derive(Debug)]
pub struct ChatTemplate {
    /// The template's source, for errors, and the text of the Jinja program. None if the model has
    /// no template. An error matters only if no other template is used.
    pub source: Result<Option<(String, String)>>,
    /// Special tokens that the template can refer to, such as `eos_token`.
    pub special_tokens: Map<String, Value>,
}
