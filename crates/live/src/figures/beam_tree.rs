//! Day 11, the beam tree: day 11's step functions, keeping every step's candidates for display.

use super::Answer;
use crate::model;
use candecode::day07_greedy::argmax;
use candecode::day11_beam_search::{candidates, next_log_probs, split, Beam};
use candecode::kit::{FinishReason, Model, Request};
use serde::Deserialize;
use serde_json::json;

/// The parameters that the page sends.
#[derive(Deserialize)]
pub struct Question {
    text: String,
    beams: usize,
    steps: usize,
}

/// Returns each step's candidates (the beam they extend, their token and score, and whether they
/// keep running), and the best text. As with HF's `early_stopping=True`, the search is over once as
/// many texts have ended as there are beams, and the best of those is the result.
pub fn answer(q: Question) -> Answer {
    let model = model::transformer()?;
    let prompt = model::tokens(&q.text)?;
    let request = Request::new(model.config(), &prompt, q.steps, argmax);
    let eos = &request.eos_token_ids;
    let mut cache = model::engine()?.new_batch()?;
    let mut beams = vec![Beam { tokens: prompt.clone(), score: 0.0 }];
    let mut finished: Vec<Beam> = Vec::new();
    let mut steps = Vec::new();
    for _ in 0..q.steps {
        if beams.is_empty() || finished.len() >= q.beams {
            break;
        }
        let log_probs = next_log_probs(model, &beams, &request, &mut *cache)?;
        let all = candidates(&beams, &log_probs, 2 * q.beams);
        let ending = |tokens: &[u32]| {
            let ends = tokens.last().is_some_and(|id| eos.contains(id));
            Ok(ends.then_some(FinishReason::Eos))
        };
        let split = split(&beams, &all, q.beams, ending)?;
        let has = |beam: &Beam, parent: usize, token: u32| {
            let tokens = &beams[parent].tokens;
            beam.tokens.len() == tokens.len() + 1
                && beam.tokens.starts_with(tokens)
                && beam.tokens.last() == Some(&token)
        };
        let shown = all.iter().map(|c| {
            let runs = split.running.iter().position(|beam| has(beam, c.parent, c.token));
            let ended = split.ended.iter().any(|(beam, _)| has(beam, c.parent, c.token));
            json!({
                "parent": c.parent, "token": model::shown(c.token), "score": c.score, "row": runs,
                "ended": ended,
            })
        });
        steps.push(shown.collect::<Vec<_>>());
        if !split.running.is_empty() {
            cache.select(&split.parents)?;
        }
        finished.extend(split.ended.into_iter().map(|(beam, _)| beam));
        beams = split.running;
    }
    let over = beams.is_empty() || finished.len() >= q.beams;
    if !over {
        finished.extend(beams);
    }
    let best = finished.iter().max_by(|a, b| a.score.total_cmp(&b.score));
    let best = best.map(|beam| &beam.tokens[prompt.len()..]);
    let ended = best.and_then(<[u32]>::last).is_some_and(|id| eos.contains(id));
    Ok(json!({
        "prompt": model::all_shown(&prompt), "steps": steps, "best": best.map(model::all_shown),
        "ended": ended, "over": over,
    }))
}
