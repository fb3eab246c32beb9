//! Day 22: sequences that begin with the cached blocks of earlier ones.

use super::{Ability, Found, Loop, OnToken, Run};
use crate::CacheKind;
use anyhow::Result;
use candecode::day07_greedy::Sequence;
use candecode::day22_shared_prefixes::PrefixBatch;

pub static LOOP: Loop = Loop {
    day: 22,
    cache: Some(CacheKind::Paged),
    abilities: &[
        Ability::Batches,
        Ability::Cache(CacheKind::Paged),
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

/// Starts a sequence before each step, so that it finds the blocks of those before it.
fn run(run: &Run, prompts: &[Vec<u32>], first: usize, on_token: &mut OnToken) -> Result<Found> {
    let mut batch = PrefixBatch::new(run.model, run.paged_cache()?);
    let mut waiting = run.requests(prompts, first).into_iter().enumerate();
    let mut going = true;
    while going {
        match waiting.next() {
            Some((id, mut request)) => {
                request.id = id;
                request.fit(run.model)?;
                batch.add(Sequence::new(request, run.tokenizer()));
            }
            None if batch.running.is_empty() => break,
            None => {}
        }
        for token in batch.step()? {
            going &= on_token(token)?;
        }
        if let Some(trace) = run.trace {
            trace.after_step(&batch);
        }
    }
    Ok(Found::default())
}
