#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 6: prefill and decode. A model gives scores for the next token; a loop makes a text of them.

use candecode::kit::{Model, NoCache, Step, Tokenizer};
use candle_core::{bail, IndexOp, Result, Tensor};

/// The logits of each row's last position: `(B, T, V)` to `(B, V)`. Only they predict a token that is not there yet.
///
/// # Errors
/// If there is no position.
pub fn last_logits(logits: &Tensor) -> Result<Tensor> {
    // task 6.1: keep the last position of every row
    todo!("day 6, task 1: keep the last position of every row")
}

/// One pass over all of `ids`, at positions 0, 1, …: the scores of what comes next, `(V)`, off the device.
///
/// # Errors
/// If `ids` is empty, or longer than the context.
pub fn next_logits(model: &dyn Model, ids: &[u32]) -> Result<Vec<f32>> {
    // task 6.2: one pass over all ids, and what its last position says
    todo!("day 6, task 2: one pass over all ids, and what its last position says")
}

/// What a loop did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// The tokens generated, EOS included.
    pub new_ids: Vec<u32>,
    /// Positions that the model computed, over all passes: what the loop cost.
    pub positions_computed: usize,
}

/// Prefill, then decode: one pass over the prompt gives the first new token, one more pass over the growing sequence gives
/// each next one (HF `generate` with `use_cache=False`).
///
/// `pick` chooses from the logits, `on_token` sees every token as it is made. It ends after a token of `eos`, which is
/// kept, or after `max_new_tokens`; 0 of them is an empty trace, and no pass.
///
/// # Errors
/// If a pass over an empty prompt is wanted, the sequence outgrows the context, or `pick` or `on_token` fails.
pub fn simple_generate(
    model: &dyn Model,
    prompt: &[u32],
    max_new_tokens: usize,
    eos: &[u32],
    pick: impl Fn(&[f32]) -> Result<u32>,
    mut on_token: impl FnMut(u32) -> Result<()>,
) -> Result<Trace> {
    // task 6.3: the loop; count the positions of every pass
    todo!("day 6, task 3: the loop; count the positions of every pass")
}

/// Text out of tokens, as they come, never with half a character in it (vLLM `detokenize_incrementally`).
///
/// A token is bytes, not characters: `é` may be two tokens, and a lone half decodes to `U+FFFD`.
pub struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    ids: Vec<u32>,
    prefix: usize, // decoding starts here: far enough back for the tokenizer to see what came before
    read: usize,   // the ids below this one are already text
}

impl<'a> TextStream<'a> {
    /// A stream that starts with nothing.
    pub fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, ids: Vec::new(), prefix: 0, read: 0 }
    }

    /// Takes the next token; gives the text that is certain now, which may be empty. What is text already never changes:
    /// our tokenizers join bytes and clean nothing up, so the longer decoding begins with the shorter one.
    ///
    /// # Errors
    /// If the tokenizer fails.
    pub fn push(&mut self, id: u32) -> Result<String> {
        // task 6.4: the text that has become certain with this token
        todo!("day 6, task 4: the text that has become certain with this token")
    }

    /// At the end: what was held back, broken as it may be. No `push` comes after it.
    ///
    /// # Errors
    /// If the tokenizer fails.
    pub fn finish(&mut self) -> Result<String> {
        // task 6.5: give what was held back
        todo!("day 6, task 5: give what was held back")
    }
}

/// One pass over a finished text, `ids`, gives every token that the loop chose: row `i` chooses token `i + 1`, so these are
/// the choices of rows `prompt_len - 1` to `ids.len() - 2`, one for each token after the prompt (none, if there is none).
/// What the last row chooses stands in no text yet, and is left out.
///
/// This is why a cache is legal (the past does not change when the future is added) and why K drafted tokens can be
/// verified in one pass.
///
/// # Errors
/// If `prompt_len` is 0 or more than `ids.len()`, or `pick` fails.
pub fn one_pass_predicts_every_step(
    model: &dyn Model,
    ids: &[u32],
    prompt_len: usize,
    pick: impl Fn(&[f32]) -> Result<u32>,
) -> Result<Vec<u32>> {
    // task 6.6: the choice after every position, from a single pass
    todo!("day 6, task 6: the choice after every position, from a single pass")
}

/// How many tokens of `draft` the loop itself would have chosen after `text`, counted from the first: what one pass over
/// `text` and `draft` accepts (greedy speculative decoding, day 13).
///
/// # Errors
/// As [`one_pass_predicts_every_step`].
pub fn accepted(
    model: &dyn Model,
    text: &[u32],
    draft: &[u32],
    pick: impl Fn(&[f32]) -> Result<u32>,
) -> Result<usize> {
    // task 6.7 (further): count the drafted tokens that stand before the first wrong one
    todo!("day 6, task 7: count the drafted tokens that stand before the first wrong one")
}
