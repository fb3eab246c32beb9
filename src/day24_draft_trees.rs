#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 24: draft trees. Day 13 drafts one continuation of the text. A tree drafts several, which
//! share their beginnings, and one pass of the target checks all of them. Its branches come from
//! the text itself, from a smaller model, or from Medusa heads on the target.

use candecode::day03_norms_and_mlps::{silu, Projection};
use candecode::day07_greedy::{argmax, log_softmax, Sequence};
use candecode::day08_sampling::sample;
use candecode::day10_kv_cache::KvLayers;
use candecode::day13_speculative::{distribution, one_hot, residual};
use candecode::kit::draft::{Counts, DraftTree, TreeDrafter, Walk};
use candecode::kit::processor::{process_all, process_draft};
use candecode::kit::rng::RequestRng;
use candecode::kit::token::top_logprobs;
use candecode::kit::{Cache, Logits, LogitsProcessor, Model, ProcessorInput, Request};
use candecode::kit::{Step, Token, Tokenizer, View};
use candle_core::{bail, DType, Result, Tensor};
use std::rc::Rc;

// part 1: one pass over a tree

/// Returns the mask of the nodes from `first` on: a row for each node, with
/// `past + num_nodes` numbers, where 1 means that the node may attend to that column.
/// The first `past` columns are the text before the root, and column `past + i` is node
/// `i`.
pub fn ancestor_mask(tree: &DraftTree, past: usize, first: usize) -> Vec<Vec<u8>> {
    // task 24.1: Let each node see the text, its ancestors and itself
    todo!("day 24, task 1: Let each node see the text, its ancestors and itself")
}

/// Returns the step that feeds the nodes from `first` on, in their order, in one row.
/// The cache already holds the `past` positions of the text before the root, and the
/// nodes before `first`.
///
/// # Errors
/// If a token or a position doesn't fit the model.
pub fn tree_step(model: &dyn Model, tree: &DraftTree, past: usize, first: usize) -> Result<Step> {
    // task 24.2: Build the step, with a position for each node
    todo!("day 24, task 2: Build the step, with a position for each node")
}

/// A cache that can keep some of its positions and drop those between them. It grows by
/// day 10's [`KvLayers::grow`].
#[derive(Debug)]
pub struct TreeCache {
    /// The keys and values of every layer.
    pub layers: KvLayers,
}

impl TreeCache {
    /// Creates an empty cache for a model of `layers` layers.
    pub fn new(layers: usize) -> Self {
        Self { layers: KvLayers::new(layers) }
    }

    /// Keeps the first `past` positions and, after them, the nodes of `path`, in that
    /// order. Afterwards the cache holds what it would hold if the path had been fed as
    /// plain text.
    ///
    /// # Errors
    /// If the cache doesn't hold one of them.
    pub fn keep(&mut self, past: usize, path: &[usize]) -> Result<()> {
        // task 24.3: Move the path's columns together, in every layer, and set the length
        todo!(
            "day 24, task 3: Move the path's columns together, in every layer, and set the length"
        )
    }
}

impl Cache for TreeCache {
    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<View> {
        self.layers.grow(layer, k, v)
    }

    fn len(&self) -> usize {
        self.layers.len
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        self.layers.truncate(len)
    }
}

/// Walks down the tree by greedy decoding's own choices. `target` returns the target's
/// distribution, `(V)`, after a node.
///
/// # Errors
/// If `target` fails.
pub fn walk_greedy(
    tree: &DraftTree,
    target: &mut dyn FnMut(usize) -> Result<Vec<f32>>,
) -> Result<Walk> {
    // task 24.4: Find the path of greedy decoding's own choices
    todo!("day 24, task 4: Find the path of greedy decoding's own choices")
}

/// How a walk decides whether a drafted token is accepted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Accept {
    /// By the rule that never changes the target's text, or its distribution if tokens
    /// are sampled.
    Exactly,
    /// By Medusa's typical acceptance, which changes both.
    Typical,
}

/// A sequence that grows by trees that a model, the *target*, verifies.
pub struct TreeDecoder<'a> {
    /// The target.
    pub model: &'a dyn Model,
    /// Keys and values of the sequence, without its last token.
    pub cache: TreeCache,
    /// The sequence so far, with its processors; its sampler is not used, see `rng`.
    pub sequence: Sequence<'a>,
    /// Makes the trees.
    pub drafter: Box<dyn TreeDrafter + 'a>,
    /// The largest number of children at each depth, from the root on.
    pub shape: Vec<usize>,
    /// Randomness; None is greedy.
    pub rng: Option<RequestRng>,
    /// How a drafted token is accepted.
    pub accept: Accept,
    /// The state, `(1, C)`, from which the target chose the last token. None if the
    /// target returns no states, or hasn't read anything.
    pub hidden: Option<Tensor>,
    /// Counts over all blocks. The pass over the prompt isn't counted.
    pub counts: Counts,
}

impl<'a> TreeDecoder<'a> {
    /// Begins a sequence, and reads the prompt but for its last token, the root of the
    /// first tree. Greedy, until `rng` is set.
    ///
    /// # Errors
    /// If the prompt doesn't fit, or the model fails.
    pub fn new(
        model: &'a dyn Model,
        tokenizer: &'a Tokenizer,
        mut request: Request<'a>,
        drafter: Box<dyn TreeDrafter + 'a>,
        shape: Vec<usize>,
    ) -> Result<Self> {
        request.fit(model)?;
        let mut cache = TreeCache::new(model.config().num_hidden_layers);
        let mut hidden = None;
        let (_, before) = request.prompt.split_last().unwrap_or((&0, &[]));
        if !before.is_empty() {
            let step = Step::new(model, before, 0)?.with_logits(Logits::Last(1));
            hidden = model.forward_with_hidden(&step, &mut cache)?.1;
        }
        let hidden = hidden.map(|hidden| hidden.squeeze(0)).transpose()?;
        let sequence = Sequence::new(request, tokenizer);
        let (rng, accept, counts) = (None, Accept::Exactly, Counts::default());
        Ok(Self { model, cache, sequence, drafter, shape, rng, accept, hidden, counts })
    }

    /// Asks the drafter for a tree. Its depth is at most the number of tokens that may
    /// still follow, less the one that the pass itself adds.
    ///
    /// # Errors
    /// If the drafter fails, or returns a tree that wasn't asked for.
    pub fn draft(&mut self) -> Result<DraftTree> {
        let input = self.sequence.processor_input();
        let depth = self.shape.len().min(input.remaining.saturating_sub(1));
        let (shape, hidden, rng) = (&self.shape[..depth], self.hidden.as_ref(), &mut self.rng);
        let mut uniform = || rng.as_mut().map_or(0.0, RequestRng::uniform);
        let tree = self.drafter.draft(&input, shape, hidden, &mut uniform)?;
        if tree.tokens.first() != input.tokens.last() {
            bail!("the tree's root must be the last token of the sequence")
        }
        if tree.depths.iter().any(|node| *node > depth) {
            bail!("the drafter was asked for at most {depth} levels, but returned more")
        }
        Ok(tree)
    }

    /// Walks down the tree, as `rng` and `accept` say. `raw` has the target's logits,
    /// `(V)`, after each node.
    ///
    /// # Errors
    /// If a processor fails.
    pub fn walk(&mut self, tree: &DraftTree, raw: &[Vec<f32>]) -> Result<Walk> {
        let Self { sequence, rng, accept, .. } = self;
        let greedy = rng.is_none() && *accept == Accept::Exactly;
        let mut target = |node: usize| target_probs(sequence, tree, node, &raw[node], greedy);
        match (accept, rng) {
            (Accept::Typical, _) => walk_typical(tree, 0.09, 0.3, &mut target),
            (Accept::Exactly, None) => walk_greedy(tree, &mut target),
            (Accept::Exactly, Some(rng)) => walk_sampled(tree, &mut target, &mut || rng.uniform()),
        }
    }
}

/// Returns the target's distribution `(V)` after a node, from its logits there: day
/// 13's `target_probs` for one node. The processors see the text with the path to that
/// node. After EOS there is nothing to choose, and no processor runs.
///
/// # Errors
/// If a processor fails.
pub fn target_probs(
    sequence: &Sequence,
    tree: &DraftTree,
    node: usize,
    raw: &[f32],
    greedy: bool,
) -> Result<Vec<f32>> {
    let input = sequence.processor_input();
    let path = tree.path(node);
    let drafted = path[1..].iter().map(|node| tree.tokens[*node]);
    let tokens: Vec<u32> = input.tokens.iter().copied().chain(drafted).collect();
    let mut logits = raw.to_vec();
    let has_ended = path[1..].iter().any(|node| input.eos.contains(&tree.tokens[*node]));
    if !has_ended {
        let remaining = input.remaining - tree.depths[node];
        let now = ProcessorInput { tokens: &tokens, remaining, ..input };
        process_all(&sequence.request.processors, &now, &mut logits)?;
    }
    distribution(&logits, greedy)
}

/// One block: draft a tree, verify it in one pass, and take in the accepted path and
/// the token after it. Returns its tokens, at least one; the last of the sequence has a
/// `finish`. Returns an empty `Vec` if the sequence is already complete.
///
/// A token's `logprob` is the raw one, as on day 13. [`Model::forward_with_hidden`] is
/// the pass.
///
/// # Errors
/// If the model, the drafter or a processor fails.
pub fn decode_tree(decoder: &mut TreeDecoder) -> Result<Vec<Token>> {
    // task 24.5: Draft, run the pass, walk; keep the path and its last state; push and count
    todo!("day 24, task 5: Draft, run the pass, walk; keep the path and its last state; push and count")
}

/// Drafts by looking back, as day 13's `NgramDrafter` does, but at every earlier place
/// of the last `n` tokens, the latest first. What followed each becomes a branch, as
/// far as the shape has room. Branches that begin alike share their nodes.
pub struct NgramTree {
    /// The number of tokens that must match, at least 1.
    pub n: usize,
    /// The size of the target's vocabulary.
    pub vocab_size: usize,
}

impl TreeDrafter for NgramTree {
    fn draft(
        &mut self,
        input: &ProcessorInput,
        shape: &[usize],
        _hidden: Option<&Tensor>,
        _uniform: &mut dyn FnMut() -> f32,
    ) -> Result<DraftTree> {
        let tokens = input.tokens;
        let mut tree = DraftTree::new(tokens.last().copied().unwrap_or_default());
        let Some(start) = tokens.len().checked_sub(self.n) else { return Ok(tree) };
        // task 24.6: Follow each earlier place down the tree, and add the nodes that it lacks
        todo!("day 24, task 6: Follow each earlier place down the tree, and add the nodes that it lacks")
    }
}

// part 2: sampled

/// Walks down the tree so that every token is distributed as the target's (Miao et al.
/// 2023, SpecInfer; Leviathan et al. 2023 for one child).
///
/// The children of a node are tried in their order; a child's `q` is the distribution
/// that its token was drawn from, given the siblings before it. `uniform` returns
/// numbers in [0, 1): one per child tried, and one for the next token.
///
/// # Errors
/// If `target` fails, or a drafted token is not in the vocabulary.
pub fn walk_sampled(
    tree: &DraftTree,
    target: &mut dyn FnMut(usize) -> Result<Vec<f32>>,
    uniform: &mut dyn FnMut() -> f32,
) -> Result<Walk> {
    // task 24.7: Try the children in turn, each against what the last rejection left of p
    todo!(
        "day 24, task 7: Try the children in turn, each against what the last rejection left of p"
    )
}

// part 3: Medusa

/// Medusa heads (Cai et al. 2024): each is a residual block followed by the target's
/// own head, and predicts a token farther ahead. Head 0 reads the state from which the
/// target chose a token, and predicts the token after it, head 1 the one after that.
pub struct MedusaHeads {
    /// The block of each head, `(C, C)` with a bias.
    pub blocks: Vec<Projection>,
    /// The target's own head, `(V, C)`, which all of them share.
    pub lm_head: Projection,
}

impl MedusaHeads {
    /// Returns the logits `(V)` of each of the first `n` heads, from one of the target's
    /// states, `(1, C)`.
    ///
    /// # Errors
    /// If the shapes don't fit.
    pub fn logits(&self, hidden: &Tensor, n: usize) -> Result<Vec<Vec<f32>>> {
        // task 24.8: Compute the logits of every head, in f32
        todo!("day 24, task 8: Compute the logits of every head, in f32")
    }
}

/// Drafts with Medusa heads: no other model, and no earlier place in the text.
pub struct MedusaTree<'a> {
    /// The heads.
    pub heads: &'a MedusaHeads,
}

impl TreeDrafter for MedusaTree<'_> {
    /// Every node at depth `d` gets the `shape[d]` best tokens of head `d` as children,
    /// best first. A head looks a fixed number of tokens ahead and doesn't know which
    /// branch it is on, so all nodes of one depth get the same children. Before the
    /// target has read anything, or below the last head, there is nothing to propose.
    fn draft(
        &mut self,
        input: &ProcessorInput,
        shape: &[usize],
        hidden: Option<&Tensor>,
        _uniform: &mut dyn FnMut() -> f32,
    ) -> Result<DraftTree> {
        let mut tree = DraftTree::new(input.tokens.last().copied().unwrap_or_default());
        let Some(hidden) = hidden else { return Ok(tree) };
        // task 24.9: Grow the tree level by level; top_logprobs returns a head's best tokens
        todo!("day 24, task 9: Grow the tree level by level; top_logprobs returns a head's best tokens")
    }
}

/// Typical acceptance (Cai et al. 2024, section 3.3; after Hewitt et al. 2022): a
/// drafted token is accepted if the target finds it likely enough,
/// `p(token) > min(epsilon, delta · exp(-H(p)))`, where `H(p)` is the entropy of `p`
/// in nats. If several children are, the most likely one is taken. (That rule is ours:
/// Medusa takes the longest accepted path.) The next token is the target's most likely
/// one. This is *lossy*: neither the greedy text nor the distribution is the target's.
///
/// # Errors
/// If `target` fails.
pub fn walk_typical(
    tree: &DraftTree,
    epsilon: f32,
    delta: f32,
    target: &mut dyn FnMut(usize) -> Result<Vec<f32>>,
) -> Result<Walk> {
    // task 24.10 (optional): Go to the most likely child over the threshold, until there is none
    todo!("day 24, task 10: Go to the most likely child over the threshold, until there is none")
}

// part 4: a model drafts

/// Proposes up to `n` different tokens from `q`, `(V)`, each with the distribution it
/// was drawn from. If `greedy`, these are the `n` most likely, and each counts as
/// certain ([`one_hot`]). Otherwise they are `n` draws without replacement, and the
/// distribution of each leaves out the tokens drawn before it. Tokens with probability
/// 0 are never returned, so there may be fewer than `n`.
///
/// # Errors
/// If `q` has no possible token.
pub fn several(
    q: &[f32],
    n: usize,
    greedy: bool,
    uniform: &mut dyn FnMut() -> f32,
) -> Result<Vec<(u32, Vec<f32>)>> {
    // task 24.11 (optional): Return the best, as certain; or draw, set to zero and renormalize
    todo!("day 24, task 11: Return the best, as certain; or draw, set to zero and renormalize")
}

/// Drafts with a smaller model of the same tokenizer. It grows its tree level by level,
/// and reads a whole level in one pass, with the same mask as the target.
pub struct ModelTree<'a> {
    /// The small model.
    pub model: &'a dyn Model,
    /// Keys and values of `tokens`, and after them those of the last tree's nodes.
    pub cache: TreeCache,
    /// The text that was read.
    pub tokens: Vec<u32>,
    /// The processors of its logits, which should be the target's.
    pub processors: Vec<Rc<dyn LogitsProcessor + 'a>>,
    /// True: draft the most likely tokens. False: draw them.
    pub greedy: bool,
    /// The size of the target's vocabulary. Tokens that only one of the two models has
    /// are never drafted.
    pub vocab_size: usize,
}

impl ModelTree<'_> {
    /// Reads the tokens of `text` that the cache lacks, at least the last, and returns
    /// the logits `(V)` after it.
    ///
    /// # Errors
    /// If the model fails.
    fn read(&mut self, text: &[u32]) -> Result<Vec<f32>> {
        let common = self.tokens.iter().zip(text).take_while(|(old, new)| old == new).count();
        let keep = common.min(text.len() - 1);
        self.cache.truncate(keep)?;
        self.tokens = text.to_vec();
        let step = Step::new(self.model, &text[keep..], keep)?.with_logits(Logits::Last(1));
        self.model.forward(&step, &mut self.cache)?.flatten_all()?.to_vec1()
    }

    /// Returns the distribution `(V)` after a node, from its logits. None if the
    /// processors leave no token there, so that the branch ends.
    ///
    /// # Errors
    /// If a processor fails.
    fn probs(
        &self,
        input: &ProcessorInput,
        tree: &DraftTree,
        node: usize,
        mut logits: Vec<f32>,
    ) -> Result<Option<Vec<f32>>> {
        let drafted = tree.path(node)[1..].iter().map(|node| tree.tokens[*node]).collect();
        let tokens = [input.tokens.to_vec(), drafted].concat();
        let remaining = input.remaining.saturating_sub(tree.depths[node]);
        logits.resize(self.vocab_size, f32::NEG_INFINITY);
        let now = ProcessorInput { tokens: &tokens, remaining, ..*input };
        if !process_draft(&self.processors, &now, &mut logits)? {
            return Ok(None);
        }
        distribution(&logits, false).map(Some)
    }
}

impl TreeDrafter for ModelTree<'_> {
    fn draft(
        &mut self,
        input: &ProcessorInput,
        shape: &[usize],
        _hidden: Option<&Tensor>,
        uniform: &mut dyn FnMut() -> f32,
    ) -> Result<DraftTree> {
        let mut tree = DraftTree::new(input.tokens.last().copied().unwrap_or_default());
        let config = self.model.config();
        let past = input.tokens.len().saturating_sub(1);
        let known = input.tokens.iter().all(|id| (*id as usize) < config.vocab_size);
        let context = config.max_position_embeddings;
        if shape.is_empty() || past >= context || !known {
            return Ok(tree);
        }
        // task 24.12 (optional): Read the text; then, level by level, add children and feed them
        todo!("day 24, task 12: Read the text; then, level by level, add children and feed them")
    }
}
