//! Day 18, the online softmax: what a query carries from key to key.

use super::Answer;
use candecode::day18_flash_attention::{Head, Partial};
use serde::Deserialize;
use serde_json::json;

/// The page's question: one query's scores, and how many keys it meets at a time.
#[derive(Deserialize)]
pub struct Question {
    /// The query's score with each key. Key `i` has the value `i + 1`.
    scores: Vec<f32>,
    group: usize,
}

/// Returns the query's state after each group of keys, with the mean that it amounts to and the
/// mean of an ordinary softmax over the same keys.
pub fn answer(q: Question) -> Answer {
    if q.group == 0 || q.scores.iter().any(|score| !score.is_finite()) {
        return Err("a group has at least one key, and scores are finite".into());
    }
    let values: Vec<f32> = (1..=q.scores.len()).map(|value| value as f32).collect();
    let head = Head { data: &values, stride: 1, width: 1 };
    let mut partial = Partial::new(1);
    let mut states = Vec::new();
    for (at, scores) in q.scores.chunks(q.group).enumerate() {
        partial.update(scores, &head, at * q.group);
        let mut mean = [0.0];
        partial.finish(&mut mean);
        let met = at * q.group + scores.len();
        states.push(json!({
            "met": met, "max": partial.max, "sum": partial.sum, "acc": partial.acc[0],
            "mean": mean[0], "exact": plain_mean(&q.scores[..met]),
        }));
    }
    Ok(json!({ "states": states }))
}

/// Returns the mean of the values `1`, `2`, …, weighted by a softmax that has seen all scores.
fn plain_mean(scores: &[f32]) -> f64 {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let (mut sum, mut total) = (0.0, 0.0);
    for (at, score) in scores.iter().enumerate() {
        let weight = f64::from(score - max).exp();
        sum += weight;
        total += weight * (at + 1) as f64;
    }
    total / sum
}
