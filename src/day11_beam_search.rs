#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 11: beam search. Several texts grow side by side; the best ones go on, and the best finished one wins.

use candecode::day07_greedy::{log_softmax, window};
use candecode::kit::{
    check_prompt, Cache, Context, FinishReason, GenerationOptions, Logits, Model, Step, Tokenizer,
};
use candle_core::{bail, Result};

/// When to stop looking (HF `early_stopping`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyStopping {
    /// As soon as there are `num_beams` finished texts.
    True,
    /// When the best running text, at its present length, cannot beat the worst finished one. HF's default, a heuristic.
    False,
    /// When it could not even with the best length that is still possible.
    Never,
}

/// How to search. Names are those of HF's `GenerationConfig`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BeamParams {
    /// Texts that grow side by side.
    pub num_beams: usize,
    /// Texts to return.
    pub num_return_sequences: usize,
    /// A finished text's score is its log-probability over `length ^ length_penalty`: above 0 it favours long texts.
    pub length_penalty: f64,
    /// When to stop.
    pub early_stopping: EarlyStopping,
}

/// A text that still grows.
#[derive(Debug, Clone, PartialEq)]
pub struct Beam {
    /// Prompt and generated tokens.
    pub tokens: Vec<u32>,
    /// Sum of the log-probabilities of the generated tokens.
    pub score: f32,
}

/// A finished text.
#[derive(Debug, Clone, PartialEq)]
pub struct Hypothesis {
    /// The generated tokens, EOS included.
    pub new_ids: Vec<u32>,
    /// HF's `sequences_scores`: log-probability over `length ^ length_penalty`.
    pub score: f32,
    /// Why it ended.
    pub finish: FinishReason,
}

/// A beam with one more token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Index of the beam that it extends.
    pub parent: usize,
    /// The token.
    pub token: u32,
    /// The beam's score plus the token's.
    pub score: f32,
}

/// The `keep` best extensions of all beams, best first; of equals the earlier beam, then the smaller id. A token at `-inf` is
/// none. `log_probs` has one row `(V)` for each beam.
pub fn candidates(beams: &[Beam], log_probs: &[Vec<f32>], keep: usize) -> Vec<Candidate> {
    // task 11.1: score every (beam, token), sort, keep
    todo!("day 11, task 1: score every (beam, token), sort, keep")
}

/// A finished text's score, for `len` generated tokens, EOS included.
pub fn length_normalised(score: f32, len: usize, length_penalty: f64) -> f32 {
    // task 11.2: score / len ^ length_penalty
    todo!("day 11, task 2: score / len ^ length_penalty")
}

/// Adds a finished text, and keeps the `num_beams` best, best first.
pub fn keep_best(finished: &mut Vec<Hypothesis>, new: Hypothesis, num_beams: usize) {
    // task 11.3: insert in order of score, drop what is too much
    todo!("day 11, task 3: insert in order of score, drop what is too much")
}

/// Whether going on can still change the result: `best` is the score of the best running beam, `len` its generated tokens
/// (HF `_check_early_stop_heuristic`).
pub fn can_improve(
    best: f32,
    len: usize,
    max_new_tokens: usize,
    finished: &[Hypothesis],
    params: &BeamParams,
) -> bool {
    // task 11.4: until num_beams are finished: yes; then it depends on early_stopping
    todo!("day 11, task 4: until num_beams are finished: yes; then it depends on early_stopping")
}

/// Log-probabilities of what follows each beam, one row `(V)` each: the model's, then the processors (HF's, too, see
/// log-probabilities here, and nothing renormalises after them). A row that is all `-inf` ends its beam.
///
/// `first` is the first token of the window that the cache holds; a cache that holds nothing makes every pass whole.
///
/// # Errors
/// If the model, or a processor, fails.
pub fn next_log_probs(
    model: &dyn Model,
    beams: &[Beam],
    options: &GenerationOptions,
    prompt_len: usize,
    cache: &mut dyn Cache,
    first: &mut usize,
) -> Result<Vec<Vec<f32>>> {
    // task 11.5: as in day 10, with one row for each beam; then log_softmax, then the processors
    todo!("day 11, task 5: as in day 10, with one row for each beam; then log_softmax, then the processors")
}

/// Why a text ends with its last token, if it does. `new` are its generated tokens.
///
/// # Errors
/// If the tokenizer fails.
fn ending(
    new: &[u32],
    options: &GenerationOptions,
    tokenizer: &Tokenizer,
) -> Result<Option<FinishReason>> {
    if new.last().is_some_and(|id| options.eos_token_ids.contains(id)) {
        return Ok(Some(FinishReason::Eos));
    }
    if !options.stop_strings.is_empty() {
        let text = tokenizer.decode(new)?;
        if options.stop_strings.iter().any(|stop| text.contains(stop)) {
            return Ok(Some(FinishReason::Stop));
        }
    }
    Ok((new.len() >= options.max_new_tokens).then_some(FinishReason::Length))
}

/// Beam search (HF `generate(num_beams=…)`): the `num_return_sequences` best texts, best first. `cache` may be day 10's, or
/// `NoCache`: the texts are the same.
///
/// # Errors
/// If a parameter is out of range, the prompt does not fit, or nothing can be generated.
pub fn beam_search(
    model: &dyn Model,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    options: &GenerationOptions,
    params: &BeamParams,
    cache: &mut dyn Cache,
) -> Result<Vec<Hypothesis>> {
    check(params)?;
    check_prompt(model, prompt)?;
    // task 11.6: extend, split finished from running, reorder the cache, until nothing can improve
    todo!("day 11, task 6: extend, split finished from running, reorder the cache, until nothing can improve")
}

fn check(params: &BeamParams) -> Result<()> {
    let BeamParams { num_beams, num_return_sequences, length_penalty, .. } = params;
    if *num_beams == 0 {
        bail!("num_beams must be at least 1, got 0")
    }
    if !(1..=*num_beams).contains(num_return_sequences) {
        bail!("num_return_sequences must be in 1 to num_beams ({num_beams}), got {num_return_sequences}")
    }
    if !length_penalty.is_finite() {
        bail!("length_penalty must be a finite number, got {length_penalty}")
    }
    Ok(())
}
