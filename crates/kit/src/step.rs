//! One forward pass, as data.

use candle_core::{bail, Result, Tensor};

/// The positions to return logits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Logits {
    /// Every new position: `(B, T, V)`.
    All,
    /// The last `n` positions: `(B, n, V)`. In a small model, a head over 49,152 tokens is a fifth
    /// of the work.
    Last(usize),
    /// One position per row: `(B, 1, V)`.
    At(Vec<u32>),
    /// These of the T positions, the same in every row: `(B, n, V)`. In a step with
    /// [`Step::chunks`], for example, the last token of each sequence.
    Columns(Vec<u32>),
}

/// The new tokens of one sequence in a step that has several sequences in one line (vLLM: its entry
/// in `num_scheduled_tokens`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// The sequence's id in the cache.
    pub sequence: usize,
    /// The position of the first of its new tokens.
    pub start: usize,
    /// The number of its new tokens.
    pub new: usize,
}

/// One forward pass over B rows of T new tokens, after S cached ones.
#[derive(Debug, Clone)]
pub struct Step {
    /// Token ids, `(B, T)`, u32, all below the vocabulary size.
    pub ids: Tensor,
    /// Each token's position, `(B, T)`, u32, all below the context length.
    pub positions: Tensor,
    /// `(B or 1, 1, T, S + T)`, u8, 1 = may attend. None: causal, offset by S. The diagonal must be
    /// all ones: a token with nothing to attend to would be NaN, and one layer later that NaN would
    /// reach the other tokens in its row.
    pub mask: Option<Tensor>,
    /// The positions to return logits for.
    pub logits: Logits,
    /// For a varlen batch (day 21): the only row, B = 1, holds the new tokens of several sequences,
    /// one after another, without padding. None: every row is one sequence.
    pub chunks: Option<Vec<Chunk>>,
}

impl Step {
    /// Returns the same step with logits for other positions.
    pub fn with_logits(mut self, logits: Logits) -> Self {
        self.logits = logits;
        self
    }

    /// Returns the same step as a varlen batch, whose only row holds these sequences' new tokens.
    ///
    /// # Errors
    /// If the step has a mask or more than one row, a chunk is empty, a sequence appears twice, or
    /// the chunks don't add up to T tokens.
    pub fn with_chunks(mut self, chunks: Vec<Chunk>) -> Result<Self> {
        let (rows, width) = self.ids.dims2()?;
        let new: usize = chunks.iter().map(|chunk| chunk.new).sum();
        if rows != 1 || new != width || chunks.iter().any(|chunk| chunk.new == 0) {
            let counts: Vec<usize> = chunks.iter().map(|chunk| chunk.new).collect();
            bail!("chunks of {counts:?} tokens do not fill {rows} rows of {width}")
        }
        if self.mask.is_some() {
            bail!("a varlen batch has no mask: each token attends to its own sequence up to itself")
        }
        let mut ids: Vec<usize> = chunks.iter().map(|chunk| chunk.sequence).collect();
        ids.sort_unstable();
        if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            bail!("sequence {} is in one step twice", twice[0])
        }
        self.chunks = Some(chunks);
        Ok(self)
    }

    /// Selects the positions that need logits from the hidden states, `(B, T, C)`. Call it before
    /// the head.
    ///
    /// # Errors
    /// If a position is not among the T, or [`Logits::At`] doesn't have one position per row.
    pub fn chosen(&self, hidden: &Tensor) -> Result<Tensor> {
        let (rows, width, _) = hidden.dims3()?;
        match &self.logits {
            Logits::All => Ok(hidden.clone()),
            Logits::Last(n) if *n > width => bail!("Logits::Last({n}) of {width} positions"),
            Logits::Last(n) => hidden.narrow(1, width - n, *n),
            Logits::At(at) => {
                if at.len() != rows || at.iter().any(|p| *p as usize >= width) {
                    bail!("Logits::At({at:?}) does not fit {rows} rows of {width} positions")
                }
                let picked = at.iter().enumerate();
                let picked =
                    picked.map(|(row, p)| hidden.narrow(0, row, 1)?.narrow(1, *p as usize, 1));
                Tensor::cat(&picked.collect::<Result<Vec<_>>>()?, 0)
            }
            Logits::Columns(columns) => {
                if columns.is_empty() || columns.iter().any(|p| *p as usize >= width) {
                    bail!("Logits::Columns({columns:?}) of {width} positions")
                }
                hidden.index_select(&Tensor::new(&columns[..], hidden.device())?, 1)
            }
        }
    }
}
