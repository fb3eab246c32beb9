//! The types of speculative decoding: drafts and trees of drafts, drafters, and verdicts.

use crate::ProcessorInput;
use candle_core::{Result, Tensor};

/// Tokens proposed to follow a sequence, with the distribution that each was drawn from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Draft {
    /// The proposed tokens.
    pub tokens: Vec<u32>,
    /// For each token, the probabilities `(V)` it was drawn from. For a deterministic proposal, all
    /// mass is on that token.
    pub probs: Vec<Vec<f32>>,
}

/// Proposes tokens for the target model to verify.
pub trait Drafter {
    /// Returns up to `n` tokens to follow `input.tokens`, using one number in [0, 1) for each. An
    /// empty draft is allowed.
    ///
    /// # Errors
    /// If the drafter's model fails.
    fn draft(&mut self, input: &ProcessorInput, n: usize, uniforms: &[f32]) -> Result<Draft>;
}

/// The result of verifying a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Number of drafted tokens accepted.
    pub accepted: usize,
    /// The token after the accepted ones: the target's own choice, in place of a rejected token or
    /// as a bonus.
    pub next: u32,
}

/// Statistics of speculative decoding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Forward passes of the target model.
    pub passes: usize,
    /// Tokens drafted.
    pub drafted: usize,
    /// Drafted tokens accepted.
    pub accepted: usize,
    /// Tokens added to the sequence.
    pub written: usize,
}

impl Counts {
    /// Adds one draft and its verdict. `written` is the number of tokens added to the sequence.
    pub fn add(&mut self, draft: &Draft, verdict: &Verdict, written: usize) {
        self.passes += 1;
        self.drafted += draft.tokens.len();
        self.accepted += verdict.accepted.min(written);
        self.written += written;
    }
}

/// Candidate continuations of a sequence, stored as a tree so that common beginnings are shared.
///
/// Node 0 is the root: the last token of the sequence itself, which the target hasn't read yet.
/// Every other node proposes a token to follow its parent, and comes after it in these lists.
#[derive(Debug, Clone, PartialEq)]
pub struct DraftTree {
    /// Each node's token.
    pub tokens: Vec<u32>,
    /// Each node's parent; None for the root.
    pub parents: Vec<Option<usize>>,
    /// Each node's distance from the root.
    pub depths: Vec<usize>,
    /// For each node, the probabilities `(V)` its token was drawn from, given the siblings before
    /// it. For a deterministic proposal, all mass is on that token. Empty for the root.
    pub probs: Vec<Vec<f32>>,
}

impl DraftTree {
    /// Returns a tree with only a root.
    pub fn new(root: u32) -> Self {
        let (parents, depths, probs) = (vec![None], vec![0], vec![Vec::new()]);
        Self { tokens: vec![root], parents, depths, probs }
    }

    /// Returns the number of nodes, the root included.
    pub fn num_nodes(&self) -> usize {
        self.tokens.len()
    }

    /// Adds a child to a node, after its existing children, and returns the new node.
    pub fn add(&mut self, parent: usize, token: u32, probs: Vec<f32>) -> usize {
        self.tokens.push(token);
        self.parents.push(Some(parent));
        self.depths.push(self.depths[parent] + 1);
        self.probs.push(probs);
        self.tokens.len() - 1
    }

    /// Returns a node's children, in the order in which they were added.
    pub fn children(&self, node: usize) -> Vec<usize> {
        let all = self.parents.iter().enumerate();
        all.filter(|(_, parent)| **parent == Some(node)).map(|(child, _)| child).collect()
    }

    /// Returns the nodes from the root to `node`, both included.
    pub fn path(&self, node: usize) -> Vec<usize> {
        let mut path: Vec<usize> =
            std::iter::successors(Some(node), |node| self.parents[*node]).collect();
        path.reverse();
        path
    }
}

/// Proposes a tree of tokens for the target model to verify.
pub trait TreeDrafter {
    /// Returns a tree that grows from the last of `input.tokens`. A node at depth `d` has at most
    /// `shape[d]` children, so the tree is at most `shape.len()` deep. A tree with only a root is
    /// allowed.
    ///
    /// `hidden`, `(1, C)`, is the hidden state from which the target chose the last token, if the
    /// target returns its states. `uniform` returns random numbers in [0, 1).
    ///
    /// # Errors
    /// If the drafter's model fails.
    fn draft(
        &mut self,
        input: &ProcessorInput,
        shape: &[usize],
        hidden: Option<&Tensor>,
        uniform: &mut dyn FnMut() -> f32,
    ) -> Result<DraftTree>;
}

/// The result of verifying a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// The accepted nodes, starting with the root, which is always accepted.
    pub path: Vec<usize>,
    /// The token after the last accepted node.
    pub next: u32,
}
