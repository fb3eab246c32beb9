//! What a model's `generation_config.json`, or a GGUF file's metadata, asks for beyond its EOS ids. It is
//! said, not done: the command implies nothing.

use crate::cli::flags::Args;
use serde_json::Value;

/// Says what `config`, which comes from `source`, asks for and `args` do not, and the flags that would do
/// it. None: nothing that there is a flag for.
pub fn advice(config: &Value, source: &str, args: &Args) -> Option<String> {
    let new = if args.chat { 512 } else { 128 }; // as `cli/flags` has it
    let given = |key: &str| match key {
        "temperature" => args.temperature.is_some(),
        "top_k" => args.top_k.is_some(),
        "top_p" => args.top_p.is_some(),
        "min_p" => args.min_p.is_some(),
        "repetition_penalty" => args.repetition_penalty.is_some(),
        "no_repeat_ngram_size" => args.no_repeat_ngram.is_some(),
        "num_beams" => args.num_beams != 1,
        "num_return_sequences" => args.num_return_sequences != 1,
        "length_penalty" => args.length_penalty != 1.0,
        _ => args.max_new_tokens != new,
    };
    let wishes: Vec<_> = wishes(config).into_iter().filter(|(key, ..)| !given(key)).collect();
    let flags: Vec<String> = wishes.iter().map(|(_, flag, x)| format!("{flag} {x}")).collect();
    let flags = flags.join(" ");
    let asks = words(config, &wishes)?;
    Some(format!(
        "note: {source} asks for {asks}; the command does only what its flags say; for the same add \
         {flags}"
    ))
}

/// As [`advice`], for a server, where every request has its own settings.
pub fn advice_for_requests(config: &Value, source: &str) -> Option<String> {
    let asks = words(config, &wishes(config))?;
    Some(format!("[{source} asks for {asks}; the server does only what a request says]"))
}

/// The wishes on one line; None if there is none.
fn words(config: &Value, wishes: &[Wish]) -> Option<String> {
    let sampled = samples(config).then(|| "do_sample=true".to_string());
    let wishes = wishes.iter().map(|(key, _, value)| format!("{key}={value}"));
    let words: Vec<String> = sampled.into_iter().chain(wishes).collect();
    (words.len() > usize::from(samples(config))).then(|| words.join(", "))
}

/// A key of the configuration, our flag for it, and the value that is asked for.
type Wish = (&'static str, &'static str, String);

/// What a configuration asks for, if it changes a text.
///
/// transformers heeds temperature, top-k, top-p and min-p only with `do_sample`, and then, silently, a
/// top-k of 50.
fn wishes(config: &Value) -> Vec<Wish> {
    let nothing = f64::NAN;
    let sampling = [
        ("temperature", "--temperature", 1.0, nothing),
        ("top_k", "--top-k", 50.0, 0.0),
        ("top_p", "--top-p", 1.0, 1.0),
        ("min_p", "--min-p", 0.0, 0.0),
    ];
    let others = [
        ("repetition_penalty", "--repetition-penalty", 1.0, 1.0),
        ("no_repeat_ngram_size", "--no-repeat-ngram", 0.0, 0.0),
        ("num_beams", "--num-beams", 1.0, 1.0),
        ("num_return_sequences", "--num-return-sequences", 1.0, 1.0),
        ("length_penalty", "--length-penalty", 1.0, 1.0),
        ("max_new_tokens", "--max-new-tokens", nothing, nothing),
    ];
    let mut wishes = Vec::new();
    for (key, flag, default, neutral) in
        sampling.into_iter().filter(|_| samples(config)).chain(others)
    {
        let value = config[key].as_f64().unwrap_or(default);
        let short = (1e-6..1e15).contains(&value.abs()) || value == 0.0;
        let shown = if short { value.to_string() } else { format!("{value:e}") };
        if value != neutral && !value.is_nan() {
            wishes.push((key, flag, shown));
        }
    }
    wishes
}

/// Whether transformers would sample.
fn samples(config: &Value) -> bool {
    config["do_sample"] == true
}
