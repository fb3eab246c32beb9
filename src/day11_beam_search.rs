#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 11: beam search. Several sequences grow side by side. The best ones continue, and the best
//! finished one is returned.

use candecode::day06_generate::TextStream;
use candecode::day07_greedy::log_softmax;
use candecode::kit::{Batch, BeamParams, Cache, EarlyStopping, FinishReason, Hypothesis, Logits};
use candecode::kit::{Model, ProcessorInput, Request, Step, Tokenizer};
use candle_core::{bail, Result};

/// A sequence that is still growing.
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
    /// Index of the beam that this candidate extends.
    pub parent: usize,
    /// The token that extends it.
    pub token: u32,
    /// The beam's score plus the token's.
    pub score: f32,
}

/// Returns the `keep` best extensions of all beams, best first. Ties go to the earlier
/// beam, then to the smaller id. Tokens at `-inf` aren't candidates. `log_probs` has
/// one row `(V)` per beam.
pub fn candidates(beams: &[Beam], log_probs: &[Vec<f32>], keep: usize) -> Vec<Candidate> {
    // task 11.1: Rank the extensions of all beams by the score of the whole sequence
    todo!("day 11, task 1: Rank the extensions of all beams by the score of the whole sequence")
}

/// Adds a finished sequence and keeps the `num_beams` best, best first. Ties may appear
/// in any order.
pub fn keep_best(finished: &mut Vec<Hypothesis>, new: Hypothesis, num_beams: usize) {
    // task 11.2: Insert the sequence by its score and keep at most num_beams
    todo!("day 11, task 2: Insert the sequence by its score and keep at most num_beams")
}

/// The candidates of one step, sorted into finished and running sequences.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Split {
    /// Sequences that ended with their newest token, each with the reason.
    pub ended: Vec<(Beam, FinishReason)>,
    /// The next beams, best first.
    pub running: Vec<Beam>,
    /// The beam that each of `running` extends: the rows to `select` from the cache.
    pub parents: Vec<u32>,
}

/// Splits `candidates`, best first, into sequences that end, the `num_beams` best that
/// continue, and those that are dropped. The chapter's table, which you fill in, says
/// which are which (HF `_update_finished_beams`).
///
/// `ending` takes a whole sequence, prompt included, and returns the reason if it ends
/// there.
///
/// # Errors
/// If `ending` fails.
pub fn split(
    beams: &[Beam],
    candidates: &[Candidate],
    num_beams: usize,
    ending: impl Fn(&[u32]) -> Result<Option<FinishReason>>,
) -> Result<Split> {
    // task 11.3: Sort the candidates into ended, running and dropped
    todo!("day 11, task 3: Sort the candidates into ended, running and dropped")
}

/// Returns the log-probabilities of the next token of each beam, one row `(V)` per
/// beam. As in HF, the processors run on log-probabilities, and nothing renormalizes
/// them afterwards. A row that is all `-inf` isn't an error: its beam simply has no
/// continuation.
///
/// # Errors
/// If the model or a processor fails.
pub fn next_log_probs(
    model: &dyn Model,
    beams: &[Beam],
    request: &Request,
    cache: &mut dyn Cache,
) -> Result<Vec<Vec<f32>>> {
    // task 11.4: Run one pass over all beams and process the log-probabilities
    todo!("day 11, task 4: Run one pass over all beams and process the log-probabilities")
}

/// Returns the reason if a sequence ends with its last token. `tokens` are the prompt
/// and the generated tokens.
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

/// Runs beam search (HF `generate(num_beams=…)`) and returns the `num_return_sequences`
/// best sequences, best first, or fewer if fewer finished. `cache` is empty at the
/// start. It may be a batch cache (day 12) or `NoCache`; the result is the same.
///
/// # Errors
/// If a parameter is out of range, if the prompt doesn't fit, or if nothing can be
/// generated.
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
    // task 11.5: Extend the beams until num_beams sequences have finished
    todo!("day 11, task 5: Extend the beams until num_beams sequences have finished")
}

/// Returns the score of a finished sequence with `len` generated tokens, EOS included.
/// `beam_search` calls it unless the penalty is 0.
pub fn length_normalized(score: f32, len: usize, length_penalty: f64) -> f32 {
    // task 11.6 (optional): Divide the score by the length to the power of the penalty
    todo!("day 11, task 6: Divide the score by the length to the power of the penalty")
}

/// Returns whether continuing can still change the result (HF
/// `_check_early_stop_heuristic`). `best` is the best running beam's sum of
/// log-probabilities, not divided by anything, and `len` the number of its generated
/// tokens; the scores in `finished` are final. `beam_search` calls it once `num_beams`
/// sequences have finished, unless `early_stopping` is `True`.
pub fn can_improve(
    best: f32,
    len: usize,
    max_new_tokens: usize,
    finished: &[Hypothesis],
    params: &BeamParams,
) -> bool {
    // task 11.7 (challenge): Decide whether continuing can still improve the result
    todo!("day 11, task 7: Decide whether continuing can still improve the result")
}
