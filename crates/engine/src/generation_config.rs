//! Settings other than EOS ids from a model's `generation_config.json` or a GGUF file's metadata.
//! They are reported, not applied: nothing changes a run's settings implicitly.

use candecode::kit::error::shown;
use serde_json::Value;

/// The settings that a run was given, as numbers. None: not given, so the default holds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    /// The sampling temperature.
    pub temperature: Option<f64>,
    /// How many of the likeliest tokens to sample from.
    pub top_k: Option<f64>,
    /// The probability mass to sample from.
    pub top_p: Option<f64>,
    /// The least probability, relative to the likeliest token's.
    pub min_p: Option<f64>,
    /// The repetition penalty.
    pub repetition_penalty: Option<f64>,
    /// The length of the n-grams that must not repeat.
    pub no_repeat_ngram: Option<f64>,
    /// The number of beams.
    pub num_beams: Option<f64>,
    /// The number of sequences per prompt.
    pub num_return_sequences: Option<f64>,
    /// Beam search's length penalty.
    pub length_penalty: Option<f64>,
    /// The maximum number of new tokens.
    pub max_new_tokens: Option<f64>,
}

/// Lists what `config`, read from `source`, asks for and `given` doesn't, with the flags that would
/// apply it. Reports every key that can change the text. None: nothing to report.
///
/// transformers applies temperature, top-k, top-p and min-p only with `do_sample`, and then,
/// silently, a top-k of 50.
pub fn advice(config: &Value, source: &str, given: &Settings) -> Option<String> {
    let (asks, flags) = wishes(config, given)?;
    let way = if flags.is_empty() {
        String::new()
    } else {
        format!("; for the same add {}", flags.join(" "))
    };
    Some(format!("note: {source} asks for {asks}; the command does only what its flags say{way}"))
}

/// Like [`advice`], but for a server. There, every request has its own settings.
pub fn advice_for_requests(config: &Value, source: &str) -> Option<String> {
    let (asks, _) = wishes(config, &Settings::default())?;
    Some(format!("[{source} asks for {asks}; the server does only what a request says]"))
}

/// Describes the settings that `given` doesn't match, and returns the flags that would.
fn wishes(config: &Value, given: &Settings) -> Option<(String, Vec<String>)> {
    let sampled = config.get("do_sample").and_then(Value::as_bool).unwrap_or(false);
    // Key, flag, current value, and neutral value.
    let warpers = [
        ("temperature", "--temperature", given.temperature, f64::NAN),
        ("top_k", "--top-k", given.top_k, 0.0),
        ("top_p", "--top-p", given.top_p, 1.0),
        ("min_p", "--min-p", given.min_p, 0.0),
    ];
    let others = [
        ("repetition_penalty", "--repetition-penalty", given.repetition_penalty, 1.0),
        ("no_repeat_ngram_size", "--no-repeat-ngram", given.no_repeat_ngram, 0.0),
        ("num_beams", "--num-beams", given.num_beams, 1.0),
        ("num_return_sequences", "--num-return-sequences", given.num_return_sequences, 1.0),
        ("length_penalty", "--length-penalty", given.length_penalty, 1.0),
        ("max_new_tokens", "--max-new-tokens", given.max_new_tokens, f64::NAN),
    ];
    let (mut asks, mut flags) = (Vec::new(), Vec::new());
    if sampled {
        asks.push("do_sample=true".to_string());
    }
    let heeded = warpers.iter().filter(|_| sampled).chain(&others);
    for (key, flag, given, nothing) in heeded {
        let value = match (config.get(*key).and_then(Value::as_f64), *key) {
            (None, "temperature") if sampled => 1.0,
            (None, "top_k") if sampled => 50.0,
            (Some(value), _) if value != *nothing => value,
            _ => continue,
        };
        let short = (1e-6..1e15).contains(&value.abs()) || value == 0.0;
        let value = if short { value.to_string() } else { format!("{value:e}") };
        if given.is_none() {
            asks.push(format!("{key}={value}"));
            flags.push(format!("{flag} {value}"));
        }
    }
    let known = |key: &str| warpers.iter().chain(&others).any(|(known, ..)| *known == key);
    for (key, value) in config.as_object()? {
        let counted = known(key) && (value.is_number() || value.is_null());
        if !counted && !asks_for_nothing(key, value) {
            asks.push(format!("{}={}", shown(key), shown(value)));
        }
    }
    if asks.is_empty() || (flags.is_empty() && asks == ["do_sample=true"]) {
        return None;
    }
    if asks.len() > MOST {
        let more = asks.len() - MOST;
        asks.truncate(MOST);
        asks.push(format!("{more} more"));
    }
    Some((asks.join(", "), flags))
}

/// Maximum number of keys the note lists.
const MOST: usize = 30;

/// Keys that don't change the text: EOS ids, which are read elsewhere; other ids; and options for a
/// call's return value or for how it computes, such as assisted generation and prompt lookup, which
/// only change the speed.
const NO_EFFECT: &[&str] = &[
    "do_sample", // already taken into account
    "eos_token_id",
    "bos_token_id",
    "pad_token_id",
    "decoder_start_token_id", // for encoder-decoder models
    "transformers_version",
    "output_attentions",
    "output_hidden_states",
    "output_logits",
    "output_scores",
    "return_dict_in_generate",
    "use_cache",
    "cache_implementation",
    "cache_config",
    "max_cache_len",
    "low_memory",
    "prefill_chunk_size",
    "disable_compile",
    "compile_config",
    "continuous_batching_config",
    "renormalize_logits",
    "remove_invalid_values",
    "is_assistant",
    "use_mtp",
    "speculation_type",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "assistant_confidence_threshold",
    "assistant_early_exit",
    "assistant_ensemble_weight",
    "assistant_lookbehind",
    "target_lookbehind",
    "prompt_lookup_num_tokens",
    "max_matching_ngram_size",
];

/// Neutral values. For every other key, it's 0.
const NEUTRAL: &[(&str, f64)] = &[
    ("num_beam_groups", 1.0),
    ("encoder_repetition_penalty", 1.0),
    ("guidance_scale", 1.0),
    ("typical_p", 1.0),
    ("max_length", 20.0), // transformers' default, which it ignores
];

/// Returns true if this key, with this value, doesn't change the text.
fn asks_for_nothing(key: &str, value: &Value) -> bool {
    if key.starts_with('_') || key.ends_with("_version") || NO_EFFECT.contains(&key) {
        return true;
    }
    let neutral = NEUTRAL.iter().find(|(name, _)| *name == key).map_or(0.0, |(_, value)| *value);
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(neutral),
        Value::Array(list) => list.is_empty(),
        Value::Object(table) => table.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(true) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, Map};

    #[test]
    fn a_foreign_file_makes_a_short_note_without_control_characters() {
        let note = |config| advice(&config, "a file", &Settings::default()).unwrap();
        let keys = (0..100_000).map(|n| (format!("key_{n}"), json!(n)));
        let mut many: Map<String, Value> = keys.collect();
        many.insert("a\u{1b}[2J".into(), json!("\u{7}\n"));
        many.insert("b".into(), json!("long".repeat(1_000_000)));
        many.insert("c".repeat(1_000_000), json!({"deep": [1, 2]}));
        many.insert("do_sample".into(), json!(true));
        many.insert("temperature".into(), json!(1e308));
        let long = note(Value::Object(many));
        assert!(long.len() < 15_000, "{} bytes", long.len());
        assert!(!long.contains(char::is_control), "{long:?}");
        assert!(long.contains(" more; "), "{long}");
        let few = note(json!({"a\u{1b}": "\u{7}"}));
        assert!(!few.contains(char::is_control), "{few:?}");
    }
}
