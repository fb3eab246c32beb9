//! Day 23: a bounded number of tokens per step, in as many blocks as there are.

use super::{Ability, Found, Loop, OnToken, Run};
use crate::CacheKind;
use anyhow::Result;
use candecode::day22_shared_prefixes::PrefixCache;
use candecode::day23_token_budget::TokenScheduler;

pub static LOOP: Loop = Loop {
    day: 23,
    cache: Some(CacheKind::Paged),
    abilities: &[
        Ability::Batches,
        Ability::Cache(CacheKind::Paged),
        Ability::Sampling,
        Ability::Processors,
        Ability::TokenBudget,
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
    let (cache, prefixes) = (run.paged_cache()?, Some(PrefixCache::new()));
    let mut scheduler =
        TokenScheduler::new(run.model, run.tokenizer(), cache, prefixes, run.limits)?;
    for (id, mut request) in run.requests(prompts, first).into_iter().enumerate() {
        request.id = id;
        scheduler.submit(request)?;
    }
    let mut going = true;
    while going && !scheduler.is_idle() {
        for token in scheduler.step()? {
            going &= on_token(token)?;
        }
        if let Some(trace) = run.trace {
            trace.after_step(&scheduler);
        }
    }
    Ok(Found::default())
}
