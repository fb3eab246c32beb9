#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 6: prefill and decode. A model scores the next token; a loop turns those scores into text.

use candecode::day00_warm_up::last_position;
use candecode::kit::{Model, NoCache, Step, Tokenizer};
use candle_core::{bail, IndexOp, Result, Tensor};

/// Returns the logits that predict the next token of each sequence, `(B, T, V)` to
/// `(B, V)`.
///
/// # Errors
/// If there are no positions.
pub fn last_logits(logits: &Tensor) -> Result<Tensor> {
    // task 6.1: Return the logits of each row's last position
    todo!("day 6, task 1: Return the logits of each row's last position")
}

/// Runs the model once and returns the logits of the token that follows `ids`, `(V)`,
/// copied off the device.
///
/// # Errors
/// If `ids` is empty, or longer than the context.
pub fn next_logits(model: &dyn Model, ids: &[u32]) -> Result<Vec<f32>> {
    // task 6.2: Run the model once over all ids and return the last position's logits
    todo!("day 6, task 2: Run the model once over all ids and return the last position's logits")
}

/// The result of a generation loop.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// The generated tokens, including EOS.
    pub new_ids: Vec<u32>,
    /// Positions computed by the model, summed over all passes.
    pub positions_computed: usize,
}

/// Prefill, then decode: one pass over the prompt yields the first new token, and one
/// pass over the growing sequence yields each token after it (HF `generate` with
/// `use_cache=False`).
///
/// `pick` chooses a token from the logits. `on_token` is called with every token as
/// soon as it is chosen. The loop ends after a generated token from `eos`, which is
/// kept, or after `max_new_tokens`. With `max_new_tokens` = 0 the model isn't run and
/// the trace is empty.
///
/// # Errors
/// If the prompt is empty and a pass is needed, if the sequence outgrows the context,
/// or if `pick` or `on_token` fails.
pub fn simple_generate(
    model: &dyn Model,
    prompt: &[u32],
    max_new_tokens: usize,
    eos: &[u32],
    pick: impl Fn(&[f32]) -> Result<u32>,
    mut on_token: impl FnMut(u32) -> Result<()>,
) -> Result<Trace> {
    // task 6.3: Write the generation loop and count the positions it computes
    todo!("day 6, task 3: Write the generation loop and count the positions it computes")
}

/// Decodes tokens as they arrive, and never returns half a character (vLLM
/// `detokenize_incrementally`).
///
/// A token stands for bytes, not characters: `é` may be two tokens, and either half
/// alone decodes to `U+FFFD`. A token's text can also depend on its neighbors:
/// SentencePiece drops the space at the start of a text, and with byte fallback, one
/// stray byte turns its whole run of byte tokens into `U+FFFD`.
pub struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    ids: Vec<u32>,
    prefix: usize, // decoding starts here, so the tokenizer sees some text before the new ids
    read: usize,   // ids before this index have been returned as text; the rest are waiting
    seen: String,  // text still waiting when the prompt ended: half a character, or empty
}

impl<'a> TextStream<'a> {
    /// Creates a stream for a text without a prompt.
    pub fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, ids: Vec::new(), prefix: 0, read: 0, seen: String::new() }
    }

    /// Appends a token and returns the new text that can't change anymore, which may be
    /// empty. Text that was returned earlier never changes.
    ///
    /// Half a character is held back. A stray byte doesn't hide the text after it: `E2`
    /// followed by both bytes of `é` is `U+FFFD` and `é`. With a byte-level tokenizer, all
    /// pieces and the text of `finish`, joined, equal `decode` of all ids. With byte
    /// fallback the pieces may keep a character that `decode` of all ids turns into
    /// `U+FFFD`, because of a stray byte next to it.
    ///
    /// # Errors
    /// If the tokenizer fails.
    pub fn push(&mut self, id: u32) -> Result<String> {
        // task 6.4: Append the id and return the new text that can't change anymore
        todo!("day 6, task 4: Append the id and return the new text that can't change anymore")
    }

    /// Ends the stream: returns the text that `push` has held back. There is no `push` after
    /// this.
    ///
    /// # Errors
    /// If the tokenizer fails.
    pub fn finish(&mut self) -> Result<String> {
        // task 6.5: Return the text that was held back
        todo!("day 6, task 5: Return the text that was held back")
    }

    /// Creates a stream that continues a prompt. It never returns text from the prompt.
    ///
    /// It knows the end of the prompt: decoded alone, the first new token would lose its
    /// space in a SentencePiece tokenizer. If the prompt ends with half a character, the
    /// first piece is the whole character. If the other half never comes, the prompt's
    /// half isn't shown.
    pub fn after(tokenizer: &'a Tokenizer, prompt: &[u32]) -> Self {
        // task 6.6: Start from the prompt's last ids, whose text is already on screen
        todo!("day 6, task 6: Start from the prompt's last ids, whose text is already on screen")
    }

    /// Returns the text of the waiting ids, and the index of the id where it begins: `read`,
    /// or a later one if stray bytes were in front of a whole character. Changes nothing.
    fn unread(&self) -> Result<(String, usize)> {
        let text = self.decode(&self.ids[self.read..])?;
        if !text.ends_with('\u{fffd}') {
            return Ok((text, self.read));
        }
        // In a run with a stray byte, a byte-fallback decoder shows no characters at all. But the
        // newest ids, up to four bytes, may be a whole character that follows the stray bytes.
        let waiting = &self.ids[self.read..];
        for cut in waiting.len().saturating_sub(4)..waiting.len() {
            let whole = self.decode(&waiting[cut..])?;
            if !whole.is_empty() && !whole.contains('\u{fffd}') {
                let broken = self.decode(&waiting[..cut])?;
                return Ok((broken + &whole, self.read + cut));
            }
        }
        Ok((text, self.read))
    }

    /// Decodes `ids` as a continuation of the text that was returned last.
    fn decode(&self, ids: &[u32]) -> Result<String> {
        let before = &self.ids[self.prefix..self.read];
        let known = self.tokenizer.decode(before)?;
        let all = self.tokenizer.decode(&[before, ids].concat())?;
        match all.strip_prefix(&known) {
            Some(new) => Ok(new.to_string()),
            // A stray byte in `ids` has broken characters that were intact in `known`, so decode it
            // without them.
            None => self.tokenizer.decode(ids),
        }
    }

    /// Removes the prompt's half character, `seen`, from the start of the stream's
    /// first piece. Later pieces are returned as they are.
    fn unseen(&mut self, text: &str) -> String {
        let seen = std::mem::take(&mut self.seen);
        // If the half stays broken, `text` begins with all of `seen`. If it's completed, `text`
        // begins only with what `seen` has before its U+FFFD.
        let completed = seen.trim_end_matches('\u{fffd}'); // the other half has arrived
        let new = match text.strip_prefix(&seen) {
            Some(new) => new,
            None => text.strip_prefix(completed).unwrap_or(text).trim_start_matches('\u{fffd}'),
        };
        new.to_string()
    }
}

/// Repeats all choices of the loop in one pass over the finished text `ids`: row `i`
/// predicts token `i + 1`. Returns one choice for each token after the prompt, so none
/// if all ids are prompt. The last row is left out: it predicts a token that isn't in
/// the text.
///
/// This is why a cache is allowed (adding a future doesn't change the past), and why
/// one pass can verify K drafted tokens.
///
/// # Errors
/// If `prompt_len` is 0 or more than `ids.len()`, or if `pick` fails.
pub fn predictions(
    model: &dyn Model,
    ids: &[u32],
    prompt_len: usize,
    pick: impl Fn(&[f32]) -> Result<u32>,
) -> Result<Vec<u32>> {
    // task 6.7: Return the model's choice for every token after the prompt, from a single pass
    todo!("day 6, task 7: Return the model's choice for every token after the prompt, from a single pass")
}

/// Returns how many tokens of `draft`, counted from its start, the loop would have
/// chosen after `text`. The model runs once (greedy speculative decoding, day 13).
///
/// # Errors
/// As [`predictions`].
pub fn accepted(
    model: &dyn Model,
    text: &[u32],
    draft: &[u32],
    pick: impl Fn(&[f32]) -> Result<u32>,
) -> Result<usize> {
    // task 6.8 (challenge): Count the drafted tokens that the loop would have chosen
    todo!("day 6, task 8: Count the drafted tokens that the loop would have chosen")
}
