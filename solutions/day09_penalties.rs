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
    // <solution>
    if !(penalty.is_finite() && penalty > 0.0) {
        bail!("repetition_penalty must be a finite number above 0, got {penalty}")
    }
    for id in tokens.iter().collect::<BTreeSet<_>>() {
        if let Some(logit) = logits.get_mut(*id as usize).filter(|logit| logit.is_finite()) {
            *logit = if *logit < 0.0 { *logit * penalty } else { *logit / penalty };
            // An extreme penalty can overflow to infinity, and softmax turns +inf into
            // NaN.
            *logit = logit.clamp(f32::MIN, f32::MAX);
        }
    }
    Ok(())
    // </solution>
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
    // <solution>
    for (name, value) in [("presence_penalty", presence), ("frequency_penalty", frequency)] {
        if !(-2.0..=2.0).contains(&value) {
            bail!("{name} must be in [-2, 2], got {value}")
        }
    }
    for (id, count) in counts(generated) {
        if let Some(logit) = logits.get_mut(id as usize) {
            *logit -= frequency * count as f32;
            *logit -= presence;
        }
    }
    Ok(())
    // </solution>
}

/// Forbids every token that would complete an n-gram that `tokens` already contains, by
/// setting its logit to `-inf` (transformers `NoRepeatNGramLogitsProcessor`). Ids
/// beyond the vocabulary are ignored.
///
/// # Errors
/// If `n` is 0. The message contains `n-gram` or `ngram`.
pub fn no_repeat_ngram(logits: &mut [f32], tokens: &[u32], n: usize) -> Result<()> {
    // task 9.3: Forbid each token that would repeat an n-gram
    // <solution>
    if n == 0 {
        bail!("no_repeat_ngram must be at least 1, got 0")
    }
    let Some(start) = (tokens.len() + 1).checked_sub(n) else {
        return Ok(()); // fewer than n - 1 tokens
    };
    let end = &tokens[start..]; // the last n - 1 tokens
    for ngram in tokens.windows(n).filter(|ngram| ngram.starts_with(end)) {
        if let Some(logit) = logits.get_mut(ngram[n - 1] as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
    Ok(())
    // </solution>
}

/// Returns the last `window` tokens, or all of them if there are fewer or `window` is
/// None (llama.cpp's `repeat_last_n`, which uses -1 for None).
pub fn recent(tokens: &[u32], window: Option<usize>) -> &[u32] {
    // task 9.4: Return the last tokens of a text
    // <solution>
    let window = window.unwrap_or(tokens.len());
    &tokens[tokens.len().saturating_sub(window)..]
    // </solution>
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
    // <solution>
    // Without logits, a penalty only checks its parameter.
    let mut all = Vec::new();
    let window = params.penalty_window;
    let penalty = params.repetition_penalty;
    if penalty != 1.0 {
        repetition_penalty(&mut [], &[], penalty)?;
        all.push(named(format!("repetition_penalty({penalty})"), move |input, logits| {
            repetition_penalty(logits, recent(input.tokens, window), penalty)
        }));
    }
    let presence = params.presence_penalty;
    let frequency = params.frequency_penalty;
    if presence != 0.0 || frequency != 0.0 {
        presence_frequency(&mut [], &[], presence, frequency)?;
        let name = format!("presence_penalty({presence}), frequency_penalty({frequency})");
        all.push(named(name, move |input, logits| {
            let generated = &input.tokens[input.prompt_len..];
            presence_frequency(logits, recent(generated, window), presence, frequency)
        }));
    }
    if let Some(n) = params.no_repeat_ngram {
        no_repeat_ngram(&mut [], &[], n)?;
        all.push(named(format!("no_repeat_ngram({n})"), move |input, logits| {
            no_repeat_ngram(logits, input.tokens, n)
        }));
    }
    Ok(all)
    // </solution>
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
    // <solution>
    if multiplier == 0.0 {
        return; // 0 times an infinite power would be NaN
    }
    let mut longest = BTreeMap::<u32, usize>::new();
    for (at, next) in tokens.iter().enumerate().skip(1) {
        let before = tokens[..at].iter().rev();
        let length = before.zip(tokens.iter().rev()).take_while(|(a, b)| a == b).count();
        let known = longest.entry(*next).or_default();
        *known = length.max(*known);
    }
    for (id, length) in longest.into_iter().filter(|(_, length)| *length >= allowed_length) {
        if let Some(logit) = logits.get_mut(id as usize) {
            *logit -= multiplier * base.powi((length - allowed_length) as i32);
        }
    }
    // </solution>
}
