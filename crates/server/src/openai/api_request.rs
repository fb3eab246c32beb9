//! Parses requests in OpenAI's JSON format into prompts and sampling parameters.

use super::api_error::ApiError;
use super::known_fields::{asks_for_nothing, Fields};
use candecode::kit::error::shown;
use candecode::kit::SamplingParams;
use regex_syntax::escape;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// OpenAI's two endpoints, each with its own request and response format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/completions`: continues a text.
    Completions,
    /// `/v1/chat/completions`: answers a list of messages.
    Chat,
}

/// One message of a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatMessage {
    /// `system`, `user` or `assistant`.
    pub role: &'static str,
    /// The message text.
    pub content: String,
}

/// A prompt as the client sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptInput {
    /// A text to continue.
    Text(String),
    /// Token ids, if the client tokenized the text itself.
    Ids(Vec<u32>),
    /// Chat messages, which the model's template renders to text.
    Messages(Vec<ChatMessage>),
}

/// A parsed request. Its prompts aren't encoded yet.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiRequest {
    /// The endpoint, which determines the request and response format.
    pub endpoint: Endpoint,
    /// The prompts. A chat has exactly one.
    pub prompts: Vec<PromptInput>,
    /// The sampling parameters for every prompt.
    pub params: SamplingParams,
    /// The request field that `params.allow_regex` was read from.
    pub pattern_field: Option<&'static str>,
    /// Completions per prompt.
    pub n: usize,
    /// Number of top alternatives to report with each token. None: no logprobs.
    pub logprobs: Option<usize>,
    /// Whether completions start with their prompt.
    pub echo: bool,
    /// Whether the answer is streamed as server-sent events.
    pub stream: bool,
    /// Whether a stream ends with a usage event.
    pub include_usage: bool,
    /// Whether the rendered chat ends with the opening of an assistant turn.
    pub add_generation_prompt: bool,
    /// Whether to continue the last message instead of answering it.
    pub continue_final_message: bool,
    /// Extra variables for the chat template.
    pub template_kwargs: Map<String, Value>,
    /// Names of fields that were ignored.
    pub ignored: Vec<String>,
}

/// Maximum number of choices in one request: prompts times `n`.
const MAX_CHOICES: usize = 128;
/// Maximum number of alternatives per token (vLLM's `max_logprobs`).
const MAX_LOGPROBS: usize = 20;
/// Temperatures below this are treated as greedy (vLLM's `_SAMPLING_EPS`).
const LOWEST_TEMPERATURE: f64 = 1e-5;
/// The seed of a request without one, or with -1, as in vLLM and llama.cpp. Each of its choices
/// gets a random seed of its own.
pub const NO_SEED: u64 = -1_i64 as u64;

/// A string, or a list of strings.
#[derive(Deserialize)]
#[serde(untagged)]
enum Strings {
    One(String),
    Many(Vec<String>),
}

/// The four forms of the `prompt` field: one text or list of ids, or several of either.
#[derive(Deserialize)]
#[serde(untagged)]
enum Prompts {
    Text(String),
    Ids(Vec<u32>),
    Texts(Vec<String>),
    Lists(Vec<Vec<u32>>),
}

#[derive(Deserialize)]
struct SentMessage {
    role: Role,
    content: Option<Content>,
    tool_calls: Option<Value>,
    function_call: Option<Value>,
    audio: Option<Value>,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Role {
    #[serde(alias = "developer")] // OpenAI's newer name
    System,
    User,
    Assistant,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Part {
    Text { text: String },
}

#[derive(Deserialize, Default)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// vLLM's `structured_outputs` field, which constrains the text to a pattern.
#[derive(Deserialize, Default)]
struct StructuredOutputs {
    regex: Option<String>,
    choice: Option<Vec<String>>,
}

impl ApiRequest {
    /// Parses a request body for a server that serves `model`.
    ///
    /// # Errors
    /// 400 if the body isn't a JSON object or a field is invalid; 404 if the request names another
    /// model.
    pub fn parse(endpoint: Endpoint, body: &[u8], model: &str) -> Result<Self, ApiError> {
        let mut fields = Fields::read(body)?;
        let ignored = std::mem::take(&mut fields.ignored);
        other_endpoint(&fields, endpoint)?;
        let asked: Option<String> = fields.get("model")?;
        if let Some(asked) = asked.filter(|asked| !asked.is_empty() && asked != model) {
            return Err(ApiError::no_such_model(&asked, model));
        }
        let prompts = match endpoint {
            Endpoint::Completions => prompts(&fields)?,
            Endpoint::Chat => vec![PromptInput::Messages(chat_messages(&fields)?)],
        };
        let (pattern_field, allow_regex) = allowed_regex(&fields)?.unzip();
        let params = SamplingParams { allow_regex, ..sampling_params(&fields, endpoint)? };
        let n: usize = fields.get("n")?.unwrap_or(1);
        if n > 1 && params.temperature == 0.0 {
            let message = "n must be 1 at temperature 0, where every completion would be the same";
            return Err(ApiError::invalid("n", message));
        }
        let best_of: usize = fields.get("best_of")?.unwrap_or(n);
        if best_of != n {
            let message = "best_of must equal n: this server returns every completion it generates";
            return Err(ApiError::invalid("best_of", message));
        }
        if n * prompts.len() > MAX_CHOICES {
            let message = format!("prompts times n must be at most {MAX_CHOICES}");
            return Err(ApiError::invalid("n", message));
        }
        let logprobs = logprobs_asked(&fields, endpoint)?;
        let echo = flag(&fields, "echo")?;
        if echo && logprobs.is_some() {
            let message =
                "echo can't be combined with logprobs: the prompt's logprobs aren't computed";
            return Err(ApiError::invalid("echo", message));
        }
        let stream = flag(&fields, "stream")?;
        fields.refuse_within("stream_options", &["include_usage"])?;
        let options: StreamOptions = fields.get("stream_options")?.unwrap_or_default();
        let include_usage = options.include_usage.unwrap_or(false);
        if include_usage && !stream {
            let message = "stream_options requires \"stream\": true";
            return Err(ApiError::invalid("stream_options", message));
        }
        let continue_final_message = flag(&fields, "continue_final_message")?;
        let begin: Option<bool> = fields.get("add_generation_prompt")?;
        Ok(Self {
            endpoint,
            prompts,
            params,
            pattern_field,
            n,
            logprobs,
            echo,
            stream,
            include_usage,
            add_generation_prompt: begin.unwrap_or(!continue_final_message),
            continue_final_message,
            template_kwargs: fields.get("chat_template_kwargs")?.unwrap_or_default(),
            ignored,
        })
    }
}

/// Reads a boolean field, or returns false if it is missing.
fn flag(fields: &Fields, name: &str) -> Result<bool, ApiError> {
    Ok(fields.get(name)?.unwrap_or(false))
}

/// Rejects fields that belong to the other endpoint and would have an effect there.
fn other_endpoint(fields: &Fields, endpoint: Endpoint) -> Result<(), ApiError> {
    let (there, names) = match endpoint {
        Endpoint::Chat => ("/v1/completions", &["prompt", "echo"][..]),
        Endpoint::Completions => (
            "/v1/chat/completions",
            &["messages", "top_logprobs", "chat_template_kwargs", "continue_final_message"][..],
        ),
    };
    for name in names {
        if fields.value(name).is_some_and(|value| !asks_for_nothing(value) && value != 0) {
            let message = format!("{name} is only for {there}; leave it out here");
            return Err(ApiError::invalid(name, message));
        }
    }
    Ok(())
}

/// Reads a list of strings, or a single string as a list of one.
fn strings(fields: &Fields, name: &str) -> Result<Vec<String>, ApiError> {
    Ok(match fields.get(name)? {
        None => Vec::new(),
        Some(Strings::One(text)) => vec![text],
        Some(Strings::Many(texts)) => texts,
    })
}

/// Reads the field `prompt`. An empty text is allowed here, because the tokenizer may add a BOS.
fn prompts(fields: &Fields) -> Result<Vec<PromptInput>, ApiError> {
    let prompts: Vec<PromptInput> = match fields.get("prompt")? {
        Some(Prompts::Text(text)) => vec![PromptInput::Text(text)],
        Some(Prompts::Ids(ids)) => vec![PromptInput::Ids(ids)],
        Some(Prompts::Texts(texts)) => texts.into_iter().map(PromptInput::Text).collect(),
        Some(Prompts::Lists(lists)) => lists.into_iter().map(PromptInput::Ids).collect(),
        None => Vec::new(),
    };
    if prompts.is_empty() {
        return Err(fields.wrong("prompt"));
    }
    Ok(prompts)
}

/// Reads the field `messages`. The text parts of a message are joined with newlines, as in vLLM. An
/// assistant message may omit its content.
fn chat_messages(fields: &Fields) -> Result<Vec<ChatMessage>, ApiError> {
    let sent: Vec<SentMessage> = fields.get("messages")?.unwrap_or_default();
    let mut messages = Vec::new();
    for message in sent {
        for (name, value) in [
            ("tool_calls", &message.tool_calls),
            ("function_call", &message.function_call),
            ("audio", &message.audio),
        ] {
            if value.as_ref().is_some_and(|value| !asks_for_nothing(value)) {
                let text = format!("messages with {name} are not supported; leave it out");
                return Err(ApiError::invalid("messages", text));
            }
        }
        let content = match message.content {
            Some(Content::Text(text)) => text,
            Some(Content::Parts(parts)) => {
                let texts: Vec<String> =
                    parts.into_iter().map(|Part::Text { text }| text).collect();
                texts.join("\n")
            }
            None if message.role == Role::Assistant => String::new(),
            None => return Err(fields.wrong("messages")),
        };
        let role = match message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        messages.push(ChatMessage { role, content });
    }
    if messages.is_empty() {
        return Err(fields.wrong("messages"));
    }
    Ok(messages)
}

/// Reads the sampling fields. Defaults are OpenAI's.
fn sampling_params(fields: &Fields, endpoint: Endpoint) -> Result<SamplingParams, ApiError> {
    let default_most = match endpoint {
        Endpoint::Completions => 16,
        Endpoint::Chat => usize::MAX, // limited by the context
    };
    let most = fields.get("max_completion_tokens")?.or(fields.get("max_tokens")?);
    let temperature: f64 = fields.get("temperature")?.unwrap_or(1.0);
    let seed: Option<i64> = fields.get("seed")?;
    let top_k: Option<i64> = fields.get("top_k")?;
    let mut allowed: Option<Vec<u32>> = fields.get("allowed_token_ids")?;
    if let Some(ids) = &mut allowed {
        ids.sort_unstable();
        ids.dedup();
    }
    let bias: BTreeMap<u32, f32> = fields.get("logit_bias")?.unwrap_or_default();
    if bias.values().any(|bias| bias.abs() > 100.0) {
        return Err(fields.wrong("logit_bias"));
    }
    let salt: Option<String> = fields.get("cache_salt")?;
    if salt.as_ref().is_some_and(|salt| salt.is_empty() || salt.len() > 256) {
        return Err(fields.wrong("cache_salt"));
    }
    let params = SamplingParams {
        max_new_tokens: most.unwrap_or(default_most),
        temperature: if temperature < LOWEST_TEMPERATURE { 0.0 } else { temperature },
        top_k: top_k.filter(|k| *k > 0).map(|k| k as usize),
        top_p: fields.get("top_p")?.unwrap_or(1.0),
        min_p: fields.get("min_p")?.unwrap_or(0.0),
        seed: seed.map_or(NO_SEED, |seed| seed as u64),
        repetition_penalty: fields.get("repetition_penalty")?.unwrap_or(1.0),
        presence_penalty: fields.get("presence_penalty")?.unwrap_or(0.0),
        frequency_penalty: fields.get("frequency_penalty")?.unwrap_or(0.0),
        stop: strings(fields, "stop")?,
        stop_token_ids: fields.get("stop_token_ids")?.unwrap_or_default(),
        logit_bias: bias.into_iter().collect(),
        allowed_token_ids: allowed,
        bad_words: strings(fields, "bad_words")?,
        min_new_tokens: fields.get("min_tokens")?.unwrap_or(0),
        ignore_eos: flag(fields, "ignore_eos")?,
        cache_salt: salt.unwrap_or_default(),
        ..SamplingParams::default()
    };
    if params.stop.iter().any(String::is_empty) {
        return Err(ApiError::invalid("stop", "stop must not contain an empty string"));
    }
    check_amounts(&params)?;
    Ok(params)
}

/// Rejects lists so long that they would slow down the model's thread, which goes through them for
/// every token.
fn check_amounts(params: &SamplingParams) -> Result<(), ApiError> {
    let bytes = |texts: &[String]| texts.iter().map(String::len).sum::<usize>();
    for (name, what, got, most) in [
        ("stop", "strings", params.stop.len(), 64),
        ("stop", "bytes in total", bytes(&params.stop), 4096),
        ("bad_words", "words", params.bad_words.len(), 256),
        ("bad_words", "bytes in total", bytes(&params.bad_words), 4096),
        ("stop_token_ids", "ids", params.stop_token_ids.len(), 256),
        ("logit_bias", "tokens", params.logit_bias.len(), 1024),
    ] {
        if got > most {
            let message = format!("{name} may have at most {most} {what}, got {got}");
            return Err(ApiError::invalid(name, message));
        }
    }
    Ok(())
}

/// Reads the number of top alternatives to report with each token. None: no logprobs.
///
/// The endpoints use different fields. For completions, `logprobs` is the number, and 0 reports
/// only the chosen token's own logprob. For chats, `logprobs` is true or false, and `top_logprobs`
/// is the number, with a default of 0.
fn logprobs_asked(fields: &Fields, endpoint: Endpoint) -> Result<Option<usize>, ApiError> {
    if endpoint == Endpoint::Completions {
        if fields.value("logprobs").is_some_and(|value| value == false) {
            return Ok(None);
        }
        let asked: Option<usize> = fields.get("logprobs")?;
        return match asked.is_some_and(|top| top > MAX_LOGPROBS) {
            true => Err(fields.wrong("logprobs")),
            false => Ok(asked),
        };
    }
    let wanted = flag(fields, "logprobs")?;
    let top = fields.get("top_logprobs")?.unwrap_or(0);
    if !wanted && top > 0 {
        let message = "top_logprobs needs \"logprobs\": true";
        return Err(ApiError::invalid("top_logprobs", message));
    }
    Ok(wanted.then_some(top))
}

/// Reads the fields that constrain the text: vLLM's `structured_outputs` with `regex` or `choice`,
/// or its older `guided_regex` or `guided_choice`. Returns the field's name and one regular
/// expression for the whole text. A choice becomes `(?:yes|no)`, with each option escaped. The only
/// supported `response_format` is `{"type": "text"}`, the default: the other types need a grammar,
/// which day 14 doesn't cover.
fn allowed_regex(fields: &Fields) -> Result<Option<(&'static str, String)>, ApiError> {
    if let Some(format) = fields.value("response_format") {
        let kind = format["type"].as_str().ok_or_else(|| fields.wrong("response_format"))?;
        if kind != "text" {
            let message = format!(
                "response_format {} is not supported; use structured_outputs with regex or choice",
                shown(kind)
            );
            return Err(ApiError::invalid("response_format", message));
        }
        fields.refuse_within("response_format", &["type"])?;
    }
    fields.refuse_within("structured_outputs", &["regex", "choice"])?;
    let structured: StructuredOutputs = fields.get("structured_outputs")?.unwrap_or_default();
    let one_of = |name: &str, choices: Option<Vec<String>>| match choices {
        Some(choices) if choices.is_empty() => Err(fields.wrong(name)),
        None => Ok(None),
        Some(choices) => {
            let texts: Vec<String> = choices.iter().map(|text| escape(text)).collect();
            Ok(Some(format!("(?:{})", texts.join("|"))))
        }
    };
    let patterns = [
        ("structured_outputs", structured.regex),
        ("structured_outputs", one_of("structured_outputs", structured.choice)?),
        ("guided_regex", fields.get("guided_regex")?),
        ("guided_choice", one_of("guided_choice", fields.get("guided_choice")?)?),
    ];
    let mut given = patterns.into_iter().filter_map(|(name, regex)| Some((name, regex?)));
    let first = given.next();
    match given.next() {
        None => Ok(first),
        Some((name, _)) => Err(ApiError::invalid(
            name,
            format!("{name} is a second pattern, and only one is allowed; leave one out"),
        )),
    }
}
