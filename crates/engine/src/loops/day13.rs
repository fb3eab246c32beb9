//! Day 13: blocks of drafted and verified tokens.

use super::{Ability, DraftSource, Found, Loop, OnToken, Run};
use crate::ngram_table::TableDrafter;
use crate::CacheKind;
use anyhow::{bail, Result};
use candecode::day13_speculative::{decode_block, ModelDrafter, NgramDrafter, SpeculativeDecoder};
use candecode::kit::draft::Drafter;
use candecode::kit::rng::RequestRng;

pub static LOOP: Loop = Loop {
    day: 13,
    cache: Some(CacheKind::Dynamic),
    abilities: &[
        Ability::Drafts,
        Ability::Cache(CacheKind::Dynamic),
        Ability::Cache(CacheKind::Static),
        Ability::Cache(CacheKind::Paged),
        Ability::NoCache,
        Ability::Sampling,
        Ability::Processors,
        Ability::Trace,
    ],
    needs: Some((Ability::Drafts, "--draft-model, --draft-ngram or --draft-table")),
    pads: false,
    predictable: false,
    run,
};

fn run(run: &Run, prompts: &[Vec<u32>], first: usize, on_token: &mut OnToken) -> Result<Found> {
    let drafts = run.drafts()?;
    let vocab_size = run.model.config().vocab_size;
    let drafter: Box<dyn Drafter + '_> = match &drafts.source {
        DraftSource::Ngrams(n) => Box::new(NgramDrafter { n: *n, vocab_size }),
        DraftSource::Table(table) => Box::new(TableDrafter { table, vocab_size }),
        DraftSource::Model(engine, small) => Box::new(ModelDrafter {
            cached: engine.new_cached(*small)?,
            processors: run.processors.clone(),
            greedy: run.is_greedy(),
            vocab_size,
        }),
        DraftSource::Heads(_) => bail!("Medusa heads draft trees, which day 13's loop can't take"),
    };
    let mut decoder = SpeculativeDecoder::new(
        run.engine.new_cached(run.model)?,
        run.tokenizer(),
        run.only_request(prompts, 0)?,
        drafter,
        drafts.num_tokens,
    )?;
    if !run.is_greedy() {
        decoder.rng = Some(RequestRng::new(run.params.seed, first as u64));
    }
    let mut going = true;
    while going && decoder.sequence.finish.is_none() {
        let tokens = decode_block(&mut decoder)?;
        run.trace_counts(decoder.counts);
        for token in tokens {
            going &= on_token(token)?;
        }
    }
    Ok(Found { counts: Some(decoder.counts), ..Found::default() })
}
