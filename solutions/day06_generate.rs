//! Day 6: prefill and decode. A model gives scores for the next token; a loop makes a text of them.

use candecode::day00_warm_up::last_position;
use candecode::kit::{Model, NoCache, Step, Tokenizer};
use candle_core::{bail, IndexOp, Result, Tensor};

/// The logits of each row's last position: `(B, T, V)` to `(B, V)`. Only they predict a token that
/// is not there yet.
///
/// # Errors
/// If there is no position.
pub fn last_logits(logits: &Tensor) -> Result<Tensor> {
    // task 6.1: keep the last position of every row
    // <solution>
    last_position(logits)
    // </solution>
}

/// One pass over all of `ids`, at positions 0, 1, …: the logits of the next token, `(V)`, off the
/// device.
///
/// # Errors
/// If `ids` is empty, or longer than the context.
pub fn next_logits(model: &dyn Model, ids: &[u32]) -> Result<Vec<f32>> {
    // task 6.2: one pass over all ids, and what its last position says
    // <solution>
    let step = Step::new(model, ids, 0)?;
    let logits = model.forward(&step, &mut NoCache)?; // (1, T, V)
    last_logits(&logits)?.i(0)?.to_vec1()
    // </solution>
}

/// What a loop did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// The tokens generated, EOS included.
    pub new_ids: Vec<u32>,
    /// Positions that the model computed, over all passes: what the loop cost.
    pub positions_computed: usize,
}

/// Prefill, then decode: one pass over the prompt gives the first new token, one more pass over the
/// growing sequence gives each next one (HF `generate` with `use_cache=False`).
///
/// `pick` chooses from the logits, `on_token` gets every token as it is made. The loop ends after a
/// token of `eos`, which is kept, or after `max_new_tokens`; 0 of them is an empty trace, and no
/// pass.
///
/// # Errors
/// If a pass over an empty prompt is wanted, the sequence outgrows the context, or `pick` or
/// `on_token` fails.
pub fn simple_generate(
    model: &dyn Model,
    prompt: &[u32],
    max_new_tokens: usize,
    eos: &[u32],
    pick: impl Fn(&[f32]) -> Result<u32>,
    mut on_token: impl FnMut(u32) -> Result<()>,
) -> Result<Trace> {
    // task 6.3: the loop; count the positions of every pass
    // <solution>
    let mut trace = Trace::default();
    let mut ids = prompt.to_vec();
    while trace.new_ids.len() < max_new_tokens {
        let logits = next_logits(model, &ids)?;
        trace.positions_computed += ids.len();
        let id = pick(&logits)?;
        ids.push(id);
        trace.new_ids.push(id);
        on_token(id)?;
        if eos.contains(&id) {
            break;
        }
    }
    Ok(trace)
    // </solution>
}

/// Text out of tokens, as they come, never with half a character in it (vLLM
/// `detokenize_incrementally`).
///
/// A token is bytes, not characters: `é` may be two tokens, and a lone half decodes to `U+FFFD`.
/// And a token's text may depend on the tokens before it: SentencePiece drops the space that begins
/// a text, and one stray byte turns every byte token next to it into `U+FFFD`.
pub struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    ids: Vec<u32>,
    prefix: usize, // decoding starts here, so that the tokenizer sees what came before
    read: usize,   // the text of the ids before this index has been returned; the rest are waiting
    seen: String,  // text of waiting ids that the prompt ended with: half a character, or nothing
}

impl<'a> TextStream<'a> {
    /// A stream without a prompt.
    pub fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, ids: Vec::new(), prefix: 0, read: 0, seen: String::new() }
    }

    /// A stream that continues a prompt. Nothing of the prompt's text is returned again.
    ///
    /// It starts from the prompt's last five ids, or all if there are fewer (vLLM
    /// `INITIAL_INCREMENTAL_DETOKENIZATION_OFFSET`). Decoded alone, the first new token would lose
    /// its space in a SentencePiece tokenizer. If the prompt ends with half a character, the first
    /// piece is the whole one; if the other half never comes, the prompt's half isn't shown.
    pub fn after(tokenizer: &'a Tokenizer, prompt: &[u32]) -> Self {
        // task 6.4: push the prompt's last ids, discard their text, and note what is still waiting
        // <solution>
        let mut stream = Self::new(tokenizer);
        let start = prompt.len().saturating_sub(5);
        for id in &prompt[start..] {
            let _ = stream.push(*id); // a tokenizer that fails will fail again at the next push
        }
        if let Ok((half, _)) = stream.unread() {
            stream.seen = half;
        }
        stream
        // </solution>
    }

    /// Appends a token and returns the text that is certain now, which may be empty. What was
    /// returned before never changes.
    ///
    /// Text that ends in `U+FFFD` may be half a character, so it waits. A stray byte doesn't hide
    /// what comes after it: `E2` and then both bytes of `é` are `U+FFFD` and `é`. Where all bytes
    /// are valid, the pieces together are what `decode` returns.
    ///
    /// # Errors
    /// If the tokenizer fails.
    pub fn push(&mut self, id: u32) -> Result<String> {
        // task 6.5: return the text that this token completes
        // <solution>
        self.ids.push(id);
        let (new, start) = self.unread()?;
        if new.is_empty() || new.ends_with('\u{fffd}') {
            return Ok(String::new());
        }
        self.prefix = start;
        self.read = self.ids.len();
        Ok(self.unseen(&new))
        // </solution>
    }

    /// At the end: returns the text that `push` has held back, broken as it may be. No `push` comes
    /// after it.
    ///
    /// # Errors
    /// If the tokenizer fails.
    pub fn finish(&mut self) -> Result<String> {
        // task 6.6: return the text that is still waiting
        // <solution>
        let (rest, _) = self.unread()?;
        self.read = self.ids.len();
        Ok(self.unseen(&rest))
        // </solution>
    }

    // <solution>
    /// The text of the waiting ids, and the index from which it is whole.
    fn unread(&self) -> Result<(String, usize)> {
        let text = self.decode(&self.ids[self.read..])?;
        if !text.ends_with('\u{fffd}') {
            return Ok((text, self.read));
        }
        // A byte-fallback decoder shows no character of a run of bytes that has a stray one in it.
        // But the newest ids, up to four bytes, may be a whole character after stray ones.
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

    /// The text of `ids`, as it continues the text that was returned last.
    fn decode(&self, ids: &[u32]) -> Result<String> {
        let before = &self.ids[self.prefix..self.read];
        let known = self.tokenizer.decode(before)?;
        let all = self.tokenizer.decode(&[before, ids].concat())?;
        match all.strip_prefix(&known) {
            Some(new) => Ok(new.to_string()),
            // A stray byte in `ids` has broken characters that `known` still had: keep it away from
            // them.
            None => self.tokenizer.decode(ids),
        }
    }

    /// `text`, whose first part may be the prompt's half character, without it.
    fn unseen(&mut self, text: &str) -> String {
        let seen = std::mem::take(&mut self.seen);
        let completed = seen.trim_end_matches('\u{fffd}'); // the other half has come
        let new = match text.strip_prefix(&seen) {
            Some(new) => new,
            None => text.strip_prefix(completed).unwrap_or(text).trim_start_matches('\u{fffd}'),
        };
        new.to_string()
    }
    // </solution>
}

/// One pass over a finished text, `ids`, predicts every token that the loop chose: row `i` predicts
/// token `i + 1`, so these are the predictions of rows `prompt_len - 1` to `ids.len() - 2`, one for
/// each token after the prompt (none, if there is none). What the last row predicts is not in the
/// text, and is left out.
///
/// This is why a cache is legal (the past does not change when the future is added) and why K
/// drafted tokens can be verified in one pass.
///
/// # Errors
/// If `prompt_len` is 0 or more than `ids.len()`, or `pick` fails.
pub fn predictions(
    model: &dyn Model,
    ids: &[u32],
    prompt_len: usize,
    pick: impl Fn(&[f32]) -> Result<u32>,
) -> Result<Vec<u32>> {
    // task 6.7: the choice after every position, from a single pass
    // <solution>
    if prompt_len == 0 || prompt_len > ids.len() {
        bail!("a prompt of {prompt_len} tokens does not fit a text of {}", ids.len())
    }
    let logits = model.forward(&Step::new(model, ids, 0)?, &mut NoCache)?.i(0)?; // (T, V)
    let mut predicted = Vec::new();
    for position in prompt_len - 1..ids.len() - 1 {
        predicted.push(pick(&logits.i(position)?.to_vec1::<f32>()?)?);
    }
    Ok(predicted)
    // </solution>
}

/// How many tokens of `draft` the loop itself would have chosen after `text`, counted from the
/// first: what one pass over `text` and `draft` accepts (greedy speculative decoding, day 13).
///
/// # Errors
/// As [`predictions`].
pub fn accepted(
    model: &dyn Model,
    text: &[u32],
    draft: &[u32],
    pick: impl Fn(&[f32]) -> Result<u32>,
) -> Result<usize> {
    // task 6.8 (further): count the drafted tokens before the first wrong one
    // <solution>
    let ids = [text, draft].concat();
    let predicted = predictions(model, &ids, text.len(), pick)?;
    let pairs = predicted.iter().zip(draft);
    Ok(pairs.take_while(|(predicted, drafted)| predicted == drafted).count())
    // </solution>
}
