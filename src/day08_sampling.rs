#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 8: sampling. Reshape a distribution with temperature, top-k, top-p and min-p, and draw from
//! it in two ways.

use candecode::day07_greedy::argmax;
use candecode::kit::rng::{RequestRng, TorchRng};
use candecode::kit::{named, LogitsProcessor, Sampler, SamplingParams};
use candle_core::{bail, Result};
use std::cell::RefCell;
use std::cmp::Ordering;
use std::rc::Rc;

/// Turns logits into probabilities: `exp(x - max)` divided by the sum of all of them.
/// `-inf` becomes 0. The exponentials are computed in f32, as in torch.
///
/// # Errors
/// If there are no logits, if one is NaN, or if all are `-inf`.
pub fn softmax(logits: &[f32]) -> Result<Vec<f32>> {
    // task 8.1: Turn logits into probabilities
    todo!("day 8, task 1: Turn logits into probabilities")
}

/// Divides the logits by `t`, in f32. Below 1, likely tokens become likelier; above 1,
/// all tokens become more alike (HF `TemperatureLogitsWarper`). If dividing the largest
/// logit would give `inf` or `-inf`, it is subtracted from all of them first, so a tiny
/// temperature is nearly greedy rather than an error.
///
/// # Errors
/// If `t`, as an f32, isn't a finite number above 0. The message names the temperature.
pub fn temperature(logits: &mut [f32], t: f64) -> Result<()> {
    // task 8.2: Check the temperature and divide the logits by it
    todo!("day 8, task 2: Check the temperature and divide the logits by it")
}

/// Keeps the `k` largest logits, and any others equal to the `k`-th largest. The rest
/// become `-inf`. A `k` above the number of tokens keeps everything (HF
/// `TopKLogitsWarper`; Fan et al. 2018).
///
/// # Errors
/// If `k` is 0. The message must mention top-k, in any spelling.
pub fn top_k(logits: &mut [f32], k: usize) -> Result<()> {
    // task 8.3: Keep the k largest logits, ties included
    todo!("day 8, task 3: Keep the k largest logits, ties included")
}

/// Keeps the smallest set of tokens whose probability reaches `p`; the rest become
/// `-inf`.
///
/// The token that crosses `p` stays, so at least one survives (Holtzman et al. 2020).
/// Later days need no more than this rule. Some checks want exactly the set that HF's
/// `TopPLogitsWarper` keeps: see "Equal to the last token" in the chapter.
///
/// # Errors
/// If `p` isn't in (0, 1]. The message names top-p.
pub fn top_p(logits: &mut [f32], p: f64) -> Result<()> {
    // task 8.4: Keep the smallest set of tokens whose probability reaches p
    todo!("day 8, task 4: Keep the smallest set of tokens whose probability reaches p")
}

/// Keeps the tokens whose probability is at least `p` times that of the most likely
/// one; the rest become `-inf` (Nguyen et al. 2024; HF `MinPLogitsWarper`).
///
/// # Errors
/// If `p` isn't in [0, 1]. The message names min-p.
pub fn min_p(logits: &mut [f32], p: f64) -> Result<()> {
    // task 8.5: Keep tokens at least p times as likely as the most likely one
    todo!("day 8, task 5: Keep tokens at least p times as likely as the most likely one")
}

/// Returns the processors for a request that samples, in HF's order, named
/// `temperature(2)`, `top_k(50)`, `top_p(0.9)` and `min_p(0.1)`. Parameters at their
/// neutral values add none.
///
/// # Errors
/// If a parameter is out of range. It fails here, before the model runs, with the
/// filter's own error.
pub fn warpers(params: &SamplingParams) -> Result<Vec<Rc<dyn LogitsProcessor>>> {
    // task 8.6: Build one processor for each parameter that is set, in HF's order
    todo!("day 8, task 6: Build one processor for each parameter that is set, in HF's order")
}

/// Draws a token by inverse CDF, from a uniform number `u` in [0, 1): adds up the
/// probabilities until the sum exceeds `u`.
///
/// A token of probability 0 is never drawn. If rounding leaves the total at or below
/// `u`, the last possible token is drawn. Adding in f32 or in f64 is fine.
///
/// # Errors
/// If no token is possible, or if `u` isn't in [0, 1).
pub fn sample(probs: &[f32], u: f32) -> Result<u32> {
    // task 8.7: Draw the token whose part of the line contains `u`
    todo!("day 8, task 7: Draw the token whose part of the line contains `u`")
}

/// Draws a token as torch does (`torch.multinomial(p, 1)`), with a race. A token's time
/// is its number from Exp(1), `q`, divided by its probability `p`, and the shortest time
/// wins. The distribution is that of [`sample`], but the draws differ.
///
/// # Errors
/// If the two slices differ in length, or if no token is possible.
pub fn race(probs: &[f32], exponentials: &[f32]) -> Result<u32> {
    // task 8.8: Return the winner of the race
    todo!("day 8, task 8: Return the winner of the race")
}

/// Draws `n` different tokens: the first from `probs`, and each later one from the
/// tokens not drawn yet, in proportion to their probabilities. All the randomness is
/// one number from Exp(1) for each token. Returns the tokens in the order in which they
/// were drawn. With `n` = 1 that's the single token that [`race`] returns.
///
/// # Errors
/// If the two slices differ in length, or if fewer than `n` tokens are possible.
pub fn draw_distinct(probs: &[f32], exponentials: &[f32], n: usize) -> Result<Vec<u32>> {
    // task 8.9 (challenge): Draw n different tokens
    todo!("day 8, task 9: Draw n different tokens")
}

/// Returns one sampler for each row of a batch. They share torch's stream after
/// `torch.manual_seed(seed)` and choose the tokens of HF's `generate(do_sample=True)`.
///
/// At every step, each of the `rows` takes V numbers from the stream, finished rows
/// included. Their numbers are skipped here, so the rows that continue draw what they
/// would in torch.
pub fn torch_samplers(seed: u64, rows: usize) -> Vec<Sampler<'static>> {
    let stream = Rc::new(RefCell::new((TorchRng::new(seed), 0)));
    let sampler = |row: usize| -> Sampler<'static> {
        let stream = stream.clone();
        Box::new(move |logits| {
            let (rng, next_row) = &mut *stream.borrow_mut();
            let skipped_rows = (row + rows - *next_row) % rows;
            rng.skip(skipped_rows * logits.len());
            *next_row = (row + 1) % rows;
            race(&softmax(logits)?, &rng.exponentials(logits.len()))
        })
    };
    (0..rows).map(sampler).collect()
}

/// Returns a sampler with its own portable stream, keyed by `seed` and `request`, so a
/// request draws the same numbers whatever else is in the batch.
pub fn chacha_sampler(seed: u64, request: usize) -> Sampler<'static> {
    let mut rng = RequestRng::new(seed, request as u64);
    Box::new(move |logits| sample(&softmax(logits)?, rng.uniform()))
}
