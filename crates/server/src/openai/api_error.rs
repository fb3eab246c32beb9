//! Errors as OpenAI reports them: an HTTP status and a JSON body.

use axum::http::{header, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use candecode::day20_serve::JobError;
use candecode::kit::panics::Unwritten;
use candecode::kit::processor::LEFT_NO_TOKEN;
use candecode_structured::TOO_COMPLEX;
use serde_json::{json, Value};

/// Maximum length of an error message, in characters.
const LONGEST_MESSAGE: usize = 1000;

/// Truncates a text to `most` characters and appends an ellipsis if anything was cut, so that
/// messages stay short no matter what a client sends.
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

/// An error in OpenAI's format: an HTTP status, and a JSON body that OpenAI's client libraries turn
/// into an exception.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// The HTTP status.
    pub status: u16,
    /// A description of the problem and how to fix it.
    pub message: String,
    /// OpenAI's `type`: `invalid_request_error`, `rate_limit_error` or `server_error`.
    pub kind: &'static str,
    /// The request field that caused the error.
    pub param: Option<String>,
    /// A machine-readable code, such as `context_length_exceeded`.
    pub code: Option<&'static str>,
    /// The value of the `Retry-After` header, in seconds.
    pub retry_after: Option<u64>,
}

impl ApiError {
    /// Creates an error with this status and type.
    pub fn new(status: u16, kind: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, message, kind, param: None, code: None, retry_after: None }
    }

    /// An error at the HTTP level, such as a wrong path, method or content type.
    pub fn http(status: u16, code: Option<&'static str>, message: impl Into<String>) -> Self {
        Self { code, ..Self::new(status, "invalid_request_error", message) }
    }

    /// 400: a field has an invalid value. The message should begin with the field's name.
    pub fn invalid(param: &str, message: impl Into<String>) -> Self {
        let param = Some(param.to_string());
        Self { param, ..Self::new(400, "invalid_request_error", message) }
    }

    /// 400: a field asks for something that this server doesn't support. Clients know the code, and
    /// some leave the field out and try again.
    pub fn unsupported(param: &str, message: impl Into<String>) -> Self {
        Self { code: Some("unsupported_parameter"), ..Self::invalid(param, message) }
    }

    /// 400: the request as a whole is invalid.
    pub fn unreadable(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_request_error", message)
    }

    /// 400: a prompt of `tokens` tokens (a number, or "at least" and a number) doesn't fit in a
    /// context of `context`. The wording is OpenAI's, because clients that shorten conversations
    /// search for it.
    pub fn context_exceeded(param: &str, tokens: impl std::fmt::Display, context: usize) -> Self {
        let it = match param {
            "messages" => format!(
                "your messages resulted in {tokens} tokens. Please reduce the \
                length of the messages."
            ),
            _ => format!(
                "you requested {tokens} tokens in your prompt. Please reduce the length \
                of the prompt."
            ),
        };
        let message =
            format!("This model's maximum context length is {context} tokens. However, {it}");
        Self { code: Some("context_length_exceeded"), ..Self::invalid(param, message) }
    }

    /// 400: a prompt of `tokens` tokens leaves no room for `asked` more in a context of `context`.
    /// `param` is the field that asked. More than the context is refused in the words of vLLM 0.33,
    /// which lowers anything less to what fits.
    pub fn max_tokens_exceeded(param: &str, asked: usize, tokens: usize, context: usize) -> Self {
        let message = match asked > context {
            true => format!(
                "{param}={asked} cannot be greater than max_model_len={context}. Please request \
                 fewer output tokens."
            ),
            false => format!(
                "{param}={asked} is too large: this model's maximum context length is {context} \
                 tokens, and your prompt has {tokens}. Please request fewer output tokens."
            ),
        };
        Self { code: Some("context_length_exceeded"), ..Self::invalid(param, message) }
    }

    /// 404: the request names a model other than the one being served.
    pub fn no_such_model(asked: &str, served: &str) -> Self {
        let asked = cut(asked, 60);
        let message = format!("the model {asked:?} is not served here; this server has {served:?}");
        let error = Self::invalid("model", message);
        Self { status: 404, code: Some("model_not_found"), ..error }
    }

    /// 429: the queue is full. Clients retry after `Retry-After` seconds.
    pub fn busy() -> Self {
        let message = "the queue is full; try again in a second";
        let error = Self::new(429, "rate_limit_error", message);
        Self { code: Some("rate_limit_exceeded"), retry_after: Some(1), ..error }
    }

    /// 503: the server is overloaded for the moment.
    pub fn overloaded(message: impl Into<String>) -> Self {
        Self { retry_after: Some(5), ..Self::new(503, "server_error", message) }
    }

    /// 503: the server is shutting down.
    pub fn closing() -> Self {
        Self::new(503, "server_error", "the server is shutting down and accepts no new requests")
    }

    /// 500: the server failed, through no fault of the request.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(500, "server_error", message)
    }

    /// 501: the request needs a task that the reader hasn't written.
    pub fn unwritten(message: impl Into<String>) -> Self {
        Self { code: Some("not_implemented"), ..Self::new(501, "server_error", message) }
    }

    /// The body of the response: `{"error": {"message", "type", "param", "code"}}`.
    pub fn body(&self) -> Value {
        json!({"error": {
            "message": cut(&self.message, LONGEST_MESSAGE),
            "type": self.kind, "param": self.param, "code": self.code,
        }})
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = [(header::CONTENT_TYPE, "application/json")];
        let mut response = (status, headers, self.body().to_string()).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl From<JobError> for ApiError {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Busy => Self::busy(),
            JobError::Closing => Self::closing(),
            JobError::Invalid(message) | JobError::Failed(message)
                if Unwritten::is_named_by(&message) =>
            {
                Self::unwritten(message)
            }
            JobError::Invalid(message) => Self::unreadable(message),
            // The request's own rules leave nothing, or are too complex: it would fail again.
            JobError::Failed(message)
                if message.contains(LEFT_NO_TOKEN) || message.contains(TOO_COMPLEX) =>
            {
                Self::unreadable(message)
            }
            JobError::Failed(message) => Self::failed(message),
        }
    }
}
