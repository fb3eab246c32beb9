//! Day 14, every spelling: all the ways to split a word into tokens, and the automaton that reads
//! them.

use super::Answer;
use crate::model;
use candecode::day06_generate::next_logits;
use candecode::day07_greedy::argmax;
use candecode::day14_guard_rails::{block_pattern, Automaton, GuardRail, Rule};
use candecode::kit::{LogitsProcessor, Model, ProcessorInput};
use serde::Deserialize;
use serde_json::{json, Value};
use std::collections::HashMap;

/// The parameters that the page sends.
#[derive(Deserialize)]
pub struct Question {
    word: String,
    /// The text for the block list's automaton to read.
    text: String,
    whole: bool,
    /// The prompt for the model to continue, and the number of new tokens.
    prompt: String,
    new: usize,
}

/// Maximum length of a word that fits in the figure, in bytes.
const MOST: usize = 24;

/// The number of bytes of the text that the automaton reads.
const READ: usize = 200;

/// Returns a word's lattice, its number of paths, and the automaton's walk over a text.
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
    let mut paths = vec![0u64; bytes.len() + 1]; // paths from the start of the word to each place
    paths[0] = 1;
    let mut with_text = 0; // special tokens have no text, and rails always forbid them
    let mut by_bytes: HashMap<Vec<u8>, Vec<u32>> = HashMap::new();
    for id in 0..tokenizer.vocab_size() as u32 {
        let piece = tokenizer.token_bytes(id);
        with_text += usize::from(!piece.is_empty());
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
    let pattern = block_pattern(&[word.to_string()], q.whole)?;
    let automaton = Automaton::new(&pattern, rule)?;
    let mut state = automaton.start();
    let mut numbers = HashMap::from([(state, 0)]);
    let mut number = |state| {
        let next = numbers.len();
        *numbers.entry(state).or_insert(next)
    };
    let mut walk = Vec::new();
    for byte in q.text.bytes().take(READ) {
        state = automaton.read(state, &[byte]);
        let broken = automaton.violates(state);
        walk.push(json!({ "byte": byte, "state": number(state), "broken": broken }));
    }

    let cut = q.text.len() > READ;
    // A whole word at the end of the text breaks the rule once the next byte isn't part of it.
    let undecided = !cut && !automaton.may_end(state);

    // Generate with the model, once without the rail and once with it. The rail's states are
    // numbered like the walk's, because equal patterns compile to equal automata.
    let model = engine.model();
    let rail = GuardRail::new("block", automaton, tokenizer, model.config().vocab_size);
    let prompt = model::tokens(&q.prompt)?;
    let free = written(&prompt, q.new, |_, _| Ok(Value::Null))?;
    let railed = written(&prompt, q.new, |input, logits| {
        let state = rail.state(input);
        let first = input.tokens.len() == input.prompt_len;
        let legal = rail.legal(state, first).iter().filter(|legal| **legal).count();
        let liked = argmax(logits)?;
        rail.process(input, logits)?;
        let forbidden = logits[liked as usize] == f32::NEG_INFINITY;
        Ok(json!({
            "state": number(state), "forbidden": with_text - legal,
            "instead_of": forbidden.then(|| model::shown(liked)),
        }))
    })?;
    Ok(json!({
        "bytes": bytes, "word": word, "edges": edges, "paths": paths.last(),
        "usual": model::all_shown(&usual), "walk": walk, "cut": cut,
        "undecided": undecided, "free": free, "railed": railed,
    }))
}

/// Generates greedily, token by token, from logits that `process` may change. Returns each token
/// with the value `process` returned for it.
fn written(
    prompt: &[u32],
    new: usize,
    mut process: impl FnMut(&ProcessorInput, &mut [f32]) -> candle_core::Result<Value>,
) -> candle_core::Result<Vec<Value>> {
    let model = model::transformer().map_err(candle_core::Error::msg)?;
    let eos = &model.config().eos_token_ids;
    let mut tokens = prompt.to_vec();
    let mut steps = Vec::new();
    for step in 0..new {
        let mut logits = next_logits(model, &tokens)?;
        let remaining = new - step + 1; // the figure's limit doesn't end the text
        let input = ProcessorInput { tokens: &tokens, prompt_len: prompt.len(), remaining, eos };
        let said = process(&input, &mut logits)?;
        let id = argmax(&logits)?;
        steps.push(json!({ "token": model::shown(id), "rail": said }));
        tokens.push(id);
        if eos.contains(&id) {
            break;
        }
    }
    Ok(steps)
}
