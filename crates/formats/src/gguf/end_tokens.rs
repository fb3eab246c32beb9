//! The tokens that end a text. llama.cpp ends it at every token that the metadata calls an end of
//! text, of turn or of message, and at every token with one of some well-known names, whatever the
//! metadata says (`special_eog_ids` in `llama-vocab.cpp`).

use crate::gguf::{gguf_keys, Gguf};

/// Tokens with these names end a text.
pub const NAMES: &[&str] = &[
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

/// So do these three of code models: padding, the next repository, and the next file. Each is the
/// token of its key, and without the key the first one that has a name of the list.
const OF_CODE: &[(&str, &[&str])] = &[
    (
        "tokenizer.ggml.fim_pad_token_id",
        &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"],
    ),
    (
        "tokenizer.ggml.fim_rep_token_id",
        &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"],
    ),
    ("tokenizer.ggml.fim_sep_token_id", &["<|file_sep|>"]),
];

/// The ids that end a text: those of the metadata first, then those with a name.
pub fn ids(gguf: &Gguf) -> Vec<u64> {
    const KEYS: [&str; 3] = [
        "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.eot_token_id",
        "tokenizer.ggml.eom_token_id",
    ];
    let tokens = gguf.list("tokenizer.ggml.tokens").unwrap_or_default();
    let piece = |id: usize| tokens.get(id)?.to_string().ok().map(String::as_str);
    // An id beyond the vocabulary counts for nothing.
    let known = |id: &u64| tokens.is_empty() || *id < tokens.len() as u64;
    let of_key = |key: &str| gguf.number(key).filter(known);
    let named = |names: &[&str]| -> Vec<u64> {
        let has = |id: &usize| piece(*id).is_some_and(|piece| names.contains(&piece));
        (0..tokens.len()).filter(has).map(|id| id as u64).collect()
    };
    let mut ids: Vec<u64> = KEYS.iter().filter_map(|key| of_key(key)).collect();
    // A list that Ollama's converter writes, and llama.cpp doesn't read.
    let more = gguf.list("tokenizer.ggml.eos_token_ids").unwrap_or_default();
    let more = more.iter().filter_map(gguf_keys::number).filter(|id| *id >= 0.0);
    ids.extend(more.map(|id| id as u64).filter(known));
    ids.extend(named(NAMES));
    for (key, names) in OF_CODE {
        ids.extend(of_key(key).or_else(|| named(names).first().copied()));
    }
    let mut seen = std::collections::BTreeSet::new();
    ids.retain(|id| seen.insert(*id));
    // Two exceptions of llama.cpp's: "<|end|>" ends a part of a message in gpt-oss and Solar Open,
    // and "</s>" is a word of Gemma 4 and PLaMo.
    let has = |name: &str| ids.iter().any(|id| piece(*id as usize) == Some(name));
    let calls = has("<|call|>") || has("<|calls|>");
    let parts = (has("<|return|>") || has("<|flush|>")) && calls;
    let word = has("<|tool_response>") || has("<|plamo:eos|>");
    let no_end = |id: &u64| match piece(*id as usize) {
        Some("<|end|>") => parts,
        Some("</s>") => word,
        _ => false,
    };
    let removed: Vec<u64> = ids.iter().copied().filter(no_end).collect();
    ids.retain(|id| !removed.contains(id));
    ids
}

/// True for the names above: llama.cpp makes control tokens of them, whatever type the file gives
/// them.
pub fn is_control(piece: &str) -> bool {
    NAMES.contains(&piece) || OF_CODE.iter().any(|(_, names)| names.contains(&piece))
}
