#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 11: beam search. Several sequences grow side by side; the best ones go on, and the best
//! finished one wins.

use candecode::day06_generate::TextStream;
use candecode::day07_greedy::log_softmax;
use candecode::kit::{Batch, BeamParams, Cache, EarlyStopping, FinishReason, Hypothesis, Logits};
use candecode::kit::{Model, ProcessorInput, Request, Step, Tokenizer};
use candle_core::{bail, Result};

/// A sequence that still grows.
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

/// The `keep` best extensions of all beams, best first; of equals the earlier beam, then the
/// smaller id. A token at `-inf` is not a candidate. `log_probs` has one row `(V)` for each beam.
pub fn candidates(beams: &[Beam], log_probs: &[Vec<f32>], keep: usize) -> Vec<Candidate> {
    // task 11.1: the best (beam, token) pairs of all, by their whole score
    todo!("day 11, task 1: the best (beam, token) pairs of all, by their whole score")
}

/// Adds a finished sequence, and keeps the `num_beams` best, best first; equals in any order.
pub fn keep_best(finished: &mut Vec<Hypothesis>, new: Hypothesis, num_beams: usize) {
    // task 11.2: in order of score, and no more than num_beams
    todo!("day 11, task 2: in order of score, and no more than num_beams")
}

/// What becomes of the candidates of one step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Split {
    /// Sequences that end with this token, and why.
    pub ended: Vec<(Beam, FinishReason)>,
    /// The next beams, best first.
    pub running: Vec<Beam>,
    /// For each of `running`, the beam that it extends: the rows to `select` from the cache.
    pub parents: Vec<u32>,
}

/// Splits `candidates`, best first, into sequences that end and the `num_beams` best that go on. An
/// ending counts only if it is among the `num_beams` best of all candidates; further down it is
/// dropped (HF `_update_finished_beams`).
///
/// `ending` says of a whole sequence, the prompt too, whether and why it ends there.
///
/// # Errors
/// If `ending` fails.
pub fn split(
    beams: &[Beam],
    candidates: &[Candidate],
    num_beams: usize,
    ending: impl Fn(&[u32]) -> Result<Option<FinishReason>>,
) -> Result<Split> {
    // task 11.3: ended, going on, or dropped
    todo!("day 11, task 3: ended, going on, or dropped")
}

/// Log-probabilities of what follows each beam, one row `(V)` each: the model's, then the
/// processors, which get log-probabilities here, as in HF; nothing renormalises after them. A row
/// that is all `-inf` is no error: it ends its beam.
///
/// # Errors
/// If the model, or a processor, fails.
pub fn next_log_probs(
    model: &dyn Model,
    beams: &[Beam],
    request: &Request,
    cache: &mut dyn Cache,
) -> Result<Vec<Vec<f32>>> {
    // task 11.4: feed what the cache lacks; log_softmax each row, then the processors
    todo!("day 11, task 4: feed what the cache lacks; log_softmax each row, then the processors")
}

/// Why a sequence ends with its last token, if it does. `tokens` are the prompt and the generated
/// ones.
///
/// # Errors
/// If the tokenizer fails.
fn ending(
    tokens: &[u32],
    request: &Request,
    tokenizer: &Tokenizer,
) -> Result<Option<FinishReason>> {
    let new = &tokens[request.prompt.len()..];
    if new.last().is_some_and(|id| request.eos_token_ids.contains(id)) {
        return Ok(Some(FinishReason::Eos));
    }
    if !request.stop_strings.is_empty() {
        // The text after the prompt: decoded alone, it could lose its first space.
        let mut stream = TextStream::after(tokenizer, &request.prompt);
        let mut text = String::new();
        for id in new {
            text += &stream.push(*id)?;
        }
        if request.stop_strings.iter().any(|stop| !stop.is_empty() && text.contains(stop)) {
            return Ok(Some(FinishReason::Stop));
        }
    }
    Ok((new.len() >= request.max_new_tokens).then_some(FinishReason::Length))
}

/// Beam search (HF `generate(num_beams=…)`): the `num_return_sequences` best sequences, best first;
/// fewer, if fewer ended. `cache` comes empty; it may be day 12's, or `NoCache`: the result is the
/// same.
///
/// # Errors
/// If a parameter is out of range, the prompt does not fit, or nothing can be generated.
pub fn beam_search(
    model: &dyn Model,
    tokenizer: &Tokenizer,
    request: &mut Request,
    params: &BeamParams,
    cache: &mut dyn Batch,
) -> Result<Vec<Hypothesis>> {
    params.check()?;
    request.fit(model)?;
    if request.max_new_tokens == 0 {
        bail!("max_new_tokens must be at least 1, got 0: no sequence could end")
    }
    let divisor = (request.max_new_tokens as f64).powf(params.length_penalty) as f32;
    if !divisor.is_normal() {
        bail!(
            "length_penalty {} is too extreme for texts of {} tokens; 1 is common",
            params.length_penalty,
            request.max_new_tokens
        )
    }
    // task 11.5: extend, split, keep what ended, reorder the cache, until enough ended
    todo!("day 11, task 5: extend, split, keep what ended, reorder the cache, until enough ended")
}

/// A finished sequence's score, for `len` generated tokens, EOS included. `beam_search` asks for it
/// where the penalty is not 0.
pub fn length_normalised(score: f32, len: usize, length_penalty: f64) -> f32 {
    // task 11.6 (further): divide by the length, to the power of the penalty
    todo!("day 11, task 6: divide by the length, to the power of the penalty")
}

/// Whether going on can still change the result: `best` is the score of the best running beam,
/// `len` its generated tokens (HF `_check_early_stop_heuristic`). `Never` takes the best length to
/// come: `max_new_tokens` if the penalty is above 0, else `len`. `beam_search` asks when
/// `num_beams` have finished, unless it stops early.
pub fn can_improve(
    best: f32,
    len: usize,
    max_new_tokens: usize,
    finished: &[Hypothesis],
    params: &BeamParams,
) -> bool {
    // task 11.7 (further): compare with the worst finished one, once there are num_beams of them
    todo!("day 11, task 7: compare with the worst finished one, once there are num_beams of them")
}
