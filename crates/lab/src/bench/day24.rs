//! Day 24: the cost of a pass over a draft tree, the cost of drafting one, and the speedup from
//! both.

use crate::shared::{if_written, locate, request, text, text_of, tokenizer, transformer};
use crate::tally::Tally;
use crate::times::Times;
use anyhow::Result;
use candecode::day05_model::Transformer;
use candecode::day24_draft_trees::{
    decode_tree, tree_step, MedusaHeads, MedusaTree, ModelTree, NgramTree, TreeCache, TreeDecoder,
};
use candecode::kit::draft::{Counts, DraftTree, TreeDrafter};
use candecode::kit::{Model, ProcessorInput, Step};
use candecode_engine::medusa::{self, tree_size};
use candecode_engine::score::Counted;
use candecode_engine::watched::Watched;
use candle_core::Tensor;
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

const PROMPT: &str = "Lily and her dog";
const NEW: usize = 64;
/// Positions before the tree in a timed pass.
const PAST: usize = 32;

/// The shapes of the trees.
const SHAPES: [&[usize]; 3] = [&[1, 1, 1, 1], &[2, 1], &[3, 2, 1, 1]];

/// Returns the drafters that are written: the model's is optional.
fn drafters(models: &Models) -> Result<Vec<&'static str>> {
    let by_model = if_written(|| models.decode("story-230k", &[1]))?;
    Ok(["medusa"].into_iter().chain(by_model.map(|_| "story-230k")).collect())
}

/// Formats a shape for `--draft-tree`, such as `2x1`.
fn named(shape: &[usize]) -> String {
    shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}

/// The target, its Medusa heads, and the small model.
struct Models {
    target: Transformer,
    heads: MedusaHeads,
    small: Transformer,
}

impl Models {
    fn open() -> Result<Self> {
        let target = transformer("story-3m")?;
        let heads = medusa::load(&locate("story-3m")?.join(medusa::FILE), &target)?;
        Ok(Self { target, heads, small: transformer("story-230k")? })
    }

    fn drafter(&self, name: &str) -> Box<dyn TreeDrafter + '_> {
        match name {
            "medusa" => return Box::new(MedusaTree { heads: &self.heads }),
            "n-grams" => {
                return Box::new(NgramTree { n: 2, vocab_size: self.target.config().vocab_size })
            }
            _ => {}
        }
        let cache = TreeCache::new(self.small.config().num_hidden_layers);
        let vocab_size = self.target.config().vocab_size;
        let (tokens, processors) = (Vec::new(), Vec::new());
        Box::new(ModelTree {
            model: &self.small,
            cache,
            tokens,
            processors,
            greedy: true,
            vocab_size,
        })
    }

    /// Generates the text with trees of this shape. Returns the counts, and the seconds spent on
    /// drafting.
    fn decode(&self, name: &str, shape: &[usize]) -> Result<(Counts, f64)> {
        let target = Watched::new(&self.target, String::new(), || false);
        let tokenizer = tokenizer()?;
        let prompt = tokenizer.encode(PROMPT)?;
        let spent = Rc::new(Cell::new(0.0));
        let drafter = Box::new(Timed { drafter: self.drafter(name), spent: Rc::clone(&spent) });
        let request = request(&target, &prompt, NEW);
        let mut decoder = TreeDecoder::new(&target, &tokenizer, request, drafter, shape.to_vec())?;
        while decoder.sequence.finish.is_none() {
            decode_tree(&mut decoder)?;
        }
        Ok((decoder.counts, spent.get()))
    }
}

/// A drafter that measures the time spent on drafting.
struct Timed<'a> {
    drafter: Box<dyn TreeDrafter + 'a>,
    spent: Rc<Cell<f64>>,
}

impl TreeDrafter for Timed<'_> {
    fn draft(
        &mut self,
        input: &ProcessorInput,
        shape: &[usize],
        hidden: Option<&Tensor>,
        uniform: &mut dyn FnMut() -> f32,
    ) -> candle_core::Result<DraftTree> {
        let begun = Instant::now();
        let tree = self.drafter.draft(input, shape, hidden, uniform);
        self.spent.set(self.spent.get() + begun.elapsed().as_secs_f64());
        tree
    }
}

/// Returns a full tree of this shape.
fn full(shape: &[usize]) -> DraftTree {
    let mut tree = DraftTree::new(5);
    let mut level = vec![0];
    for width in shape {
        let children = level.iter().flat_map(|node| std::iter::repeat_n(*node, *width));
        let parents: Vec<usize> = children.collect();
        level = parents.into_iter().map(|parent| tree.add(parent, 7, Vec::new())).collect();
    }
    tree
}

pub fn count(tally: &mut Tally) -> Result<()> {
    let (models, tokenizer) = (Models::open()?, tokenizer()?);
    let prompt = tokenizer.encode(PROMPT)?;
    let counted = Counted::new(&models.target);
    text_of(&counted, &tokenizer, request(&counted, &prompt, NEW))?;
    for (name, shape) in [("n-grams", &[2, 1, 1][..]), ("medusa", &[3, 2, 1, 1])] {
        let (tree, _) = models.decode(name, shape)?;
        let what = format!("passes for 64 tokens, {name}, trees of {}", named(shape));
        tally.add(&what, counted.passes(), tree.passes);
    }
    Ok(())
}

pub fn measure(times: &mut Times) -> Result<()> {
    let models = Models::open()?;
    let (target, tokenizer) = (&models.target, tokenizer()?);
    let before = text(target, PROMPT, PAST)?;
    let mut cache = TreeCache::new(target.config().num_hidden_layers);
    target.forward(&Step::new(target, &before, 0)?, &mut cache)?;
    for shape in SHAPES.into_iter().chain([&[][..]]) {
        let tree = full(shape);
        times.measure(&format!("pass_{}", tree.num_nodes()), || -> Result<_> {
            cache.layers.truncate(PAST)?;
            let step = tree_step(target, &tree, PAST, 0)?;
            let logits = target.forward(&step, &mut cache)?;
            Ok(logits.squeeze(0)?.to_vec2::<f32>()?)
        })?;
    }
    let prompt = tokenizer.encode(PROMPT)?;
    times.measure("plain", || text_of(target, &tokenizer, request(target, &prompt, NEW)))?;
    for name in drafters(&models)? {
        for shape in SHAPES {
            let row = format!("{name}_{}", named(shape));
            times.several([&format!("whole_{row}"), &format!("draft_{row}")], || {
                let begun = Instant::now();
                let (counts, spent) = models.decode(name, shape)?;
                Ok([begun.elapsed().as_secs_f64(), spent / counts.passes as f64])
            })?;
        }
    }
    Ok(())
}

pub fn report(times: &Times, _: &Path) -> Result<()> {
    let models = Models::open()?;
    let (pass, plain) = (times.of("pass_1")?, times.of("plain")?);
    println!(
        "story-3m: a pass over 1 token after {PAST} takes {:.0} µs, the unit below. c: a pass over \
         n tokens. d: a draft. t: tokens per pass. Speedup over {NEW} tokens by the formula \
         t / (c + d), and by the clock",
        1e6 * pass
    );
    println!(
        "{:<12}{:<10}{:>4}{:>7}{:>7}{:>7}{:>9}{:>7}",
        "drafter", "shape", "n", "c", "d", "t", "formula", "clock"
    );
    for name in drafters(&models)? {
        for shape in SHAPES {
            let row = format!("{name}_{}", named(shape));
            let n = 1 + tree_size(shape);
            let c = times.of(&format!("pass_{n}"))? / pass;
            let d = times.of(&format!("draft_{row}"))? / pass;
            let (counts, _) = models.decode(name, shape)?;
            let t = counts.written as f64 / counts.passes as f64;
            let clock = plain / times.of(&format!("whole_{row}"))?;
            let formula = t / (c + d);
            println!(
                "{name:<12}{:<10}{n:>4}{c:>7.2}{d:>7.2}{t:>7.2}{formula:>9.2}{clock:>7.2}",
                named(shape)
            );
        }
    }
    Ok(())
}
