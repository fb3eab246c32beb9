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
    // <solution>
    let mut all = Vec::new();
    for (parent, (beam, row)) in beams.iter().zip(log_probs).enumerate() {
        for (token, log_prob) in row.iter().enumerate() {
            if log_prob.is_finite() {
                let score = beam.score + log_prob;
                all.push(Candidate { parent, token: token as u32, score });
            }
        }
    }
    let best_first = |a: &Candidate, b: &Candidate| {
        let equals = (a.parent, a.token).cmp(&(b.parent, b.token));
        b.score.total_cmp(&a.score).then(equals)
    };
    // Only a few of the beams × V candidates are wanted, so only those are sorted.
    if keep < all.len() {
        all.select_nth_unstable_by(keep, best_first);
        all.truncate(keep);
    }
    all.sort_unstable_by(best_first);
    all
    // </solution>
}

/// Adds a finished sequence and keeps the `num_beams` best, best first. Ties may appear
/// in any order.
pub fn keep_best(finished: &mut Vec<Hypothesis>, new: Hypothesis, num_beams: usize) {
    // task 11.2: Insert the sequence by its score and keep at most num_beams
    // <solution>
    let at = finished.partition_point(|hypothesis| hypothesis.score >= new.score);
    finished.insert(at, new);
    finished.truncate(num_beams);
    // </solution>
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
    // <solution>
    let mut split = Split::default();
    for (rank, candidate) in candidates.iter().enumerate() {
        let mut tokens = beams[candidate.parent].tokens.clone();
        tokens.push(candidate.token);
        let finish = ending(&tokens)?;
        let beam = Beam { tokens, score: candidate.score };
        match finish {
            Some(finish) if rank < num_beams => split.ended.push((beam, finish)),
            None if split.running.len() < num_beams => {
                split.running.push(beam);
                split.parents.push(candidate.parent as u32);
            }
            _ => {} // an ending too far down, or one beam too many
        }
    }
    Ok(split)
    // </solution>
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
    // <solution>
    let Some(first) = beams.first() else { bail!("there are no beams to extend") };
    let len = first.tokens.len();
    let past = cache.len();
    let mut new = Vec::new();
    for beam in beams {
        new.push(beam.tokens[past..].to_vec());
    }
    let positions: Vec<u32> = (past as u32..len as u32).collect();
    let step = Step::batch(model, &new, &vec![positions; beams.len()], None)?;
    let logits = model.forward(&step.with_logits(Logits::Last(1)), cache)?; // (beams, 1, V)
    let mut rows = Vec::new();
    for (beam, logits) in beams.iter().zip(logits.squeeze(1)?.to_vec2()?) {
        let mut row = log_softmax(&logits)?;
        let input = ProcessorInput {
            tokens: &beam.tokens,
            prompt_len: request.prompt.len(),
            remaining: request.max_new_tokens - (len - request.prompt.len()),
            eos: &request.eos_token_ids,
        };
        for processor in &request.processors {
            processor.process(&input, &mut row)?;
        }
        rows.push(row);
    }
    Ok(rows)
    // </solution>
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
    // <solution>
    let prompt_len = request.prompt.len();
    let keep = params.num_beams * (1 + request.eos_token_ids.len()).max(2); // HF `beams_to_keep`
    let mut finished = Vec::new();
    let mut beams = vec![Beam { tokens: request.prompt.clone(), score: 0.0 }];
    while let Some(best) = beams.first() {
        if finished.len() >= params.num_beams {
            if params.early_stopping == EarlyStopping::True {
                break;
            }
            let len = best.tokens.len() - prompt_len;
            if !can_improve(best.score, len, request.max_new_tokens, &finished, params) {
                break;
            }
        }
        let log_probs = next_log_probs(model, &beams, request, cache)?;
        let candidates = candidates(&beams, &log_probs, keep);
        let ends = |tokens: &[u32]| ending(tokens, request, tokenizer);
        let Split { ended, running, parents } = split(&beams, &candidates, params.num_beams, ends)?;
        for (beam, finish) in ended {
            let new_ids = beam.tokens[prompt_len..].to_vec();
            let mut score = beam.score;
            if params.length_penalty != 0.0 {
                score = length_normalized(score, new_ids.len(), params.length_penalty);
            }
            keep_best(&mut finished, Hypothesis { new_ids, score, finish }, params.num_beams);
        }
        if !running.is_empty() {
            cache.select(&parents)?;
        }
        beams = running;
    }
    finished.truncate(params.num_return_sequences);
    if finished.is_empty() {
        bail!("no sequence could be finished: the processors left no token to any beam")
    }
    Ok(finished)
    // </solution>
}

/// Returns the score of a finished sequence with `len` generated tokens, EOS included.
/// `beam_search` calls it unless the penalty is 0.
pub fn length_normalized(score: f32, len: usize, length_penalty: f64) -> f32 {
    // task 11.6 (optional): Divide the score by the length to the power of the penalty
    // <solution>
    score / (len as f64).powf(length_penalty) as f32
    // </solution>
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
    // <solution>
    let Some(worst) = finished.get(params.num_beams - 1) else { return true };
    let len = match params.early_stopping {
        EarlyStopping::True => return false,
        EarlyStopping::Never if params.length_penalty > 0.0 => max_new_tokens,
        _ => len,
    };
    length_normalized(best, len, params.length_penalty) > worst.score
    // </solution>
}
