//! A rule for every request field that OpenAI, vLLM or llama.cpp documents. A field that would
//! change the answer is either read or rejected, never ignored.
//!
//! `tests/oracle/request_fields.json` holds the documented fields, and a test compares it with this
//! list.

use super::api_error::{cut, ApiError};
use serde::de::DeserializeOwned;
use serde_json::{json, Map, Value};

/// How the server handles a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FieldRule {
    /// A number in this range, with the range in words.
    Number(f64, f64, &'static str),
    /// An integer in this range, with the range in words.
    Integer(i64, i64, &'static str),
    /// `true` or `false`.
    Flag,
    /// Another type, described in words.
    Other(&'static str),
    /// A field that can't change the answer here, with the reason.
    NoEffect(&'static str),
    /// Rejected with 400, unless the value is the neutral one given here as JSON. `""` stands for
    /// any empty value.
    Refused(&'static str),
}

use FieldRule::{Flag, Integer, NoEffect, Number, Other, Refused};

/// The engine computes in 32-bit floats.
const MOST: f64 = f32::MAX as f64;
const LIST_OF_IDS: &str = "a list of token ids";
const STRINGS: &str = "a string or a list of strings";

/// The fields that are read.
pub const READ: &[(&str, FieldRule)] = &[
    ("add_generation_prompt", Flag),
    ("allowed_token_ids", Other(LIST_OF_IDS)),
    ("bad_words", Other(STRINGS)),
    ("best_of", Integer(1, 128, "from 1 to 128")),
    ("cache_salt", Other("a string of 1 to 256 bytes")),
    ("chat_template_kwargs", Other("an object")),
    ("continue_final_message", Flag),
    ("echo", Flag),
    ("frequency_penalty", Number(-2.0, 2.0, "from -2 to 2")),
    ("guided_choice", Other("a list of at least one string")),
    ("guided_regex", Other("a string")),
    ("ignore_eos", Flag),
    ("logit_bias", Other("an object of token ids, each with a number from -100 to 100")),
    ("logprobs", Other("true or false in a chat, or a whole number from 0 to 20 in a completion")),
    ("max_completion_tokens", Integer(1, i64::MAX, "of 1 or above")),
    ("max_tokens", Integer(1, i64::MAX, "of 1 or above")),
    (
        "messages",
        Other(
            "a list of at least one message, each with a role (system, user or assistant) and a \
             content, which is a text or a list of text parts",
        ),
    ),
    ("min_p", Number(0.0, 1.0, "from 0 to 1")),
    ("min_tokens", Integer(0, i64::MAX, "of 0 or above")),
    ("model", Other("a string")),
    ("n", Integer(1, 128, "from 1 to 128")),
    ("presence_penalty", Number(-2.0, 2.0, "from -2 to 2")),
    ("prompt", Other("a string, a list of strings, a list of token ids or a list of such lists")),
    // Dividing by anything much smaller overflows a logit.
    ("repetition_penalty", Number(1e-4, MOST, "of 0.0001 or above that fits in 32 bits")),
    ("response_format", Other("an object with a type")),
    ("seed", Integer(i64::MIN, i64::MAX, "that fits in a signed 64-bit integer")),
    ("stop", Other(STRINGS)),
    ("stop_token_ids", Other(LIST_OF_IDS)),
    ("stream", Flag),
    ("stream_options", Other("an object whose include_usage is true or false")),
    ("structured_outputs", Other("an object with only regex or choice")),
    ("temperature", Number(0.0, MOST, "of 0 or above that fits in 32 bits")),
    ("top_k", Integer(-1, i64::MAX, "of -1 or above")),
    ("top_logprobs", Integer(0, 20, "from 0 to 20")),
    ("top_p", Number(f32::MIN_POSITIVE as f64, 1.0, "above 0 and at most 1")),
];

/// Fields that can't change the answer here, grouped by reason.
#[rustfmt::skip]
pub const WITHOUT_EFFECT: &[(&str, &[&str])] = &[
    ("a label for the client's own records", &[
        "metadata", "safety_identifier", "session_id", "store", "user",
    ]),
    ("caches never change the text here", &[
        "cache_prompt", "message_delimiters", "n_cache_reuse", "prompt_cache_key",
        "prompt_cache_options", "prompt_cache_retention",
    ]),
    ("it changes when tokens arrive, not which ones", &[
        "backend_sampling", "id_slot", "prediction", "service_tier", "sse_ping_interval",
        "stream_interval",
    ]),
    ("it belongs to a feature that is rejected", &[
        "adaptive_decay", "dry_allowed_length", "dry_base", "dry_penalty_last_n",
        "dry_sequence_breakers", "dynatemp_exponent", "grammar_lazy", "grammar_triggers",
        "grammar_type", "guided_decoding_backend", "guided_whitespace_pattern", "mirostat_eta",
        "mirostat_tau", "parallel_tool_calls", "parse_tool_calls", "preserved_tokens",
        "reasoning_budget_end_tag", "reasoning_budget_end_tags", "reasoning_budget_message",
        "reasoning_budget_start_tag", "truncation_side", "xtc_threshold",
    ]),
    ("messages contain only text here", &["media_io_kwargs", "mm_processor_kwargs"]),
    ("it is for vLLM's render endpoints", &[
        "mm_payload", "return_mm_kwargs", "return_token_offsets",
    ]),
    ("llama-server sets it itself", &["chat_format", "chat_parser"]),
    ("a text ends when the context is full", &["n_discard", "n_keep"]),
    ("reasoning is part of the text here", &["include_reasoning"]),
    ("special tokens are never shown here", &["spaces_between_special_tokens"]),
];

/// Fields that are rejected, grouped by their neutral value. Names that have been dropped from the
/// documentation (such as vLLM's `guided_json`) are listed because clients still send them.
#[rustfmt::skip]
pub const REFUSED: &[(&str, &[&str])] = &[
    ("\"\"", &[
        "audio", "chat_template", "documents", "ec_transfer_params", "function_call", "functions",
        "generation_prompt", "grammar", "guided_grammar", "guided_json",
        "include_stop_str_in_output", "json_schema", "kv_transfer_params", "logprob_token_ids",
        "lora", "moderation", "post_sampling_probs", "prompt_embeds", "reasoning_control",
        "reasoning_format", "repetition_detection", "request_id", "response_fields",
        "return_progress", "return_prompt_text", "return_token_ids", "return_tokens",
        "return_tokens_as_token_ids", "return_weight_versions", "samplers", "suffix",
        "timings_per_token", "tool_choice", "tools", "use_beam_search", "verbose", "vllm_xargs",
        "watermarking",
    ]),
    ("0", &[
        "dry_multiplier", "dynatemp_range", "mirostat", "n_indent", "n_probs", "priority",
        "routed_experts_prompt_start", "xtc_probability",
    ]),
    ("1", &["length_penalty", "n_cmpl", "repeat_penalty", "tfs_z", "typical_p"]),
    ("-1", &[
        "adaptive_target", "penalty_last_n", "reasoning_budget_tokens", "repeat_last_n",
        "t_max_predict_ms", "thinking_budget_tokens", "thinking_token_budget", "top_n_sigma",
    ]),
    ("true", &["skip_special_tokens"]),
    ("[\"text\"]", &["modalities"]),
    ("\"medium\"", &["verbosity"]),
    ("null", &[
        "add_special_tokens", "min_keep", "n_predict", "prompt_logprobs", "reasoning_effort",
        "truncate_prompt_tokens", "web_search_options",
    ]),
];

/// Returns the rule for a field, or None if the field is undocumented.
pub fn rule(name: &str) -> Option<FieldRule> {
    let listed = |lists: &[(&'static str, &[&str])]| {
        lists.iter().find(|(_, names)| names.contains(&name)).map(|(why, _)| *why)
    };
    let read = READ.iter().find(|(known, _)| *known == name).map(|(_, rule)| *rule);
    read.or(listed(WITHOUT_EFFECT).map(NoEffect)).or(listed(REFUSED).map(Refused))
}

/// Returns true if a value is `null`, `false`, empty, or an object containing only such values.
pub fn asks_for_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(wanted) => !wanted,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.values().all(asks_for_nothing),
        Value::Number(_) => false,
    }
}

/// A request's supported fields, each checked for type and range.
pub struct Fields {
    object: Map<String, Value>,
    /// Names of fields that change nothing. vLLM accepts unknown fields silently; this server logs
    /// each name once.
    pub ignored: Vec<String>,
}

impl Fields {
    /// Reads a request body and applies each field's rule. A field that is `null` counts as
    /// missing.
    ///
    /// # Errors
    /// 400 if the body isn't a JSON object, a field has the wrong type or is out of range, or a
    /// field asks for something unsupported. The error names the field.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
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
        let (mut object, mut ignored) = (Map::new(), Vec::new());
        for (name, value) in all.into_iter().filter(|(_, value)| !value.is_null()) {
            let value = whole(value);
            let fits = |low: f64, high: f64| value.as_f64().is_some_and(|x| x >= low && x <= high);
            let must_be = match rule(&name) {
                None | Some(NoEffect(_)) => {
                    ignored.push(name);
                    continue;
                }
                Some(Refused("\"\"")) if asks_for_nothing(&value) => continue,
                Some(Refused(nothing)) if format!("{value}") == *nothing => continue,
                Some(Refused(_)) => return Err(unsupported(&name, &name)),
                Some(Number(low, high, range)) if !fits(low, high) => format!("a number {range}"),
                Some(Integer(low, high, range))
                    if value.as_i64().is_none_or(|x| x < low || x > high) =>
                {
                    format!("a whole number {range}")
                }
                Some(Flag) if !value.is_boolean() => "true or false".to_string(),
                _ => {
                    object.insert(name, value);
                    continue;
                }
            };
            return Err(wrong(&name, &must_be, &value));
        }
        Ok(Self { object, ignored })
    }

    /// Returns a field's raw JSON value, if it was sent.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.object.get(name)
    }

    /// Deserializes a field. Returns None if it is missing.
    ///
    /// # Errors
    /// 400 if the value isn't a `T`, with the message from the field's rule.
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ApiError> {
        let Some(value) = self.object.get(name) else { return Ok(None) };
        T::deserialize(value).map(Some).map_err(|_| self.wrong(name))
    }

    /// Returns the error for a field that breaks its rule.
    pub fn wrong(&self, name: &str) -> ApiError {
        let must_be = match rule(name) {
            Some(Other(words)) => words,
            _ => "something else",
        };
        wrong(name, must_be, self.object.get(name).unwrap_or(&Value::Null))
    }

    /// Rejects any key of an object field that isn't in `read`, unless its value asks for nothing.
    ///
    /// # Errors
    /// 400, naming the key inside the field.
    pub fn refuse_within(&self, name: &str, read: &[&str]) -> Result<(), ApiError> {
        let inner = self.object.get(name).and_then(Value::as_object);
        let mut other =
            inner.into_iter().flatten().filter(|(key, _)| !read.contains(&key.as_str()));
        match other.find(|(_, value)| !asks_for_nothing(value)) {
            Some((key, _)) => Err(unsupported(name, &format!("{name}.{}", cut(key, 60)))),
            None => Ok(()),
        }
    }
}

/// Converts a float without a fraction, such as 8.0, to an integer: Python clients send them, and
/// vLLM accepts them.
fn whole(value: Value) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53: below, every integer is exact in f64
    let number = value.as_f64().filter(|x| value.is_f64() && x.fract() == 0.0 && x.abs() < EXACT);
    number.map_or(value, |number| json!(number as i64))
}

fn unsupported(param: &str, name: &str) -> ApiError {
    ApiError::invalid(param, format!("{name} is not supported here; leave it out"))
}

fn wrong(name: &str, must_be: &str, got: &Value) -> ApiError {
    let shown = cut(&got.to_string(), 60);
    ApiError::invalid(name, format!("{name} must be {must_be}, got {shown}"))
}
