//! Day 14, every spelling: the tokens that a word can be cut into, and the automaton that reads
//! them.

use super::Answer;
use crate::model;
use candecode::day14_guard_rails::{block_pattern, Automaton, Rule};
use serde::Deserialize;
use serde_json::json;
use std::collections::HashMap;

/// What the page asks.
#[derive(Deserialize)]
pub struct Question {
    word: String,
    /// Text that the automaton of the block list reads.
    text: String,
    whole: bool,
}

/// The most bytes of a word that the figure has room for.
const MOST: usize = 24;

/// The lattice of a word, how many paths it has, and the automaton's walk over a text.
pub fn answer(q: Question) -> Answer {
    let engine = model::engine()?;
    let tokenizer = engine.tokenizer();
    let word = q.word.trim();
    if word.is_empty() {
        return Err("type a word".into());
    }
    if word.len() > MOST {
        return Err(format!(
            "a word of {} bytes is too long for this figure: at most {MOST}",
            word.len()
        )
        .as_str()
        .into());
    }
    let bytes = word.as_bytes();
    let mut edges = Vec::new();
    let mut paths = vec![0u64; bytes.len() + 1]; // from the word's begin to each place
    paths[0] = 1;
    let mut by_bytes: HashMap<Vec<u8>, Vec<u32>> = HashMap::new();
    for id in 0..tokenizer.vocab_size() as u32 {
        let piece = tokenizer.token_bytes(id);
        if !piece.is_empty() && piece.len() <= bytes.len() {
            by_bytes.entry(piece).or_default().push(id);
        }
    }
    for from in 0..bytes.len() {
        for to in from + 1..=bytes.len() {
            for id in by_bytes.get(&bytes[from..to]).into_iter().flatten() {
                edges.push(json!({ "from": from, "to": to, "id": id, "token": model::shown(*id) }));
                paths[to] = paths[to].saturating_add(paths[from]);
            }
        }
    }
    let usual = tokenizer.encode(word)?;

    let rule = if q.whole { Rule::BlockWord } else { Rule::BlockSubstring };
    let automaton = Automaton::new(&block_pattern(&[word.to_string()], q.whole)?, rule)?;
    let mut state = automaton.start();
    let mut numbers = HashMap::from([(state, 0)]);
    let mut walk = Vec::new();
    for byte in q.text.bytes().take(200) {
        state = automaton.read(state, &[byte]);
        let next = numbers.len();
        let number = *numbers.entry(state).or_insert(next);
        walk.push(json!({
            "byte": byte, "state": number, "broken": automaton.violates(state),
            "may_end": automaton.may_end(state),
        }));
    }
    Ok(json!({
        "bytes": bytes, "word": word, "edges": edges, "paths": paths.last(),
        "usual": model::all_shown(&usual), "walk": walk,
    }))
}
