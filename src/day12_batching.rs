#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
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
    todo!("day 12, task 9: causal, blind to padding, and no row that sees nothing")
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
    todo!("day 12, task 1: padding, then the row; positions start at its first real token")
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
    todo!("day 12, task 2: left_pad the windows; a mask only if there is padding to hide")
}

/// The step that feeds each row's newest token, after `held` columns of cache.
///
/// # Errors
/// If a row has more padding than columns, or a position is past the context.
pub fn decode_step(model: &dyn Model, rows: &[Row], held: usize) -> Result<Step> {
    // task 12.3: one id a row, at the row's own position; padding stays hidden
    todo!("day 12, task 3: one id a row, at the row's own position; padding stays hidden")
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
    todo!("day 12, task 4: day 7's window for each row")
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
    todo!("day 12, task 5: keep the rows that go on, select theirs of the cache, trim what is padding in all")
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
    todo!("day 12, task 6: windows; prefill or decode; choose and push row by row; retire")
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
    if cache.num_evicted().is_some() {
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
    todo!("day 12, task 7: the row, then padding; positions simply count")
}

/// The step for what comes after each of `rows`, padded on the right: no mask, logits where each row ends. For scoring, it is
/// all that is needed; decoding would write the next token behind the padding.
///
/// # Errors
/// If a row is empty, or does not fit the model.
pub fn right_step(model: &dyn Model, rows: &[&[u32]]) -> Result<Step> {
    // task 12.8 (further): right_pad; Logits::At, where each row's last real token is
    todo!("day 12, task 8: right_pad; Logits::At, where each row's last real token is")
}
