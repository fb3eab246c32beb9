//! Day 21: sequences of different lengths in one row of tokens, over blocks from one pool.

use super::run::stream;
use super::{Ability, Found, Loop, OnToken, Run};
use crate::CacheKind;
use anyhow::Result;
use candecode::day21_pages::generate_paged;

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
        Ability::Trace,
    ],
    needs: None,
    pads: false,
    predictable: false,
    run,
};

fn run(run: &Run, prompts: &[Vec<u32>], first: usize, on_token: &mut OnToken) -> Result<Found> {
    let batch = run.requests(prompts, first);
    stream(generate_paged(run.model, run.tokenizer(), batch, run.paged_cache()?)?, on_token)
}
