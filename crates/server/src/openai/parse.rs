//! Turns the fields of a request into prompts and sampling parameters.

use super::api_error::ApiError;
use super::api_request::{ApiRequest, PromptInput, NO_SEED};
use super::checks;
use super::fields::{
    is_empty, Content, Endpoint, Fields, Logprobs, Prompts, ResponseFormat, Role, SentMessage,
};
use super::tool_fields::SentCall;
use super::tools;
use candecode::kit::error::{quoted, shown};
use candecode::kit::SamplingParams;
use candecode_engine::chat::Message;
use candecode_structured::Constraint;
use regex_syntax::escape;
use serde_json::{json, Map, Value};
use std::mem::take;

/// Temperatures below this are treated as greedy (vLLM's `_SAMPLING_EPS`).
const LOWEST_TEMPERATURE: f64 = 1e-5;

impl ApiRequest {
    /// Parses a request body for a server that serves `model`.
    ///
    /// # Errors
    /// 400 if the body isn't a JSON object or a field is invalid; 404 if the request names another
    /// model.
    pub fn parse(endpoint: Endpoint, body: &[u8], model: &str) -> Result<Self, ApiError> {
        let (mut fields, ignored) = Fields::read(endpoint, body)?;
        if !fields.model.is_empty() && fields.model != model {
            return Err(ApiError::no_such_model(&fields.model, model));
        }
        checks::check(&fields)?;
        let prompts = match endpoint {
            Endpoint::Completions => prompts(fields.prompt.take())?,
            Endpoint::Chat => {
                vec![PromptInput::Messages(chat_messages(take(&mut fields.messages))?)]
            }
        };
        let (pattern_field, form) = form(&mut fields)?.unzip();
        let (allow_regex, constraint) = match form {
            Some(Form::Regex(regex)) => (Some(regex), None),
            Some(Form::Format(constraint)) => (None, Some(constraint)),
            None => (None, None),
        };
        let logprobs = logprobs_asked(&fields, endpoint)?;
        let params = SamplingParams { allow_regex, ..sampling_params(&mut fields, endpoint) };
        let n = fields.n.unwrap_or(1);
        let request = Self {
            endpoint,
            prompts,
            params,
            constraint,
            pattern_field,
            n,
            logprobs,
            fields,
            ignored,
        };
        checks::check_request(&request)?;
        Ok(request)
    }
}

/// Reads the prompts. An empty text is allowed here, because the tokenizer may add a BOS.
fn prompts(sent: Option<Prompts>) -> Result<Vec<PromptInput>, ApiError> {
    let prompts: Vec<PromptInput> = match sent {
        Some(Prompts::Text(text)) => vec![PromptInput::Text(text)],
        Some(Prompts::Ids(ids)) => vec![PromptInput::Ids(ids)],
        Some(Prompts::Texts(texts)) => texts.into_iter().map(PromptInput::Text).collect(),
        Some(Prompts::Lists(lists)) => lists.into_iter().map(PromptInput::Ids).collect(),
        None => Vec::new(),
    };
    if prompts.is_empty() {
        return Err(ApiError::invalid("prompt", "prompt is missing or empty; send at least one"));
    }
    Ok(prompts)
}

/// Reads a chat's messages. The text parts of a message are joined with newlines, as in vLLM. An
/// assistant message may omit its content.
fn chat_messages(sent: Vec<SentMessage>) -> Result<Vec<Message>, ApiError> {
    if sent.is_empty() {
        let message = "messages is missing or empty; send at least one";
        return Err(ApiError::invalid("messages", message));
    }
    let mut open_calls = Vec::new();
    let mut read = |(i, mut message): (usize, SentMessage)| {
        let unsupported =
            |what: &str| ApiError::unsupported("messages", format!("messages[{i}]{what}"));
        for name in ["function_call", "audio"] {
            if message.other.get(name).is_some_and(|value| !is_empty(value)) {
                return Err(unsupported(&format!(".{name} is not supported here")));
            }
        }
        let more = beyond_text(&mut message, &mut open_calls, i)?;
        let content = match message.content {
            Some(Content::Text(text)) => text,
            Some(Content::Parts(parts)) => {
                let mut texts = Vec::new();
                for (k, part) in parts.into_iter().enumerate() {
                    let text = part.text.filter(|_| part.kind == "text");
                    texts.push(text.ok_or_else(|| {
                        unsupported(&format!(
                            ".content[{k}] has the type {}; only parts of the type \"text\", \
                             with a text, are supported here",
                            quoted(&part.kind)
                        ))
                    })?);
                }
                texts.join("\n")
            }
            None if message.role == Role::Assistant => String::new(),
            None => {
                let message = format!("messages[{i}].content is missing; send a text");
                return Err(ApiError::invalid("messages", message));
            }
        };
        let role = match message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        Ok(Message { role, content, finish: None, more })
    };
    sent.into_iter().enumerate().map(&mut read).collect()
}

/// Returns what templates read of message `i` besides its text. `open_calls` are the ids of the
/// calls that the next results can belong to.
fn beyond_text(
    message: &mut SentMessage,
    open_calls: &mut Vec<Option<String>>,
    i: usize,
) -> Result<Map<String, Value>, ApiError> {
    let invalid =
        |words: String| Err(ApiError::invalid("messages", format!("messages[{i}]{words}")));
    let (calls, id) = (message.tool_calls.take().unwrap_or_default(), message.tool_call_id.take());
    let mut more = Map::new();
    if message.role != Role::Tool {
        open_calls.clear();
    }
    match message.role {
        Role::Assistant => {
            // Templates of either age find the thoughts.
            let old = message.reasoning_content.take();
            if let Some(thoughts) = message.reasoning.take().or(old) {
                more.insert("reasoning".into(), json!(thoughts));
                more.insert("reasoning_content".into(), json!(thoughts));
            }
            open_calls.extend(calls.iter().map(|call| call.id.clone()));
            if !calls.is_empty() {
                let calls = calls.into_iter().map(SentCall::for_template).collect();
                more.insert("tool_calls".into(), calls);
            }
        }
        Role::Tool => {
            let answers = |call: &Option<String>| id.is_none() || call.is_none() || *call == id;
            if open_calls.is_empty() {
                return invalid(" is a tool's result, and no call of a tool is before it".into());
            }
            if !open_calls.iter().any(answers) {
                let id = quoted(id.unwrap_or_default());
                return invalid(format!(".tool_call_id {id} is none of the calls before it"));
            }
            more.extend(id.map(|id| ("tool_call_id".into(), json!(id))));
            more.extend(message.other.remove("name").map(|name| ("name".into(), name)));
        }
        Role::System | Role::User if calls.is_empty() => {}
        Role::System | Role::User => {
            return invalid(".tool_calls: only an assistant calls tools".into());
        }
    }
    Ok(more)
}

/// Reads the sampling fields. Defaults are OpenAI's.
fn sampling_params(fields: &mut Fields, endpoint: Endpoint) -> SamplingParams {
    let default_most = match endpoint {
        Endpoint::Completions => 16,
        Endpoint::Chat => usize::MAX, // limited by the context
    };
    let temperature = fields.temperature.unwrap_or(1.0);
    let mut allowed = fields.allowed_token_ids.take();
    if let Some(ids) = &mut allowed {
        ids.sort_unstable();
        ids.dedup();
    }
    SamplingParams {
        // With `echo`, 0 is allowed. The engine generates a token, which the answer leaves out.
        max_new_tokens: fields.most_tokens().unwrap_or(default_most).max(1),
        temperature: if temperature < LOWEST_TEMPERATURE { 0.0 } else { temperature },
        top_k: fields.top_k.filter(|k| *k > 0).map(|k| k as usize),
        top_p: fields.top_p.unwrap_or(1.0),
        min_p: fields.min_p.unwrap_or(0.0),
        seed: fields.seed.map_or(NO_SEED, |seed| seed as u64),
        repetition_penalty: fields.repetition_penalty.unwrap_or(1.0),
        presence_penalty: fields.presence_penalty.unwrap_or(0.0),
        frequency_penalty: fields.frequency_penalty.unwrap_or(0.0),
        stop: take(&mut fields.stop),
        stop_token_ids: take(&mut fields.stop_token_ids),
        logit_bias: take(&mut fields.logit_bias).into_iter().collect(),
        allowed_token_ids: allowed,
        bad_words: take(&mut fields.bad_words),
        min_new_tokens: fields.min_tokens,
        ignore_eos: fields.ignore_eos,
        cache_salt: fields.cache_salt.take().unwrap_or_default(),
        ..SamplingParams::default()
    }
}

/// Reads the number of top alternatives to report with each token. None: no logprobs.
///
/// The endpoints use different fields. For completions, `logprobs` is the number, and 0 reports
/// only the chosen token's own logprob. For chats, `logprobs` is true or false, and `top_logprobs`
/// is the number, with a default of 0.
fn logprobs_asked(fields: &Fields, endpoint: Endpoint) -> Result<Option<usize>, ApiError> {
    match (endpoint, fields.logprobs) {
        (_, None | Some(Logprobs::Flag(false))) => Ok(None),
        (Endpoint::Completions, Some(Logprobs::Top(top))) => Ok(Some(top)),
        (Endpoint::Chat, Some(Logprobs::Flag(true))) => Ok(fields.top_logprobs.or(Some(0))),
        (Endpoint::Completions, _) => {
            let message = "logprobs must be a whole number from 0 to 20 in a completion";
            Err(ApiError::invalid("logprobs", message))
        }
        (Endpoint::Chat, _) => {
            let message = "logprobs must be true or false in a chat; top_logprobs is the number";
            Err(ApiError::invalid("logprobs", message))
        }
    }
}

/// A pattern or a format that the whole text must have.
enum Form {
    Regex(String),
    Format(Constraint),
}

/// Reads the fields that constrain the text: OpenAI's `response_format`, vLLM's
/// `structured_outputs`, or its older `guided_regex` or `guided_choice`. Returns the field's name
/// and what it asks for. A choice becomes the regular expression `(?:yes|no)`, with each option
/// escaped.
fn form(fields: &mut Fields) -> Result<Option<(&'static str, Form)>, ApiError> {
    const NAME: &str = "structured_outputs";
    let asked = take(&mut fields.structured_outputs);
    // `{"json": {}}` asks for any JSON, so only null and false ask for nothing.
    let mut others = asked.other.iter().filter(|(_, value)| !value.is_null() && **value != false);
    if let Some((key, _)) = others.next() {
        let message = format!(
            "structured_outputs.{key:.60} is not supported here; use json, json_object, regex, \
             choice or grammar"
        );
        return Err(ApiError::unsupported(NAME, message));
    }
    let one_of = |choices: Vec<String>| {
        let texts: Vec<String> = choices.iter().map(|text| escape(text)).collect();
        Form::Regex(format!("(?:{})", texts.join("|")))
    };
    for (name, choices) in [(NAME, &asked.choice), ("guided_choice", &fields.guided_choice)] {
        if choices.as_ref().is_some_and(Vec::is_empty) {
            let message = format!("{name} is an empty list of choices; send at least one");
            return Err(ApiError::invalid(name, message));
        }
    }
    let any_object = asked.json_object == Some(true);
    let call = tools::schema(fields).map(|calls| Form::Format(Constraint::CompactJson(calls)));
    // `response_format` is about what is said, and a required call says nothing.
    let said = response_format(fields.response_format.take())?.filter(|_| call.is_none());
    let forms = [
        (NAME, asked.regex.map(Form::Regex)),
        (NAME, asked.choice.map(one_of)),
        (NAME, asked.json.map(schema).transpose()?),
        (NAME, any_object.then(|| Form::Format(Constraint::json_object()))),
        (NAME, asked.grammar.map(|grammar| Form::Format(Constraint::Grammar(grammar)))),
        ("guided_regex", fields.guided_regex.take().map(Form::Regex)),
        ("guided_choice", fields.guided_choice.take().map(one_of)),
        ("response_format", said),
        ("tools", call),
    ];
    let mut given = forms.into_iter().filter_map(|(name, form)| Some((name, form?)));
    let first = given.next();
    match given.next() {
        None => Ok(first),
        Some((name, _)) => Err(ApiError::invalid(
            name,
            format!("{name} is a second pattern or format, and only one is allowed; leave one out"),
        )),
    }
}

/// Reads vLLM's `json`: a schema, or its text.
fn schema(sent: Value) -> Result<Form, ApiError> {
    let schema = match sent {
        Value::String(text) => serde_json::from_str(&text).map_err(|error| {
            let message = format!("structured_outputs.json is not JSON: {error}");
            ApiError::invalid("structured_outputs", message)
        })?,
        schema => schema,
    };
    Ok(Form::Format(Constraint::JsonSchema(schema)))
}

/// Reads `response_format`. The type `text` asks for nothing.
fn response_format(sent: Option<ResponseFormat>) -> Result<Option<Form>, ApiError> {
    let Some(format) = sent else { return Ok(None) };
    let constraint = match &*format.kind {
        "text" => return Ok(None),
        "json_object" => format.schema.map_or_else(Constraint::json_object, Constraint::JsonSchema),
        "json_schema" => {
            let named = format.json_schema.and_then(|mut named| named.remove("schema"));
            let schema = named.filter(|schema| !schema.is_null()).or(format.schema);
            let schema = schema.ok_or_else(|| {
                let message = "response_format.json_schema.schema is missing; send a JSON schema";
                ApiError::invalid("response_format", message)
            })?;
            Constraint::JsonSchema(schema)
        }
        other => {
            let message = format!(
                "response_format {} is not supported here; use text, json_object or json_schema",
                shown(other)
            );
            return Err(ApiError::unsupported("response_format", message));
        }
    };
    Ok(Some(Form::Format(constraint)))
}
