//! Day 12: batching. Sequences of different lengths in one pass, with a cache: padding, positions,
//! masks, and rows that end.

use candecode::day07_greedy::Sequence;
use candecode::day10_kv_cache::KvLayers;
use candecode::kit::View;
use candecode::kit::{Batch, Cache, Logits, Model, Request, Step, Token, TokenIter, Tokenizer};
use candle_core::{bail, Device, Result, Tensor};

/// Rows padded to one length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Padded {
    /// Token ids of each row. All lists have the same length. The padding's id is 0.
    pub ids: Vec<Vec<u32>>,
    /// Positions of each row. The first real token of a row is at position 0, in any
    /// column. Padding is at position 0 here, but any position below the width will do.
    pub positions: Vec<Vec<u32>>,
    /// Number of padding tokens in each row.
    pub padding: Vec<usize>,
}

/// Pads rows on the left to the length of the longest one, so that every row ends with
/// its last real token.
pub fn left_pad(rows: &[&[u32]]) -> Padded {
    // task 12.1: Pad the ids; count positions from the first real token
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

/// Returns the mask of a batch with rows padded on the left, for T = `new` tokens per
/// row after S = `past` cached columns: `(B, 1, T, S + T)`, u8, 1 = may attend.
///
/// The first `padding[b]` columns of row `b` are padding, and new token `i` is in
/// column `past + i`. A real token attends to the real tokens up to and including
/// itself. A padding token attends only to itself: with nothing to attend to, its
/// softmax would be NaN, and one layer later 0 × NaN would reach the real tokens of its
/// row.
///
/// # Errors
/// If a row is all padding, that is, if it has `past + new` columns of padding or more.
pub fn ragged_mask(padding: &[usize], new: usize, past: usize, device: &Device) -> Result<Tensor> {
    // task 12.2: Hide the future and the padding, but no token from itself
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

/// One row of a running batch.
pub struct Row<'a> {
    /// The sequence.
    pub sequence: Sequence<'a>,
    /// Columns of the cache that are padding in this row. They come before its own
    /// tokens.
    pub padding: usize,
}

impl<'a> Row<'a> {
    /// Creates a row that isn't in the cache yet.
    pub fn new(sequence: Sequence<'a>) -> Self {
        Self { sequence, padding: 0 }
    }
}

/// Returns the first step of a batch, for an empty cache: all tokens of every row,
/// `(B, T)`, padded on the left, with logits for the last column. Sets each row's
/// `padding`, which later steps need. Rows of one length get no mask, because the
/// causal rule is all they need.
///
/// # Errors
/// If a row is empty or doesn't fit the model.
pub fn prefill_step(model: &dyn Model, rows: &mut [Row]) -> Result<Step> {
    let mut tokens = Vec::new();
    for row in rows.iter() {
        tokens.push(&row.sequence.tokens[..]);
    }
    let Padded { ids, positions, padding } = left_pad(&tokens);
    for (row, padding) in rows.iter_mut().zip(&padding) {
        // This is needed even if it is 0, because the row may have a number from an
        // earlier prefill.
        row.padding = *padding;
    }
    let mut mask = None;
    if padding.iter().any(|n| *n > 0) {
        mask = Some(ragged_mask(&padding, ids[0].len(), 0, model.device())?);
    }
    Ok(Step::batch(model, &ids, &positions, mask)?.with_logits(Logits::Last(1)))
}

/// Returns the step that feeds the newest token of each row, `(B, 1)`, after the `past`
/// columns of the cache, with logits for the last column.
///
/// # Errors
/// If a row has more padding than the cache has columns, or if the rest of its columns
/// aren't one fewer than its tokens (the newest isn't cached yet). Also if a position
/// is past the context.
pub fn decode_step(model: &dyn Model, rows: &[Row], past: usize) -> Result<Step> {
    // task 12.3: Feed each row's newest token at its own position; keep the padding hidden
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
                "row {i} has {} tokens and the cache {known} of them; it must have all but one",
                tokens.len()
            )
        }
        ids.push(vec![tokens[known]]);
        positions.push(vec![known as u32]);
    }
    Ok(Step::batch(model, &ids, &positions, mask)?.with_logits(Logits::Last(1)))
    // </solution>
}

/// Retires finished rows: removes them from `rows` and from the cache, and trims the
/// columns that are padding in every remaining row.
///
/// If no row has finished, the cache isn't touched, because `select` would copy all of
/// it. If no row is left, it isn't touched either: it keeps the old rows, so it can't
/// be used for new ones. A `NoCache` is always empty, so there is nothing to trim, and
/// the rows keep their padding: the next step is a prefill again, and sets it.
///
/// # Errors
/// If the cache doesn't hold these rows.
pub fn retire(rows: &mut Vec<Row>, cache: &mut dyn Batch) -> Result<()> {
    // task 12.4: Keep the unfinished rows in batch and cache; trim columns that are all padding
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

/// Runs one step: every row gets one more token, and rows that end with it retire.
/// Returns the new tokens, one for each row that ran, in order. If a row fails, it ends
/// with a token that carries the error, and the other rows continue.
///
/// # Errors
/// If the model fails.
pub fn batch_step(
    model: &dyn Model,
    rows: &mut Vec<Row>,
    cache: &mut dyn Batch,
) -> Result<Vec<Token>> {
    // task 12.5: Prefill or decode, advance each row by its own logits, retire
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

/// Generates from several requests in one batch; request `i` is row `i`. Every row's
/// text is the same as if the request ran alone.
///
/// # Errors
/// If `requests` is empty, or a prompt is empty or longer than the context. The
/// iterator's items can also be errors.
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

/// Keys and values of a batch, padded to a rectangle. Rows can join and leave. The
/// cache grows by concatenation, or is written in place if it has a capacity.
#[derive(Debug)]
pub struct BatchCache {
    layers: KvLayers,
    capacity: Option<usize>,
}

impl BatchCache {
    /// Creates an empty cache for a model of `layers` layers, with room for `capacity`
    /// positions in each row. `None` means no limit.
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

/// Copies keys or values, `(B, Hkv, T, D)`, into new memory. With a capacity, the
/// result is `(B, Hkv, capacity, D)`, with zeros after the T positions.
///
/// # Errors
/// If there are more than `capacity` positions.
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
        // task 12.6: Make new row i a copy of old row rows[i], in every layer
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
        // task 12.7: Drop the first positions; a cache with a capacity keeps its capacity
        // <solution>
        let capacity = self.capacity;
        self.layers.replace(|tensor| allocate(&tensor.narrow(2, front, len)?, capacity))?;
        self.layers.len = len;
        Ok(())
        // </solution>
    }

    fn join(&mut self, other: &dyn Batch) -> Result<()> {
        // task 12.10 (optional): Stack the rows of both caches in every layer, in new memory
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

/// Returns one step that computes what comes after each of `rows`, without padding: all
/// their tokens are in one row, end to end, `(1, T)`, where T is the sum of the
/// lengths, and every row is computed as if it were alone. The step asks for the logits
/// of each row's last token, in order: `(1, rows, V)`.
///
/// # Errors
/// If there are no rows, a row is empty, or a row doesn't fit the model.
pub fn packed_step(model: &dyn Model, rows: &[&[u32]]) -> Result<Step> {
    // task 12.8 (challenge): Put all rows in one line, each as if it were alone
    // <solution>
    let (mut ids, mut positions) = (Vec::new(), Vec::new());
    // For each token, the column in which its row begins; for each row, the column where it ends.
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for row in rows {
        if row.is_empty() {
            bail!("a row of the line is empty; give it at least one token")
        }
        starts.extend(vec![ids.len(); row.len()]);
        ids.extend_from_slice(row);
        positions.extend(0..row.len() as u32);
        ends.push(ids.len() as u32 - 1);
    }
    let mut mask = Vec::with_capacity(ids.len() * ids.len());
    for (i, start) in starts.iter().enumerate() {
        for j in 0..ids.len() {
            mask.push(u8::from(*start <= j && j <= i));
        }
    }
    let mask = Tensor::from_vec(mask, (1, 1, ids.len(), ids.len()), model.device())?;
    Ok(Step::batch(model, &[ids], &[positions], Some(mask))?.with_logits(Logits::Columns(ends)))
    // </solution>
}

/// Stacks the rows of `b` below those of `a`, each `(B, Hkv, len, D)`, as
/// `(Ba + Bb, Hkv, longest, D)`. The shorter one is padded with zeros on the left,
/// so that all rows end in the same column.
///
/// # Errors
/// If heads or head dimensions differ.
pub fn stack_rows(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    // task 12.9 (optional): Pad the shorter one on the left, then stack the rows
    // <solution>
    let len = a.dim(2)?.max(b.dim(2)?);
    let pad = |x: &Tensor| x.pad_with_zeros(2, len - x.dim(2)?, 0);
    Tensor::cat(&[pad(a)?, pad(b)?], 0)
    // </solution>
}
