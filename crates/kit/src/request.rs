//! One generation request: [`SamplingParams`], as the user writes them, and [`Request`], as the
//! loops use it.

use crate::{LogitsProcessor, Model, ModelConfig, TextFormat};
use candle_core::{bail, Result};
use serde::Deserialize;
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

/// How to continue one prompt, as plain data: one value per request. Names follow vLLM's
/// `SamplingParams` and HF's `GenerationConfig`. Fields left at their defaults have no effect.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct SamplingParams {
    /// Maximum number of tokens to generate, EOS included.
    pub max_new_tokens: usize,
    /// Divisor for the logits before sampling. 0 means greedy decoding, which uses no random
    /// numbers.
    pub temperature: f64,
    /// Number of most likely tokens to sample from. None: all of them (HF silently defaults to 50).
    pub top_k: Option<usize>,
    /// Total probability of the most likely tokens to sample from. 1: all of them.
    pub top_p: f64,
    /// Minimum probability of a token to sample, relative to the most likely one. 0: all of them.
    pub min_p: f64,
    /// Random seed for sampling.
    pub seed: u64,
    /// Penalty on every token in the prompt or the completion: above 1 discourages them, 1 is off.
    pub repetition_penalty: f32,
    /// Amount subtracted once from the logit of every token generated so far. 0 is off.
    pub presence_penalty: f32,
    /// Amount subtracted from a token's logit for each time it has been generated. 0 is off.
    pub frequency_penalty: f32,
    /// Length of the n-grams that must not repeat (HF `no_repeat_ngram_size`).
    pub no_repeat_ngram: Option<usize>,
    /// Number of recent tokens that the penalties (but not the n-grams) consider. None: all of them
    /// (llama.cpp `repeat_last_n`).
    pub penalty_window: Option<usize>,
    /// Strings that end the completion. The output doesn't include them.
    pub stop: Vec<String>,
    /// Words that must not appear, in any letter case.
    pub block: Vec<String>,
    /// True to block whole words only: blocked words may still appear inside other words.
    pub block_whole_words: bool,
    /// Sequences of token ids that must not appear (HF `bad_words_ids`).
    pub block_ids: Vec<Vec<u32>>,
    /// A regular expression that the whole completion must match.
    pub allow_regex: Option<String>,
    /// A format that the whole completion must have, such as a JSON schema.
    #[serde(skip)]
    pub format: Option<Arc<dyn TextFormat>>,
    /// Amounts added to the logits of these tokens, before the penalties. `-inf` forbids a token
    /// (OpenAI `logit_bias`).
    pub logit_bias: Vec<(u32, f32)>,
    /// The only tokens allowed, EOS included. None: all of them (vLLM `allowed_token_ids`).
    pub allowed_token_ids: Option<Vec<u32>>,
    /// Words to block by forbidding their last token wherever it would complete them (vLLM
    /// `bad_words`).
    pub bad_words: Vec<String>,
    /// Only requests with the same salt share cached prefixes (vLLM `cache_salt`).
    pub cache_salt: String,
    /// Minimum number of tokens before EOS or a stop token. Stop strings can still end the
    /// completion, as with HF's `min_new_tokens`. (vLLM's `min_tokens` holds them back, too.)
    pub min_new_tokens: usize,
    /// Ids that end the completion, as EOS does.
    pub stop_token_ids: Vec<u32>,
    /// True to continue past EOS. Under `allow_regex` or `format`, EOS still ends the completion
    /// once no other token is allowed.
    pub ignore_eos: bool,
    /// Work already done for these parameters, such as a compiled pattern.
    #[serde(skip)]
    pub prepared: Prepared,
    /// A server's own: where it puts what it finds out about the prompts.
    #[serde(skip)]
    pub reports: Prepared,
}

impl SamplingParams {
    /// Returns true if the whole completion must match a pattern or have a format.
    pub fn has_form(&self) -> bool {
        self.allow_regex.is_some() || self.format.is_some()
    }
}

/// Something that was built from [`SamplingParams`] ahead of time, such as the automaton of their
/// `allow_regex`, and travels with them to the thread that runs the model. Only the crate that
/// built it knows its type. It follows from the other parameters, so it makes no difference to
/// equality.
#[derive(Clone, Default)]
pub struct Prepared(Option<Arc<dyn Any + Send + Sync>>);

impl Prepared {
    /// Wraps a value that was built.
    pub fn new<T: Any + Send + Sync>(value: Arc<T>) -> Self {
        Self(Some(value))
    }

    /// Returns the value, or None if there is none of this type.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.0.clone()?.downcast().ok()
    }
}

impl PartialEq for Prepared {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "prepared" } else { "not prepared" })
    }
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            max_new_tokens: 128,
            temperature: 0.0,
            top_k: None,
            top_p: 1.0,
            min_p: 0.0,
            seed: 0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            no_repeat_ngram: None,
            penalty_window: None,
            stop: Vec::new(),
            block: Vec::new(),
            block_whole_words: false,
            block_ids: Vec::new(),
            allow_regex: None,
            format: None,
            logit_bias: Vec::new(),
            allowed_token_ids: None,
            bad_words: Vec::new(),
            min_new_tokens: 0,
            stop_token_ids: Vec::new(),
            ignore_eos: false,
            cache_salt: String::new(),
            prepared: Prepared::default(),
            reports: Prepared::default(),
        }
    }
}

/// Chooses a token from processed logits, `(V)`. Each request has its own sampler, because a
/// sampler may hold that request's random stream. Day 7's `argmax` is the greedy one.
pub type Sampler<'a> = Box<dyn FnMut(&[f32]) -> Result<u32> + 'a>;

/// What to do when a sequence reaches the end of the model's context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PastContext {
    /// End the sequence with `FinishReason::Length` (vLLM, llama.cpp).
    #[default]
    Stop,
    /// Continue from the most recent tokens, renumbered from position 0. The window drops `stride`
    /// tokens at a time.
    Window {
        /// Tokens to drop at a time, from 1 to the context length.
        stride: usize,
    },
    /// Continue at ever higher positions, with a cache that evicts: day 10's `SlidingCache`.
    Slide,
}

/// One prompt and how to continue it, in the form that the loops of days 7 to 15 take.
pub struct Request<'a> {
    /// The request's id, which its tokens carry as `row`.
    pub id: usize,
    /// The tokens to continue.
    pub prompt: Vec<u32>,
    /// Maximum number of tokens to generate, EOS included.
    pub max_new_tokens: usize,
    /// Ids that end the completion.
    pub eos_token_ids: Vec<u32>,
    /// Strings that end the completion. The output doesn't include them.
    pub stop_strings: Vec<String>,
    /// What to do at the end of the context.
    pub past_context: PastContext,
    /// Processors applied to the logits at every step, in this order. They are stateless, so
    /// requests can share them.
    pub processors: Vec<Rc<dyn LogitsProcessor + 'a>>,
    /// The sampler that chooses each token.
    pub sampler: Sampler<'a>,
    /// A kernel to use in place of day 7's `log_softmax`. Where it returns None, day 7's version
    /// runs.
    #[allow(clippy::type_complexity)] // the signature is clearer spelled out
    pub log_softmax: Option<fn(&[f32]) -> Option<Vec<f32>>>,
    /// Number of top alternatives to report with each token in [`Token::top`](crate::Token::top).
    /// None: no alternatives.
    pub top_logprobs: Option<usize>,
    /// Only requests with the same salt share cached prefixes (day 22; vLLM `cache_salt`). If every
    /// client has its own salt, no client can find out what another has sent.
    pub cache_salt: String,
    /// A server's own: where it puts what it finds out about the prompt. Loops pass it over.
    pub report: Prepared,
}

impl<'a> Request<'a> {
    /// Returns request 0, with the model's own EOS ids and without stop strings or processors.
    pub fn new(
        config: &ModelConfig,
        prompt: &[u32],
        max_new_tokens: usize,
        sampler: impl FnMut(&[f32]) -> Result<u32> + 'a,
    ) -> Self {
        Self {
            id: 0,
            prompt: prompt.to_vec(),
            max_new_tokens,
            eos_token_ids: config.eos_token_ids.clone(),
            stop_strings: Vec::new(),
            past_context: PastContext::default(),
            processors: Vec::new(),
            sampler: Box::new(sampler),
            log_softmax: None,
            top_logprobs: None,
            cache_salt: String::new(),
            report: Prepared::default(),
        }
    }

    /// Adapts the request to a model, before the first pass: rejects a prompt that doesn't fit, and
    /// lowers `max_new_tokens` to the room left in the context. The last token may land just past
    /// the context, because it is never fed to the model.
    ///
    /// # Errors
    /// If the prompt is empty or longer than the context.
    pub fn fit(&mut self, model: &dyn Model) -> Result<()> {
        check_prompt(model, &self.prompt)?;
        if self.past_context == PastContext::Stop {
            let context = model.config().max_position_embeddings;
            let room = context + 1 - self.prompt.len();
            self.max_new_tokens = self.max_new_tokens.min(room);
        }
        Ok(())
    }
}

/// Checks that a prompt has at least one token and fits the context. Every loop calls this.
///
/// # Errors
/// If the prompt is empty or too long.
pub fn check_prompt(model: &dyn Model, prompt: &[u32]) -> Result<()> {
    let context = model.config().max_position_embeddings;
    if prompt.is_empty() {
        bail!("the prompt is empty; give it at least one token")
    }
    if prompt.len() > context {
        bail!(
            "the prompt is {} tokens long, the context {context}; shorten the prompt",
            prompt.len()
        )
    }
    Ok(())
}
