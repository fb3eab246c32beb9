//! Day 24's checks: draft trees and Medusa.

#[path = "../frame/mod.rs"]
mod frame;

#[cfg(not(feature = "mine"))]
use candecode::day24_draft_trees;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day24_draft_trees.rs"]
mod day24_draft_trees;

use candecode::day03_norms_and_mlps::Projection;
use candecode::day07_greedy::{self, Sequence};
use candecode::day08_sampling::{sample, softmax};
use candecode::day10_kv_cache::{generate_cached, Cached, DynamicCache};
use candecode::day13_speculative::one_hot;
use candecode::kit::draft::{Counts, DraftTree, TreeDrafter, Walk};
use candecode::kit::ops::{Ops, SharedOps};
use candecode::kit::rng::RequestRng;
use candecode::kit::Weight;
use candecode::kit::{
    named, Cache, FinishReason, Logits, LogitsProcessor, Model, ModelConfig, NoCache,
};
use candecode::kit::{ProcessorInput, Request, Step, Token, Tokenizer, View};
use candle_core::{bail, Device, Result, Tensor};
use frame::{close, device, ensure, equal, equal_tokens, golden, marked, model, refused};
use frame::{ops, rows, tokenizer, Keep, Likely, Outcome, Random, Witness, LAYERS};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// The target's distribution after a node.
pub type Target<'a> = &'a mut dyn FnMut(usize) -> Result<Vec<f32>>;

/// A source of numbers in [0, 1).
pub type Uniform<'a> = &'a mut dyn FnMut() -> f32;

/// A `TreeCache` in any implementation.
pub trait Keeping: Cache {
    fn keep(&mut self, past: usize, path: &[usize]) -> Result<()>;
    fn held(&self, layer: usize) -> Result<Option<View>>;
}

/// The parts of a decoder.
pub struct Setup<'a> {
    pub model: &'a dyn Model,
    pub tokenizer: &'a Tokenizer,
    pub request: Request<'a>,
    pub drafter: Box<dyn TreeDrafter + 'a>,
    pub shape: Vec<usize>,
    pub rng: Option<RequestRng>,
}

/// A `TreeDecoder` in any implementation.
pub trait Decoder<'a> {
    fn sequence(&self) -> &Sequence<'a>;
    fn cached(&self) -> usize;
    fn counts(&self) -> Counts;
    fn accept_typical(&mut self);
    fn block(&mut self) -> Result<Vec<Token>>;
}

/// The parts of a `ModelTree`: the model, its processors, whether it is greedy, and the target's
/// vocabulary.
pub type Small = for<'a> fn(
    &'a dyn Model,
    Vec<Rc<dyn LogitsProcessor + 'a>>,
    bool,
    usize,
) -> Box<dyn TreeDrafter + 'a>;

/// The day 24 functions under test.
#[derive(Clone, Copy)]
pub struct Day {
    pub mask: fn(&DraftTree, usize, usize) -> Vec<Vec<u8>>,
    pub step: fn(&dyn Model, &DraftTree, usize, usize) -> Result<Step>,
    pub cache: fn(usize) -> Box<dyn Keeping>,
    pub greedy: fn(&DraftTree, Target) -> Result<Walk>,
    pub decoder: for<'a> fn(Setup<'a>) -> Result<Box<dyn Decoder<'a> + 'a>>,
    pub ngram: fn(usize, usize) -> Box<dyn TreeDrafter>,
    pub sampled: fn(&DraftTree, Target, Uniform) -> Result<Walk>,
    pub heads: fn(Vec<Projection>, Projection, &Tensor, usize) -> Result<Vec<Vec<f32>>>,
    pub medusa:
        fn(Vec<Projection>, Projection, &[u32], &[usize], Option<&Tensor>) -> Result<DraftTree>,
    pub typical: fn(&DraftTree, f32, f32, Target) -> Result<Walk>,
    pub several: fn(&[f32], usize, bool, Uniform) -> Result<Vec<(u32, Vec<f32>)>>,
    pub small: Small,
}

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use candecode::day07_greedy::Sequence;
        use candecode::kit::draft::{Counts, TreeDrafter as _};
        use candecode::kit::{Cache, ProcessorInput, Token, View};
        use candle_core::{Result, Tensor};
        use $($path)::+ as code;
        struct Held(code::TreeCache);
        impl Cache for Held {
            fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<View> {
                self.0.append(layer, k, v)
            }
            fn len(&self) -> usize {
                self.0.len()
            }
            fn truncate(&mut self, len: usize) -> Result<()> {
                self.0.truncate(len)
            }
        }
        impl crate::Keeping for Held {
            fn keep(&mut self, past: usize, path: &[usize]) -> Result<()> {
                self.0.keep(past, path)
            }
            fn held(&self, layer: usize) -> Result<Option<View>> {
                self.0.layers.held(layer)
            }
        }
        struct Wrapped<'a>(code::TreeDecoder<'a>);
        impl<'a> crate::Decoder<'a> for Wrapped<'a> {
            fn sequence(&self) -> &Sequence<'a> {
                &self.0.sequence
            }
            fn cached(&self) -> usize {
                self.0.cache.len()
            }
            fn counts(&self) -> Counts {
                self.0.counts
            }
            fn accept_typical(&mut self) {
                self.0.accept = code::Accept::Typical;
            }
            fn block(&mut self) -> Result<Vec<Token>> {
                code::decode_tree(&mut self.0)
            }
        }
        crate::Day {
            mask: code::ancestor_mask,
            step: code::tree_step,
            cache: |layers| Box::new(Held(code::TreeCache::new(layers))),
            greedy: |tree, target| code::walk_greedy(tree, target),
            decoder: |setup| {
                let crate::Setup { model, tokenizer, request, drafter, shape, rng } = setup;
                let decoder = code::TreeDecoder::new(model, tokenizer, request, drafter, shape)?;
                Ok(Box::new(Wrapped(code::TreeDecoder { rng, ..decoder })))
            },
            ngram: |n, vocab_size| Box::new(code::NgramTree { n, vocab_size }),
            sampled: |tree, target, uniform| code::walk_sampled(tree, target, uniform),
            heads: |blocks, lm_head, hidden, n| {
                code::MedusaHeads { blocks, lm_head }.logits(hidden, n)
            },
            medusa: |blocks, lm_head, tokens, shape, hidden| {
                let heads = code::MedusaHeads { blocks, lm_head };
                let input = ProcessorInput { tokens, prompt_len: 1, remaining: 100, eos: &[0] };
                code::MedusaTree { heads: &heads }.draft(&input, shape, hidden, &mut || 0.0)
            },
            typical: |tree, epsilon, delta, p| code::walk_typical(tree, epsilon, delta, p),
            several: |q, n, greedy, uniform| code::several(q, n, greedy, uniform),
            small: |model, processors, greedy, vocab_size| {
                let cache = code::TreeCache::new(model.config().num_hidden_layers);
                let tokens = Vec::new();
                Box::new(code::ModelTree { model, cache, tokens, processors, greedy, vocab_size })
            },
        }
    }};
}

frame::checks! {
    day24_draft_trees:
    24.1: a_node_sees_its_ancestors;
    24.2: a_step_by_hand, each_node_gets_the_same_logits_as_its_path_alone,
        a_tree_equals_its_paths_one_by_one;
    24.3: keep_retains_the_path_and_drops_the_other_nodes;
    24.4: a_greedy_walk_by_hand;
    24.5: any_tree_gives_the_same_text, the_drafter_gets_the_state_of_the_last_accepted_node,
        a_text_can_end_inside_a_block, blocks_are_counted, processors_see_the_text_up_to_each_node,
        no_processor_runs_after_an_eos;
    24.6: every_earlier_match_becomes_a_branch, n_gram_trees_give_the_same_story;
    24.7: a_sampled_walk_by_hand, two_sampled_tokens_follow_the_target_distribution,
        an_impossible_token_is_never_accepted, a_bad_tree_is_refused;
    24.8: heads_by_hand, heads_equal_torch;
    24.9: a_tree_from_heads;
    24.10: typical_acceptance_by_hand, the_decoder_applies_typical_acceptance;
    24.11: several_by_hand;
    24.12: a_small_model_grows_a_tree, a_small_models_processors_see_each_nodes_text,
        a_branch_ends_at_a_dead_end, a_tree_is_cut_at_the_small_models_context,
        sampled_trees_follow_the_target;
}

/// Builds a tree from `(parent, token)` pairs. Each token has probability 1 in a vocabulary of 12.
fn tree(root: u32, nodes: &[(usize, u32)]) -> DraftTree {
    let mut tree = DraftTree::new(root);
    for (parent, token) in nodes {
        tree.add(*parent, *token, one_hot(*token, VOCAB));
    }
    tree
}

const VOCAB: usize = 12;

/// The chapter's tree: 1 and 2 follow the root 9; 3 and 4 follow 1; 5 follows 2; 6 follows 3.
fn example() -> DraftTree {
    tree(9, &[(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (3, 6)])
}

const EXAMPLE: &str = "root 9; 1 and 2 follow it; 3 and 4 follow 1; 5 follows 2; 6 follows 3";

/// Builds a random tree of `size` nodes.
fn random_tree(random: &mut Random, root: u32, size: usize) -> DraftTree {
    let mut tree = DraftTree::new(root);
    while tree.num_nodes() < size {
        let token = 1 + random.below(VOCAB - 1) as u32;
        tree.add(random.below(tree.num_nodes()), token, one_hot(token, VOCAB));
    }
    tree
}

fn text_of(tree: &DraftTree, node: usize) -> Vec<u32> {
    tree.path(node).iter().map(|node| tree.tokens[*node]).collect()
}

fn a_node_sees_its_ancestors(day: &Day) -> Outcome {
    let tree = example();
    let want = vec![
        vec![1, 1, 1, 0, 0, 0, 0, 0, 0],
        vec![1, 1, 1, 1, 0, 0, 0, 0, 0],
        vec![1, 1, 1, 0, 1, 0, 0, 0, 0],
        vec![1, 1, 1, 1, 0, 1, 0, 0, 0],
        vec![1, 1, 1, 1, 0, 0, 1, 0, 0],
        vec![1, 1, 1, 0, 1, 0, 0, 1, 0],
        vec![1, 1, 1, 1, 0, 1, 0, 0, 1],
    ];
    equal(&format!("{EXAMPLE}; past 2, first 0"), Ok((day.mask)(&tree, 2, 0)), &want)
        .likely("a node sees the text, its ancestors and itself, and no other branch")?;
    let what = format!("{EXAMPLE}; past 0, first 0, row 6");
    let got = (day.mask)(&tree, 0, 0).pop().unwrap_or_default();
    equal(&what, Ok(got), &vec![1, 1, 0, 1, 0, 0, 1])?;
    let what = format!("{EXAMPLE}; past 2, first 5");
    equal(&what, Ok((day.mask)(&tree, 2, 5)), &want[5..].to_vec())
        .likely("rows are for the nodes from `first` on; columns are for all nodes")
}

/// Builds a model whose logits depend on what its cache and the mask let each token see.
fn witness(context: usize, bound: usize) -> Witness {
    Witness::new(VOCAB, context, bound, mix)
}

/// Returns logits that depend on every token seen, its position and the order.
fn mix(seen: &[(u32, u32)]) -> Vec<f32> {
    let step = |hash: u32, (id, at): &(u32, u32)| (hash * 31 + id + 53 * at + 1) % 65_521;
    let hash = seen.iter().fold(7, step);
    let score = |id: u32| ((hash / (id + 1) + 17 * id) % 89) as f32 / 20.0;
    let mut logits: Vec<f32> = (0..VOCAB as u32).map(score).collect();
    logits[0] = -9.0; // EOS
    logits[1 + hash as usize % (VOCAB - 1)] += 5.0;
    logits
}

fn placed(tokens: &[u32]) -> Vec<(u32, u32)> {
    tokens.iter().copied().zip(0..).collect()
}

fn a_step_by_hand(day: &Day) -> Outcome {
    let (model, tree) = (witness(64, 10), example());
    for first in [0, 3] {
        let what = format!("{EXAMPLE}; past 5, first {first}");
        let step = (day.step)(&model, &tree, 5, first)?;
        let ids = step.ids.to_vec2::<u32>();
        equal(&format!("{what}: ids"), ids, &vec![tree.tokens[first..].to_vec()])?;
        let want = [5, 6, 6, 7, 7, 7, 8];
        let got = step.positions.to_vec2::<u32>();
        equal(&format!("{what}: positions"), got, &vec![want[first..].to_vec()])
            .likely("siblings share a position: past plus the node's depth")?;
        let mask = step.mask.as_ref().map(|mask| mask.dims().to_vec());
        let want = Some(vec![1, 1, 7 - first, 12]);
        equal(&format!("{what}: the mask's shape"), Ok(mask), &want)?;
        equal(&format!("{what}: logits"), Ok(step.logits), &Logits::All)?;
    }
    let what = "a tree of 4 levels at the end of a context of 8, past 5";
    refused(what, (day.step)(&witness(8, 10), &tree, 5, 0), &["position", "context"])
}

/// Feeds `text`, then the tree in two steps, the second starting at node `first`. Returns the
/// logits after each node.
fn fed(
    day: &Day,
    model: &dyn Model,
    text: &[u32],
    tree: &DraftTree,
    first: usize,
) -> Result<Vec<Vec<f32>>> {
    let mut cache = Keep::default();
    if !text.is_empty() {
        model.forward(&Step::new(model, text, 0)?, &mut cache)?;
    }
    let mut all = Vec::new();
    if first > 0 {
        let mut part = tree.clone();
        part.tokens.truncate(first);
        part.parents.truncate(first);
        part.depths.truncate(first);
        part.probs.truncate(first);
        let step = (day.step)(model, &part, text.len(), 0)?;
        all.extend(model.forward(&step, &mut cache)?.squeeze(0)?.to_vec2()?);
    }
    let step = (day.step)(model, tree, text.len(), first)?;
    all.extend(model.forward(&step, &mut cache)?.squeeze(0)?.to_vec2()?);
    Ok(all)
}

fn each_node_gets_the_same_logits_as_its_path_alone(day: &Day) -> Outcome {
    let mut random = Random::new(24);
    for case in 0..30 {
        let text: Vec<u32> = (0..case % 5).map(|_| 1 + random.below(VOCAB - 1) as u32).collect();
        let size = 1 + random.below(14);
        let tree = random_tree(&mut random, 3, size);
        let first = random.below(size);
        let model = witness(64, 10);
        let got = fed(day, &model, &text, &tree, first)?;
        for (node, logits) in got.iter().enumerate() {
            let path = text_of(&tree, node);
            let whole = [&text[..], &path].concat();
            let what = format!(
                "text {text:?}, nodes {:?} with parents {:?}, fed from node {first} on: the logits \
                 after node {node}, whose path is {path:?}",
                tree.tokens, tree.parents
            );
            equal(&what, Ok(logits.clone()), &mix(&placed(&whole)))?;
        }
    }
    Ok(())
}

/// Compares with the plain method: each path is its own text, in its own pass.
fn a_tree_equals_its_paths_one_by_one(day: &Day) -> Outcome {
    let tokenizer = tokenizer()?;
    let text = tokenizer.encode("Lily and her dog went to the")?;
    for name in ["story-230k", "story-gpt2-1m"] {
        let model = model(name)?;
        let tree = tree(400, &[(0, 301), (0, 1302), (1, 303), (1, 504), (2, 505), (3, 606)]);
        let got = fed(day, &*model, &text, &tree, 0)?;
        for (node, logits) in got.iter().enumerate() {
            let whole = [&text[..], &text_of(&tree, node)].concat();
            let step = Step::new(&*model, &whole, 0)?.with_logits(Logits::Last(1));
            let want = model.forward(&step, &mut NoCache)?.flatten_all()?;
            let got = Tensor::new(&logits[..], &device()?);
            // The same f32 sums in a different order: logits near 20 differ by about 1e-5.
            close(&format!("{name}, node {node} of the tree"), got, &want, 1e-3)?;
        }
    }
    Ok(())
}

/// Checks that each layer of the cache holds the marks of these positions.
fn holds(what: &str, cache: &dyn Keeping, positions: &[u32]) -> Outcome {
    equal(&format!("{what}: len"), Ok(cache.len()), &positions.len())?;
    for layer in 0..LAYERS {
        let Some(view) = cache.held(layer)? else {
            return equal(&format!("{what}: layer {layer}"), Ok(0), &positions.len());
        };
        let (k, v) = marked(&rows(&[positions]), layer)?;
        for (part, got, want) in [("keys", view.k, k), ("values", view.v, v)] {
            // One head and one index are enough to identify the positions.
            let row = |x: Tensor| x.narrow(1, 0, 1)?.narrow(3, 0, 1)?.flatten_all();
            close(
                &format!("{what}: layer {layer}, {part}"),
                row(got.clone()),
                &row(want.clone())?,
                0.0,
            )?;
            close(
                &format!("{what}: layer {layer}, {part}, whole"),
                Ok(got),
                &want.contiguous()?,
                0.0,
            )?;
        }
    }
    Ok(())
}

fn append(cache: &mut dyn Keeping, positions: &[u32]) -> Result<()> {
    for layer in 0..LAYERS {
        let (k, v) = marked(&rows(&[positions]), layer)?;
        cache.append(layer, &k, &v)?;
    }
    Ok(())
}

fn keep_retains_the_path_and_drops_the_other_nodes(day: &Day) -> Outcome {
    let mut cache = (day.cache)(LAYERS);
    append(&mut *cache, &[10, 11])?;
    append(&mut *cache, &[20, 21, 22, 23, 24])?;
    cache.keep(2, &[0, 2, 4])?;
    let what = "10 11 and the nodes 20 to 24; keep(2, [0, 2, 4])";
    holds(what, &*cache, &[10, 11, 20, 22, 24])?;
    append(&mut *cache, &[30, 31])?;
    holds(&format!("{what}, then 30 31"), &*cache, &[10, 11, 20, 22, 24, 30, 31])?;
    cache.keep(5, &[0])?;
    holds(&format!("{what}, then 30 31; keep(5, [0])"), &*cache, &[10, 11, 20, 22, 24, 30])?;
    append(&mut *cache, &[40])?;
    holds("the same, then 40", &*cache, &[10, 11, 20, 22, 24, 30, 40])?;
    cache.truncate(3)?;
    append(&mut *cache, &[50, 51])?;
    holds("truncate(3), then 50 51", &*cache, &[10, 11, 20, 50, 51])?;
    refused("5 positions; keep(4, [0, 1])", cache.keep(4, &[0, 1]), &[])?;
    let mut empty = (day.cache)(LAYERS);
    append(&mut *empty, &[20, 21, 22])?;
    empty.keep(0, &[0, 2])?;
    holds("the nodes 20 to 22 and no text; keep(0, [0, 2])", &*empty, &[20, 22])
}

fn a_greedy_walk_by_hand(day: &Day) -> Outcome {
    let tree = example();
    for (choices, path, next) in [
        ([7, 7, 7, 7, 7, 7, 7], vec![0], 7),
        ([1, 4, 7, 7, 8, 7, 7], vec![0, 1, 4], 8),
        ([2, 3, 5, 6, 7, 10, 7], vec![0, 2, 5], 10),
        ([1, 3, 7, 6, 7, 7, 11], vec![0, 1, 3, 6], 11),
        ([1, 5, 7, 7, 7, 7, 7], vec![0, 1], 5), // 5 is in the tree, but not below 1
        ([3, 3, 7, 6, 7, 7, 7], vec![0], 3),
    ] {
        let asked = RefCell::new(Vec::new());
        let mut target = |node: usize| {
            asked.borrow_mut().push(node);
            Ok(one_hot(choices[node], VOCAB))
        };
        let got = (day.greedy)(&tree, &mut target);
        let what = format!("{EXAMPLE}; the target's choice after each node is {choices:?}");
        equal(&what, got, &Walk { path: path.clone(), next }).likely(
            "go to the child with the target's token; if there is none, that token is next",
        )?;
        equal(
            &format!("{what}: nodes whose target distribution was requested"),
            Ok(asked.take()),
            &path,
        )?;
    }
    let spread = [0.1, 0.2, 0.4, 0.3].map(|p: f32| p);
    let got = (day.greedy)(&crate::tree(0, &[(0, 3), (0, 2)]), &mut |_| Ok(spread.to_vec()));
    equal(
        "3 and 2 follow 0; after every node, 2 is the most likely, then 3",
        got,
        &Walk { path: vec![0, 2], next: 2 },
    )
}

/// A drafter of random trees that often contain the target's own next tokens.
struct Guessing {
    random: Random,
    script: fn(&[(u32, u32)]) -> Vec<f32>,
}

impl TreeDrafter for Guessing {
    fn draft(
        &mut self,
        input: &ProcessorInput,
        shape: &[usize],
        _: Option<&Tensor>,
        _: &mut dyn FnMut() -> f32,
    ) -> Result<DraftTree> {
        let mut tree = DraftTree::new(*input.tokens.last().unwrap_or(&0));
        let mut level = vec![0];
        for width in shape {
            let mut next = Vec::new();
            for node in level {
                let path = text_of(&tree, node);
                let text = [input.tokens, &path[1..]].concat();
                let right = day07_greedy::argmax(&(self.script)(&placed(&text)))?;
                let mut ids: Vec<u32> = Vec::new();
                while ids.len() < *width {
                    let id = if self.random.below(3) == 0 {
                        right
                    } else {
                        self.random.below(VOCAB) as u32
                    };
                    if !ids.contains(&id) {
                        ids.push(id);
                    }
                }
                next.extend(ids.into_iter().map(|id| tree.add(node, id, one_hot(id, VOCAB))));
            }
            level = next;
        }
        Ok(tree)
    }
}

fn request(model: &dyn Model, prompt: &[u32], new: usize) -> Request<'static> {
    Request::new(model.config(), prompt, new, day07_greedy::argmax)
}

/// Decodes block by block until the sequence ends. After each block the cache must hold the text
/// without its last token.
fn grow<'a>(
    what: &str,
    decoder: &mut (dyn Decoder<'a> + 'a),
) -> std::result::Result<Vec<Token>, frame::Failure> {
    let mut tokens: Vec<Token> = Vec::new();
    while tokens.last().is_none_or(|token| token.finish.is_none()) {
        let new = decoder.block()?;
        if new.is_empty() || tokens.len() > 2000 {
            return Err(candle_core::Error::Msg(format!(
                "{} tokens, and {} more in a block: the text doesn't end",
                tokens.len(),
                new.len()
            ))
            .into());
        }
        tokens.extend(new);
        let ended = tokens.last().is_some_and(|token| token.finish.is_some());
        if !ended {
            let len = decoder.sequence().tokens.len();
            equal(
                &format!("{what}: positions in the cache when the text has {len} tokens"),
                Ok(decoder.cached()),
                &(len - 1),
            )
            .likely(
                "keep the text, the root and the accepted nodes; the next root isn't read yet",
            )?;
        }
    }
    Ok(tokens)
}

fn ids(tokens: &[Token]) -> Vec<u32> {
    tokens.iter().map(|token| token.id).collect()
}

fn plain(
    model: &dyn Model,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    new: usize,
) -> Result<Vec<Token>> {
    let layers = model.config().num_hidden_layers;
    let cached = Cached::new(model, Box::new(DynamicCache::new(layers)));
    generate_cached(cached, tokenizer, request(model, prompt, new))?.collect()
}

fn any_tree_gives_the_same_text(day: &Day) -> Outcome {
    let tokenizer = Tokenizer::empty();
    for (seed, shape, prompt, new) in [
        (1, vec![3, 2, 2], vec![5, 3, 8], 40),
        (2, vec![2, 1, 1, 1], vec![4], 40),
        (3, vec![1, 3], vec![7, 7, 2, 9, 1], 30),
        (4, vec![], vec![2, 3], 10),
        (5, vec![4, 3, 2], vec![6, 10], 62), // to the end of the context
    ] {
        let model = witness(64, 200);
        let want = plain(&witness(64, 200), &tokenizer, &prompt, new)?;
        let what = format!("prompt {prompt:?}, random trees of shape {shape:?}");
        let drafter = Box::new(Guessing { random: Random::new(seed), script: mix });
        let request = request(&model, &prompt, new);
        let setup =
            Setup { model: &model, tokenizer: &tokenizer, request, drafter, shape, rng: None };
        let mut decoder = (day.decoder)(setup)?;
        let got = grow(&what, &mut *decoder)?;
        equal_tokens(&what, Ok(ids(&got)), &ids(&want), &[])?;
        let finish = got.last().and_then(|token| token.finish);
        equal(&format!("{what}: the finish reason"), Ok(finish), &Some(FinishReason::Length))?;
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            // Both are log-softmaxes of the same logits.
            let row = |x: f32| Tensor::new(&[x], &Device::Cpu);
            close(
                &format!("{what}: log-probability of token {i}"),
                row(got.logprob),
                &row(want.logprob)?,
                1e-5,
            )?;
        }
    }
    Ok(())
}

/// A model whose hidden states are the position and id of each token.
struct Showing(Witness);

impl Model for Showing {
    fn config(&self) -> &ModelConfig {
        self.0.config()
    }

    fn device(&self) -> &Device {
        self.0.device()
    }

    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> Result<Tensor> {
        self.0.forward(step, cache)
    }

    fn forward_with_hidden(
        &self,
        step: &Step,
        cache: &mut dyn Cache,
    ) -> Result<(Tensor, Option<Tensor>)> {
        let number = |x: &Tensor| x.to_dtype(candle_core::DType::F32);
        let states = Tensor::stack(&[number(&step.positions)?, number(&step.ids)?], 2)?;
        Ok((self.0.forward(step, cache)?, Some(step.chosen(&states)?)))
    }
}

/// Records the states it is given, with the text, and drafts like `Guessing`.
struct Looking<'a> {
    guessing: Guessing,
    seen: &'a RefCell<Vec<(Vec<u32>, Option<Vec<Vec<f32>>>)>>,
}

impl TreeDrafter for Looking<'_> {
    fn draft(
        &mut self,
        input: &ProcessorInput,
        shape: &[usize],
        hidden: Option<&Tensor>,
        uniform: &mut dyn FnMut() -> f32,
    ) -> Result<DraftTree> {
        let state = hidden.map(Tensor::to_vec2).transpose()?;
        self.seen.borrow_mut().push((input.tokens.to_vec(), state));
        self.guessing.draft(input, shape, hidden, uniform)
    }
}

fn the_drafter_gets_the_state_of_the_last_accepted_node(day: &Day) -> Outcome {
    let tokenizer = Tokenizer::empty();
    let (model, seen) = (Showing(witness(64, 200)), RefCell::default());
    let guessing = Guessing { random: Random::new(9), script: mix };
    let drafter = Box::new(Looking { guessing, seen: &seen });
    let request = request(&model, &[5, 3, 8], 24);
    let setup = Setup {
        model: &model,
        tokenizer: &tokenizer,
        request,
        drafter,
        shape: vec![3, 2, 1],
        rng: None,
    };
    let mut decoder = (day.decoder)(setup)?;
    grow("random trees of shape [3, 2, 1]", &mut *decoder)?;
    drop(decoder);
    for (text, state) in seen.take() {
        let at = text.len() - 2;
        let what = format!("the state, as [position, id], when the text is {text:?}");
        equal(&what, Ok(state), &Some(vec![vec![at as f32, text[at] as f32]])).likely(
            "the state that chose the last token is that of the last accepted node, not the last \
             node of the pass",
        )?;
    }
    Ok(())
}

/// A drafter that knows the target's next tokens, in a single chain.
fn knowing(seed: u64) -> Box<Chain> {
    Box::new(Chain(Guessing { random: Random::new(seed), script: ending }))
}

struct Chain(Guessing);

impl TreeDrafter for Chain {
    fn draft(
        &mut self,
        input: &ProcessorInput,
        shape: &[usize],
        _: Option<&Tensor>,
        _: &mut dyn FnMut() -> f32,
    ) -> Result<DraftTree> {
        let mut tree = DraftTree::new(*input.tokens.last().unwrap_or(&0));
        let mut text = input.tokens.to_vec();
        for node in 0..shape.len() {
            let id = day07_greedy::argmax(&(self.0.script)(&placed(&text)))?;
            tree.add(node, id, one_hot(id, VOCAB));
            text.push(id);
        }
        Ok(tree)
    }
}

/// Counts up by one per position, and ends the text at position 9.
fn ending(seen: &[(u32, u32)]) -> Vec<f32> {
    let at = seen.len();
    one_hot(if at < 9 { 1 + at as u32 } else { 0 }, VOCAB)
}

fn a_text_can_end_inside_a_block(day: &Day) -> Outcome {
    let tokenizer = Tokenizer::empty();
    for (new, want, finish) in [
        (40, vec![3, 4, 5, 6, 7, 8, 9, 0], FinishReason::Eos),
        (6, vec![3, 4, 5, 6, 7, 8], FinishReason::Length),
        (1, vec![3], FinishReason::Length),
    ] {
        let model = Witness::new(VOCAB, 64, 40, ending);
        let request = request(&model, &[1, 2], new);
        let setup = Setup {
            model: &model,
            tokenizer: &tokenizer,
            request,
            drafter: knowing(1),
            shape: vec![1; 5],
            rng: None,
        };
        let mut decoder = (day.decoder)(setup)?;
        let what = format!(
            "a target that counts to 9 and ends, a drafter that knows it, at most {new} tokens"
        );
        let got = grow(&what, &mut *decoder)?;
        equal(&what, Ok(ids(&got)), &want).likely("tokens after the end aren't pushed")?;
        equal(
            &format!("{what}: the finish reason"),
            Ok(got.last().and_then(|t| t.finish)),
            &Some(finish),
        )?;
    }
    let model = Witness::new(VOCAB, 64, 40, ending);
    let request = request(&model, &[1, 2], 0);
    let setup = Setup {
        model: &model,
        tokenizer: &tokenizer,
        request,
        drafter: knowing(1),
        shape: vec![1; 5],
        rng: None,
    };
    let mut decoder = (day.decoder)(setup)?;
    equal("no new tokens requested: the block", decoder.block().map(|new| ids(&new)), &vec![])
}

fn blocks_are_counted(day: &Day) -> Outcome {
    let tokenizer = Tokenizer::empty();
    for (input, depth, want) in [
        (
            "8 tokens in two blocks of three drafted tokens, all accepted",
            3,
            Counts { passes: 2, drafted: 6, accepted: 6, written: 8 },
        ),
        (
            "8 tokens in two blocks of four drafted tokens; the last of them follows the end",
            4,
            Counts { passes: 2, drafted: 8, accepted: 7, written: 8 },
        ),
    ] {
        let model = Witness::new(VOCAB, 64, 40, ending);
        let request = request(&model, &[1, 2], 40);
        let setup = Setup {
            model: &model,
            tokenizer: &tokenizer,
            request,
            drafter: knowing(1),
            shape: vec![1; depth],
            rng: None,
        };
        let mut decoder = (day.decoder)(setup)?;
        grow("a drafter that knows the text", &mut *decoder)?;
        equal(input, Ok(decoder.counts()), &want)
            .likely("tokens that were dropped after the end are neither accepted nor written")?;
    }
    Ok(())
}

/// Drafts the same tree every time.
struct Always(DraftTree);

impl TreeDrafter for Always {
    fn draft(
        &mut self,
        _: &ProcessorInput,
        _: &[usize],
        _: Option<&Tensor>,
        _: &mut dyn FnMut() -> f32,
    ) -> Result<DraftTree> {
        Ok(self.0.clone())
    }
}

/// The texts that a processor was called with, each with the number of remaining tokens.
type Asked = Rc<RefCell<Vec<(Vec<u32>, usize)>>>;

/// Decodes one block after 0, 1 with the tree 1 → (2, 3 → (1, 0)), greedily, with this EOS. The
/// target prefers 3 after 1, and 1 after 3. Returns the tokens and the processor's inputs. The
/// processor doubles the logits, and allows nothing after `forbidden`.
fn one_block(
    day: &Day,
    eos: &[u32],
    forbidden: Option<u32>,
) -> Result<(Vec<Token>, Vec<(Vec<u32>, usize)>)> {
    let (tokenizer, asked) = (Tokenizer::empty(), Asked::default());
    let model = Witness::new(4, 64, 40, table);
    let mut request = request(&model, &[0, 1], 5);
    request.eos_token_ids = eos.to_vec();
    let seen = asked.clone();
    request.processors = vec![named("doubles", move |cx: &ProcessorInput, logits: &mut [f32]| {
        seen.borrow_mut().push((cx.tokens.to_vec(), cx.remaining));
        logits.iter_mut().for_each(|logit| *logit *= 2.0);
        if cx.tokens[2..].iter().any(|id| Some(*id) == forbidden) {
            logits.fill(f32::NEG_INFINITY);
        }
        Ok(())
    })];
    let setup = Setup {
        model: &model,
        tokenizer: &tokenizer,
        request,
        drafter: Box::new(Always(tree(1, &[(0, 2), (0, 3), (2, 1), (2, 0)]))),
        shape: vec![2, 2],
        rng: None,
    };
    let tokens = (day.decoder)(setup)?.block()?;
    Ok((tokens, asked.take()))
}

fn processors_see_the_text_up_to_each_node(day: &Day) -> Outcome {
    let what = "after 0, 1 the tree 1 → (2, 3 → (1, 0)); the target prefers 3, then 1, then 3";
    let (tokens, asked) = one_block(day, &[], None)?;
    equal(&format!("{what}: the tokens"), Ok(ids(&tokens)), &vec![3, 1, 3])?;
    let want = vec![(vec![0, 1], 5), (vec![0, 1, 3], 4), (vec![0, 1, 3, 1], 3)];
    equal(&format!("{what}: a processor's input: text, remaining tokens"), Ok(asked), &want)
        .likely("a node's processors see the text up to that node, and nothing of its siblings")?;
    // The logarithms of .4, .6 and .4: a doubled logit would show here.
    let want: Vec<f32> = [0.4f32, 0.6, 0.4].map(f32::ln).to_vec();
    let got: Vec<f32> = tokens.iter().map(|token| token.logprob).collect();
    close(
        &format!("{what}: log-probabilities"),
        Tensor::new(got, &Device::Cpu),
        &Tensor::new(want, &Device::Cpu)?,
        1e-5,
    )
    .likely("a log-probability is the target's own, from before the processors")
}

fn no_processor_runs_after_an_eos(day: &Day) -> Outcome {
    let what = "the tree 1 → (2, 3 → (1, 0)), 3 is EOS, and a processor allows nothing after it";
    let (tokens, asked) = one_block(day, &[3], Some(3))?;
    let end = tokens.last().and_then(|token| token.finish);
    equal(
        &format!("{what}: the tokens and the finish reason"),
        Ok((ids(&tokens), end)),
        &(vec![3], Some(FinishReason::Eos)),
    )
    .likely("below an EOS no token will ever be written, so no rule applies there")?;
    equal(&format!("{what}: its input"), Ok(asked), &vec![(vec![0, 1], 5)])?;
    let what = "the same tree, and the prompt's last token, 1, is EOS";
    let (tokens, asked) = one_block(day, &[1], None)?;
    let want = (vec![3, 1], vec![(vec![0, 1], 5), (vec![0, 1, 3], 4)]);
    equal(&format!("{what}: the tokens, and a processor's input"), Ok((ids(&tokens), asked)), &want)
        .likely("the root is the prompt's last token: an EOS there ends nothing")
}

fn input(tokens: &[u32]) -> ProcessorInput<'_> {
    ProcessorInput { tokens, prompt_len: 1, remaining: 100, eos: &[0] }
}

fn drafted(drafter: &mut dyn TreeDrafter, tokens: &[u32], shape: &[usize]) -> Result<DraftTree> {
    drafter.draft(&input(tokens), shape, None, &mut || 0.5)
}

/// Checks that a drafted tree has these nodes.
fn nodes(what: &str, got: Result<DraftTree>, root: u32, want: &[(usize, u32)]) -> Outcome {
    let want = tree(root, want);
    let got = got?;
    let pairs = |tree: &DraftTree| {
        tree.parents.iter().copied().zip(tree.tokens.iter().copied()).collect::<Vec<_>>()
    };
    equal(&format!("{what}: (parent, token) of each node"), Ok(pairs(&got)), &pairs(&want))?;
    equal(&format!("{what}: depths"), Ok(got.depths), &want.depths)?;
    equal(&format!("{what}: all mass is on the token"), Ok(got.probs), &want.probs)
}

fn every_earlier_match_becomes_a_branch(day: &Day) -> Outcome {
    let mut one = (day.ngram)(1, VOCAB);
    let text = [7, 1, 2, 7, 1, 3, 7, 4, 5, 7];
    let what = "7 1 2 7 1 3 7 4 5 7, after the last token";
    let got = drafted(&mut *one, &text, &[3, 2]);
    nodes(&format!("{what}, shape 3x2"), got, 7, &[(0, 4), (1, 5), (0, 1), (3, 3), (3, 2)])
        .likely("the latest match first; a match that starts like another shares its nodes")?;
    let got = drafted(&mut *one, &text, &[1, 2]);
    nodes(&format!("{what}, shape 1x2"), got, 7, &[(0, 4), (1, 5)])?;
    let got = drafted(&mut *one, &text, &[2, 1]);
    nodes(&format!("{what}, shape 2x1"), got, 7, &[(0, 4), (1, 5), (0, 1), (3, 3)])?;
    let got = drafted(&mut *one, &text, &[2, 1, 1]);
    nodes(
        &format!("{what}, shape 2x1x1"),
        got,
        7,
        &[(0, 4), (1, 5), (2, 7), (0, 1), (4, 3), (5, 7)],
    )?;
    nodes(&format!("{what}, no levels"), drafted(&mut *one, &text, &[]), 7, &[])?;
    let got = drafted(&mut *one, &[5, 5, 5], &[2, 2, 2]);
    nodes("5 5 5: matches may overlap, shape 2x2x2", got, 5, &[(0, 5), (1, 5)])?;
    nodes("4 5 6: never seen before", drafted(&mut *one, &[4, 5, 6], &[2]), 6, &[])?;
    let mut two = (day.ngram)(2, VOCAB);
    let text = [1, 2, 3, 9, 2, 4, 1, 2, 5, 1, 2];
    let got = drafted(&mut *two, &text, &[4, 1]);
    nodes(
        "1 2 3 9 2 4 1 2 5 1 2, after the last two, shape 4x1",
        got,
        2,
        &[(0, 5), (1, 1), (0, 3), (3, 9)],
    )?;
    nodes("one token, the last two looked up", drafted(&mut *two, &[4], &[2]), 4, &[])
}

fn n_gram_trees_give_the_same_story(day: &Day) -> Outcome {
    let (model, tokenizer) = (model("story-230k")?, tokenizer()?);
    let prompt = tokenizer.encode("Lily and her dog")?;
    let want = plain(&*model, &tokenizer, &prompt, 24)?;
    let request = request(&*model, &prompt, 24);
    let drafter = (day.ngram)(1, model.config().vocab_size);
    let setup = Setup {
        model: &*model,
        tokenizer: &tokenizer,
        request,
        drafter,
        shape: vec![3, 2, 1],
        rng: None,
    };
    let mut decoder = (day.decoder)(setup)?;
    let what = "story-230k, \"Lily and her dog\", trees of n-grams, shape 3x2x1";
    let got = grow(what, &mut *decoder)?;
    equal_tokens(what, Ok(ids(&got)), &ids(&want), &[])
}

/// Builds a tree from `(parent, token, q)`.
fn sampled_tree(root: u32, nodes: &[(usize, u32, &[f32])]) -> DraftTree {
    let mut tree = DraftTree::new(root);
    for (parent, token, q) in nodes {
        tree.add(*parent, *token, q.to_vec());
    }
    tree
}

fn a_sampled_walk_by_hand(day: &Day) -> Outcome {
    let p = [0.5, 0.3, 0.2, 0.0];
    let q: &[f32] = &[0.25, 0.5, 0.25, 0.0];
    // 1 and 0 follow the root, drawn from q; 2 follows 0. p / q of token 1 is 0.6; rejected, it
    // leaves (.25, 0, 0, 0) of p, which is (1, 0, 0, 0).
    let tree = sampled_tree(3, &[(0, 1, q), (0, 0, q), (2, 2, q)]);
    for (numbers, path, next) in [
        (vec![0.59, 0.1], vec![0, 1], 0),
        (vec![0.61, 0.99, 0.79, 0.9], vec![0, 2, 3], 2),
        (vec![0.61, 0.99, 0.81, 0.4], vec![0, 2], 0),
        (vec![0.61, 0.99, 0.81, 0.9], vec![0, 2], 0),
    ] {
        let mut left = numbers.clone().into_iter();
        let got = (day.sampled)(&tree, &mut |_| Ok(p.to_vec()), &mut || left.next().unwrap_or(0.0));
        let what = format!(
            "p = {p:?} everywhere, 1 and 0 follow the root, 2 follows 0, all from q = {q:?}; u = \
             {numbers:?}"
        );
        equal(&what, got, &Walk { path, next })
            .likely("each child is tested against what the previous child left of p")?;
        equal(&format!("{what}: numbers left"), Ok(left.count()), &0)?;
    }
    // Three certain children: each is accepted with its share of what is left.
    let certain = sampled_tree(3, &[(0, 0, &one_hot(0, 4)), (0, 1, &one_hot(1, 4))]);
    for (numbers, path, next) in [
        (vec![0.49, 0.0], vec![0, 1], 0),
        (vec![0.51, 0.59, 0.0], vec![0, 2], 0),
        (vec![0.51, 0.61, 0.5], vec![0], 2),
    ] {
        let mut left = numbers.clone().into_iter();
        let got =
            (day.sampled)(&certain, &mut |_| Ok(p.to_vec()), &mut || left.next().unwrap_or(0.0));
        let what = format!("p = {p:?}, 0 and 1 follow the root for certain; u = {numbers:?}");
        equal(&what, got, &Walk { path, next })?;
    }
    let greedy = |choice: u32| move |_: usize| Ok(one_hot(choice, 4));
    let got = (day.sampled)(&tree, &mut greedy(3), &mut || 0.99);
    equal("all of p is on 3, which isn't drafted", got, &Walk { path: vec![0], next: 3 })
}

/// At u = 0, both sides of `u q < p` are 0 if p is 0.
fn an_impossible_token_is_never_accepted(day: &Day) -> Outcome {
    let p = [0.5, 0.3, 0.2, 0.0];
    let tree = sampled_tree(1, &[(0, 3, &one_hot(3, 4))]);
    let got = (day.sampled)(&tree, &mut |_| Ok(p.to_vec()), &mut || 0.0);
    let what = format!("p = {p:?}, 3 follows the root for certain; u = 0");
    equal(&what, got, &Walk { path: vec![0], next: 0 })
        .likely("u q < p: with p = 0 a token is never accepted, not even at u = 0")
}

/// The target of the sampled checks: a distribution for each last token.
const AFTER: [[f32; 4]; 4] =
    [[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4], [0.4, 0.0, 0.2, 0.4], [0.1, 0.6, 0.2, 0.1]];

/// How the children of a node are proposed.
const WAYS: [&str; 3] = ["certain", "drawn from one q", "drawn from q without replacement"];

/// Proposes up to `n` children in this way, with the probabilities that each was drawn from.
fn propose(way: usize, q: &[f32], n: usize, rng: &mut RequestRng) -> Result<Vec<(u32, Vec<f32>)>> {
    let mut left = q.to_vec();
    let mut children = Vec::new();
    for i in 0..n {
        if way == 0 {
            let id = (2 * i as u32 + 1) % 4;
            children.push((id, one_hot(id, 4)));
            continue;
        }
        let id = sample(&left, rng.uniform())?;
        children.push((id, left.clone()));
        if way == 2 {
            left[id as usize] = 0.0;
            let sum: f32 = left.iter().sum();
            if sum == 0.0 {
                break;
            }
            left.iter_mut().for_each(|q| *q /= sum);
        }
    }
    Ok(children)
}

fn chi_square(seen: &[usize], p: &[f32]) -> f64 {
    let total = seen.iter().sum::<usize>() as f64;
    let cell = |(n, p): (&usize, &f32)| match (total * f64::from(*p), *n) {
        (0.0, 0) => 0.0,
        (0.0, _) => f64::INFINITY,
        (want, n) => (n as f64 - want).powi(2) / want,
    };
    seen.iter().zip(p).map(cell).sum()
}

/// The number of draws in a chi-square check.
const DRAWS: usize = 50_000;

/// With 15 degrees of freedom or fewer, a correct distribution exceeds this once in a million runs
/// or less often. The draws are seeded, so a right answer that passes once always passes.
const ONE_IN_A_MILLION: f64 = 56.5;

fn two_sampled_tokens_follow_the_target_distribution(day: &Day) -> Outcome {
    let q = [0.1, 0.5, 0.15, 0.25];
    for (way, named) in WAYS.iter().enumerate() {
        for (first, second) in [(1, 1), (3, 2), (2, 3)] {
            let (mut rng, mut seen) = (RequestRng::new(24, way as u64), vec![0; 16]);
            for _ in 0..DRAWS {
                let mut tree = DraftTree::new(0);
                for (id, probs) in propose(way, &q, first, &mut rng)? {
                    let node = tree.add(0, id, probs);
                    for (id, probs) in propose(way, &q, second, &mut rng)? {
                        tree.add(node, id, probs);
                    }
                }
                let mut target = |node: usize| Ok(AFTER[tree.tokens[node] as usize].to_vec());
                let walk = (day.sampled)(&tree, &mut target, &mut || rng.uniform())?;
                let mut text: Vec<u32> =
                    walk.path[1..].iter().map(|node| tree.tokens[*node]).collect();
                text.push(walk.next);
                if text.len() < 2 {
                    text.push(sample(&AFTER[text[0] as usize], rng.uniform())?);
                    // the next block's
                }
                seen[(4 * text[0] + text[1]) as usize] += 1;
            }
            let joint: Vec<f32> = (0..16).map(|i| AFTER[0][i / 4] * AFTER[i / 4][i % 4]).collect();
            let x = chi_square(&seen, &joint);
            let what = format!(
                "{DRAWS} draws of two tokens; trees of shape {first}x{second}, children {named}: \
                 {seen:?}"
            );
            let wrong = format!("chi-square is {x:.1}: the draws don't follow the target");
            ensure(&what, x < ONE_IN_A_MILLION, &wrong)?;
        }
    }
    Ok(())
}

fn a_bad_tree_is_refused(day: &Day) -> Outcome {
    let tree = sampled_tree(0, &[(0, 9, &one_hot(9, 12))]);
    let got = (day.sampled)(&tree, &mut |_| Ok(vec![0.25; 4]), &mut || 0.5);
    refused("token 9 drafted, a target of 4 tokens", got, &[])
}

/// A block `(C, C)` with a bias, and its operations.
fn block(weight: Tensor, bias: Option<Tensor>) -> Result<Projection> {
    Ok(Projection { weight: Weight::new(weight)?, bias, ops: ops()? })
}

/// Heads of width 4 with weights of zero, so that a block adds `silu(bias)`. The target's head is
/// the identity, with a vocabulary of 4.
fn simple_heads(biases: &[[f32; 4]]) -> Result<(Vec<Projection>, Projection)> {
    let device = device()?;
    let blocks = biases.iter().map(|bias| {
        let zeros = Tensor::zeros((4, 4), candle_core::DType::F32, &device)?;
        block(zeros, Some(Tensor::new(bias, &device)?))
    });
    let identity = Tensor::eye(4, candle_core::DType::F32, &device)?;
    Ok((blocks.collect::<Result<Vec<_>>>()?, block(identity, None)?))
}

fn heads_by_hand(day: &Day) -> Outcome {
    let hidden = Tensor::new(&[[1f32, 2.0, -1.0, 0.5]], &device()?)?;
    let (blocks, head) = simple_heads(&[[0.0; 4], [2.0, 0.0, -3.0, 10.0]])?;
    let got = (day.heads)(blocks, head, &hidden, 2)?;
    // silu(2) = 1.7616, silu(-3) = -0.1423, silu(10) = 9.9995
    let want = [[1.0, 2.0, -1.0, 0.5], [2.761_594, 2.0, -1.142_278, 10.499_546]];
    equal("two heads: number of rows of logits", Ok(got.len()), &2)?;
    for (head, (got, want)) in got.iter().zip(&want).enumerate() {
        let row = |x: &[f32]| Tensor::new(x, &Device::Cpu);
        let what = format!(
            "state (1, 2, -1, .5), weights 0, head {head}, the target's head is the identity"
        );
        // A few roundings near 10.
        close(&what, row(got), &row(want)?, 1e-5)
            .likely("a head's block is silu(W x + b) + x: with W = b = 0 it changes nothing")?;
    }
    let (blocks, head) = simple_heads(&[[0.0; 4]; 3])?;
    let got = (day.heads)(blocks, head, &hidden, 1)?;
    equal("three heads, one requested: rows", Ok(got.len()), &1)?;
    let (blocks, head) = simple_heads(&[[0.0; 4]; 3])?;
    let counted = Arc::new(Counted { ops: head.ops.clone(), products: AtomicUsize::new(0) });
    (day.heads)(blocks, Projection { ops: counted.clone(), ..head }, &hidden, 3)?;
    let products = counted.products.load(Ordering::Relaxed);
    equal("three heads: products with the target's head", Ok(products), &1)
        .likely("the target's head is the largest matrix: read it once, for all states together")
}

/// Operations that count their products.
#[derive(Debug)]
struct Counted {
    ops: SharedOps,
    products: AtomicUsize,
}

impl Ops for Counted {
    fn rest(&self) -> &dyn Ops {
        &*self.ops
    }

    fn linear(&self, x: &Tensor, weights: &[&Weight]) -> Result<Vec<Tensor>> {
        self.products.fetch_add(1, Ordering::Relaxed);
        self.ops.linear(x, weights)
    }

    fn describe(&self, cpu: bool) -> String {
        self.ops.describe(cpu)
    }
}

fn heads_equal_torch(day: &Day) -> Outcome {
    let of = |name: &str| golden("day24", name);
    let blocks = (0..3)
        .map(|k| block(of(&format!("heads.{k}.weight"))?, Some(of(&format!("heads.{k}.bias"))?)));
    let blocks = blocks.collect::<Result<Vec<_>>>()?;
    let got = (day.heads)(blocks, block(of("lm_head")?, None)?, &of("hidden")?, 3)?;
    let want = of("logits")?;
    equal("three heads of width 16, 40 tokens: rows", Ok(got.len()), &3)?;
    for (head, got) in got.iter().enumerate() {
        // Sums of 16 f32 products in a different order.
        close(
            &format!("head {head}, by torch"),
            Tensor::new(&got[..], &device()?),
            &want.get(head)?,
            1e-4,
        )?;
    }
    Ok(())
}

fn a_tree_from_heads(day: &Day) -> Outcome {
    let hidden = Tensor::new(&[[0f32, 0.0, 0.0, 0.0]], &device()?)?;
    let biases = [[3.0, 1.0, 0.5, 4.0], [1.0, 4.0, 2.0, 0.5]];
    let what = "the first head's best are 3, 0, 1, 2, the second's 1, 2, 0, 3";
    let draft = |shape: &[usize], hidden: Option<&Tensor>| {
        let (blocks, head) = simple_heads(&biases)?;
        (day.medusa)(blocks, head, &[2, 1], shape, hidden)
    };
    let pairs = |tree: DraftTree| -> Vec<(usize, u32)> {
        let all = tree.parents.iter().zip(&tree.tokens);
        all.filter_map(|(parent, token)| Some(((*parent)?, *token))).collect()
    };
    for (shape, want) in [
        (vec![2, 2], vec![(0, 3), (0, 0), (1, 1), (1, 2), (2, 1), (2, 2)]),
        (vec![1, 3], vec![(0, 3), (1, 1), (1, 2), (1, 0)]),
        (vec![3], vec![(0, 3), (0, 0), (0, 1)]),
        (vec![1, 1, 2], vec![(0, 3), (1, 1)]), // there is no third head
        (vec![], vec![]),
    ] {
        let what = format!("{what}; shape {shape:?}: (parent, token) of each node below the root");
        let got = draft(&shape, Some(&hidden));
        equal(&what, got.map(pairs), &want).likely(
            "every node of a level gets the same children, the best of that level's head",
        )?;
    }
    let tree = draft(&[2, 1], Some(&hidden))?;
    equal(
        "shape 2x1: the root, and the depths",
        Ok((tree.tokens[0], tree.depths)),
        &(1, vec![0, 1, 1, 2, 2]),
    )?;
    equal("shape 2x1: all mass is on the token", Ok(tree.probs[1].clone()), &one_hot(3, 4))?;
    equal("no state yet: nodes", draft(&[2, 2], None).map(|tree| tree.num_nodes()), &1)
}

fn typical_acceptance_by_hand(day: &Day) -> Outcome {
    let tree = example();
    let mut p = vec![0.0f32; VOCAB];
    (p[1], p[2], p[3], p[4], p[7]) = (0.2, 0.3, 0.06, 0.04, 0.4);
    // The entropy is 1.389 nats, and exp(-1.389) is 0.249: the threshold is min(.09, .3 · .249).
    let what =
        format!("{EXAMPLE}; everywhere p(7) = .4, p(2) = .3, p(1) = .2, p(3) = .06, p(4) = .04");
    let got = (day.typical)(&tree, 0.09, 0.3, &mut |_| Ok(p.clone()));
    equal(&format!("{what}; ε = .09, δ = .3"), got, &Walk { path: vec![0, 2], next: 7 })
        .likely("2 is more likely than 1; 7 is the most likely, but it isn't drafted")?;
    let got = (day.typical)(&tree, 0.35, 2.0, &mut |_| Ok(p.clone()));
    equal(&format!("{what}; ε = .35, δ = 2"), got, &Walk { path: vec![0], next: 7 })?;
    let got =
        (day.typical)(
            &crate::tree(9, &[(0, 1), (1, 3), (2, 4)]),
            0.09,
            0.2,
            &mut |_| Ok(p.clone()),
        );
    equal(
        "9 1 3 4 in a chain, the same p; ε = .09, δ = .2",
        got,
        &Walk { path: vec![0, 1, 2], next: 7 },
    )
    .likely("the threshold is the smaller of ε and δ · exp(-H), here .05")?;
    let mut p = vec![0.0f32; VOCAB];
    (p[1], p[2], p[7]) = (0.25, 0.25, 0.5);
    let got = (day.typical)(&tree, 0.25, 2.0, &mut |_| Ok(p.clone()));
    let what = format!("{EXAMPLE}; everywhere p(7) = .5, p(1) = p(2) = .25; ε = .25, δ = 2");
    equal(&what, got, &Walk { path: vec![0], next: 7 })
        .likely("a token is typical above the threshold, not at it")
}

fn the_decoder_applies_typical_acceptance(day: &Day) -> Outcome {
    let (tokenizer, model) = (Tokenizer::empty(), Witness::new(4, 64, 40, table));
    let request = Request { eos_token_ids: vec![], ..request(&model, &[0, 1], 9) };
    let drafter = Box::new(Always(tree(1, &[(0, 2), (1, 0)])));
    let shape = vec![1, 1];
    let setup = Setup { model: &model, tokenizer: &tokenizer, request, drafter, shape, rng: None };
    let mut decoder = (day.decoder)(setup)?;
    decoder.accept_typical();
    let got = decoder.block().map(|tokens| ids(&tokens));
    let what =
        "after 0, 1 the chain 1 → 2 → 0, greedy, with typical acceptance: p(3) = .4, p(2) = \
                .3 after 1, and p(0) = .4 after 2";
    equal(what, got, &vec![2, 0, 0])
        .likely("2 isn't the most likely token, but it's above the threshold, .083 there")
}

fn several_by_hand(day: &Day) -> Outcome {
    let q = [0.1, 0.5, 0.15, 0.25];
    let ids = |drawn: &[(u32, Vec<f32>)]| drawn.iter().map(|(id, _)| *id).collect::<Vec<_>>();
    let got = (day.several)(&q, 3, true, &mut || 0.0)?;
    equal("q = (.1, .5, .15, .25), the best three", Ok(ids(&got)), &vec![1, 3, 2])?;
    equal(
        "the same: each has probability 1",
        Ok(got.iter().map(|(_, q)| q.clone()).collect()),
        &vec![one_hot(1, 4), one_hot(3, 4), one_hot(2, 4)],
    )?;
    let got = (day.several)(&[0.0, 1.0, 0.0, 0.0], 3, true, &mut || 0.0)?;
    equal("all of q is on 1, the best three", Ok(ids(&got)), &vec![1])?;
    let mut numbers = [0.3, 0.3, 0.9].into_iter();
    let got = (day.several)(&q, 3, false, &mut || numbers.next().unwrap_or(0.0))?;
    // .3 draws 1 of (.1, .5, .15, .25); then .3 draws 2 of (.2, 0, .3, .5); then .9 draws 3 of
    // (.29, 0, 0, .71).
    equal("three draws from q, u = .3, .3, .9", Ok(ids(&got)), &vec![1, 2, 3])
        .likely("a token is drawn once: set it to zero, and divide by the sum of the others")?;
    let want = [&q, &[0.2, 0.0, 0.3, 0.5], &[0.285_714_3, 0.0, 0.0, 0.714_285_7]];
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let row = |x: &[f32]| Tensor::new(x, &Device::Cpu);
        // The rounding of one division.
        close(&format!("the same: the distribution of draw {i}"), row(&got.1), &row(want)?, 1e-6)?;
    }
    let got = (day.several)(&[0.0, 0.5, 0.0, 0.5], 4, false, &mut || 0.0)?;
    equal("four draws, two possible", Ok(ids(&got)), &vec![1, 3])
}

fn a_small_model_grows_a_tree(day: &Day) -> Outcome {
    let model = witness(64, 40);
    let mut drafter = (day.small)(&model, vec![], true, VOCAB);
    let mut computed = 0;
    for (text, shape, passes, fed) in [
        (vec![5, 3, 8], vec![2, 2, 1], 3, 3 + 2 + 4),
        (vec![5, 3, 8, 4, 1], vec![3, 1], 2, 2 + 3), // only the new tokens are read
        (vec![5, 3, 2], vec![1, 1, 1], 3, 1 + 1 + 1), // back to 5 3
        (vec![5, 3, 2], vec![2], 1, 1),
    ] {
        let before = model.passes.borrow().len();
        let got = drafted(&mut *drafter, &text, &shape)?;
        let mut want = DraftTree::new(*text.last().unwrap_or(&0));
        let mut level = vec![0];
        for width in &shape {
            let mut next = Vec::new();
            for node in level {
                let whole = [&text[..], &text_of(&want, node)[1..]].concat();
                let logits = softmax(&mix(&placed(&whole)))?;
                for (id, _) in candecode::kit::token::top_logprobs(&logits, *width) {
                    next.push(want.add(node, id, one_hot(id, VOCAB)));
                }
            }
            level = next;
        }
        let what = format!("text {text:?}, shape {shape:?}, the small model's best tokens");
        equal(&format!("{what}: tokens"), Ok(&got.tokens), &&want.tokens)?;
        equal(&format!("{what}: parents"), Ok(&got.parents), &&want.parents)?;
        equal(&format!("{what}: q"), Ok(&got.probs), &&want.probs)?;
        equal(&format!("{what}: passes"), Ok(model.passes.borrow().len() - before), &passes)
            .likely("a level is one pass; the last one needs none")?;
        let now = model.positions_computed();
        equal(&format!("{what}: positions computed"), Ok(now - computed), &fed)
            .likely("the text stays in the cache, the drafted nodes don't")?;
        computed = now;
    }
    let eos = ProcessorInput {
        tokens: &[5, 3],
        prompt_len: 1,
        remaining: 100,
        eos: &(0..12).collect::<Vec<_>>(),
    };
    let got = drafter.draft(&eos, &[2, 2], None, &mut || 0.5)?;
    equal("every token is EOS, shape 2x2: depths", Ok(got.depths), &vec![0, 1, 1])
        .likely("nothing follows EOS")?;
    let mut drawing = (day.small)(&model, vec![], false, VOCAB);
    let got = drawing.draft(&input(&[5, 3]), &[1], None, &mut || 0.999)?;
    let drawn = sample(&softmax(&mix(&placed(&[5, 3])))?, 0.999)?;
    equal(
        "text [5, 3], shape [1], tokens are drawn, u = .999: tokens",
        Ok(got.tokens),
        &vec![3, drawn],
    )
    .likely("`greedy` says whether to take the best tokens or to draw them with `uniform`")
}

fn a_small_models_processors_see_each_nodes_text(day: &Day) -> Outcome {
    let (model, asked) = (witness(64, 40), Asked::default());
    let seen = asked.clone();
    let watch = named("watch", move |cx: &ProcessorInput, _: &mut [f32]| {
        seen.borrow_mut().push((cx.tokens.to_vec(), cx.remaining));
        Ok(())
    });
    let mut drafter = (day.small)(&model, vec![watch], true, VOCAB);
    let text = vec![5, 3, 8];
    let tree = drafted(&mut *drafter, &text, &[2, 1])?;
    let nodes = [0, 1, 2].into_iter().filter(|node| *node < tree.num_nodes());
    let want = nodes.map(|node| ([&text[..], &text_of(&tree, node)[1..]].concat(), 100));
    let want = want.map(|(seen, left)| (seen.clone(), left + text.len() - seen.len()));
    let want: Vec<_> = want.collect();
    equal("after 5 3 8, shape 2x1: nodes", Ok(tree.num_nodes()), &5)?;
    equal(
        "after 5 3 8, shape 2x1: input of the small model's processors: text, remaining tokens",
        Ok(asked.take()),
        &want,
    )
    .likely("each node has its own path after the text; its depth is subtracted from `remaining`")
}

fn a_branch_ends_at_a_dead_end(day: &Day) -> Outcome {
    let model = witness(64, 40);
    let (text, shape) = ([5, 3, 8], [2, 1, 1]);
    let mut drafter = (day.small)(&model, vec![], true, VOCAB);
    let free = drafted(&mut *drafter, &text, &shape)?;
    let first = free.tokens[1];
    let forbid = named("nothing after it", move |cx: &ProcessorInput, logits: &mut [f32]| {
        if cx.tokens[3..] == [first] {
            logits.fill(f32::NEG_INFINITY);
        }
        Ok(())
    });
    let mut drafter = (day.small)(&model, vec![forbid], true, VOCAB);
    let got = drafted(&mut *drafter, &text, &shape).map(|tree| tree.depths);
    let input = "after 5 3 8, shape 2x1x1, a processor forbids every token after the first node";
    equal(&format!("{input}: depths"), got, &vec![0, 1, 1, 2, 3])
        .likely("that branch ends, and the other goes on")
}

fn a_tree_is_cut_at_the_small_models_context(day: &Day) -> Outcome {
    for (len, depth) in [(4, 4), (6, 3), (7, 2), (8, 1), (9, 0)] {
        let model = witness(8, 40);
        let mut drafter = (day.small)(&model, vec![], true, VOCAB);
        let got = drafted(&mut *drafter, &vec![3; len], &[2, 1, 1, 1])?;
        let what =
            format!("a small model with a context of 8, {len} tokens, shape 2x1x1x1: levels");
        equal(&what, Ok(got.depths.iter().max().copied()), &Some(depth))?;
    }
    let model = witness(64, 40);
    let mut drafter = (day.small)(&model, vec![], true, 20);
    for id in [12, 15] {
        let got = drafted(&mut *drafter, &[3, id, 4], &[2]).map(|tree| tree.num_nodes());
        equal(&format!("token {id} of 20 is only in the target: nodes"), got, &1)?;
    }
    let got = drafted(&mut *drafter, &[3, 4], &[1])?.probs[1].len();
    equal("a target of 20 tokens, a draft of 12: the length of q", Ok(got), &20)
}

/// Returns the logarithms of `AFTER`, by the last token seen.
fn table(seen: &[(u32, u32)]) -> Vec<f32> {
    let last = seen.last().map_or(0, |(id, _)| *id as usize);
    AFTER[last % 4].iter().map(|p| p.ln()).collect()
}

/// Returns the logits of a small model that is often wrong about `table`.
fn other_table(seen: &[(u32, u32)]) -> Vec<f32> {
    let last = seen.last().map_or(0, |(id, _)| *id as usize);
    AFTER[(last + 1) % 4].iter().map(|p| (0.7 * p + 0.075).ln()).collect()
}

fn sampled_trees_follow_the_target(day: &Day) -> Outcome {
    let tokenizer = Tokenizer::empty();
    let mut seen = vec![0; 16];
    let draws = 4_000; // whole texts, with a pass of both models for each block
    for number in 0..draws {
        let (target, small) =
            (Witness::new(4, 64, 40, table), Witness::new(4, 64, 40, other_table));
        let drafter = (day.small)(&small, vec![], false, 4);
        let request = Request { eos_token_ids: vec![], ..request(&target, &[3, 0], 3) };
        let rng = Some(RequestRng::new(24, number));
        let setup = Setup {
            model: &target,
            tokenizer: &tokenizer,
            request,
            drafter,
            shape: vec![2, 2],
            rng,
        };
        let mut decoder = (day.decoder)(setup)?;
        let mut text = Vec::new();
        while text.len() < 3 {
            let new = decoder.block()?;
            if new.is_empty() {
                bail_empty()?;
            }
            text.extend(ids(&new));
        }
        seen[(4 * text[0] + text[1]) as usize] += 1;
    }
    let joint: Vec<f32> = (0..16).map(|i| AFTER[0][i / 4] * AFTER[i / 4][i % 4]).collect();
    let x = chi_square(&seen, &joint);
    let what = format!("{draws} texts, trees of shape 2x2 drawn from a small model: {seen:?}");
    ensure(
        &what,
        x < ONE_IN_A_MILLION,
        &format!("chi-square is {x:.1}: the draws don't follow the target"),
    )
}

fn bail_empty() -> Result<()> {
    bail!("a block without tokens")
}
