//! Days 7 to 9, the sampler bench: a distribution before and after the processors, and draws from
//! it.

use super::Answer;
use crate::model;
use candecode::day06_generate::next_logits;
use candecode::day08_sampling::{min_p, sample, softmax, temperature, top_k, top_p};
use candecode::day09_penalties::{presence_frequency, repetition_penalty};
use candecode::kit::rng::RequestRng;
use serde::Deserialize;
use serde_json::json;

/// The parameters that the page sends. Processors at their neutral values aren't called, so a day
/// that isn't written yet causes an error only once its slider is moved.
#[derive(Deserialize)]
pub struct Question {
    text: String,
    /// Generated tokens, which follow those of `text`.
    #[serde(default)]
    generated: Vec<u32>,
    /// Names of the processors, in the order they run.
    order: Vec<String>,
    temperature: f64,
    top_k: usize,
    top_p: f64,
    min_p: f64,
    repetition: f32,
    presence: f32,
    frequency: f32,
    /// Number of bars to show.
    bars: usize,
    seed: u64,
    /// Number of tokens to draw.
    draws: usize,
}

/// Returns the most likely tokens before and after the processors, and the tokens drawn.
pub fn answer(q: Question) -> Answer {
    let prompt = model::tokens(&q.text)?;
    let tokens = [&prompt[..], &q.generated].concat();
    let generated = &q.generated[..];
    let raw = next_logits(model::transformer()?, &tokens)?;
    let before = softmax(&raw)?;

    let mut logits = raw.clone();
    let mut dropped_by: Vec<Option<&str>> = vec![None; logits.len()];
    for name in &q.order {
        match name.as_str() {
            "repetition" if q.repetition != 1.0 => {
                repetition_penalty(&mut logits, &tokens, q.repetition)?
            }
            "presence" if q.presence != 0.0 || q.frequency != 0.0 => {
                presence_frequency(&mut logits, generated, q.presence, q.frequency)?
            }
            "temperature" if q.temperature != 1.0 => temperature(&mut logits, q.temperature)?,
            "top_k" if q.top_k > 0 => top_k(&mut logits, q.top_k)?,
            "top_p" if q.top_p != 1.0 => top_p(&mut logits, q.top_p)?,
            "min_p" if q.min_p != 0.0 => min_p(&mut logits, q.min_p)?,
            _ => {}
        }
        for (logit, dropped) in logits.iter().zip(&mut dropped_by) {
            if *logit == f32::NEG_INFINITY && dropped.is_none() {
                *dropped = Some(name);
            }
        }
    }
    let after = softmax(&logits)?;

    let mut best: Vec<usize> = (0..before.len()).collect();
    best.sort_by(|a, b| before[*b].total_cmp(&before[*a]).then(a.cmp(b)));
    // A token is left unless a processor dropped it, even if its probability rounds to 0.
    let left = before.iter().zip(&dropped_by).filter(|(_, dropped)| dropped.is_none());
    let kept = left.clone().count();
    let mass: f64 = left.map(|(p, _)| f64::from(*p)).sum();

    let mut rng = RequestRng::new(q.seed, 0);
    let mut draws = Vec::new();
    for _ in 0..q.draws {
        let u = rng.uniform();
        let id = sample(&after, u)?;
        let low: f64 = after[..id as usize].iter().map(|p| f64::from(*p)).sum();
        let high = low + f64::from(after[id as usize]);
        draws
            .push(json!({ "u": u, "id": id, "token": model::shown(id), "low": low, "high": high }));
    }
    // The number line that a draw lands on: cumulative probabilities, in id order.
    let mut line = Vec::new();
    let mut sum = 0.0;
    for (id, p) in after.iter().enumerate() {
        if *p >= 0.004 {
            let (low, high) = (sum, sum + f64::from(*p));
            line.push(
                json!({ "id": id, "token": model::shown(id as u32), "low": low, "high": high }),
            );
        }
        sum += f64::from(*p);
    }
    let bars = best.iter().take(q.bars).map(|id| {
        json!({
            "id": id, "token": model::shown(*id as u32), "before": before[*id], "after": after[*id],
            "dropped": dropped_by[*id],
        })
    });
    Ok(json!({
        "tokens": model::all_shown(&tokens), "bars": bars.collect::<Vec<_>>(), "kept": kept,
        "mass": mass, "vocab": after.len(), "draws": draws, "line": line,
    }))
}
