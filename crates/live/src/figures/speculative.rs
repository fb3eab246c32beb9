//! Day 13, accept or reject: one draft, the residual, and a long run of drafts.

use super::Answer;
use candecode::day08_sampling::sample;
use candecode::day13_speculative::{overlap, residual, verify};
use candecode::kit::draft::Draft;
use candecode::kit::rng::RequestRng;
use serde::Deserialize;
use serde_json::json;

/// The page's question: the target's distribution and the draft's, over a few tokens.
#[derive(Deserialize)]
pub struct Question {
    p: Vec<f32>,
    q: Vec<f32>,
    seed: u64,
    /// Number of tokens to draft and verify, one at a time.
    runs: usize,
}

/// Returns the residual, the acceptance probability, and how often each token was drafted, accepted
/// and written.
pub fn answer(question: Question) -> Answer {
    let Question { p, q, seed, runs } = question;
    let p = normalized(&p)?;
    let q = normalized(&q)?;
    let mut rng = RequestRng::new(seed, 0);
    let mut drafted = vec![0; p.len()];
    let mut accepted = vec![0; p.len()];
    let mut written = vec![0; p.len()];
    let mut first = serde_json::Value::Null;
    for run in 0..runs {
        let token = sample(&q, rng.uniform())?;
        let uniforms = [rng.uniform(), rng.uniform()];
        let draft = Draft { tokens: vec![token], probs: vec![q.clone()] };
        // An accepted token is followed by a bonus token, but the figure only uses the first one.
        let verdict = verify(&draft, &[p.clone(), p.clone()], &uniforms)?;
        let out = if verdict.accepted == 1 { token } else { verdict.next };
        drafted[token as usize] += 1;
        accepted[token as usize] += verdict.accepted;
        written[out as usize] += 1;
        if run == 0 {
            let accepted = verdict.accepted == 1;
            first = json!({ "token": token, "u": uniforms[0], "accepted": accepted, "out": out });
        }
    }
    Ok(json!({
        "p": p, "q": q, "residual": residual(&p, &q)?, "overlap": overlap(&p, &q),
        "drafted": drafted, "accepted": accepted, "written": written, "first": first,
    }))
}

fn normalized(weights: &[f32]) -> Result<Vec<f32>, String> {
    let sum: f32 = weights.iter().sum();
    if !(sum.is_finite() && sum > 0.0) || weights.iter().any(|w| *w < 0.0) {
        return Err("a distribution needs at least one bar above 0".to_string());
    }
    Ok(weights.iter().map(|w| w / sum).collect())
}
