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
    // <solution>
    let max = logits[argmax(logits)? as usize];
    let exp: Vec<f32> = logits.iter().map(|logit| (logit - max).exp()).collect();
    let sum = exp.iter().map(|x| f64::from(*x)).sum::<f64>() as f32;
    Ok(exp.iter().map(|x| x / sum).collect())
    // </solution>
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
    // <solution>
    let divisor = t as f32;
    if !(divisor.is_finite() && divisor > 0.0) {
        bail!(
            "temperature must be a finite number above 0, got {t}; leave it out for greedy decoding"
        )
    }
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

/// Keeps the `k` largest logits, and any others equal to the `k`-th largest. The rest
/// become `-inf`. A `k` above the number of tokens keeps everything (HF
/// `TopKLogitsWarper`; Fan et al. 2018).
///
/// # Errors
/// If `k` is 0. The message must mention top-k, in any spelling.
pub fn top_k(logits: &mut [f32], k: usize) -> Result<()> {
    // task 8.3: Keep the k largest logits, ties included
    // <solution>
    if k == 0 {
        bail!("top_k must be at least 1, got 0")
    }
    if k >= logits.len() {
        return Ok(()); // clamped: nothing to drop
    }
    let mut ranked = logits.to_vec();
    // Finds the k-th largest without sorting the rest: about V comparisons instead of V log V.
    let (_, kth, _) = ranked.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
    for logit in logits {
        if *logit < *kth {
            *logit = f32::NEG_INFINITY;
        }
    }
    Ok(())
    // </solution>
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
    // <solution>
    if !(p > 0.0 && p <= 1.0) {
        bail!("top_p must be in (0, 1], got {p}")
    }
    let probabilities = softmax(logits)?; // rejects NaN

    // After top-k, only a few ids are left to sort.
    let possible = |id: &usize| logits[*id] > f32::NEG_INFINITY;
    let mut order: Vec<usize> = (0..logits.len()).filter(possible).collect();
    // Stable, and not total_cmp, which puts -0 below 0.
    order.sort_by(|a, b| logits[*a].partial_cmp(&logits[*b]).unwrap_or(Ordering::Equal));
    order.pop(); // the most likely token always stays
    let mut sum = 0f64; // torch's cumsum of f32 numbers adds in f64
    for id in order {
        sum += f64::from(probabilities[id]);
        if sum as f32 <= (1.0 - p) as f32 {
            logits[id] = f32::NEG_INFINITY;
        }
    }
    Ok(())
    // </solution>
}

/// Keeps the tokens whose probability is at least `p` times that of the most likely
/// one; the rest become `-inf` (Nguyen et al. 2024; HF `MinPLogitsWarper`).
///
/// # Errors
/// If `p` isn't in [0, 1]. The message names min-p.
pub fn min_p(logits: &mut [f32], p: f64) -> Result<()> {
    // task 8.5: Keep tokens at least p times as likely as the most likely one
    // <solution>
    if !(0.0..=1.0).contains(&p) {
        bail!("min_p must be in [0, 1], got {p}")
    }
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

/// Returns the processors for a request that samples, in HF's order, named
/// `temperature(2)`, `top_k(50)`, `top_p(0.9)` and `min_p(0.1)`. Parameters at their
/// neutral values add none.
///
/// # Errors
/// If a parameter is out of range. It fails here, before the model runs, with the
/// filter's own error.
pub fn warpers(params: &SamplingParams) -> Result<Vec<Rc<dyn LogitsProcessor>>> {
    // task 8.6: Build one processor for each parameter that is set, in HF's order
    // <solution>
    // A filter that is called with one logit checks its parameter, and changes nothing.
    let mut all = Vec::new();
    let t = params.temperature;
    if t != 1.0 {
        temperature(&mut [0.0], t)?;
        all.push(named(format!("temperature({t})"), move |_, logits| temperature(logits, t)));
    }
    if let Some(k) = params.top_k {
        top_k(&mut [0.0], k)?;
        all.push(named(format!("top_k({k})"), move |_, logits| top_k(logits, k)));
    }
    let p = params.top_p;
    if p != 1.0 {
        top_p(&mut [0.0], p)?;
        all.push(named(format!("top_p({p})"), move |_, logits| top_p(logits, p)));
    }
    let p = params.min_p;
    if p != 0.0 {
        min_p(&mut [0.0], p)?;
        all.push(named(format!("min_p({p})"), move |_, logits| min_p(logits, p)));
    }
    Ok(all)
    // </solution>
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

/// Draws a token as torch does (`torch.multinomial(p, 1)`), with a race. A token's time
/// is its number from Exp(1), `q`, divided by its probability `p`, and the shortest time
/// wins. The distribution is that of [`sample`], but the draws differ.
///
/// # Errors
/// If the two slices differ in length, or if no token is possible.
pub fn race(probs: &[f32], exponentials: &[f32]) -> Result<u32> {
    // task 8.8: Return the winner of the race
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

/// Draws `n` different tokens: the first from `probs`, and each later one from the
/// tokens not drawn yet, in proportion to their probabilities. All the randomness is
/// one number from Exp(1) for each token. Returns the tokens in the order in which they
/// were drawn. With `n` = 1 that's the single token that [`race`] returns.
///
/// # Errors
/// If the two slices differ in length, or if fewer than `n` tokens are possible.
pub fn draw_distinct(probs: &[f32], exponentials: &[f32], n: usize) -> Result<Vec<u32>> {
    // task 8.9 (challenge): Draw n different tokens
    // <solution>
    if probs.len() != exponentials.len() {
        bail!("{} probabilities need as many exponentials, got {}", probs.len(), exponentials.len())
    }
    let speed = |id: u32| probs[id as usize] / exponentials[id as usize];
    let mut order: Vec<u32> =
        (0..probs.len() as u32).filter(|id| probs[*id as usize] > 0.0).collect();
    if order.len() < n {
        bail!("{n} different tokens can't be drawn, only {} are possible", order.len())
    }
    order.sort_by(|a, b| speed(*b).total_cmp(&speed(*a)));
    order.truncate(n);
    Ok(order)
    // </solution>
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
