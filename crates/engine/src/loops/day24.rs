//! Day 24: blocks of drafted and verified trees.

use super::{Ability, DraftSource, Found, Loop, OnToken, Run};
use crate::CacheKind;
use anyhow::{bail, Result};
use candecode::day24_draft_trees::{decode_tree, Accept, MedusaTree, ModelTree, NgramTree};
use candecode::day24_draft_trees::{TreeCache, TreeDecoder};
use candecode::kit::draft::TreeDrafter;
use candecode::kit::rng::RequestRng;

pub static LOOP: Loop = Loop {
    day: 24,
    cache: Some(CacheKind::Dynamic), // its own, which grows
    abilities: &[Ability::DraftTrees, Ability::Sampling, Ability::Processors, Ability::Trace],
    needs: Some((Ability::DraftTrees, "--draft-tree or --medusa")),
    pads: false,
    predictable: false,
    run,
};

fn run(run: &Run, prompts: &[Vec<u32>], first: usize, on_token: &mut OnToken) -> Result<Found> {
    let drafts = run.drafts()?;
    let vocab_size = run.model.config().vocab_size;
    let drafter: Box<dyn TreeDrafter + '_> = match &drafts.source {
        DraftSource::Ngrams(n) => Box::new(NgramTree { n: *n, vocab_size }),
        DraftSource::Table(_) => bail!("{} can't draft from a table of n-grams", run.day_loop),
        DraftSource::Model(_, small) => Box::new(ModelTree {
            model: *small,
            cache: TreeCache::new(small.config().num_hidden_layers),
            tokens: Vec::new(),
            processors: run.processors.clone(),
            greedy: run.is_greedy(),
            vocab_size,
        }),
        DraftSource::Heads(heads) => Box::new(MedusaTree { heads }),
    };
    let request = run.only_request(prompts, 0)?;
    let shape = drafts.tree_shape.clone();
    let mut decoder = TreeDecoder::new(run.model, run.tokenizer(), request, drafter, shape)?;
    if !run.is_greedy() {
        decoder.rng = Some(RequestRng::new(run.params.seed, first as u64));
    }
    if drafts.typical {
        decoder.accept = Accept::Typical;
    }
    let mut going = true;
    while going && decoder.sequence.finish.is_none() {
        let tokens = decode_tree(&mut decoder)?;
        run.trace_counts(decoder.counts);
        for token in tokens {
            going &= on_token(token)?;
        }
    }
    Ok(Found { counts: Some(decoder.counts), ..Found::default() })
}
