//! Day 7: greedy, done right. The best token, what it was worth, when to stop, and what to do at the end of the window.

use candecode::day06_generate::TextStream;
use candecode::kit::processor::process_all;
use candecode::kit::{FinishReason, Logits, Model, NoCache, PastContext, ProcessorInput, Request};
use candecode::kit::{Step, Token, TokenIter, Tokenizer};
use candle_core::{bail, Result};

/// The index of the largest logit, the first of equals (torch `argmax` on the CPU). No logit is `+inf`: no model computes
/// it, and no rule here writes it.
///
/// # Errors
/// If there is none: no logits, a NaN among them, or all `-inf`.
pub fn argmax(logits: &[f32]) -> Result<u32> {
    // task 7.1: where the largest is, or an error
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
        Some(_) => bail!("every logit is -inf: no token is left to choose"),
        None => bail!("there are no logits to choose from"),
    }
    // </solution>
}

/// ln of the softmax: `x - max - ln Σ exp(x - max)`, so that neither `exp` overflows nor `ln` sees 0 (torch `log_softmax`).
///
/// # Errors
/// As [`argmax`].
pub fn log_softmax(logits: &[f32]) -> Result<Vec<f32>> {
    // task 7.2: the logits minus their log-sum-exp
    // <solution>
    let max = logits[argmax(logits)? as usize];
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - max).exp()).sum();
    let log_sum_exp = f64::from(max) + sum.ln();
    Ok(logits.iter().map(|logit| (f64::from(*logit) - log_sum_exp) as f32).collect())
    // </solution>
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
        // <solution>
        self.held.push_str(text);
        if let Some(at) = self.stops.iter().filter_map(|stop| self.held.find(stop)).min() {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let begins = |end: &str| self.stops.iter().any(|stop| stop.starts_with(end));
        let mut starts = self.held.char_indices().map(|(at, _)| at);
        let safe = starts.find(|at| begins(&self.held[*at..])).unwrap_or(self.held.len());
        let rest = self.held.split_off(safe);
        (std::mem::replace(&mut self.held, rest), false)
        // </solution>
    }

    /// At the end: what was held back, for no stop string came of it.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// One request in the making: its tokens, the part of its text that may be shown, and why it ended.
pub struct Sequence<'a> {
    /// What was asked for; `max_new_tokens` is the bound that [`Request::fit`] has left.
    pub request: Request<'a>,
    /// Prompt and generated tokens.
    pub tokens: Vec<u32>,
    /// How many of `tokens` are the prompt.
    pub prompt_len: usize,
    /// Why it ended; None while it goes on.
    pub finish: Option<FinishReason>,
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
            stream: TextStream::new(tokenizer),
            stops: StopStrings::new(&request.stop_strings),
            request,
        }
    }

    /// Tokens that may still be generated.
    pub fn remaining(&self) -> usize {
        let generated = self.tokens.len() - self.prompt_len;
        self.request.max_new_tokens.saturating_sub(generated)
    }

    /// What a processor, or a drafter, may know of the sequence.
    pub fn processor_input(&self) -> ProcessorInput<'_> {
        ProcessorInput {
            tokens: &self.tokens,
            prompt_len: self.prompt_len,
            remaining: self.remaining(),
            eos: &self.request.eos_token_ids,
        }
    }

    /// The tokens that the next pass sees: all of them, or, where the request asks for a window past
    /// the context, the last ones.
    ///
    /// # Errors
    /// If the window's stride is out of range.
    pub fn visible(&self, model: &dyn Model) -> Result<&[u32]> {
        let PastContext::Window { stride } = self.request.past_context else {
            return Ok(&self.tokens);
        };
        let context = model.config().max_position_embeddings;
        let first = window(self.tokens.len(), context, stride)?;
        Ok(&self.tokens[first..])
    }

    /// Chooses the next token from the model's logits, `(V)`: processors, then the sampler. Gives the
    /// id and its log-probability under the model itself, before any processor. A sequence at its
    /// bound is asked for no token, so at least one remains.
    ///
    /// # Errors
    /// If a processor leaves nothing, or the choice fails.
    pub fn choose(&mut self, raw: &[f32]) -> Result<(u32, f32)> {
        // task 7.4: the choice, and what the token was worth to the model
        // <solution>
        let logprobs = log_softmax(raw)?;
        let mut logits = raw.to_vec();
        process_all(&self.request.processors, &self.processor_input(), &mut logits)?;
        let id = (self.request.sampler)(&logits)?;
        match logprobs.get(id as usize) {
            Some(logprob) => Ok((id, *logprob)),
            None => bail!("token id {id} was chosen, of a vocabulary of {}", raw.len()),
        }
        // </solution>
    }

    /// Takes the chosen token in: adds it, says which text may be shown now, and whether the sequence
    /// ends here; `finish` keeps the reason. EOS never enters the text; a stop string wins over the
    /// bound; at the end no text stays held back. The text that EOS brings out of the stream may
    /// complete a stop string: the text is cut there, and the reason is EOS all the same.
    ///
    /// # Errors
    /// If the tokenizer fails.
    pub fn push(&mut self, id: u32, logprob: f32) -> Result<Token> {
        // task 7.5: take the token in; say what may be shown, and why the sequence ends
        // <solution>
        self.tokens.push(id);
        let eos = self.request.eos_token_ids.contains(&id);
        let full = self.remaining() == 0;
        let mut piece = if eos { String::new() } else { self.stream.push(id)? };
        if eos || full {
            piece.push_str(&self.stream.finish()?);
        }
        let (mut text, stopped) = self.stops.push(&piece);
        self.finish = match (eos, stopped, full) {
            (true, _, _) => Some(FinishReason::Eos),
            (_, true, _) => Some(FinishReason::Stop),
            (_, _, true) => Some(FinishReason::Length),
            _ => None,
        };
        if self.finish.is_some() && !stopped {
            text.push_str(&self.stops.finish());
        }
        Ok(Token { row: self.request.id, id, logprob, text, finish: self.finish })
        // </solution>
    }
}

/// The next token of a sequence, without a cache: one pass over all that is visible, the choice, and
/// its consequences.
///
/// # Errors
/// If the model, a processor or the sampler fails.
pub fn next_token(model: &dyn Model, sequence: &mut Sequence) -> Result<Token> {
    // task 7.6: one token: a pass over the visible tokens, the choice, and what comes of it
    // <solution>
    let step = Step::new(model, sequence.visible(model)?, 0)?.with_logits(Logits::Last(1));
    let logits = model.forward(&step, &mut NoCache)?; // (1, 1, V)
    let raw: Vec<f32> = logits.flatten_all()?.to_vec1()?;
    let (id, logprob) = sequence.choose(&raw)?;
    sequence.push(id, logprob)
    // </solution>
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

/// The first token that is kept when `len` tokens meet a context of `context`: 0 while they fit, and
/// then a multiple of `stride`, so that the window moves seldom and far, not at every token. Positions
/// are renumbered from 0.
///
/// # Errors
/// If `stride` is not in 1 to `context`.
pub fn window(len: usize, context: usize, stride: usize) -> Result<usize> {
    // task 7.7 (further): where the window begins
    // <solution>
    if stride == 0 || stride > context {
        bail!("stride must be in 1 to the context of {context}, got {stride}")
    }
    Ok(len.saturating_sub(context).div_ceil(stride) * stride)
    // </solution>
}
