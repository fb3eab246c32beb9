//! Day 10: one sequence, with a cache.

use super::run::stream;
use super::{Ability, Found, Loop, OnToken, Run};
use crate::CacheKind;
use anyhow::Result;
use candecode::day10_kv_cache::generate_cached;

pub static LOOP: Loop = Loop {
    day: 10,
    cache: Some(CacheKind::Dynamic),
    abilities: &[
        Ability::Cache(CacheKind::Dynamic),
        Ability::Cache(CacheKind::Static),
        Ability::Cache(CacheKind::Sliding),
        Ability::Cache(CacheKind::Paged),
        Ability::Sampling,
        Ability::TorchStream,
        Ability::Processors,
        Ability::TopLogprobs,
        Ability::Window,
        Ability::Chat,
        Ability::Trace,
    ],
    needs: None,
    pads: false,
    predictable: true,
    run,
};

fn run(run: &Run, prompts: &[Vec<u32>], first: usize, on_token: &mut OnToken) -> Result<Found> {
    let request = run.only_request(prompts, first)?;
    let cached = run.engine.new_cached(run.model)?;
    stream(generate_cached(cached, run.tokenizer(), request)?, on_token)
}
