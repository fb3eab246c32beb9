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
    // <solution>
    let max = logits[argmax(logits)? as usize];
    let exp: Vec<f32> = logits.iter().map(|logit| (logit - max).exp()).collect();
    let sum = exp.iter().map(|x| f64::from(*x)).sum::<f64>() as f32;
    Ok(exp.iter().map(|x| x / sum).collect())
    // </solution>
}

// <solution>
/// Refuses what is no temperature. The logits are divided in f32, so that is where it must be one.
fn check_temperature(t: f64) -> Result<()> {
    let divisor = t as f32;
    if !(divisor.is_finite() && divisor > 0.0) {
        bail!("temperature must be a finite number above 0, got {t}; greedy decoding needs none")
    }
    Ok(())
}
// </solution>

/// Divides the logits by `t`, in f32: below 1 the likely become likelier, above 1 all become more
/// alike (HF `TemperatureLogitsWarper`). Where the largest quotient would be infinite, the largest
/// logit is first subtracted from all of them: a tiny temperature is nearly greedy, not an error.
///
/// # Errors
/// If `t` is not a finite number above 0, also as an f32. The message names the temperature.
pub fn temperature(logits: &mut [f32], t: f64) -> Result<()> {
    // task 8.2: refuse what is no temperature, then rescale
    // <solution>
    check_temperature(t)?;
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if largest.is_finite() && (largest / t as f32).is_infinite() {
        logits.iter_mut().for_each(|logit| *logit -= largest); // the same probabilities
    }
    for logit in logits {
        *logit /= t as f32;
    }
    Ok(())
    // </solution>
}

// <solution>
fn check_top_k(k: usize) -> Result<()> {
    if k == 0 {
        bail!("top_k must be at least 1, got 0")
    }
    Ok(())
}
// </solution>

/// Keeps the `k` largest logits, and every tie of the smallest of them; the rest become `-inf`. `k`
/// above the number of tokens is clamped (HF `TopKLogitsWarper`; Fan et al. 2018).
///
/// # Errors
/// If `k` is 0. The message names top-k: `top_k`, `top-k` or the like.
pub fn top_k(logits: &mut [f32], k: usize) -> Result<()> {
    // task 8.3: keep the k largest and their ties
    // <solution>
    check_top_k(k)?;
    if k >= logits.len() {
        return Ok(()); // clamped: nothing to drop
    }
    let mut ranked = logits.to_vec();
    // The k-th largest at its place, without sorting the rest: about V comparisons, not V log V.
    let (_, kth, _) = ranked.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
    for logit in logits {
        if *logit < *kth {
            *logit = f32::NEG_INFINITY;
        }
    }
    Ok(())
    // </solution>
}

// <solution>
fn check_top_p(p: f64) -> Result<()> {
    if !(p > 0.0 && p <= 1.0) {
        bail!("top_p must be in (0, 1], got {p}")
    }
    Ok(())
}
// </solution>

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
    // <solution>
    check_top_p(p)?;
    let probabilities = softmax(logits)?; // refuses NaN
                                          // After top-k there is little to sort.
    let possible = |id: &usize| logits[*id] > f32::NEG_INFINITY;
    let mut order: Vec<usize> = (0..logits.len()).filter(possible).collect();
    // A stable sort, and not total_cmp, for which -0 and 0 are no equals.
    order.sort_by(|a, b| logits[*a].partial_cmp(&logits[*b]).unwrap_or(Ordering::Equal));
    order.pop(); // the likeliest always stays
    let mut sum = 0f64; // torch's cumsum of f32 adds in f64
    for id in order {
        sum += f64::from(probabilities[id]);
        if sum as f32 <= (1.0 - p) as f32 {
            logits[id] = f32::NEG_INFINITY;
        }
    }
    Ok(())
    // </solution>
}

// <solution>
fn check_min_p(p: f64) -> Result<()> {
    if !(0.0..=1.0).contains(&p) {
        bail!("min_p must be in [0, 1], got {p}")
    }
    Ok(())
}
// </solution>

/// Keeps the tokens whose probability is at least `p` times that of the likeliest; the rest become
/// `-inf` (Nguyen et al. 2024; HF `MinPLogitsWarper`).
///
/// # Errors
/// If `p` is not in [0, 1]. The message names min-p.
pub fn min_p(logits: &mut [f32], p: f64) -> Result<()> {
    // task 8.5: keep what is not much less likely than the likeliest
    // <solution>
    check_min_p(p)?;
    let probabilities = softmax(logits)?;
    let largest = probabilities.iter().copied().fold(0.0, f32::max);
    let least = largest * p as f32;
    for (logit, probability) in logits.iter_mut().zip(probabilities) {
        if probability < least {
            *logit = f32::NEG_INFINITY;
        }
    }
    Ok(())
    // </solution>
}

/// The processors of a request that samples, in HF's order, named `temperature(2)`, `top_k(50)`,
/// `top_p(0.9)`, `min_p(0.1)`. A parameter at its neutral value makes none.
///
/// # Errors
/// If a parameter is out of range: here, before the model runs, and as the filter itself would say
/// it.
pub fn warpers(params: &SamplingParams) -> Result<Vec<Rc<dyn LogitsProcessor>>> {
    // task 8.6: one named processor for each parameter that is set, in HF's order
    // <solution>
    let mut all = Vec::new();
    let t = params.temperature;
    if t != 1.0 {
        check_temperature(t)?;
        all.push(named(format!("temperature({t})"), move |_, logits| temperature(logits, t)));
    }
    if let Some(k) = params.top_k {
        check_top_k(k)?;
        all.push(named(format!("top_k({k})"), move |_, logits| top_k(logits, k)));
    }
    let p = params.top_p;
    if p != 1.0 {
        check_top_p(p)?;
        all.push(named(format!("top_p({p})"), move |_, logits| top_p(logits, p)));
    }
    let p = params.min_p;
    if p != 0.0 {
        check_min_p(p)?;
        all.push(named(format!("min_p({p})"), move |_, logits| min_p(logits, p)));
    }
    Ok(all)
    // </solution>
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
    // <solution>
    if !(0.0..1.0).contains(&u) {
        bail!("u must be in [0, 1), got {u}")
    }
    let mut sum = 0f64;
    for (id, probability) in probs.iter().enumerate().filter(|(_, p)| **p > 0.0) {
        sum += f64::from(*probability);
        if f64::from(u) < sum {
            return Ok(id as u32);
        }
    }
    match probs.iter().rposition(|p| *p > 0.0) {
        Some(last) => Ok(last as u32),
        None => bail!("no token is possible: all probabilities are 0"),
    }
    // </solution>
}

/// Draws as torch does (`torch.multinomial(p, 1)`): a race. Every token runs for a time from
/// Exp(1), divided by its probability; the first to arrive, the largest `p / q`, wins. The same
/// distribution as [`sample`], other draws.
///
/// # Errors
/// If there is not one exponential for each probability, or no token is possible.
pub fn race(probs: &[f32], exponentials: &[f32]) -> Result<u32> {
    // task 8.8: the winner of the race
    // <solution>
    if probs.len() != exponentials.len() {
        bail!("{} probabilities need as many exponentials, got {}", probs.len(), exponentials.len())
    }
    let speeds: Vec<f32> = probs.iter().zip(exponentials).map(|(p, q)| p / q).collect();
    let winner = argmax(&speeds)?;
    if probs[winner as usize] <= 0.0 {
        bail!("no token is possible: all probabilities are 0")
    }
    Ok(winner)
    // </solution>
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
