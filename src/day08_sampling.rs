#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 8: sampling. What remains of a distribution after temperature, top-k, top-p and min-p, and
//! two ways to draw from it.

use candecode::day07_greedy::argmax;
use candecode::kit::rng::{RequestRng, TorchRng};
use candecode::kit::{named, LogitsProcessor, Sampler, SamplingParams};
use candle_core::{bail, Result};
use std::cell::RefCell;
use std::cmp::Ordering;
use std::rc::Rc;

/// Probabilities of logits: `exp(x - max)` over their sum; `-inf` becomes 0 (torch `softmax` of
/// f32).
///
/// # Errors
/// If there are no logits, a NaN among them, or all are `-inf`.
pub fn softmax(logits: &[f32]) -> Result<Vec<f32>> {
    // task 8.1: probabilities, without overflow
    todo!("day 8, task 1: probabilities, without overflow")
}

/// Divides the logits by `t`, in f32: below 1 the likely become likelier, above 1 all become more
/// alike (HF `TemperatureLogitsWarper`). Where the largest quotient would be infinite, the largest
/// logit is first subtracted from all of them: a tiny temperature is nearly greedy, not an error.
///
/// # Errors
/// If `t` is not a finite number above 0, also as an f32. The message names the temperature.
pub fn temperature(logits: &mut [f32], t: f64) -> Result<()> {
    // task 8.2: refuse what is no temperature, then rescale
    todo!("day 8, task 2: refuse what is no temperature, then rescale")
}

/// Keeps the `k` largest logits, and every tie of the smallest of them; the rest become `-inf`. `k`
/// above the number of tokens is clamped (HF `TopKLogitsWarper`; Fan et al. 2018).
///
/// # Errors
/// If `k` is 0. The message names top-k: `top_k`, `top-k` or the like.
pub fn top_k(logits: &mut [f32], k: usize) -> Result<()> {
    // task 8.3: keep the k largest and their ties
    todo!("day 8, task 3: keep the k largest and their ties")
}

/// Keeps the smallest set of tokens whose probability reaches `p`; the rest become `-inf`.
///
/// The token that crosses `p` stays, so at least one survives (Holtzman et al. 2020). As HF's
/// `TopPLogitsWarper` does it: sort ascending, sum up in f64, drop while the sum is at most `1 -
/// p`, both rounded to f32. Of equals, those that come last stay (in HF up to 16 tokens; above, its
/// sort is not stable, and any of them may). The chapter takes this as step two; the plain rule is
/// step one.
///
/// # Errors
/// If `p` is not in (0, 1]. The message names top-p.
pub fn top_p(logits: &mut [f32], p: f64) -> Result<()> {
    // task 8.4: keep the smallest set of tokens that reaches p
    todo!("day 8, task 4: keep the smallest set of tokens that reaches p")
}

/// Keeps the tokens whose probability is at least `p` times that of the likeliest; the rest become
/// `-inf` (Nguyen et al. 2024; HF `MinPLogitsWarper`).
///
/// # Errors
/// If `p` is not in [0, 1]. The message names min-p.
pub fn min_p(logits: &mut [f32], p: f64) -> Result<()> {
    // task 8.5: keep what is not much less likely than the likeliest
    todo!("day 8, task 5: keep what is not much less likely than the likeliest")
}

/// The processors of a request that samples, in HF's order, named `temperature(2)`, `top_k(50)`,
/// `top_p(0.9)`, `min_p(0.1)`. A parameter at its neutral value makes none.
///
/// # Errors
/// If a parameter is out of range: here, before the model runs, and as the filter itself would say
/// it.
pub fn warpers(params: &SamplingParams) -> Result<Vec<Rc<dyn LogitsProcessor>>> {
    // task 8.6: one named processor for each parameter that is set, in HF's order
    todo!("day 8, task 6: one named processor for each parameter that is set, in HF's order")
}

/// Draws by inverse CDF from a uniform number `u` in [0, 1): walks along the probabilities until
/// their sum passes `u`.
///
/// A token of probability 0 is never drawn; if rounding leaves the whole sum at or below `u`, the
/// last possible token is. The sum may be f32's or f64's.
///
/// # Errors
/// If no token is possible, or `u` is not in [0, 1).
pub fn sample(probs: &[f32], u: f32) -> Result<u32> {
    // task 8.7: the token in whose part of the line of probabilities `u` lies
    todo!("day 8, task 7: the token in whose part of the line of probabilities `u` lies")
}

/// Draws as torch does (`torch.multinomial(p, 1)`): a race. Every token runs for a time from
/// Exp(1), divided by its probability; the first to arrive, the largest `p / q`, wins. The same
/// distribution as [`sample`], other draws.
///
/// # Errors
/// If there is not one exponential for each probability, or no token is possible.
pub fn race(probs: &[f32], exponentials: &[f32]) -> Result<u32> {
    // task 8.8: the winner of the race
    todo!("day 8, task 8: the winner of the race")
}

/// Samplers that share torch's stream after `torch.manual_seed(seed)`, one for each row of a batch:
/// the tokens of HF's `generate(do_sample=True)`.
///
/// One stream serves all `rows`, V draws for each row and step, rows that have ended included:
/// those draws are skipped here, so that the rows that go on draw what they draw in torch.
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

/// A sampler with the portable stream of request number `request`: keyed by (seed, request), so a
/// request draws the same numbers in any company.
pub fn chacha_sampler(seed: u64, request: usize) -> Sampler<'static> {
    let mut rng = RequestRng::new(seed, request as u64);
    Box::new(move |logits| sample(&softmax(logits)?, rng.uniform()))
}
