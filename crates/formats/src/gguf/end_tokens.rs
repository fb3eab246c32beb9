//! The tokens that end a text. llama.cpp stops at every token that the metadata marks as an end of
//! text, of turn or of message, and also at any token with one of several well-known names,
//! regardless of the metadata (`special_eog_ids` in `llama-vocab.cpp`).

use crate::gguf::gguf_file::Gguf;
use crate::gguf::gguf_keys;

/// The names of tokens that end a text.
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

/// Three more tokens, from code models, end a text: padding, the next repository, and the next
/// file. Each is found by its key or, if the key is missing, by the first matching name in the
/// vocabulary.
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
    let named = |names: &[&str]| -> Vec<u64> {
        let has = |id: &usize| piece(*id).is_some_and(|piece| names.contains(&piece));
        (0..tokens.len()).filter(has).map(|id| id as u64).collect()
    };
    let mut ids: Vec<u64> = KEYS.iter().filter_map(|key| of_key(key)).collect();
    // Ollama's converter writes this list, but llama.cpp doesn't read it.
    let more = gguf.list("tokenizer.ggml.eos_token_ids").unwrap_or_default();
    let more = more.iter().filter_map(gguf_keys::number).filter(|id| *id >= 0.0);
    ids.extend(more.map(|id| id as u64).filter(known));
    ids.extend(named(NAMES));
    for (key, names) in OF_CODE {
        ids.extend(of_key(key).or_else(|| named(names).first().copied()));
    }
    let mut seen = std::collections::BTreeSet::new();
    ids.retain(|id| seen.insert(*id));
    // llama.cpp makes two exceptions: "<|end|>" ends only part of a message in gpt-oss and Solar
    // Open, and "</s>" is an ordinary word in Gemma 4 and PLaMo.
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

/// Returns true for any of the names above. llama.cpp turns tokens with these names into control
/// tokens, regardless of their type in the file.
pub fn is_control(piece: &str) -> bool {
    NAMES.contains(&piece) || OF_CODE.iter().any(|(_, names)| names.contains(&piece))
}
