//! Day 7: greedy decoding, done right. The best token and its log-probability, the end of a text,
//! and the loop that uses both. Optional: the score of a given text, and texts that outgrow the
//! model's context.

use candecode::day06_generate::TextStream;
use candecode::kit::error::plain;
use candecode::kit::processor::process_all;
use candecode::kit::{top_logprobs, Step, Token, TokenIter, Tokenizer};
use candecode::kit::{FinishReason, Logits, Model, NoCache, PastContext, ProcessorInput, Request};
use candle_core::{bail, Result};

// part 1: choose a token

/// Returns the index of the largest logit. Ties go to the first, as in torch's `argmax`
/// on the CPU. You don't have to handle `+inf`: no processor here produces it, and
/// neither does a healthy model.
///
/// # Errors
/// If there are no logits, if any of them is NaN, or if all are `-inf`.
pub fn argmax(logits: &[f32]) -> Result<u32> {
    // task 7.1: Return the index of the largest logit, or an error for an invalid row
    // <solution>
    let mut best = 0;
    for (id, logit) in logits.iter().enumerate() {
        if logit.is_nan() {
            bail!("logit {id} is NaN: the model has computed nonsense")
        }
        if *logit > logits[best] {
            best = id;
        }
    }
    match logits.get(best) {
        Some(logit) if *logit > f32::NEG_INFINITY => Ok(best as u32),
        Some(_) => bail!("every logit is -inf: there is no token left to choose"),
        None => bail!("there are no logits to choose from"),
    }
    // </solution>
}

/// Returns the logarithm of the softmax, `x - ln Σ exp(x)`, computed so that `exp`
/// never overflows and `ln` never sees 0 (torch `log_softmax`).
///
/// # Errors
/// As [`argmax`].
pub fn log_softmax(logits: &[f32]) -> Result<Vec<f32>> {
    // task 7.2: Subtract the row's log-sum-exp from every logit
    // <solution>
    // ln Σ exp(x) is max + ln Σ exp(x - max): no `exp` overflows, and one term is 1. Summed in f64,
    // because f32 would round away the many small terms of a large vocabulary.
    let max = logits[argmax(logits)? as usize];
    let sum: f64 = logits.iter().map(|logit| f64::from((logit - max).exp())).sum();
    let log_sum_exp = f64::from(max) + sum.ln();
    Ok(logits.iter().map(|logit| (f64::from(*logit) - log_sum_exp) as f32).collect())
    // </solution>
}

/// A request while it is being answered: its tokens, the text that can be shown, and
/// the reason it ended.
pub struct Sequence<'a> {
    /// The request, after [`Request::fit`] has lowered `max_new_tokens`.
    pub request: Request<'a>,
    /// Prompt and generated tokens.
    pub tokens: Vec<u32>,
    /// Number of prompt tokens at the start of `tokens`.
    pub prompt_len: usize,
    /// The reason the sequence ended. None while it continues.
    pub finish: Option<FinishReason>,
    /// The most likely tokens of this step: `choose` stores them, and `push` moves them
    /// into the token.
    pub top: Vec<(u32, f32)>,
    stream: TextStream<'a>,
    stops: StopStrings,
}

impl<'a> Sequence<'a> {
    /// Starts a sequence with the request's prompt.
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

    /// Returns what a processor may look at: the text so far, and how much may still
    /// come.
    pub fn processor_input(&self) -> ProcessorInput<'_> {
        let generated = self.tokens.len() - self.prompt_len;
        ProcessorInput {
            tokens: &self.tokens,
            prompt_len: self.prompt_len,
            remaining: self.request.max_new_tokens.saturating_sub(generated),
            eos: &self.request.eos_token_ids,
        }
    }

    /// Returns the number of tokens that may still be generated.
    pub fn remaining(&self) -> usize {
        self.processor_input().remaining
    }

    /// Chooses the next token from the model's logits, `(V)`: first the processors,
    /// then the sampler. Returns its id and its log-probability under the model itself,
    /// before any processor (vLLM's `raw_logprobs`). Only called while at least one
    /// token remains.
    ///
    /// Stores the model's own most likely tokens in `top`, as many as the request's
    /// `top_logprobs` asks for.
    ///
    /// # Errors
    /// If the model's logits are invalid (see [`argmax`]), if a processor fails or
    /// leaves no token, if the sampler fails, or if it returns an id beyond the
    /// vocabulary.
    pub fn choose(&mut self, raw: &[f32]) -> Result<(u32, f32)> {
        // task 7.3: Choose from the processed logits; return the log-probability under the raw ones
        // <solution>
        let logprobs = self.logprobs(raw)?;
        let mut logits = raw.to_vec();
        process_all(&self.request.processors, &self.processor_input(), &mut logits)?;
        let id = (self.request.sampler)(&logits)?;
        self.top = top_logprobs(&logprobs, self.request.top_logprobs.unwrap_or_default());
        match logprobs.get(id as usize) {
            Some(logprob) => Ok((id, *logprob)),
            None => bail!("the sampler chose token {id}; the vocabulary has {} tokens", raw.len()),
        }
        // </solution>
    }

    /// Returns [`log_softmax`] of the model's logits, computed by the request's kernel
    /// if it has one.
    fn logprobs(&self, raw: &[f32]) -> Result<Vec<f32>> {
        match self.request.log_softmax.and_then(|kernel| kernel(raw)) {
            Some(logprobs) => Ok(logprobs),
            None => log_softmax(raw), // also has the error message for an invalid row
        }
    }
}

// part 2: end a text

/// Searches streamed text for strings that end it, even across token boundaries (HF
/// `stop_strings`, OpenAI `stop`).
pub struct StopStrings {
    stops: Vec<String>, // sorted; none of them starts with another one
    pending: String,    // the end of the text, held back for now
    places: Vec<usize>, // where in `pending` one could start; only for speed, can stay empty
}

impl StopStrings {
    /// Creates a search for `stops`. Ignores empty ones, and any that start with
    /// another one: the shorter one would be complete first.
    pub fn new(stops: &[String]) -> Self {
        let mut stops = stops.to_vec();
        stops.retain(|stop| !stop.is_empty());
        stops.sort_unstable();
        stops.dedup_by(|longer, shorter| longer.starts_with(shorter.as_str()));
        Self { stops, pending: String::new(), places: Vec::new() }
    }

    /// Appends text. Returns the part that can be shown now, and true if a stop string
    /// has ended the text. Text that could still become a stop string stays pending;
    /// the stop string itself is never shown. If several stop strings occur, the one
    /// that is complete first counts, so that it doesn't matter how the text is divided
    /// into tokens. If two end at the same place, the longer one counts.
    pub fn push(&mut self, text: &str) -> (String, bool) {
        // task 7.4: Show the text before a stop string, or hold back what could become one
        // <solution>
        let new = self.pending.len();
        self.pending.push_str(text);
        let old_places = std::mem::take(&mut self.places);
        let new_places = text.char_indices().map(|(at, _)| new + at);
        let mut places = Vec::new();
        let mut first: Option<(usize, usize)> = None; // where a stop string ends and starts
        for at in old_places.into_iter().chain(new_places) {
            let rest = &self.pending[at..];
            // In a sorted list, a stop string that starts `rest` is just before its place, and one
            // that starts with `rest` just after. So the number of stop strings hardly matters.
            let place = self.stops.partition_point(|stop| stop.as_str() <= rest);
            let (before, after) = self.stops.split_at(place);
            if let Some(stop) = before.last().filter(|stop| rest.starts_with(stop.as_str())) {
                let found = (at + stop.len(), at);
                first = Some(first.map_or(found, |first| first.min(found)));
            }
            if after.first().is_some_and(|stop| stop.starts_with(rest)) {
                places.push(at);
            }
        }
        if let Some((_, at)) = first {
            self.pending.truncate(at);
            return (std::mem::take(&mut self.pending), true);
        }
        let keep_from = places.first().copied().unwrap_or(self.pending.len());
        self.places = places.iter().map(|at| at - keep_from).collect();
        let rest = self.pending.split_off(keep_from);
        let shown = std::mem::replace(&mut self.pending, rest);
        (shown, false)
        // </solution>
    }

    /// Returns and clears the pending text, when the text has ended without a stop
    /// string.
    pub fn finish(&mut self) -> String {
        self.places.clear();
        std::mem::take(&mut self.pending)
    }
}

impl Sequence<'_> {
    /// Appends a chosen token and returns it with the text that can be shown now. If
    /// the sequence ends here, both the token and `self.finish` get the reason.
    ///
    /// EOS adds no text. A stop string wins over the limit, and EOS over both. At the
    /// end no text stays pending. If the text still in the stream at EOS completes a
    /// stop string, the text is cut there, and the reason is still EOS. Moves
    /// `self.top` into the token, whose `error` is None.
    ///
    /// # Errors
    /// If the tokenizer fails.
    pub fn push(&mut self, id: u32, logprob: f32) -> Result<Token> {
        // task 7.5: Append the token; return the text to show and the reason if the sequence ends
        // <solution>
        self.tokens.push(id);
        let eos = self.request.eos_token_ids.contains(&id);
        let full = self.remaining() == 0;
        let mut piece = if eos { String::new() } else { self.stream.push(id)? };
        if eos || full {
            piece.push_str(&self.stream.finish()?);
        }
        let (mut text, stopped) = self.stops.push(&piece);
        self.finish = if eos {
            Some(FinishReason::Eos)
        } else if stopped {
            Some(FinishReason::Stop)
        } else if full {
            Some(FinishReason::Length)
        } else {
            None
        };
        if self.finish.is_some() && !stopped {
            text.push_str(&self.stops.finish());
        }
        let top = std::mem::take(&mut self.top);
        Ok(Token { row: self.request.id, id, logprob, text, finish: self.finish, top, error: None })
        // </solution>
    }

    /// Chooses the next token from the model's logits, `(V)`, and pushes it. If either
    /// fails, the sequence ends with [`FinishReason::Failed`]; its last token carries
    /// the error and the text that was still pending. So a row that fails doesn't end
    /// its batch.
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

    /// Returns the tokens to run in the next pass: all of them, or only the last ones
    /// if the request asks for a window past the context.
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

/// Generates the next token of a sequence without a cache: runs all visible tokens,
/// then chooses and pushes.
///
/// # Errors
/// If the model, a processor or the sampler fails.
pub fn next_token(model: &dyn Model, sequence: &mut Sequence) -> Result<Token> {
    // task 7.6: Run the visible tokens from position 0, then choose and push
    // <solution>
    let tokens = sequence.visible(model)?;
    let step = Step::new(model, tokens, 0)?.with_logits(Logits::Last(1));
    let logits = model.forward(&step, &mut NoCache)?; // (1, 1, V)
    let raw: Vec<f32> = logits.flatten_all()?.to_vec1()?;
    let (id, logprob) = sequence.choose(&raw)?;
    sequence.push(id, logprob)
    // </solution>
}

/// Generates from a prompt without a cache: every step computes every position again
/// (HF `generate` with `use_cache=False`).
///
/// # Errors
/// If the prompt is empty or longer than the context. Later, any token can be an error.
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

/// Returns the log-probability of each token of `text`, given `prompt` and the tokens
/// of `text` before it (vLLM `prompt_logprobs`). Computed in one pass. An empty `text`
/// takes no pass and returns an empty list.
///
/// # Errors
/// If the prompt is empty, if an id is beyond the vocabulary, or if the pass is longer
/// than the context.
pub fn token_logprobs(model: &dyn Model, prompt: &[u32], text: &[u32]) -> Result<Vec<f32>> {
    // task 7.7 (challenge): Score a given text in one pass
    // <solution>
    let Some((_, fed)) = text.split_last() else { return Ok(Vec::new()) };
    if prompt.is_empty() {
        bail!("the prompt is empty, so nothing predicts the first token")
    }
    let ids = [prompt, fed].concat();
    let step = Step::new(model, &ids, 0)?.with_logits(Logits::Last(text.len()));
    let logits = model.forward(&step, &mut NoCache)?; // (1, n, V)
    let rows: Vec<Vec<f32>> = logits.squeeze(0)?.to_vec2()?;
    let mut scores = Vec::with_capacity(text.len());
    for (row, id) in rows.iter().zip(text) {
        match log_softmax(row)?.get(*id as usize) {
            Some(logprob) => scores.push(*logprob),
            None => bail!("token id {id} is not in the vocabulary of {} tokens", row.len()),
        }
    }
    Ok(scores)
    // </solution>
}

// part 3: past the context

/// Returns the index of the first token to keep when there are `len` tokens: 0 while
/// they fit into `context`, and then the smallest multiple of `stride` that leaves at
/// most `context` tokens. With a stride above 1 the window moves less often, so that a
/// cache is refilled less often.
///
/// # Errors
/// If `stride` is not in 1 to `context`.
pub fn window(len: usize, context: usize, stride: usize) -> Result<usize> {
    // task 7.8 (optional): Find the first token to keep
    // <solution>
    if stride == 0 || stride > context {
        bail!("stride must be in 1 to the context of {context}, got {stride}")
    }
    let too_many = len.saturating_sub(context);
    Ok(too_many.div_ceil(stride) * stride)
    // </solution>
}

impl Sequence<'_> {
    /// Returns the tokens from the start of the [`window`] on. The model sees them at
    /// positions 0, 1, … again, because those are the ones it was trained on.
    ///
    /// # Errors
    /// If the stride is out of range.
    fn windowed(&self, model: &dyn Model, stride: usize) -> Result<&[u32]> {
        // task 7.9 (optional): Return the tokens from the window's start on
        // <solution>
        let context = model.config().max_position_embeddings;
        let first = window(self.tokens.len(), context, stride)?;
        Ok(&self.tokens[first..])
        // </solution>
    }
}
