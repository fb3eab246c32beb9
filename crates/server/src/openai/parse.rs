//! Parses requests in OpenAI's JSON format into prompts and sampling parameters.

use super::api_error::ApiError;
use super::api_request::{ApiRequest, ChatMessage, Endpoint, PromptInput, NO_SEED};
use super::checks;
use super::known_fields::{asks_for_nothing, Fields};
use candecode::kit::SamplingParams;
use regex_syntax::escape;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Temperatures below this are treated as greedy (vLLM's `_SAMPLING_EPS`).
const LOWEST_TEMPERATURE: f64 = 1e-5;

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
        checks::check_endpoint(&fields, endpoint)?;
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
        let options: StreamOptions = fields.get("stream_options")?.unwrap_or_default();
        let continue_final_message = flag(&fields, "continue_final_message")?;
        let begin: Option<bool> = fields.get("add_generation_prompt")?;
        let request = Self {
            endpoint,
            prompts,
            params,
            pattern_field,
            n: fields.get("n")?.unwrap_or(1),
            logprobs: logprobs_asked(&fields, endpoint)?,
            echo: flag(&fields, "echo")?,
            stream: flag(&fields, "stream")?,
            include_usage: options.include_usage.unwrap_or(false),
            add_generation_prompt: begin.unwrap_or(!continue_final_message),
            continue_final_message,
            template_kwargs: fields.get("chat_template_kwargs")?.unwrap_or_default(),
            ignored,
        };
        checks::check(&request, &fields)?;
        Ok(request)
    }
}

/// Reads a boolean field, or returns false if it is missing.
fn flag(fields: &Fields, name: &str) -> Result<bool, ApiError> {
    Ok(fields.get(name)?.unwrap_or(false))
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
    let salt: Option<String> = fields.get("cache_salt")?;
    Ok(SamplingParams {
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
    })
}

/// Reads the number of top alternatives to report with each token. None: no logprobs.
///
/// The endpoints use different fields. For completions, `logprobs` is the number, and 0 reports
/// only the chosen token's own logprob. For chats, `logprobs` is true or false, and `top_logprobs`
/// is the number, with a default of 0.
fn logprobs_asked(fields: &Fields, endpoint: Endpoint) -> Result<Option<usize>, ApiError> {
    if endpoint == Endpoint::Completions {
        let off = fields.value("logprobs").is_some_and(|value| value == false);
        return if off { Ok(None) } else { fields.get("logprobs") };
    }
    let top = fields.get("top_logprobs")?.unwrap_or(0);
    Ok(flag(fields, "logprobs")?.then_some(top))
}

/// Reads the fields that constrain the text: vLLM's `structured_outputs` with `regex` or `choice`,
/// or its older `guided_regex` or `guided_choice`. Returns the field's name and one regular
/// expression for the whole text. A choice becomes `(?:yes|no)`, with each option escaped.
fn allowed_regex(fields: &Fields) -> Result<Option<(&'static str, String)>, ApiError> {
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
