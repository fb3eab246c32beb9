//! Day 23, a token budget: the steps of the reader's scheduler, on the page's model.

use super::scheduler::{submit_those_of, Asked};
use super::Answer;
use crate::model;
use candecode::day21_pages::{BlockTable, PagedCache};
use candecode::day22_shared_prefixes::PrefixCache;
use candecode::day23_token_budget::{Limits, TokenScheduler};
use candecode::kit::Model;
use serde::Deserialize;
use serde_json::{json, Value};

/// The parameters that the page sends.
#[derive(Deserialize)]
pub struct Question {
    requests: Vec<Asked>,
    max_num_batched_tokens: usize,
    max_num_seqs: usize,
    blocks: usize,
    block_size: usize,
    /// True if cached prefixes are shared (day 22).
    prefixes: bool,
}

/// Maximum number of steps that fit in the figure.
const STEPS: usize = 60;

/// Returns the plan of each step, its tokens, and the scheduler after it.
pub fn answer(q: Question) -> Answer {
    let engine = model::engine()?;
    let model = engine.model();
    let cache = PagedCache::new(model.config().num_hidden_layers, q.blocks, q.block_size)?;
    let Question { max_num_batched_tokens, max_num_seqs, .. } = q;
    let limits = Limits { max_num_batched_tokens, max_num_seqs };
    let prefixes = q.prefixes.then(PrefixCache::new);
    let mut scheduler = TokenScheduler::new(model, engine.tokenizer(), cache, prefixes, limits)?;
    let mut refused = vec![None; q.requests.len()];
    let mut texts = vec![String::new(); q.requests.len()];
    let mut steps = Vec::new();
    for step in 0..STEPS {
        submit_those_of(step, &q.requests, model, &mut scheduler, &mut refused);
        if scheduler.is_idle() && q.requests.iter().all(|asked| asked.at <= step) {
            break;
        }
        let before: Vec<usize> = scheduler.running.iter().map(|s| s.request.id).collect();
        let plan = scheduler.schedule()?;
        let waiting: Vec<usize> = scheduler.waiting.iter().map(|s| s.request.id).collect();
        let preempted: Vec<usize> = before.into_iter().filter(|id| waiting.contains(id)).collect();
        let held =
            |(id, table): (&usize, &BlockTable)| json!({ "id": id, "blocks": table.blocks.len() });
        let tables: Vec<Value> = scheduler.cache.tables.iter().map(held).collect();
        let free = scheduler.cache.pool.num_free();
        let tokens = if plan.is_empty() {
            Vec::new()
        } else {
            let logits = scheduler.run(&plan)?;
            scheduler.postprocess(&plan, &logits)
        };
        for token in &tokens {
            if let Some(text) = texts.get_mut(token.row) {
                text.push_str(&token.text);
            }
        }
        let tokens = tokens.iter().map(|token| {
            json!({ "id": token.row, "token": model::shown(token.id), "finish": token.finish })
        });
        let tokens: Vec<Value> = tokens.collect();
        let plan = plan
            .iter()
            .map(|part| json!({ "id": part.sequence, "start": part.start, "new": part.new }));
        steps.push(json!({
            "plan": plan.collect::<Vec<_>>(), "tokens": tokens, "waiting": waiting,
            "preempted": preempted, "tables": tables, "free": free,
        }));
    }
    let preemptions = scheduler.num_preemptions;
    Ok(json!({ "steps": steps, "refused": refused, "texts": texts, "preemptions": preemptions }))
}
