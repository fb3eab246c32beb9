#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 13: speculative decoding. A cheap drafter guesses K tokens, one pass of the target checks them all, and what comes
//! out is exactly what the target alone would have written, or would have drawn.

use candecode::day07_greedy::{log_softmax, window};
use candecode::day08_sampling::sample;
use candecode::day10_kv_cache::next_step;
use candecode::kit::draft::{distribution, one_hot, Draft, Drafter, Speculation, Verdict};
use candecode::kit::processor::process_all;
use candecode::kit::{Cache, Logits, LogitsProcessor, Model, ProcessorInput, Step, Token};
use candle_core::{bail, Result};

/// What is left of the target where the draft overreached: `max(p - q, 0)`, made to sum to 1. Nothing is left where `p` is
/// `q`: a token falls there by rounding only, and `p` itself is right.
///
/// # Errors
/// If the two are of different lengths.
pub fn residual(p: &[f32], q: &[f32]) -> Result<Vec<f32>> {
    // task 13.1: the positive part of p - q, divided by its sum
    todo!("day 13, task 1: the positive part of p - q, divided by its sum")
}

/// Accepts or rejects a draft so that every token is distributed as the target's (Leviathan et al. 2023; Chen et al. 2023).
///
/// `target` has one distribution `(V)` more than the draft has tokens; `coins` too. Token `i` stands if
/// `coin · q(token) < p(token)`, which is with probability `min(1, p / q)`; the first that falls is replaced by a draw from
/// the residual, and what follows it is dropped; if all stand, the last distribution gives a bonus token. The last coin is
/// for the residual or the bonus.
///
/// # Errors
/// If the numbers of distributions and coins do not fit, or a token is not in the vocabulary.
pub fn verify(draft: &Draft, target: &[Vec<f32>], coins: &[f32]) -> Result<Verdict> {
    // task 13.2: accept by p / q; the first that falls gives way to the residual, and if none falls there is a bonus
    todo!("day 13, task 2: accept by p / q; the first that falls gives way to the residual, and if none falls there is a bonus")
}

/// Expected share of drafted tokens that stand: `Σ min(p, q)`.
pub fn overlap(p: &[f32], q: &[f32]) -> f32 {
    // task 13.10 (further): sum the smaller of the two
    todo!("day 13, task 10: sum the smaller of the two")
}

/// Drafts by looking back: where the last `n` tokens occurred before, what followed them there is proposed (Saxena 2023;
/// vLLM `ngram`, HF `prompt_lookup_num_tokens`). It costs nothing. The place may overlap the end of the text, and where it
/// is near the end fewer tokens follow.
pub struct NgramDrafter {
    /// TokenIter that must match, 1 at least; not the `n` of `draft`, which is how many to propose.
    pub n: usize,
    /// Size of the vocabulary.
    pub vocab_size: usize,
}

impl Drafter for NgramDrafter {
    fn draft(&mut self, input: &ProcessorInput, n: usize, _coins: &[f32]) -> Result<Draft> {
        // task 13.4: the latest earlier place of the last self.n tokens, and up to n tokens after it
        todo!("day 13, task 4: the latest earlier place of the last self.n tokens, and up to n tokens after it")
    }
}

/// Drafts with a smaller model of the same tokenizer, and a cache of its own. Past its own context it has a window of its own,
/// whose stride is free: a quarter of that context, say, but with 1 the cache would be filled anew for every token.
pub struct ModelDrafter<'a> {
    /// The small model.
    pub model: &'a dyn Model,
    /// Its cache; not one that slides.
    pub cache: Box<dyn Cache + 'a>,
    /// The tokens that the cache holds.
    pub held: Vec<u32>,
    /// What is done to its logits: the same as to the target's, or q would be far from p. Their error is the draft's.
    pub processors: Vec<Box<dyn LogitsProcessor + 'a>>,
    /// Greedy, or drawn.
    pub greedy: bool,
}

impl ModelDrafter<'_> {
    /// Logits `(V)` after `tokens`: keeps what the cache shares with them, and feeds the rest.
    ///
    /// # Errors
    /// If there are no tokens, or the model fails.
    pub fn next_logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        // task 13.5: truncate to the common prefix, feed what is missing, at least one token
        todo!("day 13, task 5: truncate to the common prefix, feed what is missing, at least one token")
    }
}

impl Drafter for ModelDrafter<'_> {
    fn draft(&mut self, input: &ProcessorInput, n: usize, coins: &[f32]) -> Result<Draft> {
        // task 13.6: n times, or until EOS: window, logits, processors, distribution, sample
        todo!("day 13, task 6: n times, or until EOS: window, logits, processors, distribution, sample")
    }
}

/// How many tokens may be drafted now: K at most; one fewer than the text may still have, for the pass itself gives one; and
/// no more than the context has room for behind the window.
///
/// # Errors
/// If the stride is out of range.
pub fn room(text: &Speculation) -> Result<usize> {
    // task 13.3: the smallest of K, what the text may still have, and what the context has room for
    todo!("day 13, task 3: the smallest of K, what the text may still have, and what the context has room for")
}

/// The target's logits `(V)` after the text and after each drafted token, in one pass: K tokens give K + 1 rows. The cache
/// holds all of them afterwards; where the window has moved, it is filled anew.
///
/// # Errors
/// If a drafted token is not in the vocabulary, or the model fails.
pub fn target(text: &mut Speculation, draft: &[u32]) -> Result<Vec<Vec<f32>>> {
    // task 13.7: day 10's next_step of the text with the draft; logits of the last K + 1 positions
    todo!("day 13, task 7: day 10's next_step of the text with the draft; logits of the last K + 1 positions")
}

/// The distribution `(V)` after the text and after each drafted token, from `raw`, the target's logits there. The processors
/// see each position's own context: the text with the draft up to there, and so many tokens fewer that remain.
///
/// What stands behind a drafted token that is sure to fall, or behind EOS, is dropped: any distribution may fill these rows. No
/// processor is to see such a text, for it may find no token left there. Stop strings are not looked for: the text behind one
/// is processed.
///
/// # Errors
/// If a processor fails.
pub fn distributions(text: &Speculation, draft: &[u32], raw: &[Vec<f32>]) -> Result<Vec<Vec<f32>>> {
    // task 13.8: processors and distribution, row by row; behind a certain end, repeat the last row
    todo!("day 13, task 8: processors and distribution, row by row; behind a certain end, repeat the last row")
}

/// One block: draft, verify, take in what stands, roll the cache back. Its tokens; the last of the text has a `finish`. None
/// if the text may have no more.
///
/// A token's `logprob` is the raw one, as on day 7. `text.draft` tosses its own coins; then toss one for each row of `target`.
/// The cache keeps all tokens from `text.first` on but the newest, or what it holds if that is less (`NoCache`).
///
/// # Errors
/// If a model or a processor fails.
pub fn block(text: &mut Speculation) -> Result<Vec<Token>> {
    // task 13.9: draft, target, distributions, verify; push until the text ends; cut the cache to what is known
    todo!("day 13, task 9: draft, target, distributions, verify; push until the text ends; cut the cache to what is known")
}
