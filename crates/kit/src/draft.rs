//! The types of speculative decoding: drafts, drafters, and verdicts.

use crate::ProcessorInput;
use candle_core::Result;

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
    /// The token after the accepted ones: drawn from the residual after a rejection, or the bonus
    /// token if all were accepted.
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
    /// Adds one draft and its verdict, after which `written` tokens joined the sequence.
    pub fn add(&mut self, draft: &Draft, verdict: &Verdict, written: usize) {
        self.passes += 1;
        self.drafted += draft.tokens.len();
        self.accepted += verdict.accepted.min(written);
        self.written += written;
    }
}
