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
    // <solution>
    let all = past + new;
    if let Some(row) = padding.iter().position(|padding| *padding >= all) {
        bail!("row {row} is all padding: {} of {all} columns", padding[row])
    }
    let mut mask = Vec::with_capacity(padding.len() * new * all);
    for padding in padding {
        for i in past..all {
            for j in 0..all {
                mask.push(u8::from(j == i || (*padding <= j && j <= i)));
            }
        }
    }
    Tensor::from_vec(mask, (padding.len(), 1, new, all), device)
    // </solution>
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
    // <solution>
    let width = rows.iter().map(|row| row.len()).max().unwrap_or_default();
    let mut padded = Padded::default();
    for row in rows {
        let padding = width - row.len();
        let mut ids = vec![0; padding];
        ids.extend_from_slice(row);
        let mut positions = vec![0; padding];
        positions.extend(0..row.len() as u32);
        padded.ids.push(ids);
        padded.positions.push(positions);
        padded.padding.push(padding);
    }
    padded
    // </solution>
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
    // <solution>
    let mut tokens = Vec::new();
    for row in rows.iter() {
        tokens.push(&row.sequence.tokens[..]);
    }
    let Padded { ids, positions, padding } = left_pad(&tokens);
    for (row, padding) in rows.iter_mut().zip(&padding) {
        row.padding = *padding;
    }
    let mut mask = None; // the causal rule alone
    if padding.iter().any(|n| *n > 0) {
        mask = Some(ragged_mask(&padding, ids[0].len(), 0, model.device())?);
    }
    Ok(Step::batch(model, &ids, &positions, mask)?.with_logits(Logits::Last(1)))
    // </solution>
}

/// The step that feeds each row's newest token, `(B, 1)`, after the `past` columns that the cache
/// holds.
///
/// # Errors
/// If a row has more padding than columns, if the columns after its padding are not all of its
/// tokens but the newest, or if a position is past the context.
pub fn decode_step(model: &dyn Model, rows: &[Row], past: usize) -> Result<Step> {
    // task 12.4: one id for each row, at the row's own position; padding stays hidden
    // <solution>
    let padding: Vec<usize> = rows.iter().map(|row| row.padding).collect();
    let mut mask = None;
    if padding.iter().any(|n| *n > 0) {
        mask = Some(ragged_mask(&padding, 1, past, model.device())?);
    }
    let mut ids = Vec::new();
    let mut positions = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        let known = past - row.padding; // this row's own tokens in the cache
        let tokens = &row.sequence.tokens;
        if tokens.len() != known + 1 {
            bail!(
                "row {i} has {} tokens, and the cache {known}: it needs all but one",
                tokens.len()
            )
        }
        ids.push(vec![tokens[known]]);
        positions.push(vec![known as u32]);
    }
    Ok(Step::batch(model, &ids, &positions, mask)?.with_logits(Logits::Last(1)))
    // </solution>
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
    // <solution>
    let before = rows.len();
    let mut keep = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        if row.sequence.finish.is_none() {
            keep.push(i as u32);
        }
    }
    rows.retain(|row| row.sequence.finish.is_none());
    if rows.is_empty() || rows.len() == before {
        return Ok(());
    }
    cache.select(&keep)?;
    if !cache.is_empty() {
        let front = rows.iter().map(|row| row.padding).min().unwrap_or_default();
        cache.trim(front)?;
        for row in rows {
            row.padding -= front;
        }
    }
    Ok(())
    // </solution>
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
    // <solution>
    let step = if cache.is_empty() {
        prefill_step(model, rows)?
    } else {
        decode_step(model, rows, cache.len())?
    };
    let logits: Vec<Vec<f32>> = model.forward(&step, cache)?.squeeze(1)?.to_vec2()?; // (B, V)
    let mut tokens = Vec::new();
    for (row, logits) in rows.iter_mut().zip(&logits) {
        tokens.push(row.sequence.advance(logits));
    }
    retire(rows, cache)?;
    Ok(tokens)
    // </solution>
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
        // <solution>
        self.layers.replace(|tensor| tensor.index_select(&Tensor::new(rows, tensor.device())?, 0))
        // </solution>
    }

    fn trim(&mut self, front: usize) -> Result<()> {
        let Some(len) = self.layers.len.checked_sub(front) else {
            bail!("a cache of {} positions has no {front} to trim", self.layers.len)
        };
        if front == 0 {
            return Ok(());
        }
        // task 12.8: drop the first positions; a cache with a capacity keeps it
        // <solution>
        let capacity = self.capacity;
        self.layers.replace(|tensor| allocate(&tensor.narrow(2, front, len)?, capacity))?;
        self.layers.len = len;
        Ok(())
        // </solution>
    }

    fn join(&mut self, other: &dyn Batch) -> Result<()> {
        // task 12.12 (further): stack_rows of what counts, in every layer
        // <solution>
        let mut stored = Vec::new();
        for layer in 0..self.layers.stored.len() {
            let View { mut k, mut v, .. } = other.layer(layer)?;
            if let Some(old) = self.layers.held(layer)? {
                k = stack_rows(&old.k, &k)?;
                v = stack_rows(&old.v, &v)?;
            }
            let (k, v) = (allocate(&k, self.capacity)?, allocate(&v, self.capacity)?);
            stored.push(Some(View::new(k, v)));
        }
        self.layers.stored = stored;
        self.layers.len = self.layers.len.max(other.len());
        Ok(())
        // </solution>
    }
}

/// Pads on the right: positions need no shift, and the causal mask alone hides what comes after a
/// row's end.
pub fn right_pad(rows: &[&[u32]]) -> Padded {
    // task 12.9 (further): the row, then padding; positions simply count
    // <solution>
    let width = rows.iter().map(|row| row.len()).max().unwrap_or_default();
    let mut padded = Padded::default();
    for row in rows {
        let mut ids = row.to_vec();
        ids.resize(width, 0);
        padded.ids.push(ids);
        padded.positions.push((0..width as u32).collect());
        padded.padding.push(width - row.len());
    }
    padded
    // </solution>
}

/// The step for what comes after each of `rows`, padded on the right: no mask, and logits where
/// each row ends. For scoring it is all that is needed; decoding would write the next token behind
/// the padding.
///
/// # Errors
/// If a row is empty, or does not fit the model.
pub fn right_step(model: &dyn Model, rows: &[&[u32]]) -> Result<Step> {
    // task 12.10 (further): right_pad; Logits::At, where each row's last real token is
    // <solution>
    let mut ends = Vec::new();
    for row in rows {
        if row.is_empty() {
            bail!("a row of the batch is empty; give it at least one token")
        }
        ends.push(row.len() as u32 - 1);
    }
    let Padded { ids, positions, .. } = right_pad(rows);
    Ok(Step::batch(model, &ids, &positions, None)?.with_logits(Logits::At(ends)))
    // </solution>
}

/// Puts the rows of `b` below those of `a`, each `(B, Hkv, len, D)`; the shorter of the two is
/// padded with zeros on the left, so that the newest positions of all rows are the last.
///
/// # Errors
/// If heads or head dimensions differ.
pub fn stack_rows(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    // task 12.11 (further): make both equally long, then put one below the other
    // <solution>
    let len = a.dim(2)?.max(b.dim(2)?);
    let pad = |x: &Tensor| x.pad_with_zeros(2, len - x.dim(2)?, 0);
    Tensor::cat(&[pad(a)?, pad(b)?], 0)
    // </solution>
}
