#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 7: greedy, done right. The best token, its log-probability, when to stop, and the loop that
//! puts them together; further, a text that goes on past the model's context.

use candecode::day06_generate::TextStream;
use candecode::kit::error::plain;
use candecode::kit::processor::process_all;
use candecode::kit::{top_logprobs, Step, Token, TokenIter, Tokenizer};
use candecode::kit::{FinishReason, Logits, Model, NoCache, PastContext, ProcessorInput, Request};
use candle_core::{bail, Result};

// part 1: choose and stop

/// The index of the largest logit, the first of equals (torch `argmax` on the CPU). No logit is
/// `+inf`: no model computes it, and no processor here writes it.
///
/// # Errors
/// If there is none: no logits, a NaN among them, or all `-inf`.
pub fn argmax(logits: &[f32]) -> Result<u32> {
    // task 7.1: where the largest is, or an error
    todo!("day 7, task 1: where the largest is, or an error")
}

/// The logarithm of the softmax, `x - ln Σ exp(x)`, computed so that neither `exp` overflows nor
/// `ln` sees 0 (torch `log_softmax`).
///
/// # Errors
/// As [`argmax`].
pub fn log_softmax(logits: &[f32]) -> Result<Vec<f32>> {
    // task 7.2: the logits minus their log-sum-exp
    todo!("day 7, task 2: the logits minus their log-sum-exp")
}

/// Watches a text for strings that end it, also across the borders of tokens (HF `stop_strings`,
/// OpenAI `stop`).
pub struct StopStrings {
    stops: Vec<String>, // sorted; none of them begins with another one
    pending: String,    // the end of the text, while it may be the beginning of a stop string
    places: Vec<usize>, // where in `pending` a stop string may begin, in order
}

impl StopStrings {
    /// Watches for `stops`. Empty ones are ignored, and so is one that begins with another: the
    /// shorter one is complete first.
    pub fn new(stops: &[String]) -> Self {
        let mut stops = stops.to_vec();
        stops.retain(|stop| !stop.is_empty());
        stops.sort_unstable();
        stops.dedup_by(|longer, shorter| longer.starts_with(shorter.as_str()));
        Self { stops, pending: String::new(), places: Vec::new() }
    }

    /// Appends text; returns the text that may be shown, and whether a stop string has ended it.
    /// Text that could still become a stop string stays pending; the stop string itself is never
    /// shown. Of several stop strings the one that begins first in the text counts.
    pub fn push(&mut self, text: &str) -> (String, bool) {
        // task 7.3: cut at a stop string, or keep back what may become one
        todo!("day 7, task 3: cut at a stop string, or keep back what may become one")
    }

    /// The pending text, when the text ends and no stop string came of it.
    pub fn finish(&mut self) -> String {
        self.places.clear();
        std::mem::take(&mut self.pending)
    }
}

/// One request while it is being answered: its tokens, the part of its text that may be shown, and
/// why it ended.
pub struct Sequence<'a> {
    /// What was asked for; `max_new_tokens` is the bound that [`Request::fit`] has left.
    pub request: Request<'a>,
    /// Prompt and generated tokens.
    pub tokens: Vec<u32>,
    /// How many of `tokens` are the prompt.
    pub prompt_len: usize,
    /// Why it ended; None while it goes on.
    pub finish: Option<FinishReason>,
    /// The model's likeliest tokens of this step, from `choose` until `push` hands them on.
    pub top: Vec<(u32, f32)>,
    stream: TextStream<'a>,
    stops: StopStrings,
}

impl<'a> Sequence<'a> {
    /// A sequence that begins with the request's prompt.
    pub fn new(request: Request<'a>, tokenizer: &'a Tokenizer) -> Self {
        Self {
            tokens: request.prompt.clone(),
            prompt_len: request.prompt.len(),
            finish: None,
            top: Vec::new(),
            stream: TextStream::after(tokenizer, &request.prompt),
            stops: StopStrings::new(&request.stop_strings),
            request,
        }
    }

    /// What a processor, or a drafter, may know of the sequence before its next token is chosen.
    pub fn processor_input(&self) -> ProcessorInput<'_> {
        // task 7.4: all tokens, how many are the prompt, how many may still come, what ends them
        todo!("day 7, task 4: all tokens, how many are the prompt, how many may still come, what ends them")
    }

    /// Tokens that may still be generated.
    pub fn remaining(&self) -> usize {
        self.processor_input().remaining
    }

    /// Chooses the next token from the model's logits, `(V)`: processors, then the sampler. Gives
    /// the id and its log-probability under the model itself, before any processor (vLLM's
    /// `raw_logprobs`). A sequence at its bound is asked for no token, so at least one remains.
    ///
    /// Keeps in `top` as many of the model's own likeliest tokens as the request's `top_logprobs`
    /// asks for.
    ///
    /// # Errors
    /// If a processor leaves no token, or the sampler fails or gives an id beyond the vocabulary.
    pub fn choose(&mut self, raw: &[f32]) -> Result<(u32, f32)> {
        // task 7.5: the choice, and what the model itself thought of that token
        todo!("day 7, task 5: the choice, and what the model itself thought of that token")
    }

    /// [`log_softmax`] of the model's logits, or the same by the request's kernel.
    fn logprobs(&self, raw: &[f32]) -> Result<Vec<f32>> {
        match self.request.log_softmax.and_then(|kernel| kernel(raw)) {
            Some(logprobs) => Ok(logprobs),
            None => log_softmax(raw), // which says what is wrong with them, too
        }
    }

    /// Takes the chosen token in: adds it, says which text may be shown now, and whether the
    /// sequence ends here; `finish` keeps the reason. EOS never enters the text; a stop string wins
    /// over the bound; at the end no text stays pending. The text that EOS brings out of the stream
    /// may complete a stop string: the text is cut there, and the reason is EOS all the same. The
    /// token takes `top` with it, and has no error.
    ///
    /// # Errors
    /// If the tokenizer fails.
    pub fn push(&mut self, id: u32, logprob: f32) -> Result<Token> {
        // task 7.6: take the token in; say what may be shown, and why the sequence ends
        todo!("day 7, task 6: take the token in; say what may be shown, and why the sequence ends")
    }

    /// Chooses the next token from the model's logits, `(V)`, and takes it in. If either fails, the
    /// sequence ends with [`FinishReason::Failed`]: its last token carries the error, and the text
    /// that was still pending. So one row that fails doesn't end a batch.
    pub fn advance(&mut self, raw: &[f32]) -> Token {
        let token = self.choose(raw).and_then(|(id, logprob)| self.push(id, logprob));
        token.unwrap_or_else(|error| {
            self.finish = Some(FinishReason::Failed);
            let (mut text, stopped) = self.stops.push(&self.stream.finish().unwrap_or_default());
            if !stopped {
                text.push_str(&self.stops.finish());
            }
            let error = Some(plain(&error));
            Token { row: self.request.id, text, finish: self.finish, error, ..Token::default() }
        })
    }

    /// The tokens that the next pass sees: all of them, or, where the request asks for a window
    /// past the context, the last ones.
    ///
    /// # Errors
    /// If the window's stride is out of range.
    pub fn visible(&self, model: &dyn Model) -> Result<&[u32]> {
        match self.request.past_context {
            PastContext::Window { stride } => self.windowed(model, stride),
            PastContext::Stop | PastContext::Slide => Ok(&self.tokens),
        }
    }
}

/// The next token of a sequence, without a cache: one pass over all visible tokens, the choice, and
/// what comes of it.
///
/// # Errors
/// If the model, a processor or the sampler fails.
pub fn next_token(model: &dyn Model, sequence: &mut Sequence) -> Result<Token> {
    // task 7.7: a pass over the visible tokens from position 0 on, then choose and push
    todo!("day 7, task 7: a pass over the visible tokens from position 0 on, then choose and push")
}

/// Generates from a prompt without a cache: every step computes every position again (HF `generate`
/// with `use_cache=False`).
///
/// # Errors
/// If the prompt is empty or longer than the context; later, each token may be an error.
pub fn generate<'a>(
    model: &'a dyn Model,
    tokenizer: &'a Tokenizer,
    mut request: Request<'a>,
) -> Result<TokenIter<'a>> {
    request.fit(model)?;
    let mut sequence = Sequence::new(request, tokenizer);
    let rows = usize::from(sequence.remaining() > 0);
    Ok(TokenIter::new(rows, move || Ok(vec![next_token(model, &mut sequence)?])))
}

// part 2: past the context

/// The first token that is kept when `len` tokens meet a context of `context`: 0 while they fit,
/// and then a multiple of `stride`. So the window moves seldom and far, not at every token, and a
/// cache is refilled seldom.
///
/// # Errors
/// If `stride` is not in 1 to `context`.
pub fn window(len: usize, context: usize, stride: usize) -> Result<usize> {
    // task 7.8 (further): where the window begins
    todo!("day 7, task 8: where the window begins")
}

impl Sequence<'_> {
    /// The tokens of the window: those from [`window`]'s first on. They get the positions 0, 1, …
    /// again, for the model has no others.
    ///
    /// # Errors
    /// If the stride is out of range.
    fn windowed(&self, model: &dyn Model, stride: usize) -> Result<&[u32]> {
        // task 7.9 (further): the tokens from the window's first on
        todo!("day 7, task 9: the tokens from the window's first on")
    }
}
