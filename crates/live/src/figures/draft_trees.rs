//! Day 24, draft trees: the embedded model decodes blocks, verifying draft trees built from n-gram
//! matches in the text.

use super::Answer;
use crate::model;
use candecode::day05_model::Transformer;
use candecode::day07_greedy::argmax;
use candecode::day24_draft_trees::{decode_tree, NgramTree, TreeDecoder};
use candecode::kit::draft::{DraftTree, TreeDrafter};
use candecode::kit::{Cache, Model, ModelConfig, ProcessorInput, Request, Step};
use candle_core::{Device, Result, Tensor};
use serde::Deserialize;
use serde_json::{json, Value};
use std::cell::RefCell;
use std::rc::Rc;

/// The parameters that the page sends.
#[derive(Deserialize)]
pub struct Question {
    text: String,
    /// The number of blocks to decode. The answer shows the last of them.
    blocks: usize,
    shape: Vec<usize>,
}

/// Maximum number of new tokens.
const MOST: usize = 64;

/// A drafter that remembers its latest tree.
struct Remembered {
    drafter: NgramTree,
    last: Rc<RefCell<DraftTree>>,
}

impl TreeDrafter for Remembered {
    fn draft(
        &mut self,
        input: &ProcessorInput,
        shape: &[usize],
        hidden: Option<&Tensor>,
        uniform: &mut dyn FnMut() -> f32,
    ) -> Result<DraftTree> {
        let tree = self.drafter.draft(input, shape, hidden, uniform)?;
        self.last.replace(tree.clone());
        Ok(tree)
    }
}

/// A model that remembers the logits of its latest pass.
struct Recorded<'a> {
    model: &'a Transformer,
    logits: RefCell<Vec<Vec<f32>>>,
}

impl Model for Recorded<'_> {
    fn config(&self) -> &ModelConfig {
        self.model.config()
    }

    fn device(&self) -> &Device {
        self.model.device()
    }

    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> Result<Tensor> {
        let logits = self.model.forward(step, cache)?;
        self.logits.replace(logits.squeeze(0)?.to_vec2()?);
        Ok(logits)
    }
}

/// Returns the last block (the text before it, the tree, the model's choice after each node, the
/// accepted path and the tokens written), the number of blocks decoded, the statistics, and why the
/// sequence ended, if it did.
pub fn answer(q: Question) -> Answer {
    let engine = model::engine()?;
    let target = Recorded { model: engine.model(), logits: RefCell::default() };
    let prompt = model::tokens(&q.text)?;
    let request = Request::new(target.config(), &prompt, MOST, argmax);
    let last = Rc::new(RefCell::new(DraftTree::new(0)));
    let drafter = NgramTree { n: 1, vocab_size: target.config().vocab_size };
    let drafter = Box::new(Remembered { drafter, last: Rc::clone(&last) });
    let mut decoder = TreeDecoder::new(&target, engine.tokenizer(), request, drafter, q.shape)?;
    let mut block = Value::Null;
    let mut blocks = 0;
    while blocks < q.blocks && decoder.sequence.finish.is_none() {
        let before = decoder.sequence.tokens.clone();
        let written: Vec<u32> = decode_tree(&mut decoder)?.iter().map(|token| token.id).collect();
        if written.is_empty() {
            break;
        }
        blocks += 1;
        let tree = last.borrow();
        let choices = target.logits.borrow().iter().map(|row| argmax(row)).collect::<Result<_>>();
        let choices: Vec<u32> = choices?;
        let mut path = vec![0];
        for token in &written {
            let children = tree.children(path[path.len() - 1]);
            path.extend(children.into_iter().find(|child| tree.tokens[*child] == *token));
        }
        block = json!({
            "before": model::all_shown(&before), "nodes": model::all_shown(&tree.tokens),
            "parents": tree.parents, "depths": tree.depths, "choices": model::all_shown(&choices),
            "path": path, "written": model::all_shown(&written),
        });
    }
    Ok(json!({
        "block": block, "blocks": blocks, "counts": decoder.counts,
        "ended": decoder.sequence.finish,
    }))
}
