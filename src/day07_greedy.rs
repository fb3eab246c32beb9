#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 7: greedy, done right. The best token, what it was worth, when to stop, and what to do at the end of the window.

use candecode::day06_generate::TextStream;
use candecode::kit::processor::process_all;
use candecode::kit::{
    FinishReason, GenerationOptions, Logits, Model, NoCache, ProcessorInput, Step, Token, Tokenizer,
};
use candle_core::{bail, Result};

/// The index of the largest logit, the first of equals (torch `argmax` on the CPU). No logit is `+inf`: no model computes
/// it, and no rule here writes it.
///
/// # Errors
/// If there is none: no logits, a NaN among them, or all `-inf`.
pub fn argmax(logits: &[f32]) -> Result<u32> {
    // task 7.1: where the largest is, or an error
    todo!("day 7, task 1: where the largest is, or an error")
}

/// The greedy choice, as [`GenerationOptions`] wants it.
///
/// # Errors
/// As [`argmax`].
pub fn greedy(_row: usize, logits: &[f32]) -> Result<u32> {
    argmax(logits)
}

/// ln of the softmax: `x - max - ln Σ exp(x - max)`, so that neither `exp` overflows nor `ln` sees 0 (torch `log_softmax`).
///
/// # Errors
/// As [`argmax`].
pub fn log_softmax(logits: &[f32]) -> Result<Vec<f32>> {
    // task 7.2: the logits minus their log-sum-exp
    todo!("day 7, task 2: the logits minus their log-sum-exp")
}

/// Watches a text for strings that end it, also across the borders of tokens (HF `stop_strings`, OpenAI `stop`).
pub struct StopStrings {
    stops: Vec<String>,
    held: String, // the end of the text, while it may be the beginning of a stop string
}

impl StopStrings {
    /// Watches for `stops`; empty ones are ignored.
    pub fn new(stops: &[String]) -> Self {
        let stops = stops.iter().filter(|stop| !stop.is_empty()).cloned().collect();
        Self { stops, held: String::new() }
    }

    /// Takes more text; gives the text that may be shown, and whether a stop string has ended it. Text that could still
    /// become a stop string is held back; the stop string itself is never shown.
    pub fn push(&mut self, text: &str) -> (String, bool) {
        // task 7.3: cut at a stop string, or hold back what may become one
        todo!("day 7, task 3: cut at a stop string, or hold back what may become one")
    }

    /// At the end: what was held back, for no stop string came of it.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// One text in the making: its tokens, and what of them may be shown.
pub struct Sequence<'a> {
    /// Which prompt of the batch it is.
    pub row: usize,
    /// Prompt and generated tokens.
    pub tokens: Vec<u32>,
    /// How many of `tokens` are the prompt.
    pub prompt_len: usize,
    stream: TextStream<'a>,
    stops: StopStrings,
}

impl<'a> Sequence<'a> {
    /// A text that begins with `prompt`.
    pub fn new(row: usize, prompt: &[u32], tokenizer: &'a Tokenizer, stops: &[String]) -> Self {
        let stream = TextStream::after(tokenizer, prompt);
        let stops = StopStrings::new(stops);
        Self { row, tokens: prompt.to_vec(), prompt_len: prompt.len(), stream, stops }
    }

    /// Chooses the next token from the model's logits, `(V)`: processors, then the choice. Gives the id and its
    /// log-probability under the model itself, before any processor. A text at its bound is asked for no token, so at
    /// least one remains.
    ///
    /// # Errors
    /// If a processor leaves nothing, or the choice fails.
    pub fn choose(&self, raw: &[f32], options: &mut GenerationOptions) -> Result<(u32, f32)> {
        // task 7.4: the choice, and what the token was worth to the model
        todo!("day 7, task 4: the choice, and what the token was worth to the model")
    }

    /// Takes the chosen token in: adds it, says which text may be shown now, and whether the text ends here. EOS never
    /// enters the text; a stop string wins over the bound; at the end nothing stays held back. What EOS brings out of the
    /// stream may complete a stop string: the text is cut there, and the reason is EOS all the same.
    ///
    /// # Errors
    /// If the tokenizer fails.
    pub fn push(&mut self, id: u32, logprob: f32, options: &GenerationOptions) -> Result<Token> {
        // task 7.5: take the token in; say what may be shown, and why the text ends
        todo!("day 7, task 5: take the token in; say what may be shown, and why the text ends")
    }
}

/// The first token that is kept when `len` tokens meet a context of `context`: 0 while they fit, and then a multiple of
/// `stride`, so that the window moves seldom and far, not at every token. Positions are renumbered from 0.
///
/// # Errors
/// If `stride` is not in 1 to `context`.
pub fn window(len: usize, context: usize, stride: usize) -> Result<usize> {
    // task 7.6: where the window begins
    todo!("day 7, task 6: where the window begins")
}

/// A text being generated: an iterator of its tokens.
pub struct Generation<'a> {
    model: &'a dyn Model,
    options: GenerationOptions<'a>,
    sequence: Sequence<'a>,
    ended: bool,
}

/// Generates from a prompt, without a cache: every step computes the whole window anew (HF `generate`, `use_cache=False`).
///
/// # Errors
/// If the prompt is empty or longer than the context; later, each token may be an error.
pub fn generate<'a>(
    model: &'a dyn Model,
    tokenizer: &'a Tokenizer,
    prompt: &[u32],
    options: GenerationOptions<'a>,
) -> Result<Generation<'a>> {
    let context = model.config().max_position_embeddings;
    if prompt.is_empty() {
        bail!("the prompt is empty; give it at least one token")
    }
    if prompt.len() > context {
        bail!("the prompt is {} tokens long, the context {context}; shorten it", prompt.len())
    }
    let sequence = Sequence::new(0, prompt, tokenizer, &options.stop_strings);
    let ended = options.max_new_tokens == 0;
    Ok(Generation { model, options, sequence, ended })
}

impl Generation<'_> {
    fn step(&mut self) -> Result<Token> {
        // task 7.7: one token: a pass over the window, the choice, and what comes of it
        todo!("day 7, task 7: one token: a pass over the window, the choice, and what comes of it")
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Token>;

    /// The next token. The one with a `finish`, or an error, is the last.
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let token = self.step();
        self.ended = !matches!(&token, Ok(token) if token.finish.is_none());
        Some(token)
    }
}
