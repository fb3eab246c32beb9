//! Day 11: beam search.

use super::{Ability, Found, Loop, OnToken, Run};
use crate::CacheKind;
use anyhow::Result;
use candecode::day11_beam_search::beam_search;

pub static LOOP: Loop = Loop {
    day: 11,
    cache: Some(CacheKind::Dynamic),
    abilities: &[
        Ability::Beams,
        Ability::Cache(CacheKind::Dynamic),
        Ability::Cache(CacheKind::Static),
        Ability::Cache(CacheKind::Paged),
        Ability::NoCache,
        Ability::Processors,
    ],
    needs: None,
    pads: false,
    predictable: false,
    run,
};

fn run(run: &Run, prompts: &[Vec<u32>], _first: usize, _on_token: &mut OnToken) -> Result<Found> {
    let mut request = run.only_request(prompts, 0)?;
    let mut cache = run.engine.new_batch()?;
    let tokenizer = run.tokenizer();
    let hypotheses = beam_search(run.model, tokenizer, &mut request, &run.beams, &mut *cache)?;
    Ok(Found { hypotheses, ..Found::default() })
}
