//! Input and output of a beam search.

use crate::FinishReason;
use candle_core::{bail, Result};

/// When to stop searching (HF `early_stopping`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyStopping {
    /// As soon as `num_beams` sequences have finished.
    True,
    /// When the best running sequence, at its current length, can't beat the worst finished one.
    /// This is a heuristic, and HF's default.
    False,
    /// When the best running sequence couldn't beat the worst finished one even at the best length
    /// it can still reach: the longest if the penalty is above 0.
    Never,
}

/// Settings for a beam search. Names are those of HF's `GenerationConfig`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BeamParams {
    /// Sequences to keep at each step.
    pub num_beams: usize,
    /// Sequences to return.
    pub num_return_sequences: usize,
    /// Exponent of the length in a finished sequence's score, which is its log-probability over
    /// `length ^ length_penalty`. Values above 0 favor long sequences.
    pub length_penalty: f64,
    /// When to stop.
    pub early_stopping: EarlyStopping,
}

impl BeamParams {
    /// Checks that the settings are valid.
    ///
    /// # Errors
    /// If there are no beams, if the number of sequences to return is 0 or exceeds the number of
    /// beams, or if the penalty is not finite.
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

/// A finished sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Hypothesis {
    /// The generated tokens, EOS included.
    pub new_ids: Vec<u32>,
    /// HF's `sequences_scores`: log-probability over `length ^ length_penalty`.
    pub score: f32,
    /// The reason it ended.
    pub finish: FinishReason,
}
