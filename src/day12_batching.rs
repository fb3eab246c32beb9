#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 12: batching. Prompts of different lengths in one pass, with a cache: padding, positions, masks, and a row's end.

use candecode::day04_attention_block::ragged_mask;
use candecode::day07_greedy::{window, Sequence};
use candecode::kit::{
    check_prompt, Cache, GenerationOptions, Logits, Model, Step, Token, Tokenizer,
};
use candle_core::{bail, Result};
use std::collections::VecDeque;

/// Rows made equally long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Padded {
    /// Token ids, all rows of one length; the padding is id 0, which nothing attends to.
    pub ids: Vec<Vec<u32>>,
    /// Positions: a row's first real token is at 0, whatever stands before it; so is the padding.
    pub positions: Vec<Vec<u32>>,
    /// Columns of padding in each row.
    pub padding: Vec<usize>,
}

/// Pads on the left: every row ends in the last column, where the next token's logits are.
pub fn left_pad(rows: &[&[u32]]) -> Padded {
    // task 12.1: padding, then the row; positions start at its first real token
    todo!("day 12, task 1: padding, then the row; positions start at its first real token")
}

/// Pads on the right: positions need no shift and the causal mask needs no change, which is why GPT-2 wanted it; but a row
/// ends in a column of its own, so the logits are at `len - 1` of each, and what is generated does not follow its row.
pub fn right_pad(rows: &[&[u32]]) -> Padded {
    // task 12.2 (further): the row, then padding; positions simply count
    todo!("day 12, task 2: the row, then padding; positions simply count")
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
    fn window(&self) -> &[u32] {
        &self.sequence.tokens[self.first..]
    }
}

/// The step that puts the rows' windows into an empty cache: left padding, shifted positions, a ragged mask. The rows'
/// `padding` is set.
///
/// # Errors
/// If a row is empty.
pub fn prefill_step(model: &dyn Model, rows: &mut [Row]) -> Result<Step> {
    // task 12.3: left_pad the windows, ragged_mask, logits of the last column
    todo!("day 12, task 3: left_pad the windows, ragged_mask, logits of the last column")
}

/// The step that feeds each row's newest token, after `held` columns of cache.
///
/// # Errors
/// If a position is past the context.
pub fn decode_step(model: &dyn Model, rows: &[Row], held: usize) -> Result<Step> {
    // task 12.4: one id a row, at the row's own position; the mask still hides its padding
    todo!(
        "day 12, task 4: one id a row, at the row's own position; the mask still hides its padding"
    )
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
    // task 12.5: day 7's window for each row
    todo!("day 12, task 5: day 7's window for each row")
}

/// One step of a running batch: feeds every row, chooses and takes in its next token, and retires the rows that ended
/// (their cache rows go, and columns that are padding in all others). One token for each row that ran.
///
/// # Errors
/// If the model or a row fails.
pub fn batch_step(
    model: &dyn Model,
    rows: &mut Vec<Row>,
    options: &mut GenerationOptions,
    cache: &mut dyn Cache,
) -> Result<Vec<Token>> {
    // task 12.6: windows, prefill or decode, choose and push row by row, then select and trim
    todo!("day 12, task 6: windows, prefill or decode, choose and push row by row, then select and trim")
}

/// Texts being generated together: an iterator of their tokens, each with its row.
pub struct BatchGeneration<'a> {
    model: &'a dyn Model,
    options: GenerationOptions<'a>,
    rows: Vec<Row<'a>>,
    cache: Box<dyn Cache + 'a>,
    ready: VecDeque<Token>,
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
    options: GenerationOptions<'a>,
    cache: impl Cache + 'a,
) -> Result<BatchGeneration<'a>> {
    if prompts.is_empty() {
        bail!("a batch needs at least one prompt")
    }
    if cache.slid().is_some() {
        bail!(
            "a sliding cache cannot hold a batch of different lengths; use a dynamic or static one"
        )
    }
    prompts.iter().try_for_each(|prompt| check_prompt(model, prompt))?;
    let row = |(i, prompt): (usize, &Vec<u32>)| {
        Row::new(Sequence::new(i, prompt, tokenizer, &options.stop_strings))
    };
    let rows = prompts.iter().enumerate().map(row).collect();
    Ok(BatchGeneration { model, options, rows, cache: Box::new(cache), ready: VecDeque::new() })
}

impl Iterator for BatchGeneration<'_> {
    type Item = Result<Token>;

    /// The next token of some row; every row's last one has a `finish`.
    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty() && !self.rows.is_empty() {
            match batch_step(self.model, &mut self.rows, &mut self.options, &mut *self.cache) {
                Ok(tokens) => self.ready.extend(tokens),
                Err(error) => {
                    self.rows.clear();
                    return Some(Err(error));
                }
            }
        }
        self.ready.pop_front().map(Ok)
    }
}
