//! What day 20's protocol stands on: OpenAI's errors, and the fields of a request's JSON object.

use serde_json::{json, Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// The longest message of an error, in characters.
const LONGEST_MESSAGE: usize = 1000;

/// A text up to its first `most` characters, with an ellipsis if more follow: messages stay short
/// however much a client sends.
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

/// A refusal in OpenAI's form: an HTTP status, and a body that the clients know how to raise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// The HTTP status.
    pub status: u16,
    /// What is wrong, and what to do.
    pub message: String,
    /// OpenAI's `type`: `invalid_request_error`, `rate_limit_error` or `server_error`.
    pub kind: &'static str,
    /// The field of the request that is to blame.
    pub param: Option<String>,
    /// A word for programs, as `context_length_exceeded`.
    pub code: Option<&'static str>,
    /// The header `Retry-After`, in seconds.
    pub retry_after: Option<u64>,
}

impl ApiError {
    fn new(status: u16, kind: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, message, kind, param: None, code: None, retry_after: None }
    }

    /// 400: a field has a value that it cannot have. The message should begin with its name.
    pub fn invalid(param: &str, message: impl Into<String>) -> Self {
        let param = Some(param.to_string());
        Self { param, ..Self::new(400, "invalid_request_error", message) }
    }

    /// 400: the request as a whole cannot be read.
    pub fn unreadable(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_request_error", message)
    }

    /// 400: a prompt is longer than the model's context.
    pub fn too_long(param: &str, message: impl Into<String>) -> Self {
        Self { code: Some("context_length_exceeded"), ..Self::invalid(param, message) }
    }

    /// 400: a prompt of `tokens` tokens (a number, or "at least" one) doesn't fit a context of `context`. The
    /// words are OpenAI's: clients that shorten a conversation look for them.
    pub fn context_exceeded(param: &str, tokens: impl std::fmt::Display, context: usize) -> Self {
        let it = match param {
            "messages" => format!("your messages resulted in {tokens} tokens. Please reduce the length of the messages."),
            _ => format!("you requested {tokens} tokens in your prompt. Please reduce the length of the prompt."),
        };
        let message =
            format!("This model's maximum context length is {context} tokens. However, {it}");
        Self::too_long(param, message)
    }

    /// 404: another model is asked for than the one that is served.
    pub fn no_such_model(asked: &str, served: &str) -> Self {
        let asked = cut(asked, 60);
        let message = format!("the model {asked:?} is not served here; {served:?} is");
        let error = Self::invalid("model", message);
        Self { status: 404, code: Some("model_not_found"), ..error }
    }

    /// 429: the queue is full. The clients try again, after the seconds of `Retry-After`.
    pub fn busy() -> Self {
        let message = "the queue is full; try again in a second";
        let error = Self::new(429, "rate_limit_error", message);
        Self { code: Some("rate_limit_exceeded"), retry_after: Some(1), ..error }
    }

    /// 503: the server is about to end.
    pub fn closing() -> Self {
        Self::new(503, "server_error", "the server is shutting down, and takes no new requests")
    }

    /// 500: the server has failed, and the request is not to blame.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(500, "server_error", message)
    }

    /// The body of the response: `{"error": {"message", "type", "param", "code"}}`.
    pub fn body(&self) -> Value {
        json!({"error": {
            "message": cut(&self.message, LONGEST_MESSAGE), "type": self.kind, "param": self.param, "code": self.code,
        }})
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

/// The fields of a JSON object. Each reader gives None where a field is missing or `null`, and an
/// error that names the field where its value is of another type or out of range. What no reader
/// has asked for is known at the end.
pub struct Fields<'a> {
    object: &'a Map<String, Value>,
    asked: RefCell<BTreeSet<String>>,
}

impl<'a> Fields<'a> {
    /// The fields of this object.
    pub fn new(object: &'a Map<String, Value>) -> Self {
        Self { object, asked: RefCell::default() }
    }

    /// The value of a field, whatever its type.
    pub fn value(&self, name: &str) -> Option<&'a Value> {
        self.asked.borrow_mut().insert(name.to_string());
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// A number that `fits`; `range` says in words what does, as "in 0 to 1".
    ///
    /// # Errors
    /// 400, if it is no number, or does not fit.
    pub fn number(
        &self,
        name: &str,
        range: &str,
        fits: impl Fn(f64) -> bool,
    ) -> Result<Option<f64>, ApiError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        match value.as_f64() {
            Some(number) if fits(number) => Ok(Some(number)),
            _ => Err(self.wrong(name, &format!("a number {range}"), value)),
        }
    }

    /// A whole number that `fits`; `range` says in words what does.
    ///
    /// # Errors
    /// 400, if it is no whole number, or does not fit.
    pub fn integer(
        &self,
        name: &str,
        range: &str,
        fits: impl Fn(i64) -> bool,
    ) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        match value.as_i64() {
            Some(number) if fits(number) => Ok(Some(number)),
            _ => Err(self.wrong(name, &format!("a whole number {range}"), value)),
        }
    }

    /// `true` or `false`; false where the field is missing.
    ///
    /// # Errors
    /// 400, if it is neither.
    pub fn flag(&self, name: &str) -> Result<bool, ApiError> {
        let Some(value) = self.value(name) else { return Ok(false) };
        value.as_bool().ok_or_else(|| self.wrong(name, "true or false", value))
    }

    /// A list of strings, or one string as a list of one; empty where the field is missing.
    ///
    /// # Errors
    /// 400, if it is something else.
    pub fn strings(&self, name: &str) -> Result<Vec<String>, ApiError> {
        let Some(value) = self.value(name) else { return Ok(Vec::new()) };
        let wrong = || self.wrong(name, "a string or a list of strings", value);
        match value {
            Value::String(text) => Ok(vec![text.clone()]),
            Value::Array(values) => {
                let texts = values.iter().map(|v| v.as_str().map(str::to_string));
                texts.collect::<Option<Vec<String>>>().ok_or_else(wrong)
            }
            _ => Err(wrong()),
        }
    }

    /// The error of a field that is not what it must be: 400.
    pub fn wrong(&self, name: &str, must_be: &str, got: &Value) -> ApiError {
        let shown = cut(&got.to_string(), 60);
        ApiError::invalid(name, format!("{name} must be {must_be}, got {shown}"))
    }

    /// The names of the fields that no reader has asked for.
    pub fn unread(&self) -> Vec<String> {
        let asked = self.asked.borrow();
        self.object.keys().filter(|name| !asked.contains(*name)).cloned().collect()
    }
}
