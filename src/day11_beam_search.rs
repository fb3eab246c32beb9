#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 11: beam search. Several texts grow side by side; the best ones go on, and the best finished one wins.

use candecode::day07_greedy::{log_softmax, window};
use candecode::kit::{
    check_prompt, BeamParams, Cache, EarlyStopping, FinishReason, ProcessorInput,
};
use candecode::kit::{GenerationOptions, Hypothesis, Logits, Model, Step, Tokenizer};
use candle_core::{bail, Result};

/// A text that still grows.
#[derive(Debug, Clone, PartialEq)]
pub struct Beam {
    /// Prompt and generated tokens.
    pub tokens: Vec<u32>,
    /// Sum of the log-probabilities of the generated tokens.
    pub score: f32,
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
    // task 11.1: the best (beam, token) pairs of all, by their whole score
    todo!("day 11, task 1: the best (beam, token) pairs of all, by their whole score")
}

/// A finished text's score, for `len` generated tokens, EOS included.
pub fn length_normalised(score: f32, len: usize, length_penalty: f64) -> f32 {
    // task 11.2: divide by the length, to the power of the penalty
    todo!("day 11, task 2: divide by the length, to the power of the penalty")
}

/// Adds a finished text, and keeps the `num_beams` best, best first; equals in any order.
pub fn keep_best(finished: &mut Vec<Hypothesis>, new: Hypothesis, num_beams: usize) {
    // task 11.3: in order of score, and no more than num_beams
    todo!("day 11, task 3: in order of score, and no more than num_beams")
}

/// Whether going on can still change the result: `best` is the score of the best running beam, `len` its generated tokens
/// (HF `_check_early_stop_heuristic`). `Never` takes the best length to come: `max_new_tokens` if the penalty is above 0,
/// else `len`.
pub fn can_improve(
    best: f32,
    len: usize,
    max_new_tokens: usize,
    finished: &[Hypothesis],
    params: &BeamParams,
) -> bool {
    // task 11.4: compare with the worst finished text, once there are num_beams of them
    todo!("day 11, task 4: compare with the worst finished text, once there are num_beams of them")
}

/// What becomes of the candidates of one step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Split {
    /// Texts that end with this token, and why.
    pub ended: Vec<(Beam, FinishReason)>,
    /// The next beams, best first.
    pub running: Vec<Beam>,
    /// For each of `running`, the beam that it extends: the rows to `select` from the cache.
    pub parents: Vec<u32>,
}

/// Splits `candidates`, best first, into texts that end and the `num_beams` best that go on. An ending counts only if it is
/// among the `num_beams` best of all candidates; further down it is dropped (HF `_update_finished_beams`).
///
/// `ending` says of a whole text, the prompt too, whether and why it ends there (the function `ending` wants new tokens only).
///
/// # Errors
/// If `ending` fails.
pub fn split(
    beams: &[Beam],
    candidates: &[Candidate],
    num_beams: usize,
    ending: impl Fn(&[u32]) -> Result<Option<FinishReason>>,
) -> Result<Split> {
    // task 11.5: ended, going on, or dropped
    todo!("day 11, task 5: ended, going on, or dropped")
}

/// Log-probabilities of what follows each beam, one row `(V)` each: the model's, then the processors, which get
/// log-probabilities here, as in HF; nothing renormalises after them. A row that is all `-inf` is no error: it ends its beam.
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
    // task 11.6: a pass over what the cache lacks, one row a beam; log_softmax, then the processors
    todo!("day 11, task 6: a pass over what the cache lacks, one row a beam; log_softmax, then the processors")
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
        if options.stop_strings.iter().any(|stop| !stop.is_empty() && text.contains(stop)) {
            return Ok(Some(FinishReason::Stop));
        }
    }
    Ok((new.len() >= options.max_new_tokens).then_some(FinishReason::Length))
}

/// Beam search (HF `generate(num_beams=…)`): the `num_return_sequences` best texts, best first; fewer, if fewer ended. `cache`
/// comes empty; it may be day 10's, or `NoCache`: the texts are the same.
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
    params.check()?;
    check_prompt(model, prompt)?;
    if options.max_new_tokens == 0 {
        bail!("max_new_tokens must be at least 1, got 0: no text could end")
    }
    if cache.num_evicted().is_some() {
        bail!("a sliding cache cannot follow beams past the context; use a dynamic or static one")
    }
    // task 11.7: extend, split, collect what ended, reorder the cache, until nothing can improve
    todo!("day 11, task 7: extend, split, collect what ended, reorder the cache, until nothing can improve")
}
