//! Day 12: a padded batch.

use super::run::stream;
use super::{Ability, Found, Loop, OnToken, Run};
use crate::CacheKind;
use anyhow::Result;
use candecode::day12_batching::generate_batch;

pub static LOOP: Loop = Loop {
    day: 12,
    cache: Some(CacheKind::Dynamic),
    abilities: &[
        Ability::Batches,
        Ability::Cache(CacheKind::Dynamic),
        Ability::Cache(CacheKind::Static),
        Ability::NoCache,
        Ability::Sampling,
        Ability::TorchStream,
        Ability::Processors,
        Ability::TopLogprobs,
        Ability::Trace,
    ],
    needs: None,
    pads: true,
    predictable: true,
    run,
};

fn run(run: &Run, prompts: &[Vec<u32>], first: usize, on_token: &mut OnToken) -> Result<Found> {
    let batch = run.requests(prompts, first);
    let cache = run.engine.new_batch()?;
    stream(generate_batch(run.model, run.tokenizer(), batch, cache)?, on_token)
}
