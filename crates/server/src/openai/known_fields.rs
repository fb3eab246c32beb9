//! A rule for every request field that OpenAI, vLLM and llama.cpp document. A field that would change the answer is
//! either honoured or refused, never ignored.
//!
//! `tests/oracle/request_fields.json` holds their lists; a test compares it with this one.

use serde_json::Value;

/// How the server treats a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FieldRule {
    /// Read, and changes the answer.
    Read,
    /// Can't change the answer here, for this reason.
    NoEffect(&'static str),
    /// Refused with 400, unless the value asks for nothing.
    Refused(Neutral),
}

/// The values of a refused field that ask for nothing. `null` always does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Neutral {
    /// `false`, an empty string, an empty list, or an object of such values.
    Empty,
    /// This number.
    Number(f64),
    /// Numbers up to this one.
    AtMost(f64),
    /// `true`.
    True,
    /// One of these strings.
    Words(&'static [&'static str]),
    /// Lists of nothing but this string.
    ListOf(&'static str),
    /// Only `null`.
    Null,
}

impl Neutral {
    /// Whether a value asks for nothing.
    pub fn accepts(self, value: &Value) -> bool {
        match self {
            _ if value.is_null() => true,
            Self::Empty => asks_for_nothing(value),
            Self::Number(number) => value.as_f64() == Some(number),
            Self::AtMost(most) => value.as_f64().is_some_and(|number| number <= most),
            Self::True => value == &Value::Bool(true),
            Self::Words(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Self::ListOf(word) => {
                value.as_array().is_some_and(|list| list.iter().all(|element| element == word))
            }
            Self::Null => false,
        }
    }
}

/// Whether a value is `null`, `false`, empty, or an object of such values and zeros.
pub fn asks_for_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(wanted) => !wanted,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => {
            object.values().all(|value| asks_for_nothing(value) || value.as_f64() == Some(0.0))
        }
        Value::Number(_) => false,
    }
}

use FieldRule::{NoEffect, Read, Refused};
use Neutral::{AtMost, Empty, ListOf, Null, Number, True, Words};

const LABEL: &str = "a label for the client's own records";
const CACHING: &str = "only affects caches, which never change the text here";
const ONLY_RENDERS: &str = "only for vLLM's render endpoints; its other endpoints ignore it";
const NO_GRAMMAR: &str = "only affects grammars, which are refused";
const NO_TOOLS: &str = "only affects tools, which are refused";
const NO_THOUGHTS: &str = "only affects a thinking budget, which is refused";
const NO_DRY: &str = "only with dry_multiplier, which is refused";
const NO_MIROSTAT: &str = "only with mirostat, which is refused";
const NO_MEDIA: &str = "only for images and audio, which messages can't have";
const NO_SHIFT: &str = "only for text that outgrows the context; here it ends";

/// The documented fields, sorted by name. Names that have left the documentation (vLLM's `guided_*`, llama.cpp's `tfs_z`)
/// are here because clients still send them.
#[rustfmt::skip]
pub const FIELDS: &[(&str, FieldRule)] = &[
    ("adaptive_decay", NoEffect("only with adaptive_target, which is refused")),
    ("adaptive_target", Refused(AtMost(-f64::MIN_POSITIVE))),
    ("add_generation_prompt", Read),
    ("add_special_tokens", Read),
    ("allowed_token_ids", Read),
    ("audio", Refused(Empty)),
    ("backend_sampling", NoEffect("selects where llama.cpp samples")),
    ("bad_words", Read),
    ("best_of", Read),
    ("cache_prompt", NoEffect(CACHING)),
    ("cache_salt", NoEffect(CACHING)),
    ("chat_format", NoEffect("llama-server sets it itself")),
    ("chat_parser", NoEffect("llama-server sets it itself")),
    ("chat_template", Refused(Empty)),
    ("chat_template_kwargs", Read),
    ("continue_final_message", Read),
    ("documents", Refused(Empty)),
    ("dry_allowed_length", NoEffect(NO_DRY)),
    ("dry_base", NoEffect(NO_DRY)),
    ("dry_multiplier", Refused(Number(0.0))),
    ("dry_penalty_last_n", NoEffect(NO_DRY)),
    ("dry_sequence_breakers", NoEffect(NO_DRY)),
    ("dynatemp_exponent", NoEffect("only with dynatemp_range, which is refused")),
    ("dynatemp_range", Refused(Number(0.0))),
    ("ec_transfer_params", Refused(Empty)),
    ("echo", Read),
    ("frequency_penalty", Read),
    ("function_call", Read),
    ("functions", Refused(Empty)),
    ("generation_prompt", Refused(Empty)),
    ("grammar", Refused(Empty)),
    ("grammar_lazy", NoEffect(NO_GRAMMAR)),
    ("grammar_triggers", NoEffect(NO_GRAMMAR)),
    ("grammar_type", NoEffect(NO_GRAMMAR)),
    ("guided_choice", Read),
    ("guided_decoding_backend", NoEffect(NO_GRAMMAR)),
    ("guided_grammar", Refused(Empty)),
    ("guided_json", Refused(Empty)),
    ("guided_regex", Read),
    ("guided_whitespace_pattern", NoEffect(NO_GRAMMAR)),
    ("id_slot", NoEffect("selects a slot of llama-server's")),
    ("ignore_eos", Read),
    ("include_reasoning", NoEffect("reasoning isn't split off from the text")),
    ("include_stop_str_in_output", Read),
    ("json_schema", Refused(Empty)),
    ("kv_transfer_params", Refused(Empty)),
    ("length_penalty", Refused(Number(1.0))),
    ("logit_bias", Read),
    ("logprob_token_ids", Refused(Empty)),
    ("logprobs", Read),
    ("lora", Refused(Empty)),
    ("max_completion_tokens", Read),
    ("max_tokens", Read),
    ("media_io_kwargs", NoEffect(NO_MEDIA)),
    ("message_delimiters", NoEffect(CACHING)),
    ("messages", Read),
    ("metadata", NoEffect(LABEL)),
    ("min_keep", Refused(AtMost(1.0))),
    ("min_p", Read),
    ("min_tokens", Read),
    ("mirostat", Refused(Number(0.0))),
    ("mirostat_eta", NoEffect(NO_MIROSTAT)),
    ("mirostat_tau", NoEffect(NO_MIROSTAT)),
    ("mm_payload", NoEffect(ONLY_RENDERS)),
    ("mm_processor_kwargs", NoEffect(NO_MEDIA)),
    ("modalities", Refused(ListOf("text"))),
    ("model", Read),
    ("moderation", Refused(Empty)),
    ("n", Read),
    ("n_cache_reuse", NoEffect(CACHING)),
    ("n_cmpl", Read),
    ("n_discard", NoEffect(NO_SHIFT)),
    ("n_indent", Refused(Number(0.0))),
    ("n_keep", NoEffect(NO_SHIFT)),
    ("n_predict", Read),
    ("n_probs", Refused(Number(0.0))),
    ("parallel_tool_calls", NoEffect(NO_TOOLS)),
    ("parse_tool_calls", NoEffect(NO_TOOLS)),
    ("penalty_last_n", Read),
    ("post_sampling_probs", Refused(Empty)),
    ("prediction", NoEffect("a guess that can only speed the answer up")),
    ("presence_penalty", Read),
    ("preserved_tokens", NoEffect(NO_GRAMMAR)),
    ("priority", Refused(Number(0.0))),
    ("prompt", Read),
    ("prompt_cache_key", NoEffect(CACHING)),
    ("prompt_cache_options", NoEffect(CACHING)),
    ("prompt_cache_retention", NoEffect(CACHING)),
    ("prompt_embeds", Refused(Empty)),
    ("prompt_logprobs", Refused(Null)),
    ("reasoning_budget_end_tag", NoEffect(NO_THOUGHTS)),
    ("reasoning_budget_end_tags", NoEffect(NO_THOUGHTS)),
    ("reasoning_budget_message", NoEffect(NO_THOUGHTS)),
    ("reasoning_budget_start_tag", NoEffect(NO_THOUGHTS)),
    ("reasoning_budget_tokens", Refused(Number(-1.0))),
    ("reasoning_control", Refused(Empty)),
    ("reasoning_effort", Refused(Null)),
    ("reasoning_format", Refused(Words(&["", "none", "auto"]))),
    ("repeat_last_n", Read),
    ("repeat_penalty", Read),
    ("repetition_detection", Refused(Empty)),
    ("repetition_penalty", Read),
    ("request_id", Read),
    ("response_fields", Refused(Empty)),
    ("response_format", Read),
    ("return_mm_kwargs", NoEffect(ONLY_RENDERS)),
    ("return_progress", Refused(Empty)),
    ("return_prompt_text", Refused(Empty)),
    ("return_token_ids", Refused(Empty)),
    ("return_token_offsets", NoEffect(ONLY_RENDERS)),
    ("return_tokens", Refused(Empty)),
    ("return_tokens_as_token_ids", Refused(Empty)),
    ("return_weight_versions", Refused(Empty)),
    ("routed_experts_prompt_start", Refused(Number(0.0))),
    ("safety_identifier", NoEffect(LABEL)),
    ("samplers", Refused(Empty)),
    ("seed", Read),
    ("service_tier", NoEffect("only affects speed and price")),
    ("session_id", NoEffect(LABEL)),
    ("skip_special_tokens", Refused(True)),
    ("spaces_between_special_tokens", NoEffect("special tokens are never shown")),
    ("sse_ping_interval", NoEffect("only affects comments between a stream's events")),
    ("stop", Read),
    ("stop_token_ids", Read),
    ("store", NoEffect(LABEL)),
    ("stream", Read),
    ("stream_interval", NoEffect("only affects how many tokens share an event")),
    ("stream_options", Read),
    ("structured_outputs", Read),
    ("suffix", Refused(Empty)),
    ("t_max_predict_ms", Refused(AtMost(0.0))),
    ("temperature", Read),
    ("tfs_z", Refused(Number(1.0))),
    ("thinking_budget_tokens", Refused(Number(-1.0))),
    ("thinking_token_budget", Refused(Number(-1.0))),
    ("timings_per_token", Refused(Empty)),
    ("tool_choice", Read),
    ("tools", Refused(Empty)),
    ("top_k", Read),
    ("top_logprobs", Read),
    ("top_n_sigma", Refused(AtMost(0.0))),
    ("top_p", Read),
    ("truncate_prompt_tokens", Refused(Null)),
    ("truncation_side", NoEffect("only with truncate_prompt_tokens, which is refused")),
    ("typical_p", Refused(Number(1.0))),
    ("use_beam_search", Refused(Empty)),
    ("user", NoEffect(LABEL)),
    ("verbose", Refused(Empty)),
    ("verbosity", Refused(Words(&["medium"]))),
    ("vllm_xargs", Refused(Empty)),
    ("watermarking", Refused(Empty)),
    ("web_search_options", Refused(Null)),
    ("xtc_probability", Refused(Number(0.0))),
    ("xtc_threshold", NoEffect("only with xtc_probability, which is refused")),
];

/// The fields of `stream_options`.
pub const STREAM_OPTIONS: &[(&str, FieldRule)] = &[
    ("continuous_usage_stats", Read),
    ("include_obfuscation", Refused(Empty)),
    ("include_usage", Read),
];

/// The fields of `structured_outputs`.
pub const STRUCTURED_OUTPUTS: &[(&str, FieldRule)] = &[
    ("choice", Read),
    ("disable_additional_properties", NoEffect("only for JSON, which is refused")),
    ("disable_any_whitespace", NoEffect("only for JSON, which is refused")),
    ("grammar", Refused(Null)),
    ("json", Refused(Null)),
    ("json_object", Refused(Empty)),
    ("regex", Read),
    ("structural_tag", Refused(Null)),
    ("whitespace_pattern", NoEffect("only for JSON, which is refused")),
];
