//! The chat template in a model's files. The engine renders it.

use serde_json::{Map, Value};

/// A chat template, as shipped with a model.
#[derive(Debug, Default)]
pub struct ChatTemplate {
    /// The template's source, for errors, and the text of the Jinja program. None if the model has
    /// no template.
    pub source: Option<(String, String)>,
    /// Special tokens that the template can refer to, such as `eos_token`.
    pub special_tokens: Map<String, Value>,
}
