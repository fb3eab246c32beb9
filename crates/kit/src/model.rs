//! A language model, and the steps built for it.

use crate::{Cache, Family, Logits, ModelConfig, Step};
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
