#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 9: penalties. Three ways to make repetition less likely, and one to rule it out.

use candecode::kit::{named, LogitsProcessor, SamplingParams};
use candle_core::{bail, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Makes the tokens in `tokens` less likely by the factor `penalty`, whatever the sign
/// of their logits (after Keskar et al. 2019, who only divide; transformers
/// `RepetitionPenaltyLogitsProcessor`; vLLM `repetition_penalty`).
///
/// Each token is penalized once, no matter how often it occurs. A logit of `-inf` stays
/// `-inf`. A finite logit stays finite: one that would be out of range for f32 becomes
/// `f32::MIN` or `f32::MAX`. Ids beyond the vocabulary are ignored.
///
/// # Errors
/// If `penalty` isn't finite, or isn't above 0. The message contains `repetition`.
pub fn repetition_penalty(logits: &mut [f32], tokens: &[u32], penalty: f32) -> Result<()> {
    // task 9.1: Make every token that occurred less likely, whatever the sign of its logit
    todo!(
        "day 9, task 1: Make every token that occurred less likely, whatever the sign of its logit"
    )
}

/// Counts how often each token occurs.
pub fn counts(tokens: &[u32]) -> BTreeMap<u32, u32> {
    let mut counts = BTreeMap::new();
    for id in tokens {
        *counts.entry(*id).or_default() += 1;
    }
    counts
}

/// Subtracts `presence` once from the logit of every token in `generated`, and
/// `frequency` once per occurrence (OpenAI's and vLLM's `presence_penalty` and
/// `frequency_penalty`).
///
/// `generated` doesn't include the prompt. Ids beyond the vocabulary are ignored.
///
/// # Errors
/// If either isn't in [-2, 2], the range that OpenAI and vLLM accept. The message names
/// the parameter.
pub fn presence_frequency(
    logits: &mut [f32],
    generated: &[u32],
    presence: f32,
    frequency: f32,
) -> Result<()> {
    // task 9.2: Subtract presence once, and frequency per occurrence
    todo!("day 9, task 2: Subtract presence once, and frequency per occurrence")
}

/// Forbids every token that would complete an n-gram that `tokens` already contains, by
/// setting its logit to `-inf` (transformers `NoRepeatNGramLogitsProcessor`). Ids
/// beyond the vocabulary are ignored.
///
/// # Errors
/// If `n` is 0. The message contains `n-gram` or `ngram`.
pub fn no_repeat_ngram(logits: &mut [f32], tokens: &[u32], n: usize) -> Result<()> {
    // task 9.3: Forbid each token that would repeat an n-gram
    todo!("day 9, task 3: Forbid each token that would repeat an n-gram")
}

/// Returns the last `window` tokens, or all of them if there are fewer or `window` is
/// None (llama.cpp's `repeat_last_n`, which uses -1 for None).
pub fn recent(tokens: &[u32], window: Option<usize>) -> &[u32] {
    // task 9.4: Return the last tokens of a text
    todo!("day 9, task 4: Return the last tokens of a text")
}

/// Builds the processors for a request's penalties, in this order: repetition (prompt
/// and completion), presence and frequency (completion only, as one processor or two),
/// n-grams (prompt and completion, ignoring the window). Guard rails and day 8's
/// filters come after them.
///
/// A parameter at its neutral value adds no processor. A processor's name starts with
/// the name of its function or parameter: `repetition_penalty(1.2)`,
/// `presence_penalty(1)`, `no_repeat_ngram(3)`, or `presence_frequency(1, 0.5)` for
/// both in one.
///
/// # Errors
/// If a parameter is out of range, with the same message as the penalty's own function.
pub fn penalties(params: &SamplingParams) -> Result<Vec<Rc<dyn LogitsProcessor>>> {
    // task 9.5: Build a processor for each penalty that is set, and give it the right tokens
    todo!("day 9, task 5: Build a processor for each penalty that is set, and give it the right tokens")
}

/// Penalizes tokens that would continue a repetition. The longer the repetition already
/// is, the larger the penalty (DRY, "don't repeat yourself"; llama.cpp's `dry` sampler,
/// without its sequence breakers).
///
/// A token's *match* is the longest suffix of the text that also occurs earlier,
/// followed by this token. If it has at least `allowed_length` tokens, the token's
/// logit is reduced by `multiplier * base^(length - allowed_length)`. The first token of
/// the text follows nothing, so it's no match, whatever length is allowed. A `multiplier`
/// of 0 changes nothing.
pub fn dry(logits: &mut [f32], tokens: &[u32], multiplier: f32, base: f32, allowed_length: usize) {
    // task 9.6 (challenge): Penalize only tokens that would continue a repetition
    todo!("day 9, task 6: Penalize only tokens that would continue a repetition")
}
