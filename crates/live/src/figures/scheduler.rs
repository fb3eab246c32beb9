//! Day 15, the scheduler: the reader's requests as bars on a timeline of steps.

use super::Answer;
use crate::model;
use candecode::day07_greedy::argmax;
use candecode::day12_batching::BatchCache;
use candecode::day15_scheduler::{NewCache, Scheduler};
use candecode::kit::{Model, Request, SchedulerInterface};
use serde::Deserialize;
use serde_json::json;

/// One of the reader's requests.
#[derive(Deserialize)]
pub struct Asked {
    text: String,
    new: usize,
    /// The step at which it arrives.
    pub at: usize,
}

/// The parameters that the page sends.
#[derive(Deserialize)]
pub struct Question {
    requests: Vec<Asked>,
    max_batch_tokens: usize,
}

/// Maximum number of steps that fit in the figure.
const TURNS: usize = 60;

/// Submits the requests that arrive at a step; `refused` gets the reasons of those that fail.
pub fn submit_those_of<'a>(
    step: usize,
    requests: &[Asked],
    model: &dyn Model,
    scheduler: &mut dyn SchedulerInterface<'a>,
    refused: &mut [Option<String>],
) {
    for (id, asked) in requests.iter().enumerate().filter(|(_, asked)| asked.at == step) {
        let submitted = crate::model::tokens(&asked.text).and_then(|prompt| {
            let mut request = Request::new(model.config(), &prompt, asked.new, argmax);
            request.id = id;
            scheduler.submit(request).map_err(|e| e.to_string())
        });
        refused[id] = submitted.err();
    }
}

/// Returns, for each step, the state of every request and the padding of every running row.
pub fn answer(q: Question) -> Answer {
    let engine = model::engine()?;
    let model = engine.model();
    let layers = model.config().num_hidden_layers;
    let new_cache: NewCache = Box::new(move || Box::new(BatchCache::new(layers, None)));
    let mut scheduler = Scheduler::new(model, engine.tokenizer(), new_cache, q.max_batch_tokens);
    let mut refused = vec![None; q.requests.len()];
    let mut turns = Vec::new();
    for turn in 0..TURNS {
        submit_those_of(turn, &q.requests, model, &mut scheduler, &mut refused);
        if scheduler.is_idle() && q.requests.iter().all(|asked| asked.at <= turn) {
            break;
        }
        let before: Vec<usize> = scheduler.waiting.iter().map(|s| s.request.id).collect();
        let tokens = scheduler.run_iteration()?;
        let waiting: Vec<usize> = scheduler.waiting.iter().map(|s| s.request.id).collect();
        let running = scheduler.running.iter().map(|row| {
            json!({
                "id": row.sequence.request.id, "len": row.sequence.tokens.len(),
                "padding": row.padding,
            })
        });
        let running: Vec<_> = running.collect();
        let admitted: Vec<usize> = before.into_iter().filter(|id| !waiting.contains(id)).collect();
        let shown = tokens.iter().map(|token| {
            json!({ "id": token.row, "token": model::shown(token.id), "finish": token.finish })
        });
        turns.push(json!({
            "waiting": waiting, "admitted": admitted, "running": running,
            "tokens": shown.collect::<Vec<_>>(),
        }));
    }
    Ok(json!({ "turns": turns, "refused": refused }))
}
