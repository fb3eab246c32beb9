#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 12: batching. Prompts of different lengths in one pass, with a cache: padding, positions,
//! masks, and a row's end.

use candecode::day07_greedy::Sequence;
use candecode::day10_kv_cache::KvLayers;
use candecode::kit::View;
use candecode::kit::{Batch, Cache, Logits, Model, Request, Step, Token, TokenIter, Tokenizer};
use candle_core::{bail, Device, Result, Tensor};

/// The mask of a batch whose rows are padded on the left: `(B, 1, T, S + T)`, u8, 1 = may attend.
///
/// Row `b` begins with `padding[b]` columns of padding. Of the others, new token `i`, in column
/// `past + i`, may attend to those up to itself. A padding token attends only to itself: with no
/// column at all its softmax would be NaN, and 0 × NaN reaches the row's real tokens a layer later.
///
/// # Errors
/// If a row is all padding, `past + new` columns of it.
pub fn ragged_mask(padding: &[usize], new: usize, past: usize, device: &Device) -> Result<Tensor> {
    // task 12.1: causal, blind to padding, and no row that sees nothing
    todo!("day 12, task 1: causal, blind to padding, and no row that sees nothing")
}

/// Rows made equally long.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Padded {
    /// Token ids, all rows of one length; the padding is id 0, which no other token attends to.
    pub ids: Vec<Vec<u32>>,
    /// Positions: a row's first real token is at 0, whatever comes before it. Padding may be at any
    /// position below the width.
    pub positions: Vec<Vec<u32>>,
    /// How many tokens of padding each row has.
    pub padding: Vec<usize>,
}

/// Pads on the left: every row ends with its last real token, whose logits choose the next one.
pub fn left_pad(rows: &[&[u32]]) -> Padded {
    // task 12.2: padding, then the row; positions start at its first real token
    todo!("day 12, task 2: padding, then the row; positions start at its first real token")
}

/// One row of a running batch.
pub struct Row<'a> {
    /// The sequence.
    pub sequence: Sequence<'a>,
    /// How many columns of the cache are padding in this row; they come before its own tokens.
    pub padding: usize,
}

impl<'a> Row<'a> {
    /// A row that no cache holds yet.
    pub fn new(sequence: Sequence<'a>) -> Self {
        Self { sequence, padding: 0 }
    }
}

/// Pads the rows for an empty cache: writes each row's `padding` into it, because every later step
/// asks for it, and makes the step that feeds all their tokens, `(B, T)`. Logits of the last
/// column.
///
/// # Errors
/// If a row is empty, or does not fit the model.
pub fn prefill_step(model: &dyn Model, rows: &mut [Row]) -> Result<Step> {
    // task 12.3: left_pad the tokens; a mask only if there is padding to hide
    todo!("day 12, task 3: left_pad the tokens; a mask only if there is padding to hide")
}

/// The step that feeds each row's newest token, `(B, 1)`, after the `past` columns that the cache
/// holds.
///
/// # Errors
/// If a row has more padding than columns, if the columns after its padding are not all of its
/// tokens but the newest, or if a position is past the context.
pub fn decode_step(model: &dyn Model, rows: &[Row], past: usize) -> Result<Step> {
    // task 12.4: one id for each row, at the row's own position; padding stays hidden
    todo!("day 12, task 4: one id for each row, at the row's own position; padding stays hidden")
}

/// Retires the rows whose sequence has finished: they leave `rows` and the cache, and so do the
/// columns that are padding in every row that is left.
///
/// If no row has finished the cache is left alone, because `select` copies it. If no row is left it
/// also stays as it is, for candle has no tensors of zero rows; the next prefill replaces it. An
/// empty cache (`NoCache`) has nothing to trim, and its rows keep their padding: the next step pads
/// them again.
///
/// # Errors
/// If the cache does not hold these rows.
pub fn retire(rows: &mut Vec<Row>, cache: &mut dyn Batch) -> Result<()> {
    // task 12.5: keep the rows that go on, in batch and cache; trim what all pad
    todo!("day 12, task 5: keep the rows that go on, in batch and cache; trim what all pad")
}

/// One step of a running batch: every row gets one more token, and those that end with it retire.
/// One token for each row that ran, in order. A row that fails ends with that error in its token,
/// and retires like any other; its neighbours go on.
///
/// # Errors
/// If the model fails.
pub fn batch_step(
    model: &dyn Model,
    rows: &mut Vec<Row>,
    cache: &mut dyn Batch,
) -> Result<Vec<Token>> {
    // task 12.6: prefill or decode; advance row by row; retire
    todo!("day 12, task 6: prefill or decode; advance row by row; retire")
}

/// Generates from several requests in one batch; request `i` is row `i`. Every row is what it would
/// be alone.
///
/// # Errors
/// If there is no request, or a prompt is empty or longer than the context; later, each token may
/// be an error.
pub fn generate_batch<'a>(
    model: &'a dyn Model,
    tokenizer: &'a Tokenizer,
    requests: Vec<Request<'a>>,
    mut cache: Box<dyn Batch + 'a>,
) -> Result<TokenIter<'a>> {
    if requests.is_empty() {
        bail!("a batch needs at least one prompt")
    }
    let mut rows = Vec::new();
    for (id, mut request) in requests.into_iter().enumerate() {
        request.id = id;
        request.fit(model)?;
        let sequence = Sequence::new(request, tokenizer);
        if sequence.remaining() > 0 {
            rows.push(Row::new(sequence));
        }
    }
    Ok(TokenIter::new(rows.len(), move || batch_step(model, &mut rows, &mut *cache)))
}

/// Keys and values of a batch: a rectangle whose rows come and go.
///
/// It grows by concatenation, or is written in place if it has a capacity.
#[derive(Debug)]
pub struct BatchCache {
    layers: KvLayers,
    capacity: Option<usize>,
}

impl BatchCache {
    /// An empty cache for a model of `layers` layers, with room for `capacity` positions in each
    /// row, or unlimited.
    pub fn new(layers: usize, capacity: Option<usize>) -> Self {
        Self { layers: KvLayers::new(layers), capacity }
    }
}

impl Cache for BatchCache {
    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<View> {
        match self.capacity {
            None => self.layers.grow(layer, k, v),
            Some(capacity) => self.layers.write(layer, k, v, capacity),
        }
    }

    fn len(&self) -> usize {
        self.layers.len
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        self.layers.truncate(len)
    }
}

/// Copies keys or values, `(B, Hkv, T, D)`, into memory of their own: with a capacity,
/// `(B, Hkv, capacity, D)`, and zeros after the T positions.
fn allocate(numbers: &Tensor, capacity: Option<usize>) -> Result<Tensor> {
    let used = numbers.dim(2)?;
    match capacity {
        Some(capacity) if used > capacity => {
            bail!("a cache of {capacity} positions has no room for {used}")
        }
        Some(capacity) if used < capacity => {
            numbers.contiguous()?.pad_with_zeros(2, 0, capacity - used)
        }
        _ => numbers.force_contiguous(),
    }
}

impl Batch for BatchCache {
    fn layer(&self, layer: usize) -> Result<View> {
        match self.layers.held(layer)? {
            Some(view) => Ok(view),
            None => bail!("layer {layer} of the cache is empty"),
        }
    }

    fn select(&mut self, rows: &[u32]) -> Result<()> {
        // task 12.7: new row i is a copy of old row rows[i], in every layer
        todo!("day 12, task 7: new row i is a copy of old row rows[i], in every layer")
    }

    fn trim(&mut self, front: usize) -> Result<()> {
        let Some(len) = self.layers.len.checked_sub(front) else {
            bail!("a cache of {} positions has no {front} to trim", self.layers.len)
        };
        if front == 0 {
            return Ok(());
        }
        // task 12.8: drop the first positions; a cache with a capacity keeps it
        todo!("day 12, task 8: drop the first positions; a cache with a capacity keeps it")
    }

    fn join(&mut self, other: &dyn Batch) -> Result<()> {
        // task 12.12 (further): stack_rows of what counts, in every layer
        todo!("day 12, task 12: stack_rows of what counts, in every layer")
    }
}

/// Pads on the right: positions need no shift, and the causal mask alone hides what comes after a
/// row's end.
pub fn right_pad(rows: &[&[u32]]) -> Padded {
    // task 12.9 (further): the row, then padding; positions simply count
    todo!("day 12, task 9: the row, then padding; positions simply count")
}

/// The step for what comes after each of `rows`, padded on the right: no mask, and logits where
/// each row ends. For scoring it is all that is needed; decoding would write the next token behind
/// the padding.
///
/// # Errors
/// If a row is empty, or does not fit the model.
pub fn right_step(model: &dyn Model, rows: &[&[u32]]) -> Result<Step> {
    // task 12.10 (further): right_pad; Logits::At, where each row's last real token is
    todo!("day 12, task 10: right_pad; Logits::At, where each row's last real token is")
}

/// Puts the rows of `b` below those of `a`, each `(B, Hkv, len, D)`; the shorter of the two is
/// padded with zeros on the left, so that the newest positions of all rows are the last.
///
/// # Errors
/// If heads or head dimensions differ.
pub fn stack_rows(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    // task 12.11 (further): make both equally long, then put one below the other
    todo!("day 12, task 11: make both equally long, then put one below the other")
}
