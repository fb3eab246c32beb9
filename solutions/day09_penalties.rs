//! Day 9: penalties. Three ways to make what was said less likely to be said again, and one to
//! forbid it.

use candecode::kit::{named, LogitsProcessor, SamplingParams};
use candle_core::{bail, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

// <solution>
fn check_repetition_penalty(penalty: f32) -> Result<()> {
    if !(penalty.is_finite() && penalty > 0.0) {
        bail!("repetition_penalty must be a finite number above 0, got {penalty}")
    }
    Ok(())
}
// </solution>

/// Divides the positive logits of tokens that occurred by `penalty`, and multiplies the negative
/// ones: both go down for `penalty` above 1. Once for each token, however often it occurred, prompt
/// included; what would leave the range of f32 stays at its end (Keskar et al. 2019; HF
/// `RepetitionPenaltyLogitsProcessor`; vLLM `repetition_penalty`).
///
/// # Errors
/// If `penalty` is not a finite number above 0. The message names the repetition penalty.
pub fn repetition_penalty(logits: &mut [f32], tokens: &[u32], penalty: f32) -> Result<()> {
    // task 9.1: what came becomes less likely, whatever its sign
    // <solution>
    check_repetition_penalty(penalty)?;
    for id in tokens.iter().collect::<BTreeSet<_>>() {
        if let Some(logit) = logits.get_mut(*id as usize).filter(|logit| logit.is_finite()) {
            *logit = if *logit < 0.0 { *logit * penalty } else { *logit / penalty };
            // An extreme penalty, and softmax has no infinity.
            *logit = logit.clamp(f32::MIN, f32::MAX);
        }
    }
    Ok(())
    // </solution>
}

/// How often each token occurs.
pub fn counts(tokens: &[u32]) -> BTreeMap<u32, u32> {
    // task 9.2: count the tokens
    // <solution>
    let mut counts = BTreeMap::new();
    for id in tokens {
        *counts.entry(*id).or_default() += 1;
    }
    counts
    // </solution>
}

// <solution>
fn check_presence_frequency(presence: f32, frequency: f32) -> Result<()> {
    for (name, value) in [("presence_penalty", presence), ("frequency_penalty", frequency)] {
        if !(-2.0..=2.0).contains(&value) {
            bail!("{name} must be in [-2, 2], got {value}")
        }
    }
    Ok(())
}
// </solution>

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
    // <solution>
    check_presence_frequency(presence, frequency)?;
    for (id, count) in counts(generated) {
        if let Some(logit) = logits.get_mut(id as usize) {
            *logit -= frequency * count as f32;
            *logit -= presence;
        }
    }
    Ok(())
    // </solution>
}

// <solution>
fn check_no_repeat_ngram(n: usize) -> Result<()> {
    if n == 0 {
        bail!("no_repeat_ngram must be at least 1, got 0")
    }
    Ok(())
}
// </solution>

/// Forbids every token that would complete an n-gram that the text already has, prompt included (HF
/// `NoRepeatNGramLogitsProcessor`): its logit becomes `-inf`.
///
/// # Errors
/// If `n` is 0. The message names the n-gram: `no_repeat_ngram`, `n-gram` or the like.
pub fn no_repeat_ngram(logits: &mut [f32], tokens: &[u32], n: usize) -> Result<()> {
    // task 9.4: forbid whatever would complete an n-gram a second time
    // <solution>
    check_no_repeat_ngram(n)?;
    let Some(start) = (tokens.len() + 1).checked_sub(n) else {
        return Ok(()); // too short to have n - 1 tokens
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

/// The last `window` tokens, of 0 none: llama.cpp's `repeat_last_n`. None: all of them (there -1).
pub fn recent(tokens: &[u32], window: Option<usize>) -> &[u32] {
    // task 9.5: the last tokens of a text
    // <solution>
    let window = window.unwrap_or(tokens.len());
    &tokens[tokens.len().saturating_sub(window)..]
    // </solution>
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
    // <solution>
    let mut all = Vec::new();
    let window = params.penalty_window;
    let penalty = params.repetition_penalty;
    if penalty != 1.0 {
        check_repetition_penalty(penalty)?;
        all.push(named(format!("repetition_penalty({penalty})"), move |input, logits| {
            repetition_penalty(logits, recent(input.tokens, window), penalty)
        }));
    }
    let presence = params.presence_penalty;
    let frequency = params.frequency_penalty;
    if presence != 0.0 || frequency != 0.0 {
        check_presence_frequency(presence, frequency)?;
        let name = format!("presence_penalty({presence}), frequency_penalty({frequency})");
        all.push(named(name, move |input, logits| {
            let generated = &input.tokens[input.prompt_len..];
            presence_frequency(logits, recent(generated, window), presence, frequency)
        }));
    }
    if let Some(n) = params.no_repeat_ngram {
        check_no_repeat_ngram(n)?;
        all.push(named(format!("no_repeat_ngram({n})"), move |input, logits| {
            no_repeat_ngram(logits, input.tokens, n)
        }));
    }
    Ok(all)
    // </solution>
}
