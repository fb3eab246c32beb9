//! Day 12: batching. Prompts of different lengths in one pass, with a cache: padding, positions, masks, and a row's end.

use candecode::day07_greedy::{window, Sequence};
use candecode::kit::{check_prompt, Cache, GenerationOptions, Logits, Model, Step, Token};
use candecode::kit::{TokenIter, Tokenizer};
use candle_core::{bail, Device, Result, Tensor};

/// The mask of a batch whose rows are padded on the left: `(B, 1, T, S + T)`, u8, 1 = may attend.
///
/// Row `b` begins with `padding[b]` positions of padding. Of the others, new token `i`, at index
/// `past + i`, may attend to those up to itself. A padding token attends only to itself: with no
/// position at all its softmax would be NaN, and 0 × NaN reaches the row's real tokens a layer later.
///
/// # Errors
/// If a row is all padding, `past + new` positions of it.
pub fn ragged_mask(padding: &[usize], new: usize, past: usize, device: &Device) -> Result<Tensor> {
    // task 12.9: causal, blind to padding, and no row that sees nothing
    // <solution>
    let all = past + new;
    if let Some(row) = padding.iter().position(|padding| *padding >= all) {
        bail!("row {row} is all padding: {} of {all} positions", padding[row])
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Padded {
    /// Token ids, all rows of one length; the padding is id 0, which nothing attends to.
    pub ids: Vec<Vec<u32>>,
    /// Positions: a row's first real token is at 0, whatever stands before it. Padding is at any position of the model.
    pub positions: Vec<Vec<u32>>,
    /// Columns of padding in each row.
    pub padding: Vec<usize>,
}

/// Pads on the left: every row ends in the last column, where the next token's logits are.
pub fn left_pad(rows: &[&[u32]]) -> Padded {
    // task 12.1: padding, then the row; positions start at its first real token
    // <solution>
    let width = rows.iter().map(|row| row.len()).max().unwrap_or_default();
    let padding: Vec<usize> = rows.iter().map(|row| width - row.len()).collect();
    let ids = rows.iter().zip(&padding).map(|(row, n)| [&vec![0; *n], *row].concat());
    let positions = rows.iter().zip(&padding).map(|(row, n)| {
        let count: Vec<u32> = (0..row.len() as u32).collect();
        [vec![0; *n], count].concat()
    });
    Padded { ids: ids.collect(), positions: positions.collect(), padding }
    // </solution>
}

/// One row of a running batch.
pub struct Row<'a> {
    /// The text.
    pub sequence: Sequence<'a>,
    /// The first token of its window.
    pub first: usize,
    /// Columns of the cache that are padding in this row.
    pub padding: usize,
}

impl<'a> Row<'a> {
    /// A row that no cache holds yet.
    pub fn new(sequence: Sequence<'a>) -> Self {
        Self { sequence, first: 0, padding: 0 }
    }

    /// The tokens of its window.
    pub fn window(&self) -> &[u32] {
        &self.sequence.tokens[self.first..]
    }
}

/// The step that puts the rows' windows into an empty cache; the rows' `padding` is set. Logits of the last column.
///
/// # Errors
/// If a row is empty, or does not fit the model.
pub fn prefill_step(model: &dyn Model, rows: &mut [Row]) -> Result<Step> {
    // task 12.2: left_pad the windows; a mask only if there is padding to hide
    // <solution>
    let windows: Vec<&[u32]> = rows.iter().map(Row::window).collect();
    let Padded { ids, positions, padding } = left_pad(&windows);
    let width = ids.first().map(Vec::len).unwrap_or_default();
    let ragged = padding.iter().any(|n| *n > 0);
    let mask = ragged.then(|| ragged_mask(&padding, width, 0, model.device())).transpose()?;
    rows.iter_mut().zip(padding).for_each(|(row, padding)| row.padding = padding);
    Ok(Step::batch(model, &ids, &positions, mask)?.with_logits(Logits::Last(1)))
    // </solution>
}

/// The step that feeds each row's newest token, after `held` columns of cache.
///
/// # Errors
/// If a row has more padding than columns, or a position is past the context.
pub fn decode_step(model: &dyn Model, rows: &[Row], held: usize) -> Result<Step> {
    // task 12.3: one id a row, at the row's own position; padding stays hidden
    // <solution>
    let padding: Vec<usize> = rows.iter().map(|row| row.padding).collect();
    let ragged = padding.iter().any(|n| *n > 0);
    let mask = ragged.then(|| ragged_mask(&padding, 1, held, model.device())).transpose()?;
    let new = rows.iter().map(|row| row.window()[held - row.padding..].to_vec());
    let positions = rows.iter().map(|row| vec![(held - row.padding) as u32]);
    let (ids, positions): (Vec<_>, Vec<_>) = new.zip(positions).unzip();
    Ok(Step::batch(model, &ids, &positions, mask)?.with_logits(Logits::Last(1)))
    // </solution>
}

/// Moves every row's window. If one moved, the cache no longer fits its row: it is emptied, to be filled anew.
///
/// # Errors
/// If the stride is out of range.
pub fn move_windows(
    model: &dyn Model,
    rows: &mut [Row],
    stride: usize,
    cache: &mut dyn Cache,
) -> Result<()> {
    // task 12.4: day 7's window for each row
    // <solution>
    let context = model.config().max_position_embeddings;
    for row in rows {
        let first = window(row.sequence.tokens.len(), context, stride)?;
        if first != row.first {
            row.first = first;
            cache.truncate(0)?;
        }
    }
    Ok(())
    // </solution>
}

/// Retires the rows whose token ended them: they leave `rows` and the cache, and so do the columns that are padding in every
/// row that is left. `tokens` has one for each row, in order.
///
/// If no row is left, nothing is selected: a cache of no rows cannot be, and what it goes on holding is nobody's. An empty
/// cache (`NoCache`) has nothing to trim, and its rows keep their padding: the next step pads them anew.
///
/// # Errors
/// If the cache does not hold these rows.
pub fn retire(rows: &mut Vec<Row>, tokens: &[Token], cache: &mut dyn Cache) -> Result<()> {
    // task 12.5: keep the rows that go on, select theirs of the cache, trim what is padding in all
    // <solution>
    let goes_on: Vec<bool> = tokens.iter().map(|token| token.finish.is_none()).collect();
    let keep: Vec<u32> = (0..).zip(&goes_on).filter(|(_, on)| **on).map(|(i, _)| i).collect();
    let mut on = goes_on.into_iter();
    rows.retain(|_| on.next() == Some(true));
    if rows.is_empty() || keep.len() == tokens.len() {
        return Ok(());
    }
    cache.select(&keep)?;
    if !cache.is_empty() {
        let front = rows.iter().map(|row| row.padding).min().unwrap_or_default();
        cache.trim(front)?;
        rows.iter_mut().for_each(|row| row.padding -= front);
    }
    Ok(())
    // </solution>
}

/// One step of a running batch: every row gets one more token, and those that end with it retire. One token for each row
/// that ran, in order.
///
/// # Errors
/// If the model or a row fails.
pub fn batch_step(
    model: &dyn Model,
    rows: &mut Vec<Row>,
    options: &mut GenerationOptions,
    cache: &mut dyn Cache,
) -> Result<Vec<Token>> {
    // task 12.6: windows; prefill or decode; choose and push row by row; retire
    // <solution>
    move_windows(model, rows, options.stride, cache)?;
    let step = match cache.len() {
        0 => prefill_step(model, rows)?,
        held => decode_step(model, rows, held)?,
    };
    let logits: Vec<Vec<f32>> = model.forward(&step, cache)?.squeeze(1)?.to_vec2()?; // (B, V)
    let mut tokens = Vec::new();
    for (row, logits) in rows.iter_mut().zip(&logits) {
        let (id, logprob) = row.sequence.choose(logits, options)?;
        tokens.push(row.sequence.push(id, logprob, options)?);
    }
    retire(rows, &tokens, cache)?;
    Ok(tokens)
    // </solution>
}

/// Generates from several prompts in one batch. Every row is what it would be alone.
///
/// # Errors
/// If there is no prompt, one is empty or longer than the context, or the cache slides (its columns are not the same
/// positions in every row); later, each token may be an error.
pub fn generate_batch<'a>(
    model: &'a dyn Model,
    tokenizer: &'a Tokenizer,
    prompts: &[Vec<u32>],
    mut options: GenerationOptions<'a>,
    mut cache: impl Cache + 'a,
) -> Result<TokenIter<'a>> {
    if prompts.is_empty() {
        bail!("a batch needs at least one prompt")
    }
    if cache.slid().is_some() {
        bail!("a sliding cache cannot hold rows of different lengths; use a dynamic or static one")
    }
    prompts.iter().try_for_each(|prompt| check_prompt(model, prompt))?;
    let row = |(i, prompt): (usize, &Vec<u32>)| {
        Row::new(Sequence::new(i, prompt, tokenizer, &options.stop_strings))
    };
    let mut rows: Vec<Row> = prompts.iter().enumerate().map(row).collect();
    let running = if options.max_new_tokens > 0 { rows.len() } else { 0 };
    Ok(TokenIter::new(running, move || batch_step(model, &mut rows, &mut options, &mut cache)))
}

/// Pads on the right: positions need no shift, and the causal mask alone hides what comes after a row's end.
pub fn right_pad(rows: &[&[u32]]) -> Padded {
    // task 12.7 (further): the row, then padding; positions simply count
    // <solution>
    let width = rows.iter().map(|row| row.len()).max().unwrap_or_default();
    let padding: Vec<usize> = rows.iter().map(|row| width - row.len()).collect();
    let ids = rows.iter().zip(&padding).map(|(row, n)| [*row, &vec![0; *n]].concat());
    let count: Vec<u32> = (0..width as u32).collect();
    Padded { ids: ids.collect(), positions: vec![count; rows.len()], padding }
    // </solution>
}

/// The step for what comes after each of `rows`, padded on the right: no mask, logits where each row ends. For scoring, it is
/// all that is needed; decoding would write the next token behind the padding.
///
/// # Errors
/// If a row is empty, or does not fit the model.
pub fn right_step(model: &dyn Model, rows: &[&[u32]]) -> Result<Step> {
    // task 12.8 (further): right_pad; Logits::At, where each row's last real token is
    // <solution>
    let Padded { ids, positions, .. } = right_pad(rows);
    if rows.iter().any(|row| row.is_empty()) {
        bail!("a row of the batch is empty")
    }
    let ends = rows.iter().map(|row| row.len() as u32 - 1).collect();
    Ok(Step::batch(model, &ids, &positions, None)?.with_logits(Logits::At(ends)))
    // </solution>
}
