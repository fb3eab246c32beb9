//! Day 8: sampling. What remains of a distribution after temperature, top-k, top-p and min-p, and two ways to draw from
//! it.

use candecode::day07_greedy::argmax;
use candecode::kit::rng::{RequestRng, TorchRng};
use candecode::kit::{named, Choose, LogitsProcessor};
use candle_core::{bail, Result};
use std::cmp::Ordering;

/// Probabilities of logits: `exp(x - max)` over its sum; `-inf` becomes 0 (torch `softmax` of f32).
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

/// Divides the logits by `t`, in f32: below 1 the likely become likelier, above 1 all become alike (HF
/// `TemperatureLogitsWarper`). A `t` that f32 rounds to 0 is nobody's wish.
///
/// # Errors
/// If `t` is not a finite number above 0. The message names the temperature.
pub fn temperature(logits: &mut [f32], t: f64) -> Result<()> {
    // task 8.2: refuse what is no temperature, then rescale
    // <solution>
    if !(t.is_finite() && t > 0.0) {
        bail!("temperature must be a finite number above 0, got {t}; greedy decoding needs none")
    }
    logits.iter_mut().for_each(|logit| *logit /= t as f32);
    Ok(())
    // </solution>
}

/// Keeps the `k` largest logits, and every tie of the smallest of them; the rest become `-inf`. `k` above the number of
/// tokens is clamped (HF `TopKLogitsWarper`).
///
/// # Errors
/// If `k` is 0. The message names top-k: `top_k`, `top-k` or the like.
pub fn top_k(logits: &mut [f32], k: usize) -> Result<()> {
    // task 8.3: keep the k largest and their ties
    // <solution>
    if k == 0 {
        bail!("top_k must be at least 1, got 0")
    }
    if k >= logits.len() {
        return Ok(()); // clamped: nothing to drop
    }
    let mut ranked = logits.to_vec();
    // The k-th largest at its place, without sorting the rest: V comparisons or so, not V log V.
    let (_, kth, _) = ranked.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
    for logit in logits.iter_mut().filter(|logit| **logit < *kth) {
        *logit = f32::NEG_INFINITY;
    }
    Ok(())
    // </solution>
}

/// Keeps the smallest set of tokens whose probability reaches `p`; the rest become `-inf`.
///
/// The token that crosses `p` stays, so at least one survives (Holtzman et al. 2020). As HF's `TopPLogitsWarper` does
/// it: sort ascending, sum up in f64, drop while the sum is at most `1 - p`, both rounded to f32. Of equals, those that come last stay (in HF up to
/// 16 tokens; above, its sort is not stable, and any of them may).
///
/// # Errors
/// If `p` is not in (0, 1]. The message names top-p.
pub fn top_p(logits: &mut [f32], p: f64) -> Result<()> {
    // task 8.4: keep the smallest set of tokens that reaches p
    // <solution>
    if !(p > 0.0 && p <= 1.0) {
        bail!("top_p must be in (0, 1], got {p}")
    }
    let probabilities = softmax(logits)?; // refuses NaN
    let left = |id: &usize| logits[*id] > f32::NEG_INFINITY; // after top-k there is little to sort
    let mut order: Vec<usize> = (0..logits.len()).filter(left).collect();
    // Stable; not total_cmp, for which -0 and 0 are no equals.
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

/// Keeps the tokens whose probability is at least `p` times that of the likeliest; the rest become `-inf` (Nguyen et al.
/// 2024; HF `MinPLogitsWarper`).
///
/// # Errors
/// If `p` is not in [0, 1]. The message names min-p.
pub fn min_p(logits: &mut [f32], p: f64) -> Result<()> {
    // task 8.5: keep what is not much less likely than the likeliest
    // <solution>
    if !(0.0..=1.0).contains(&p) {
        bail!("min_p must be in [0, 1], got {p}")
    }
    let probabilities = softmax(logits)?;
    let least = probabilities.iter().copied().fold(0.0, f32::max) * p as f32;
    for (logit, probability) in logits.iter_mut().zip(probabilities) {
        if probability < least {
            *logit = f32::NEG_INFINITY;
        }
    }
    Ok(())
    // </solution>
}

/// What to sample with. Names are the field's; nothing that is None is done (HF silently has `top_k = 50`).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SamplingParams {
    /// Divides the logits.
    pub temperature: Option<f64>,
    /// Keeps so many.
    pub top_k: Option<usize>,
    /// Keeps so much probability.
    pub top_p: Option<f64>,
    /// Keeps what is not so much less likely than the best.
    pub min_p: Option<f64>,
}

/// The processors of `params`, in HF's order, named `temperature(2)`, `top_k(50)`, `top_p(0.9)`, `min_p(0.1)`.
///
/// Each parameter is tried on a small input first, so that a bad one is refused before the model runs.
///
/// # Errors
/// If a parameter is out of range; the filter's own error will do.
pub fn warpers(params: &SamplingParams) -> Result<Vec<Box<dyn LogitsProcessor>>> {
    // task 8.6: one named processor for each parameter that is given, in HF's order
    // <solution>
    let mut all: Vec<Box<dyn LogitsProcessor>> = Vec::new();
    if let Some(t) = params.temperature {
        temperature(&mut [0.0], t)?;
        all.push(Box::new(named(format!("temperature({t})"), move |_, l| temperature(l, t))));
    }
    if let Some(k) = params.top_k {
        top_k(&mut [0.0], k)?;
        all.push(Box::new(named(format!("top_k({k})"), move |_, l| top_k(l, k))));
    }
    if let Some(p) = params.top_p {
        top_p(&mut [0.0], p)?;
        all.push(Box::new(named(format!("top_p({p})"), move |_, l| top_p(l, p))));
    }
    if let Some(p) = params.min_p {
        min_p(&mut [0.0], p)?;
        all.push(Box::new(named(format!("min_p({p})"), move |_, l| min_p(l, p))));
    }
    Ok(all)
    // </solution>
}

/// Draws by inverse CDF: walks along the probabilities until their sum passes `coin`, in [0, 1).
///
/// A token of probability 0 is never drawn; if rounding leaves the sum below `coin`, the last possible token is. The sum
/// may be f32's or f64's.
///
/// # Errors
/// If no token is possible, or `coin` is not in [0, 1).
pub fn sample(probs: &[f32], coin: f32) -> Result<u32> {
    // task 8.7: where the coin falls on the line of probabilities
    // <solution>
    if !(0.0..1.0).contains(&coin) {
        bail!("a coin must be in [0, 1), got {coin}")
    }
    let (mut sum, mut last) = (0f64, None);
    for (id, probability) in probs.iter().enumerate().filter(|(_, p)| **p > 0.0) {
        sum += f64::from(*probability);
        last = Some(id as u32);
        if f64::from(coin) < sum {
            break;
        }
    }
    last.ok_or_else(|| {
        candle_core::Error::Msg("no token is possible: all probabilities are 0".into())
    })
    // </solution>
}

/// Draws as torch does (`torch.multinomial(p, 1)`): a race. Every token runs for a time from Exp(1), divided by its
/// probability; the first to arrive, the largest `p / q`, wins. The same distribution as [`sample`], other draws.
///
/// # Errors
/// If there is not one exponential for each probability, or no token is possible.
pub fn race(probs: &[f32], exponentials: &[f32]) -> Result<u32> {
    // task 8.8: the winner of the race
    // <solution>
    if probs.len() != exponentials.len() {
        bail!("{} probabilities need as many exponentials, got {}", probs.len(), exponentials.len())
    }
    let winner = argmax(&probs.iter().zip(exponentials).map(|(p, q)| p / q).collect::<Vec<_>>())?;
    if probs[winner as usize] <= 0.0 {
        bail!("no token is possible: all probabilities are 0")
    }
    Ok(winner)
    // </solution>
}

/// Chooses with torch's stream after `torch.manual_seed(seed)`: the tokens of HF's `generate(do_sample=True)`.
///
/// One stream serves all `rows` of a batch, V draws for each row and step, rows that have ended included: those are
/// skipped over here, so that the rows that go on draw what they draw in torch.
pub fn torch_sampler(seed: u64, rows: usize) -> Choose<'static> {
    let mut rng = TorchRng::new(seed);
    let mut next = 0; // the row whose turn it is
    Box::new(move |row, logits| {
        let skipped = (row + rows - next) % rows;
        (0..skipped * logits.len()).for_each(|_| _ = rng.exponential());
        next = (row + 1) % rows;
        race(&softmax(logits)?, &rng.exponentials(logits.len()))
    })
}

/// Chooses with the portable stream: every row has its own, keyed by (seed, row), so company changes nothing.
pub fn chacha_sampler(seed: u64) -> Choose<'static> {
    let mut rows: Vec<RequestRng> = Vec::new();
    Box::new(move |row, logits| {
        while rows.len() <= row {
            rows.push(RequestRng::new(seed, rows.len() as u64));
        }
        sample(&softmax(logits)?, rows[row].uniform())
    })
}
