//! Day 21: sequences of different lengths in one row of tokens, over blocks from one pool.

use super::run::stream;
use super::{Ability, Found, Loop, OnToken, Run};
use crate::{CacheConfig, CacheKind};
use anyhow::{bail, Result};
use candecode::day21_pages::{generate_paged, PagedCache};

pub static LOOP: Loop = Loop {
    day: 21,
    cache: Some(CacheKind::Paged),
    abilities: &[
        Ability::Batches,
        Ability::Cache(CacheKind::Paged),
        Ability::Sampling,
        Ability::TorchStream,
        Ability::Processors,
        Ability::TopLogprobs,
    ],
    needs: None,
    pads: false,
    predictable: false,
    run,
};

fn run(run: &Run, prompts: &[Vec<u32>], first: usize, on_token: &mut OnToken) -> Result<Found> {
    let Some(CacheConfig::Paged { block_size, num_blocks }) = run.engine.cache else {
        bail!("{} needs a paged cache", run.day_loop)
    };
    let layers = run.model.config().num_hidden_layers;
    let cache = PagedCache::new(layers, num_blocks, block_size)?;
    let batch = run.requests(prompts, first);
    stream(generate_paged(run.model, run.tokenizer(), batch, cache)?, on_token)
}
