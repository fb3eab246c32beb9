//! Speculation's nouns: a draft, and what makes one.

use crate::kit::Context;
use candle_core::Result;

/// Tokens proposed to follow a text, and the distribution that each was drawn from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Draft {
    /// The proposed tokens.
    pub tokens: Vec<u32>,
    /// For each of them the probabilities `(V)` it was drawn from; a proposal without chance is a single 1.
    pub probs: Vec<Vec<f32>>,
}

/// Proposes tokens. It finds by itself what it shares with the text that it drafted for last.
pub trait Drafter {
    /// Up to `n` tokens to follow `cx.tokens`; one coin in [0, 1) for each. None is a draft, too.
    ///
    /// # Errors
    /// If its model fails.
    fn draft(&mut self, cx: &Context, n: usize, coins: &[f32]) -> Result<Draft>;
}

/// All probability on one token of `vocab_size`.
pub fn one_hot(id: u32, vocab_size: usize) -> Vec<f32> {
    let mut probs = vec![0.0; vocab_size];
    if let Some(p) = probs.get_mut(id as usize) {
        *p = 1.0;
    }
    probs
}
