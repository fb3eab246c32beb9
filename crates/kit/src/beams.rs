//! What a beam search is asked for, and what it gives.

use crate::FinishReason;
use candle_core::{bail, Result};

/// When to stop looking (HF `early_stopping`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyStopping {
    /// As soon as there are `num_beams` finished texts.
    True,
    /// When the best running text, at its present length, cannot beat the worst finished one. HF's
    /// default, a heuristic.
    False,
    /// When it could not even at the best length that is still possible: for a penalty above 0, the
    /// longest.
    Never,
}

/// How to search. Names are those of HF's `GenerationConfig`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BeamParams {
    /// Texts that grow side by side.
    pub num_beams: usize,
    /// Texts to return.
    pub num_return_sequences: usize,
    /// A finished text's score is its log-probability over `length ^ length_penalty`: above 0 it
    /// favours long texts.
    pub length_penalty: f64,
    /// When to stop.
    pub early_stopping: EarlyStopping,
}

impl BeamParams {
    /// Refuses what makes no search.
    ///
    /// # Errors
    /// If there is no beam, more is to be returned than there are beams, or the penalty is no
    /// number.
    pub fn check(&self) -> Result<()> {
        let Self { num_beams, num_return_sequences, length_penalty, .. } = self;
        if *num_beams == 0 {
            bail!("num_beams must be at least 1, got 0")
        }
        if !(1..=*num_beams).contains(num_return_sequences) {
            bail!(
                "num_return_sequences must be in 1 to num_beams ({num_beams}), got \
                {num_return_sequences}"
            )
        }
        if !length_penalty.is_finite() {
            bail!("length_penalty must be a finite number, got {length_penalty}")
        }
        Ok(())
    }
}

/// A finished text.
#[derive(Debug, Clone, PartialEq)]
pub struct Hypothesis {
    /// The generated tokens, EOS included.
    pub new_ids: Vec<u32>,
    /// HF's `sequences_scores`: log-probability over `length ^ length_penalty`.
    pub score: f32,
    /// Why it ended.
    pub finish: FinishReason,
}
