//! Day 13, drafting by lookup: speculative decoding of the embedded model with an n-gram drafter.

use super::Answer;
use crate::model;
use candecode::day07_greedy::argmax;
use candecode::day13_speculative::{decode_block, NgramDrafter, SpeculativeDecoder};
use candecode::kit::draft::{Draft, Drafter};
use candecode::kit::rng::RequestRng;
use candecode::kit::{Model, ProcessorInput, Request};
use candle_core::Result;
use serde::Deserialize;
use serde_json::json;
use std::cell::RefCell;
use std::rc::Rc;

/// The parameters that the page sends.
#[derive(Deserialize)]
pub struct Question {
    text: String,
    blocks: usize,
    /// Maximum number of tokens to draft per block (K).
    num_draft_tokens: usize,
    /// Length of the n-gram that must have occurred before.
    ngram: usize,
    /// The seed for sampling. None: greedy decoding.
    seed: Option<u64>,
}

/// Maximum number of new tokens.
const MOST: usize = 64;

/// A drafter that remembers its latest proposal.
struct Remembered {
    drafter: NgramDrafter,
    last: Rc<RefCell<Vec<u32>>>,
}

impl Drafter for Remembered {
    fn draft(&mut self, input: &ProcessorInput, n: usize, uniforms: &[f32]) -> Result<Draft> {
        let draft = self.drafter.draft(input, n, uniforms)?;
        self.last.replace(draft.tokens.clone());
        Ok(draft)
    }
}

/// Returns, for each block, the draft, the number of accepted tokens, and the tokens written.
pub fn answer(q: Question) -> Answer {
    let engine = model::engine()?;
    let model = engine.model();
    let prompt = model::tokens(&q.text)?;
    let request = Request::new(model.config(), &prompt, MOST, argmax);
    let last = Rc::new(RefCell::new(Vec::new()));
    let drafter = NgramDrafter { n: q.ngram, vocab_size: model.config().vocab_size };
    let mut decoder = SpeculativeDecoder::new(
        engine.new_cached(model)?,
        engine.tokenizer(),
        request,
        Box::new(Remembered { drafter, last: Rc::clone(&last) }),
        q.num_draft_tokens,
    )?;
    decoder.rng = q.seed.map(|seed| RequestRng::new(seed, 0));
    let mut blocks = Vec::new();
    while blocks.len() < q.blocks && decoder.sequence.finish.is_none() {
        let before = decoder.counts.accepted;
        let written: Vec<u32> = decode_block(&mut decoder)?.iter().map(|token| token.id).collect();
        if written.is_empty() {
            break;
        }
        blocks.push(json!({
            "drafted": model::all_shown(&last.borrow()),
            "accepted": decoder.counts.accepted - before,
            "written": model::all_shown(&written),
        }));
    }
    Ok(json!({
        "tokens": model::all_shown(&decoder.sequence.tokens), "blocks": blocks,
        "counts": decoder.counts, "ended": decoder.sequence.finish,
    }))
}
