//! Texts being generated: what the loops of days 7, 10 and 12 return.

use crate::Token;
use candle_core::Result;
use std::collections::VecDeque;

/// An iterator of tokens around one step of a loop. A step may give several: of several rows, or of
/// one row at once.
///
/// It ends when every row has had its last token, the one with a `finish`, or after an error.
pub struct TokenIter<'a> {
    step: Box<dyn FnMut() -> Result<Vec<Token>> + 'a>,
    running: usize, // rows that go on
    ready: VecDeque<Token>,
}

impl<'a> TokenIter<'a> {
    /// The tokens of `rows` texts that `step` makes; it is called until all of them have ended.
    pub fn new(rows: usize, step: impl FnMut() -> Result<Vec<Token>> + 'a) -> Self {
        Self { step: Box::new(step), running: rows, ready: VecDeque::new() }
    }
}

impl Iterator for TokenIter<'_> {
    type Item = Result<Token>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty() && self.running > 0 {
            match (self.step)() {
                // A step without a token is no progress.
                Ok(tokens) if tokens.is_empty() => self.running = 0,
                Ok(tokens) => self.ready.extend(tokens),
                Err(error) => {
                    self.running = 0;
                    return Some(Err(error));
                }
            }
        }
        let token = self.ready.pop_front()?;
        if token.finish.is_some() {
            self.running -= 1;
        }
        Some(Ok(token))
    }
}
