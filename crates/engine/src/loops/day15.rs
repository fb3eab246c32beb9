//! Day 15: requests that join and leave a padded batch.

use super::{Ability, Found, Loop, OnToken, Run};
use crate::{CacheConfig, CacheKind};
use anyhow::Result;
use candecode::day12_batching::BatchCache;
use candecode::day15_scheduler::{NewCache, Scheduler};

pub static LOOP: Loop = Loop {
    day: 15,
    cache: Some(CacheKind::Dynamic),
    abilities: &[
        Ability::Batches,
        Ability::BatchLimit,
        Ability::Cache(CacheKind::Dynamic),
        Ability::Cache(CacheKind::Static),
        Ability::Sampling,
        Ability::Processors,
        Ability::TopLogprobs,
        Ability::Trace,
    ],
    needs: None,
    pads: false,
    predictable: false,
    run,
};

/// Submits the prompts to the scheduler as requests, in order.
fn run(run: &Run, prompts: &[Vec<u32>], first: usize, on_token: &mut OnToken) -> Result<Found> {
    let capacity = run.engine.cache.unwrap_or(CacheConfig::Dynamic).batch_capacity()?;
    let layers = run.model.config().num_hidden_layers;
    let new_cache: NewCache = Box::new(move || Box::new(BatchCache::new(layers, capacity)));
    let mut scheduler = Scheduler::new(run.model, run.tokenizer(), new_cache, run.max_batch_tokens);
    for (id, mut request) in run.requests(prompts, first).into_iter().enumerate() {
        request.id = id;
        scheduler.submit(request)?;
    }
    let mut going = true;
    while going && !scheduler.is_idle() {
        for token in scheduler.run_iteration()? {
            going &= on_token(token)?;
        }
    }
    Ok(Found::default())
}
