//! The fields of a request: the types of those that are read, and what becomes of all others.

use super::api_error::{cut, ApiError};
use super::tool_fields::{SentCall, Tool, ToolChoice};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{json, Map, Value};
use std::collections::BTreeMap;
use strsim::osa_distance;

/// OpenAI's two endpoints, each with its own request and response format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/completions`: continues a text.
    Completions,
    /// `/v1/chat/completions`: answers a list of messages.
    Chat,
}

/// The fields that are read. A field that is `null` counts as missing.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Fields {
    pub add_generation_prompt: Option<bool>,
    pub allowed_token_ids: Option<Vec<u32>>,
    #[serde(deserialize_with = "strings")]
    pub bad_words: Vec<String>,
    pub best_of: Option<usize>,
    pub cache_salt: Option<String>,
    pub chat_template_kwargs: Map<String, Value>,
    pub continue_final_message: bool,
    pub echo: bool,
    pub frequency_penalty: Option<f32>,
    pub guided_choice: Option<Vec<String>>,
    pub guided_regex: Option<String>,
    pub ignore_eos: bool,
    pub logit_bias: BTreeMap<u32, f32>,
    pub logprobs: Option<Logprobs>,
    pub max_completion_tokens: Option<usize>,
    pub max_tokens: Option<usize>,
    pub messages: Vec<SentMessage>,
    pub min_p: Option<f64>,
    pub min_tokens: usize,
    pub model: String,
    pub n: Option<usize>,
    pub parallel_tool_calls: Option<bool>,
    pub presence_penalty: Option<f32>,
    pub prompt: Option<Prompts>,
    pub prompt_logprobs: Option<usize>,
    pub repetition_penalty: Option<f32>,
    pub response_format: Option<ResponseFormat>,
    pub seed: Option<i64>,
    #[serde(deserialize_with = "strings")]
    pub stop: Vec<String>,
    pub stop_token_ids: Vec<u32>,
    pub stream: bool,
    pub stream_options: StreamOptions,
    pub structured_outputs: StructuredOutputs,
    pub temperature: Option<f64>,
    pub tool_choice: Option<ToolChoice>,
    pub tools: Vec<Tool>,
    pub top_k: Option<i64>,
    pub top_logprobs: Option<usize>,
    pub top_p: Option<f64>,
}

/// Reads a list of strings, or a single string as a list of one.
fn strings<'de, D: Deserializer<'de>>(sent: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a string or a list of strings")]
    enum Strings {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Strings::deserialize(sent)? {
        Strings::One(text) => vec![text],
        Strings::Many(texts) => texts,
    })
}

/// The four forms of a prompt: one text or list of ids, or several of either.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(
    untagged,
    expecting = "expected a string, a list of strings, a list of token ids or a list of such lists"
)]
pub enum Prompts {
    Text(String),
    Ids(Vec<u32>),
    Texts(Vec<String>),
    Lists(Vec<Vec<u32>>),
}

/// In a chat `true` or `false`, in a completion a number of alternatives per token.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(untagged, expecting = "expected true, false or a whole number")]
pub enum Logprobs {
    Flag(bool),
    Top(usize),
}

/// One message of a chat.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(expecting = "an object with a role and a content")]
pub struct SentMessage {
    pub role: Role,
    pub content: Option<Content>,
    /// An assistant's thoughts, as vLLM and llama.cpp name them.
    pub reasoning: Option<String>,
    pub reasoning_content: Option<String>,
    /// An assistant's calls.
    pub tool_calls: Option<Vec<SentCall>>,
    /// The call whose result this is.
    pub tool_call_id: Option<String>,
    /// Everything else, such as `name`.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    #[serde(alias = "developer")] // OpenAI's newer name
    System,
    User,
    Assistant,
    /// The result of a call.
    Tool,
}

#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(untagged, expecting = "expected a text or a list of parts, each with a type")]
pub enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Part {
    #[serde(rename = "type")]
    pub kind: String,
    pub text: Option<String>,
}

/// OpenAI's `response_format`. llama.cpp's has the schema beside the type. `json_schema` has a name
/// and `strict`, too, which change nothing: every schema is enforced.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(expecting = "an object with a type")]
pub struct ResponseFormat {
    #[serde(rename = "type")]
    pub kind: String,
    pub json_schema: Option<Map<String, Value>>,
    pub schema: Option<Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, expecting = "an object")]
pub struct StreamOptions {
    pub include_usage: Option<bool>,
    pub continuous_usage_stats: Option<bool>,
}

/// vLLM's `structured_outputs` field, which constrains the text to a pattern or a format.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, expecting = "an object")]
pub struct StructuredOutputs {
    pub regex: Option<String>,
    pub choice: Option<Vec<String>>,
    /// A schema, or the text of one.
    pub json: Option<Value>,
    pub json_object: Option<bool>,
    pub grammar: Option<String>,
    /// Other constraints, and their options.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Returns true if a value asks for nothing in this endpoint.
type IsOff = fn(&Value, Endpoint) -> bool;

/// Fields of OpenAI, vLLM, llama.cpp and others that would change the text and aren't supported.
/// They are rejected unless their value asks for nothing.
#[rustfmt::skip]
const UNSUPPORTED: &[(IsOff, &[&str])] = &[
    (|value, _| is_empty(value), &[
        "audio", "chat_template", "documents", "ebnf", "function_call", "functions", "grammar",
        "guided_grammar", "include_stop_str_in_output", "logits_processors", "lora",
        "negative_prompt", "prompt_embeds", "regex", "repetition_detection", "samplers",
        "stop_regex", "stop_sequences", "suffix", "use_beam_search", "watermarking",
    ]),
    // Even an empty schema asks for something: any JSON.
    (|_, _| false, &[
        "guided_json", "json_schema", "max_new_tokens", "min_new_tokens", "n_predict",
        "truncate_prompt_tokens", "web_search_options",
    ]),
    (|value, _| value.as_f64().is_some_and(|number| number <= 0.0), &[
        "adaptive_target", "dry_multiplier", "dynatemp_range", "epsilon_cutoff", "eta_cutoff",
        "min_keep", "mirostat", "no_repeat_ngram_size", "nsigma", "smoothing_factor",
        "t_max_predict_ms", "top_a", "top_n_sigma", "xtc_probability",
    ]),
    // 0 asks for no thinking, or for penalties that look at no tokens.
    (|value, _| *value == -1, &[
        "penalty_last_n", "reasoning_budget_tokens", "repeat_last_n", "thinking_budget_tokens",
        "thinking_token_budget",
    ]),
    (|value, _| *value == 1, &[
        "guidance_scale", "n_cmpl", "num_beams", "repeat_penalty", "tfs_z", "typical_p",
    ]),
    (|value, _| value == "none", &["reasoning_effort"]),
    (|value, _| *value == true, &["include_reasoning", "skip_special_tokens"]),
    (|value, endpoint| *value == (endpoint == Endpoint::Completions), &["add_special_tokens"]),
];

/// Fields that only the other endpoint reads.
fn elsewhere(endpoint: Endpoint) -> (&'static str, &'static [&'static str]) {
    match endpoint {
        Endpoint::Chat => ("/v1/completions", &["prompt", "echo"]),
        Endpoint::Completions => (
            "/v1/chat/completions",
            &[
                "messages",
                "top_logprobs",
                "chat_template_kwargs",
                "continue_final_message",
                "tools",
                "tool_choice",
            ],
        ),
    }
}

impl Fields {
    /// The maximum number of tokens that the client asked for. None: whatever fits.
    pub fn most_tokens(&self) -> Option<usize> {
        self.max_completion_tokens.or(self.max_tokens)
    }

    /// The name of the field with that maximum.
    pub fn most_tokens_field(&self) -> &'static str {
        match self.max_completion_tokens {
            Some(_) => "max_completion_tokens",
            None => "max_tokens",
        }
    }

    /// Reads a request body. Also returns the names of the fields that are ignored: as in vLLM,
    /// unknown fields and fields that wouldn't change the text here.
    ///
    /// # Errors
    /// 400 if the body isn't a JSON object, a field that is read has another type, a field asks for
    /// something unsupported, or its name looks like a misspelled one. The error names the field.
    pub fn read(endpoint: Endpoint, body: &[u8]) -> Result<(Self, Vec<String>), ApiError> {
        let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body); // a byte order mark
        let value: Value = serde_json::from_slice(body)
            .map_err(|e| ApiError::unreadable(format!("the body is not JSON: {e}")))?;
        let Value::Object(mut all) = value else {
            return Err(ApiError::unreadable("the body must be a JSON object"));
        };
        for (choice, tools) in [("tool_choice", "tools"), ("function_call", "functions")] {
            match all.get(choice).and_then(Value::as_str) {
                Some("none") => drop((all.remove(choice), all.remove(tools))),
                Some("auto") => drop(all.remove(choice)),
                _ => {}
            }
        }
        let known = json!(Self::default());
        let (there, names) = elsewhere(endpoint);
        let (mut read, mut ignored) = (Map::new(), Vec::new());
        for (name, value) in all.into_iter().filter(|(_, value)| !value.is_null()) {
            let value = whole(value);
            if names.contains(&name.as_str()) {
                if !is_empty(&value) && value != 0 {
                    let message = format!("{name} is only for {there}; leave it out here");
                    return Err(ApiError::invalid(&name, message));
                }
            } else if known.get(&name).is_some() {
                read.insert(name, value);
            } else {
                check_other(&name, &value, endpoint, &known)?;
                ignored.push(name);
            }
        }
        let fields = serde_path_to_error::deserialize(Value::Object(read)).map_err(|error| {
            let path = error.path().to_string();
            let name = path.split(['.', '[']).next().unwrap_or_default();
            let reason = cut(&in_words(error.inner().to_string()), 200);
            ApiError::invalid(name, format!("{path}: {reason}"))
        })?;
        Ok((fields, ignored))
    }
}

/// Rejects a field that isn't read, unless it can be ignored.
fn check_other(
    name: &str,
    value: &Value,
    endpoint: Endpoint,
    known: &Value,
) -> Result<(), ApiError> {
    if let Some((is_off, _)) = UNSUPPORTED.iter().find(|(_, names)| names.contains(&name)) {
        if is_off(value, endpoint) {
            return Ok(());
        }
        return Err(ApiError::unsupported(name, format!("{name} is not supported here")));
    }
    // OpenRouter's `models` is a list of fallbacks.
    let most = match name.chars().count() {
        ..6 => return Ok(()),
        6..10 => 1,
        _ => 2,
    };
    if is_empty(value) || name == "models" || name.len() > 60 {
        return Ok(());
    }
    let small = name.to_lowercase();
    let names = known.as_object().into_iter().flat_map(Map::keys);
    let near = names.filter(|known| known.len().abs_diff(small.len()) <= most);
    let near = near.map(|known| (osa_distance(known, &small), known)).min();
    match near.filter(|(distance, _)| *distance <= most) {
        Some((_, known)) => {
            Err(ApiError::invalid(name, format!("there is no {name}; did you mean {known}?")))
        }
        None => Ok(()),
    }
}

/// Returns true if a value is `null`, `false` or empty.
pub fn is_empty(value: &Value) -> bool {
    matches!(value, Value::Null | Value::Bool(false))
        || value == ""
        || value.as_array().is_some_and(Vec::is_empty)
        || value.as_object().is_some_and(Map::is_empty)
}

/// Converts a float without a fraction, such as 8.0, to an integer: Python clients send them, and
/// vLLM accepts them.
fn whole(value: Value) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53: below, every integer is exact in f64
    let number = value.as_f64().filter(|x| value.is_f64() && x.fract() == 0.0 && x.abs() < EXACT);
    number.map_or(value, |number| json!(number as i64))
}

/// Replaces the names of Rust's types in an error message.
fn in_words(mut message: String) -> String {
    for (rust, words) in [
        ("usize", "a whole number of 0 or above"),
        ("u32", "a whole number of 0 or above"),
        ("i64", "a whole number"),
        ("f32", "a number"),
        ("f64", "a number"),
        ("a boolean", "true or false"),
        ("a sequence", "a list"),
        ("a map", "an object"),
    ] {
        message = message.replace(&format!("expected {rust}"), &format!("expected {words}"));
    }
    message
}
