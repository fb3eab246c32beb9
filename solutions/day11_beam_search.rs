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
    // <solution>
    let mut all = Vec::new();
    for (parent, (beam, row)) in beams.iter().zip(log_probs).enumerate() {
        let possible = row.iter().enumerate().filter(|(_, log_prob)| log_prob.is_finite());
        all.extend(possible.map(|(token, log_prob)| {
            let score = beam.score + log_prob;
            Candidate { parent, token: token as u32, score }
        }));
    }
    all.sort_by(|a, b| b.score.total_cmp(&a.score)); // stable: equals stay in order
    all.truncate(keep);
    all
    // </solution>
}

/// A finished text's score, for `len` generated tokens, EOS included.
pub fn length_normalised(score: f32, len: usize, length_penalty: f64) -> f32 {
    // task 11.2: score / len ^ length_penalty
    // <solution>
    score / (len as f64).powf(length_penalty) as f32
    // </solution>
}

/// Adds a finished text, and keeps the `num_beams` best, best first.
pub fn keep_best(finished: &mut Vec<Hypothesis>, new: Hypothesis, num_beams: usize) {
    // task 11.3: insert in order of score, drop what is too much
    // <solution>
    let at = finished.partition_point(|hypothesis| hypothesis.score >= new.score);
    finished.insert(at, new);
    finished.truncate(num_beams);
    // </solution>
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
    // <solution>
    let Some(worst) = finished.get(params.num_beams - 1) else { return true };
    let len = match params.early_stopping {
        EarlyStopping::True => return false,
        EarlyStopping::Never if params.length_penalty > 0.0 => max_new_tokens,
        _ => len,
    };
    length_normalised(best, len, params.length_penalty) > worst.score
    // </solution>
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
    // <solution>
    let len = beams.first().map_or(0, |beam| beam.tokens.len());
    let start = window(len, model.config().max_position_embeddings, options.stride)?;
    if start != *first {
        cache.truncate(0)?;
        *first = start;
    }
    let held = cache.len();
    let new: Vec<Vec<u32>> =
        beams.iter().map(|beam| beam.tokens[start + held..].to_vec()).collect();
    let positions: Vec<u32> = (held as u32..(len - start) as u32).collect();
    let step = Step::batch(model, &new, &vec![positions; new.len()], None)?;
    let logits = model.forward(&step.with_logits(Logits::Last(1)), cache)?; // (beams, 1, V)
    let mut rows = Vec::new();
    for (beam, logits) in beams.iter().zip(logits.squeeze(1)?.to_vec2()?) {
        let mut row = log_softmax(&logits)?;
        let remaining = options.max_new_tokens + prompt_len - len;
        let eos = &options.eos_token_ids;
        let cx = Context { tokens: &beam.tokens, prompt_len, remaining, eos };
        options.processors.iter().try_for_each(|processor| processor.process(&cx, &mut row))?;
        rows.push(row);
    }
    Ok(rows)
    // </solution>
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
    // <solution>
    let keep = params.num_beams * (1 + options.eos_token_ids.len()).max(2);
    let (mut finished, mut first) = (Vec::new(), 0);
    let mut beams = vec![Beam { tokens: prompt.to_vec(), score: 0.0 }];
    while let Some(best) = beams.first() {
        let len = best.tokens.len() - prompt.len();
        if len > 0 && !can_improve(best.score, len, options.max_new_tokens, &finished, params) {
            break;
        }
        let log_probs = next_log_probs(model, &beams, options, prompt.len(), cache, &mut first)?;
        let (mut running, mut parents) = (Vec::new(), Vec::new());
        for (rank, next) in candidates(&beams, &log_probs, keep).iter().enumerate() {
            let mut tokens = beams[next.parent].tokens.clone();
            tokens.push(next.token);
            let new = &tokens[prompt.len()..];
            match ending(new, options, tokenizer)? {
                // An ending counts only among the num_beams best; further down it is dropped.
                Some(finish) if rank < params.num_beams => {
                    let score = length_normalised(next.score, new.len(), params.length_penalty);
                    let hypothesis = Hypothesis { new_ids: new.to_vec(), score, finish };
                    keep_best(&mut finished, hypothesis, params.num_beams);
                }
                None if running.len() < params.num_beams => {
                    running.push(Beam { tokens, score: next.score });
                    parents.push(next.parent as u32);
                }
                _ => {}
            }
        }
        cache.select(&parents)?;
        beams = running;
    }
    if finished.is_empty() {
        bail!("no text could be finished: the processors left no token to any beam")
    }
    finished.truncate(params.num_return_sequences);
    Ok(finished)
    // </solution>
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
