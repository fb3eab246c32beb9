#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 9: penalties. Three ways to make what was said less likely to be said again, and one to
//! forbid it.

use candecode::kit::{named, LogitsProcessor, SamplingParams};
use candle_core::{bail, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Divides the positive logits of tokens that occurred by `penalty`, and multiplies the negative
/// ones: both go down for `penalty` above 1. Once for each token, however often it occurred, prompt
/// included; what would leave the range of f32 stays at its end (Keskar et al. 2019; HF
/// `RepetitionPenaltyLogitsProcessor`; vLLM `repetition_penalty`).
///
/// # Errors
/// If `penalty` is not a finite number above 0. The message names the repetition penalty.
pub fn repetition_penalty(logits: &mut [f32], tokens: &[u32], penalty: f32) -> Result<()> {
    // task 9.1: what came becomes less likely, whatever its sign
    todo!("day 9, task 1: what came becomes less likely, whatever its sign")
}

/// How often each token occurs.
pub fn counts(tokens: &[u32]) -> BTreeMap<u32, u32> {
    // task 9.2: count the tokens
    todo!("day 9, task 2: count the tokens")
}

/// Subtracts `presence` once from the logit of every token that was *generated*, and `frequency`
/// for each time that it was (OpenAI `presence_penalty`, `frequency_penalty`; vLLM's of the same
/// names). The prompt does not count.
///
/// # Errors
/// If either is not in [-2, 2], OpenAI's and vLLM's range. The message names it: presence or
/// frequency.
pub fn presence_frequency(
    logits: &mut [f32],
    generated: &[u32],
    presence: f32,
    frequency: f32,
) -> Result<()> {
    // task 9.3: take presence once, and frequency for each time
    todo!("day 9, task 3: take presence once, and frequency for each time")
}

/// Forbids every token that would complete an n-gram that the text already has, prompt included (HF
/// `NoRepeatNGramLogitsProcessor`): its logit becomes `-inf`.
///
/// # Errors
/// If `n` is 0. The message names the n-gram: `no_repeat_ngram`, `n-gram` or the like.
pub fn no_repeat_ngram(logits: &mut [f32], tokens: &[u32], n: usize) -> Result<()> {
    // task 9.4: forbid whatever would complete an n-gram a second time
    todo!("day 9, task 4: forbid whatever would complete an n-gram a second time")
}

/// The last `window` tokens, of 0 none: llama.cpp's `repeat_last_n`. None: all of them (there -1).
pub fn recent(tokens: &[u32], window: Option<usize>) -> &[u32] {
    // task 9.5: the last tokens of a text
    todo!("day 9, task 5: the last tokens of a text")
}

/// The processors of a request's penalties: repetition (prompt and completion), presence and
/// frequency (completion only; one processor or two), n-grams; guard rails and day 8's warpers
/// follow them. A parameter at its neutral value makes none. Names begin with the function's,
/// `repetition_penalty(1.2)` and `no_repeat_ngram(3)`, or the parameter's, `presence_penalty(1)`.
///
/// # Errors
/// If a parameter is out of range: here, before the model runs, and as the penalty itself would say
/// it.
pub fn penalties(params: &SamplingParams) -> Result<Vec<Rc<dyn LogitsProcessor>>> {
    // task 9.6: one named processor for each penalty that is set, with the right scope of tokens
    todo!("day 9, task 6: one named processor for each penalty that is set, with the right scope of tokens")
}
