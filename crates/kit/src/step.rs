//! The first two nouns: one forward pass, as data, and the model that runs it.

use crate::{Cache, Family, ModelConfig};
use candle_core::{bail, DType, Device, Result, Tensor};

/// A language model: token ids in, logits out.
pub trait Model {
    /// Returns the model's sizes, context length and special ids.
    fn config(&self) -> &ModelConfig;

    /// Returns the device that the model's tensors are on. Steps are built on the same device.
    fn device(&self) -> &Device;

    /// Runs one step and returns its logits, `(B, T or the number of chosen positions, V)`, f32.
    /// The cache grows by T positions.
    ///
    /// # Errors
    /// If the step doesn't fit the model or the cache.
    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> Result<Tensor>;

    /// Like [`Model::forward`], and also returns the states that the head read: `(B, n, C)`, after
    /// the last norm, at the same positions as the logits. None if this model doesn't return them.
    ///
    /// # Errors
    /// Same as [`Model::forward`].
    fn forward_with_hidden(
        &self,
        step: &Step,
        cache: &mut dyn Cache,
    ) -> Result<(Tensor, Option<Tensor>)> {
        Ok((self.forward(step, cache)?, None))
    }
}

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
    /// For a flat step (day 21): the only row, B = 1, holds the new tokens of several sequences,
    /// one after another, without padding. None: every row is one sequence.
    pub chunks: Option<Vec<Chunk>>,
}

impl Step {
    /// Returns a step of one row: `ids` at positions `start`, `start + 1`, …, with logits for every
    /// position.
    ///
    /// # Errors
    /// Same as [`Step::batch`].
    pub fn new(model: &dyn Model, ids: &[u32], start: usize) -> Result<Self> {
        let positions: Vec<u32> = (start..start + ids.len()).map(|p| p as u32).collect();
        Self::batch(model, &[ids.to_vec()], &[positions], None)
    }

    /// Like [`Step::new`], but positions may go past the context, for use with a sliding cache.
    /// RoPE models only: GPT-2's learned positions stop at the end of the context.
    ///
    /// # Errors
    /// If the model is GPT-2, `ids` is empty, or an id is not in the vocabulary.
    pub fn sliding(model: &dyn Model, ids: &[u32], start: usize) -> Result<Self> {
        if model.config().family == Family::Gpt2 {
            bail!("a sliding cache needs RoPE: GPT-2's positions are baked into its keys")
        }
        let positions: Vec<u32> = (start..start + ids.len()).map(|p| p as u32).collect();
        let positions = Tensor::from_vec(positions, (1, ids.len()), model.device())?;
        Ok(Self { positions, ..Self::new(model, ids, 0)? })
    }

    /// Returns a step of several rows of equal length with the given positions and mask, and with
    /// logits for every position.
    ///
    /// Ids and positions are checked here, because an accelerator wouldn't check them: it would
    /// silently read the wrong row.
    ///
    /// # Errors
    /// If there are no tokens, rows differ in length, an id is not in the vocabulary, a position is
    /// past the context, or the mask doesn't meet the requirements of [`Step::mask`].
    pub fn batch(
        model: &dyn Model,
        ids: &[Vec<u32>],
        positions: &[Vec<u32>],
        mask: Option<Tensor>,
    ) -> Result<Self> {
        let config = model.config();
        let width = ids.first().map_or(0, Vec::len);
        if width == 0 {
            bail!("a step needs at least one token; the prompt is empty")
        }
        let ragged = ids.iter().chain(positions).any(|row| row.len() != width);
        if ragged || ids.len() != positions.len() {
            bail!("the rows of a step must all have one length, and each needs its positions")
        }
        if let Some(id) = ids.iter().flatten().find(|id| **id as usize >= config.vocab_size) {
            bail!("token id {id} is not in the vocabulary of {} tokens", config.vocab_size)
        }
        let context = config.max_position_embeddings;
        if let Some(position) = positions.iter().flatten().find(|p| **p as usize >= context) {
            bail!("position {position} is past the context of {context} tokens")
        }
        if let Some(mask) = &mask {
            check_mask(mask, ids.len(), width)?;
        }
        let tensor = |rows: &[Vec<u32>]| {
            Tensor::from_vec(rows.concat(), (rows.len(), width), model.device())
        };
        let (ids, positions) = (tensor(ids)?, tensor(positions)?);
        Ok(Self { ids, positions, mask, logits: Logits::All, chunks: None })
    }

    /// Returns the same step with logits for other positions.
    pub fn with_logits(mut self, logits: Logits) -> Self {
        self.logits = logits;
        self
    }

    /// Returns the same step as a flat one, whose only row holds these sequences' new tokens.
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
            bail!("a flat step has no mask: each token attends to its own sequence, up to itself")
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

/// Rejects a mask that doesn't have the shape, type and polarity that [`Step::mask`] requires, or
/// whose diagonal is not all ones.
///
/// Values are checked on the CPU only: on an accelerator, every step would have to copy the mask
/// back.
fn check_mask(mask: &Tensor, rows: usize, width: usize) -> Result<()> {
    let all = match mask.dims() {
        [b, 1, t, all] if (*b == rows || *b == 1) && *t == width && *all >= width => *all,
        dims => bail!(
            "the mask is {dims:?}; for {rows} rows of {width} new tokens it must be ({rows}, 1, \
                {width}, past + {width})"
        ),
    };
    if mask.dtype() != DType::U8 {
        bail!("the mask is of {:?}; it must be u8, 1 = may attend, 0 = may not", mask.dtype())
    }
    if !mask.device().is_cpu() {
        return Ok(());
    }
    // One row of the batch at a time, because this copies the values.
    for row_of_batch in 0..mask.dim(0)? {
        let rows = mask.get(row_of_batch)?.squeeze(0)?.to_vec2::<u8>()?;
        for (token, row) in rows.iter().enumerate() {
            if let Some(other) = row.iter().find(|may| **may > 1) {
                bail!("the mask has a {other}; it must be 1 = may attend, or 0 = may not")
            }
            if row[all - width + token] == 0 {
                bail!(
                    "the mask hides new token {token} of row {row_of_batch} from itself, and a \
                     token that sees nothing becomes NaN; 1 = may attend: is the mask inverted?"
                )
            }
        }
    }
    Ok(())
}
