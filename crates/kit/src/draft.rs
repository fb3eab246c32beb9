//! The words of speculative decoding: a draft, the thing that makes one, and what became of it.

use crate::ProcessorInput;
use candle_core::Result;

/// Tokens proposed to follow a sequence, and the distribution that each was drawn from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Draft {
    /// The proposed tokens.
    pub tokens: Vec<u32>,
    /// For each of them the probabilities `(V)` it was drawn from; a proposal without chance is a
    /// single 1.
    pub probs: Vec<Vec<f32>>,
}

/// Proposes tokens.
pub trait Drafter {
    /// Up to `n` tokens to follow `input.tokens`; one number in [0, 1) for each. An empty draft is
    /// one, too.
    ///
    /// # Errors
    /// If its model fails.
    fn draft(&mut self, input: &ProcessorInput, n: usize, uniforms: &[f32]) -> Result<Draft>;
}

/// What verification found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// How many drafted tokens were accepted.
    pub accepted: usize,
    /// The token after them: drawn from the residual where a draft was rejected, or the bonus token
    /// where none was.
    pub next: u32,
}

/// What speculation did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Passes of the target.
    pub passes: usize,
    /// Tokens drafted.
    pub drafted: usize,
    /// Of them, tokens accepted.
    pub accepted: usize,
    /// Tokens written.
    pub written: usize,
}

impl Counts {
    /// Adds one block, of which `written` tokens came into the sequence.
    pub fn add(&mut self, draft: &Draft, verdict: &Verdict, written: usize) {
        self.passes += 1;
        self.drafted += draft.tokens.len();
        self.accepted += verdict.accepted.min(written);
        self.written += written;
    }
}
