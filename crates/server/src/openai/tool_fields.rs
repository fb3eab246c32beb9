//! The types of a request's fields about tools.

use serde::{Deserialize, Serialize};
use serde_json::{json, Map, Value};

/// A function that the model can ask the client to call. Chat templates get it in this form.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(expecting = "an object with the type \"function\" and a function")]
pub struct Tool {
    #[serde(rename = "type")]
    pub kind: ToolKind,
    pub function: Function,
}

/// The one kind of tool in a chat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolKind {
    #[default]
    Function,
}

#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(expecting = "an object with a name")]
pub struct Function {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// A JSON schema. None: no parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Map<String, Value>>,
}

/// A call that the model has to make. Without it, the model chooses.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(
    untagged,
    expecting = "expected none, auto, required or {\"type\": \"function\", \"function\": \
                 {\"name\": …}}" // `Fields::read` has dealt with none and auto
)]
pub enum ToolChoice {
    Mode(ToolMode),
    Named {
        #[serde(rename = "type", default)]
        kind: ToolKind,
        function: Named,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolMode {
    Required,
}

#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Named {
    pub name: String,
}

/// A call in the history, as the model made it.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(expecting = "an object with a function")]
pub struct SentCall {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(rename = "type", default)]
    pub kind: ToolKind,
    pub function: Called,
}

#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(expecting = "an object with a name and arguments")]
pub struct Called {
    pub name: String,
    #[serde(default)]
    pub arguments: Value,
}

impl SentCall {
    /// Returns the call for a chat template: templates expect an object as arguments, and OpenAI
    /// sends it as text. Text that isn't an object, as of a call that was cut short, stays text.
    pub fn for_template(mut self) -> Value {
        let object = match &self.function.arguments {
            Value::Null => Some(Map::new()),
            Value::String(text) if text.trim().is_empty() => Some(Map::new()),
            Value::String(text) => serde_json::from_str(text).ok(),
            _ => None,
        };
        if let Some(object) = object {
            self.function.arguments = Value::Object(object);
        }
        json!(self)
    }
}
