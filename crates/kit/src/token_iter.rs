//! Streams of generated tokens: the return type of the loops of days 7, 10 and 12.

use crate::Token;
use candle_core::Result;
use std::collections::VecDeque;

/// An iterator that runs a generation loop one step at a time. A step can return several tokens:
/// from several rows, or from one row at once.
///
/// It ends after every row's last token, the one with a `finish`, or after an error.
pub struct TokenIter<'a> {
    step: Box<dyn FnMut() -> Result<Vec<Token>> + 'a>,
    running: usize, // unfinished rows
    ready: VecDeque<Token>,
}

impl<'a> TokenIter<'a> {
    /// Wraps `step`, which is called until all `rows` sequences have ended.
    pub fn new(rows: usize, step: impl FnMut() -> Result<Vec<Token>> + 'a) -> Self {
        Self { step: Box::new(step), running: rows, ready: VecDeque::new() }
    }
}

impl Iterator for TokenIter<'_> {
    type Item = Result<Token>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty() && self.running > 0 {
            match (self.step)() {
                // A step without tokens makes no progress, so stop.
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
