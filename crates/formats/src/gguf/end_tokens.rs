//! The tokens that end a text. llama.cpp stops at every token that the metadata marks as an end of
//! text, of turn or of message, and also at any token with one of several well-known names,
//! regardless of the metadata (`special_eog_ids` in `llama-vocab.cpp`).

use crate::gguf::gguf_file::Gguf;

/// The names of tokens that end a text.
const NAMES: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// Returns the ids that end a text: first those in the metadata, then those found by name.
pub fn ids(gguf: &Gguf) -> Vec<u64> {
    const KEYS: [&str; 3] = [
        "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.eot_token_id",
        "tokenizer.ggml.eom_token_id",
    ];
    let tokens = gguf.list("tokenizer.ggml.tokens").unwrap_or_default();
    let piece = |id: usize| tokens.get(id)?.to_string().ok().map(String::as_str);
    // Ignore ids outside the vocabulary.
    let known = |id: &u64| tokens.is_empty() || *id < tokens.len() as u64;
    let of_key = |key: &str| gguf.number(key).filter(known);
    let mut ids: Vec<u64> = KEYS.iter().filter_map(|key| of_key(key)).collect();
    let is_named = |id: &usize| piece(*id).is_some_and(|piece| NAMES.contains(&piece));
    ids.extend((0..tokens.len()).filter(is_named).map(|id| id as u64));
    let mut seen = std::collections::BTreeSet::new();
    ids.retain(|id| seen.insert(*id));
    ids
}

/// Returns true for any of the names above. llama.cpp turns tokens with these names into control
/// tokens, regardless of their type in the file.
pub fn is_control(piece: &str) -> bool {
    NAMES.contains(&piece)
}
