//! What a model's `generation_config.json` asks for beyond its EOS ids. It is said, not done: the command implies nothing.

use crate::cli::flags::Args;
use serde_json::Value;

/// What `config` asks for and `args` do not, and the flags that would do it. None: nothing.
///
/// transformers heeds temperature, top-k, top-p and min-p only with `do_sample`, and then, silently, a top-k of 50.
pub fn advice(config: &Value, args: &Args) -> Option<String> {
    let sampled = config.get("do_sample").and_then(Value::as_bool).unwrap_or(false);
    // Key, flag, what is given, and what asks for nothing.
    let warpers = [
        ("temperature", "--temperature", args.temperature, f64::NAN),
        ("top_k", "--top-k", args.top_k.map(|k| k as f64), 0.0),
        ("top_p", "--top-p", args.top_p, 1.0),
        ("min_p", "--min-p", args.min_p, 0.0),
    ];
    let default_new = if args.chat { 512.0 } else { 128.0 }; // as `cli/flags` has it
    let others = [
        ("repetition_penalty", "--repetition-penalty", args.repetition_penalty.map(f64::from), 1.0),
        ("no_repeat_ngram_size", "--no-repeat-ngram", args.no_repeat_ngram.map(|n| n as f64), 0.0),
        ("num_beams", "--num-beams", given(args.num_beams as f64, 1.0), 1.0),
        (
            "num_return_sequences",
            "--num-return-sequences",
            given(args.num_return_sequences as f64, 1.0),
            1.0,
        ),
        ("length_penalty", "--length-penalty", given(args.length_penalty, 1.0), 1.0),
        (
            "max_new_tokens",
            "--max-new-tokens",
            given(args.max_new_tokens as f64, default_new),
            f64::NAN,
        ),
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
        if given.is_none() {
            asks.push(format!("{key}={value}"));
            flags.push(format!("{flag} {value}"));
        }
    }
    let known = |key: &str| warpers.iter().chain(&others).any(|(known, ..)| *known == key);
    let silent = |value: &Value| matches!(value, Value::Null | Value::Bool(false));
    for (key, value) in config.as_object()? {
        let of_no_effect = key.starts_with('_')
            || ["_token_id", "_version"].iter().any(|end| key.ends_with(end))
            || ["output_", "return_"].iter().any(|start| key.starts_with(start))
            || ["do_sample", "use_cache", "max_length"].contains(&key.as_str());
        if !of_no_effect && !known(key) && !silent(value) {
            asks.push(format!("{key}={value}"));
        }
    }
    if asks.is_empty() || (flags.is_empty() && asks == ["do_sample=true"]) {
        return None;
    }
    let way = match flags.is_empty() {
        true => String::new(),
        false => format!("; for the same add {}", flags.join(" ")),
    };
    Some(format!(
        "note: generation_config.json asks for {}; the command does only what its flags say{way}",
        asks.join(", ")
    ))
}

/// The value of a flag that has a default, if it is another.
fn given(value: f64, default: f64) -> Option<f64> {
    (value != default).then_some(value)
}
