//! Requests as OpenAI's clients send them: from a body of JSON to prompts and sampling parameters.

use super::api_error::ApiError;
use super::json_fields::Fields;
use super::request_body::{self, Extras};
use candecode::kit::error::plain;
use candecode::kit::{ModelConfig, SamplingParams, Tokenizer};
use serde_json::Value;

/// OpenAI's two endpoints, each with its own form of request and answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/completions`: a text to continue.
    Completions,
    /// `/v1/chat/completions`: messages to answer.
    Chat,
}

/// One message of a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatMessage {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// What was said.
    pub content: String,
}

/// A prompt as the client sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptInput {
    /// A text to continue.
    Text(String),
    /// Token ids: the client has encoded the text itself.
    Ids(Vec<u32>),
    /// A chat, which the model's template turns into a text.
    Messages(Vec<ChatMessage>),
}

/// A parsed request. Its prompts aren't encoded yet.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiRequest {
    /// The form of request and answer.
    pub endpoint: Endpoint,
    /// The prompts; a chat has one.
    pub prompts: Vec<PromptInput>,
    /// How each prompt is continued.
    pub params: SamplingParams,
    /// The number of choices per prompt.
    pub n: usize,
    /// The number of likeliest tokens to report with each token; None reports no logprobs at all.
    pub logprobs: Option<usize>,
    /// Whether the answer is sent as server-sent events.
    pub stream: bool,
    /// Whether a stream ends with an event that holds the usage (`stream_options.include_usage`).
    pub include_usage: bool,
    /// The options that only the server acts on.
    pub extras: Extras,
    /// The names of unknown fields. vLLM accepts them silently; the server logs each of them once.
    pub ignored: Vec<String>,
}

/// The maximum number of choices in one request: prompts times `n`.
pub const MAX_CHOICES: usize = 128;

/// The maximum number of likeliest tokens reported with each token (vLLM `max_logprobs`).
pub const MAX_LOGPROBS: i64 = 20;

/// The maximum number of stop strings in one request: each is searched for at every token.
pub const MAX_STOPS: usize = 64;

/// The maximum length of all stop strings of a request together, in bytes.
pub const MAX_STOP_BYTES: usize = 4096;

/// Reads the field `stop`, the strings that end the text: missing, one string, or a list of strings.
///
/// # Errors
/// 400 if it is anything else, if a string is empty (it would end every text at once), or if there
/// are more than [`MAX_STOPS`] strings or [`MAX_STOP_BYTES`] bytes.
pub fn stop_strings(fields: &Fields) -> Result<Vec<String>, ApiError> {
    let stops = fields.strings("stop")?;
    if stops.contains(&String::new()) {
        return Err(ApiError::invalid("stop", "stop must not contain an empty string"));
    }
    let bytes: usize = stops.iter().map(String::len).sum();
    if stops.len() > MAX_STOPS || bytes > MAX_STOP_BYTES {
        let message = format!(
            "stop may have at most {MAX_STOPS} strings of {MAX_STOP_BYTES} bytes in all, got {} of \
             {bytes} bytes",
            stops.len()
        );
        return Err(ApiError::invalid("stop", message));
    }
    Ok(stops)
}

/// Reads the fields `structured_outputs` (vLLM's) and `response_format` (OpenAI's) as one regular
/// expression that the whole text must match. Returns None if there is no such rule.
///
/// `structured_outputs` is an object with one of two fields. `regex` is the expression. `choice` is
/// a list of strings, one of which the text must be; it becomes `(?:yes|no)`, with each string
/// escaped. `response_format` may be `{"type": "text"}`, which changes nothing.
///
/// # Errors
/// 400, with a message that names what is refused: another `type` of `response_format`
/// (`json_object` and `json_schema` need a grammar, which day 14 doesn't have), another field of
/// `structured_outputs`, both fields or neither, an empty list, or a value of another type.
pub fn allowed_regex(fields: &Fields) -> Result<Option<String>, ApiError> {
    if let Some(format) = fields.value("response_format") {
        let kind = &format["type"];
        if kind != "text" {
            let message = format!(
                "response_format {kind} is not supported; take structured_outputs: regex or choice"
            );
            return Err(ApiError::invalid("response_format", message));
        }
    }
    let Some(value) = fields.value("structured_outputs") else { return Ok(None) };
    let name = "structured_outputs";
    let must_be = "an object with regex or choice, and nothing else";
    let wrong = || fields.wrong(name, must_be, value);
    let object = value.as_object().ok_or_else(wrong)?;
    let inner = Fields::new(object);
    let regex = inner.value("regex");
    let choices = inner.value("choice");
    if !inner.unread().is_empty() {
        return Err(wrong());
    }
    match (regex, choices) {
        (Some(Value::String(regex)), None) => Ok(Some(regex.clone())),
        (None, Some(Value::Array(choices))) if !choices.is_empty() => {
            let mut escaped = Vec::new();
            for choice in choices {
                escaped.push(regex_syntax::escape(choice.as_str().ok_or_else(wrong)?));
            }
            Ok(Some(format!("(?:{})", escaped.join("|"))))
        }
        _ => Err(wrong()),
    }
}

/// Reads the fields that say how a text is continued. `seed` is for a request without one.
///
/// | field | default | may be |
/// |---|---|---|
/// | `temperature` | 1 | 0 (greedy) and above |
/// | `top_p` | 1 | above 0, to 1 |
/// | `top_k` | all | 1 and above; 0 and -1 are all |
/// | `min_p` | 0 | 0 to 1 |
/// | `seed` | `seed` | any `i64`, as in vLLM (the same 64 bits, read without a sign) |
/// | `presence_penalty`, `frequency_penalty` | 0 | -2 to 2 |
/// | `repetition_penalty` | 1 | above 0 |
/// | `max_tokens` | 16; in a chat `usize::MAX`, as many as fit | 1 and above |
/// | `max_completion_tokens` (chats only) | `max_tokens` | 1 and above |
///
/// The defaults are OpenAI's; `top_k`, `min_p` and `repetition_penalty` are vLLM's. The parameters
/// include what [`stop_strings`] and [`allowed_regex`] return.
///
/// # Errors
/// 400 if a field has another type or is out of range.
pub fn sampling_params(
    fields: &Fields,
    endpoint: Endpoint,
    seed: u64,
) -> Result<SamplingParams, ApiError> {
    let penalty = |name: &str| {
        let penalty = fields.number(name, "in -2 to 2", |x| (-2.0..=2.0).contains(&x))?;
        Ok::<f32, ApiError>(penalty.unwrap_or(0.0) as f32)
    };
    let temperature = fields.number("temperature", "of 0 or above", |t| t >= 0.0)?;
    let top_p = fields.number("top_p", "above 0 and at most 1", |p| p > 0.0 && p <= 1.0)?;
    let top_k = fields.integer("top_k", "of -1 or above", |k| k >= -1)?;
    let min_p = fields.number("min_p", "in 0 to 1", |p| (0.0..=1.0).contains(&p))?;
    let repetition = fields.number("repetition_penalty", "above 0", |x| x > 0.0)?;
    let own_seed = fields.integer("seed", "of 64 bits", |_| true)?;

    let mut most = fields.integer("max_tokens", "of 1 or above", |n| n >= 1)?;
    let mut default_most = 16;
    if endpoint == Endpoint::Chat {
        let newer = fields.integer("max_completion_tokens", "of 1 or above", |n| n >= 1)?;
        most = newer.or(most);
        default_most = usize::MAX;
    }
    Ok(SamplingParams {
        max_new_tokens: most.map_or(default_most, |n| n as usize),
        temperature: temperature.unwrap_or(1.0),
        top_k: top_k.filter(|k| *k > 0).map(|k| k as usize),
        top_p: top_p.unwrap_or(1.0),
        min_p: min_p.unwrap_or(0.0),
        seed: own_seed.map_or(seed, |seed| seed as u64),
        repetition_penalty: repetition.unwrap_or(1.0) as f32,
        presence_penalty: penalty("presence_penalty")?,
        frequency_penalty: penalty("frequency_penalty")?,
        stop: stop_strings(fields)?,
        allow_regex: allowed_regex(fields)?,
        ..SamplingParams::default()
    })
}

/// Reads the field `prompt` in any of its four forms: a text, a list of texts, the token ids of one
/// prompt (a list of numbers), or a list of such lists.
///
/// # Errors
/// 400 if it is missing, something else, or an empty list. (An empty text, or an empty list within
/// the list, is left to [`prompt_ids`], which knows what the tokenizer makes of it.)
pub fn prompts(fields: &Fields) -> Result<Vec<PromptInput>, ApiError> {
    let must_be = "a string, a list of strings, a list of token ids or a list of such lists";
    let value = fields.value("prompt").unwrap_or(&Value::Null);
    let wrong = || fields.wrong("prompt", must_be, value);
    let list = match value {
        Value::String(text) => return Ok(vec![PromptInput::Text(text.clone())]),
        Value::Array(list) if !list.is_empty() => list,
        _ => return Err(wrong()),
    };
    if list[0].is_number() {
        return Ok(vec![PromptInput::Ids(token_ids(list).ok_or_else(wrong)?)]);
    }
    let mut prompts = Vec::new();
    for element in list {
        prompts.push(match element {
            Value::String(text) if list[0].is_string() => PromptInput::Text(text.clone()),
            Value::Array(ids) if list[0].is_array() => {
                PromptInput::Ids(token_ids(ids).ok_or_else(wrong)?)
            }
            _ => return Err(wrong()),
        });
    }
    Ok(prompts)
}

/// Reads a list of token ids. Returns None if it contains anything but numbers that fit in a u32.
fn token_ids(list: &[Value]) -> Option<Vec<u32>> {
    list.iter().map(|id| u32::try_from(id.as_u64()?).ok()).collect()
}

/// Reads the field `messages`: a list of objects with a `role` and a `content`.
///
/// Roles are `system`, `user` and `assistant`; `developer`, OpenAI's newer name for `system`,
/// becomes `system`. `content` is a string, or a list of parts `{"type": "text", "text": …}`, whose
/// texts are joined with a line break, as vLLM does. An assistant's may be `null`, the empty text.
/// Other fields of a message are ignored.
///
/// # Errors
/// 400 if `messages` is missing, isn't a list, or is empty; if a role is missing or another one
/// (such as `tool`); if a content is missing, has another type, or has a part that isn't text.
pub fn chat_messages(fields: &Fields) -> Result<Vec<ChatMessage>, ApiError> {
    let value = fields.value("messages").unwrap_or(&Value::Null);
    let list = match value {
        Value::Array(list) if !list.is_empty() => list,
        _ => return Err(fields.wrong("messages", "a list of at least one message", value)),
    };
    let mut messages = Vec::new();
    for message in list {
        let role = match message["role"].as_str() {
            Some("developer") => "system",
            Some(role @ ("system" | "user" | "assistant")) => role,
            _ => {
                let must_be = "messages with the role system, user or assistant";
                return Err(fields.wrong("messages", must_be, message));
            }
        };
        let content = match &message["content"] {
            Value::String(text) => Some(text.clone()),
            Value::Array(parts) => joined(parts),
            Value::Null if role == "assistant" => Some(String::new()),
            _ => None,
        };
        let Some(content) = content else {
            let must_be = "messages whose content is text, or a list of text parts";
            return Err(fields.wrong("messages", must_be, message));
        };
        messages.push(ChatMessage { role: role.to_string(), content });
    }
    Ok(messages)
}

/// Joins the texts of a message's parts, one per line. Returns None if a part isn't text.
fn joined(parts: &[Value]) -> Option<String> {
    let mut texts = Vec::new();
    for part in parts {
        if part["type"] != "text" {
            return None;
        }
        texts.push(part["text"].as_str()?);
    }
    Some(texts.join("\n"))
}

/// Reads how many of the likeliest tokens to report with each token; None reports no logprobs.
///
/// The two endpoints ask differently. In a completion `logprobs` is that number, 0 to
/// [`MAX_LOGPROBS`]; 0 reports each token's own logprob and no others. In a chat `logprobs` is true
/// or false, and `top_logprobs` is the number, 0 if it is missing.
///
/// # Errors
/// 400 if a field has another type or is out of range. `top_logprobs` without `"logprobs": true` is
/// an error of `top_logprobs`.
pub fn logprobs_asked(fields: &Fields, endpoint: Endpoint) -> Result<Option<usize>, ApiError> {
    let (range, fits) = ("in 0 to 20", |k: i64| (0..=MAX_LOGPROBS).contains(&k));
    if endpoint == Endpoint::Completions {
        return Ok(fields.integer("logprobs", range, fits)?.map(|k| k as usize));
    }
    let wanted = fields.flag("logprobs")?;
    let top = fields.integer("top_logprobs", range, fits)?;
    if !wanted && top.is_some() {
        let message = "top_logprobs needs \"logprobs\": true";
        return Err(ApiError::invalid("top_logprobs", message));
    }
    Ok(wanted.then_some(top.unwrap_or(0) as usize))
}

impl ApiRequest {
    /// Parses the body of a request to a server of `model`. `seed` is for a request without one.
    ///
    /// # Errors
    /// 400 if the body isn't a JSON object or a field is invalid; 404 if it names another model.
    pub fn parse(
        endpoint: Endpoint,
        body: &[u8],
        model: &str,
        seed: u64,
    ) -> Result<Self, ApiError> {
        let chat = endpoint == Endpoint::Chat;
        let body = request_body::read(chat, body)?;
        let fields = Fields::new(&body.object);
        match fields.value("model") {
            None => {} // there is only one
            Some(Value::String(asked)) if asked == model => {}
            Some(Value::String(asked)) => return Err(ApiError::no_such_model(asked, model)),
            Some(other) => return Err(fields.wrong("model", "a string", other)),
        }
        let prompts = match endpoint {
            Endpoint::Completions => prompts(&fields)?,
            Endpoint::Chat => vec![PromptInput::Messages(chat_messages(&fields)?)],
        };
        let mut params = sampling_params(&fields, endpoint, seed)?;
        let extras = request_body::extras(&fields, chat, &mut params)?;
        let n = fields.integer("n", "in 1 to 128", |n| (1..=128).contains(&n))?.unwrap_or(1);
        let n = n as usize;
        if n > 1 && params.temperature == 0.0 {
            let message = "n must be 1 at temperature 0: it would be the same text again";
            return Err(ApiError::invalid("n", message));
        }
        if n * prompts.len() > MAX_CHOICES {
            let message = format!("prompts times n must be at most {MAX_CHOICES}");
            return Err(ApiError::invalid("n", message));
        }
        let logprobs = logprobs_asked(&fields, endpoint)?;
        let stream = fields.flag("stream")?;
        let include_usage = include_usage(&fields, stream)?;
        let mut ignored = fields.unread();
        ignored.extend(body.ignored);
        Ok(Self { endpoint, prompts, params, n, logprobs, stream, include_usage, extras, ignored })
    }
}

/// Reads the field `stream_options.include_usage`.
fn include_usage(fields: &Fields, stream: bool) -> Result<bool, ApiError> {
    let Some(options) = fields.value("stream_options") else { return Ok(false) };
    if !stream {
        let message = "stream_options are for \"stream\": true";
        return Err(ApiError::invalid("stream_options", message));
    }
    let Value::Object(options) = options else {
        return Err(fields.wrong("stream_options", "an object", options));
    };
    Fields::new(options).flag("include_usage")
}

/// Renders a chat as one text: the model's template. Its error is a message for the client.
pub type Render<'a> = &'a dyn Fn(&[ChatMessage]) -> Result<String, String>;

/// Encodes each prompt. A text is encoded with `tokenizer.encode`, which adds BOS and the like; a
/// chat is rendered and encoded with `tokenizer.encode_rendered`, because its template has written
/// them already. Ids are taken as they are.
///
/// # Errors
/// 400, naming `messages` or `prompt`: if the template or the tokenizer refuses a text, an id isn't
/// below `config.vocab_size`, or a prompt has no tokens or more than
/// `config.max_position_embeddings` ([`ApiError::context_exceeded`]).
pub fn prompt_ids(
    request: &ApiRequest,
    tokenizer: &Tokenizer,
    config: &ModelConfig,
    render: Render,
) -> Result<Vec<Vec<u32>>, ApiError> {
    let param = match request.endpoint {
        Endpoint::Completions => "prompt",
        Endpoint::Chat => "messages",
    };
    let refused = |e: candle_core::Error| ApiError::invalid(param, plain(&e));
    let mut all = Vec::new();
    for prompt in &request.prompts {
        let ids = match prompt {
            PromptInput::Text(text) => tokenizer.encode(text).map_err(refused)?,
            PromptInput::Ids(ids) => ids.clone(),
            PromptInput::Messages(messages) => {
                let text = render(messages).map_err(|words| ApiError::invalid(param, words))?;
                tokenizer.encode_rendered(&text).map_err(refused)?
            }
        };
        let (vocab, context) = (config.vocab_size, config.max_position_embeddings);
        if let Some(id) = ids.iter().find(|id| **id as usize >= vocab) {
            let message = format!("token id {id} is not in the vocabulary of {vocab} tokens");
            return Err(ApiError::invalid(param, message));
        }
        if ids.is_empty() {
            return Err(ApiError::invalid(param, "the prompt is empty; give it a token at least"));
        }
        if ids.len() > context {
            return Err(ApiError::context_exceeded(param, ids.len(), context));
        }
        all.push(ids);
    }
    Ok(all)
}
