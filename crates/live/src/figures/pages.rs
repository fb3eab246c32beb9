//! Day 21, pages: requests that arrive, grow, share a prompt and leave, in the reader's pool.

use super::Answer;
use candecode::day21_pages::PagedCache;
use serde::Deserialize;
use serde_json::{json, Value};
use std::collections::VecDeque;

/// One request.
#[derive(Deserialize)]
pub struct Asked {
    /// Tokens in the prompt.
    prompt: usize,
    /// Tokens to generate.
    new: usize,
    /// The step at which it arrives.
    at: usize,
    /// Number of completions of the prompt. They all share its blocks.
    samples: usize,
}

/// The parameters that the page sends.
#[derive(Deserialize)]
pub struct Question {
    requests: Vec<Asked>,
    blocks: usize,
    block_size: usize,
}

/// A running sequence.
struct Running {
    id: usize,
    /// New tokens still to come.
    left: usize,
}

/// Maximum number of steps that fit in the figure.
const STEPS: usize = 48;
/// Ids of a request's samples: ten for each request.
const SAMPLES: usize = 10;

/// Returns, for each step, the block tables, the number of holders of each block, the free list,
/// and the waiting requests.
pub fn answer(q: Question) -> Answer {
    let mut cache = PagedCache::new(1, q.blocks, q.block_size)?;
    let mut waiting: VecDeque<usize> = VecDeque::new();
    let mut running: Vec<Running> = Vec::new();
    let mut steps = Vec::new();
    for step in 0..STEPS {
        waiting.extend((0..q.requests.len()).filter(|i| q.requests[*i].at == step));
        let mut stuck = Vec::new();
        running.retain(|sequence| {
            let goes_on = sequence.left > 0;
            if !goes_on {
                cache.release(sequence.id);
            }
            goes_on
        });
        for sequence in &mut running {
            match cache.reserve(sequence.id, 1) {
                Ok(()) => sequence.left -= 1,
                Err(_) => stuck.push(sequence.id),
            }
        }
        while let Some(next) = waiting.front() {
            let asked = &q.requests[*next];
            let first = next * SAMPLES;
            if cache.reserve(first, asked.prompt).is_err() {
                break;
            }
            for sample in 0..asked.samples {
                if sample > 0 {
                    cache.fork(first, first + sample);
                }
                running.push(Running { id: first + sample, left: asked.new });
            }
            waiting.pop_front();
        }
        let table = |(id, table): (&usize, &candecode::day21_pages::BlockTable)| {
            json!({ "request": id / SAMPLES, "sample": id % SAMPLES, "blocks": table.blocks,
                    "len": table.len, "stuck": stuck.contains(id) })
        };
        let tables: Vec<Value> = cache.tables.iter().map(table).collect();
        let free: Vec<&u32> = cache.pool.free.iter().collect();
        steps.push(json!({
            "tables": tables, "holders": cache.pool.ref_counts, "free": free,
            "waiting": waiting,
        }));
        let more = q.requests.iter().any(|asked| asked.at > step);
        if running.is_empty() && waiting.is_empty() && !more {
            break;
        }
    }
    Ok(json!({ "steps": steps }))
}
