//! What is asked for: [`SamplingParams`] as a user writes it, [`Request`] as the loops take it.

use crate::{LogitsProcessor, Model, ModelConfig};
use candle_core::{bail, Result};
use serde::Deserialize;
use std::rc::Rc;

/// How one prompt shall be continued: plain data, one for each request. Names are those of vLLM's
/// `SamplingParams` and HF's `GenerationConfig`; what is left at its default changes nothing.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct SamplingParams {
    /// Tokens to generate at most, EOS included.
    pub max_new_tokens: usize,
    /// Divides the logits before sampling; 0 is greedy decoding, and draws nothing.
    pub temperature: f64,
    /// Sample among so many of the likeliest tokens; None is all of them (HF silently has 50).
    pub top_k: Option<usize>,
    /// Sample among the likeliest tokens that together reach this probability; 1 is all of them.
    pub top_p: f64,
    /// Sample among the tokens at least so many times as likely as the likeliest; 0 is all of them.
    pub min_p: f64,
    /// The seed of sampling.
    pub seed: u64,
    /// Above 1 it discourages every token of prompt and completion; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted once from the logit of every generated token; 0 is off.
    pub presence_penalty: f32,
    /// Subtracted from the logit of a token for each time that it was generated; 0 is off.
    pub frequency_penalty: f32,
    /// No sequence of so many tokens occurs twice (HF `no_repeat_ngram_size`).
    pub no_repeat_ngram: Option<usize>,
    /// How many of the last tokens the penalties (not the n-grams) look at; None is all of them
    /// (llama.cpp `repeat_last_n`).
    pub penalty_window: Option<usize>,
    /// Strings that end the completion; they are not part of it.
    pub stop: Vec<String>,
    /// Words that must not appear, in any letter case.
    pub block: Vec<String>,
    /// Blocked words may appear inside other words.
    pub block_whole_words: bool,
    /// Sequences of token ids that must not appear (HF `bad_words_ids`).
    pub block_ids: Vec<Vec<u32>>,
    /// A regular expression that the whole completion must match.
    pub allow_regex: Option<String>,
    /// Added to the logits of these tokens, before the penalties; `-inf` forbids one (OpenAI
    /// `logit_bias`).
    pub logit_bias: Vec<(u32, f32)>,
    /// The only tokens that may be generated, EOS included; None allows all (vLLM
    /// `allowed_token_ids`).
    pub allowed_token_ids: Option<Vec<u32>>,
    /// Words whose last token is forbidden wherever it would complete them (vLLM `bad_words`).
    pub bad_words: Vec<String>,
    /// No EOS and no stop token comes before this many tokens (HF `min_new_tokens`, vLLM
    /// `min_tokens`). Stop strings still end the text.
    pub min_new_tokens: usize,
    /// Ids that end the completion as EOS does.
    pub stop_token_ids: Vec<u32>,
    /// EOS doesn't end the completion. Under `allow_regex` it still does, once nothing else is
    /// allowed.
    pub ignore_eos: bool,
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
            logit_bias: Vec::new(),
            allowed_token_ids: None,
            bad_words: Vec::new(),
            min_new_tokens: 0,
            stop_token_ids: Vec::new(),
            ignore_eos: false,
        }
    }
}

/// Chooses a token from processed logits `(V)`. A sampler belongs to one request: it may hold that
/// request's random stream. Day 7's `argmax` is the greedy one.
pub type Sampler<'a> = Box<dyn FnMut(&[f32]) -> Result<u32> + 'a>;

/// What happens when a sequence reaches the end of the model's context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PastContext {
    /// It ends there, with `FinishReason::Length` (vLLM, llama.cpp).
    #[default]
    Stop,
    /// It goes on from its last tokens, which get the positions 0, 1, … again; `stride` tokens
    /// leave the window at once.
    Window {
        /// In 1 to the context.
        stride: usize,
    },
    /// It goes on at ever higher positions, over a cache that evicts: day 10's `SlidingCache`.
    Slide,
}

/// One prompt and how it is continued, in the form that the loops of days 7 to 15 take.
pub struct Request<'a> {
    /// Its number: the `row` of its tokens.
    pub id: usize,
    /// The tokens to continue.
    pub prompt: Vec<u32>,
    /// Tokens to generate at most, EOS included.
    pub max_new_tokens: usize,
    /// Ids that end the completion.
    pub eos_token_ids: Vec<u32>,
    /// Strings that end the completion; they are not part of it.
    pub stop_strings: Vec<String>,
    /// What happens at the end of the context.
    pub past_context: PastContext,
    /// Applied to the logits of every step, in this order. They keep no state, so requests share
    /// them.
    pub processors: Vec<Rc<dyn LogitsProcessor + 'a>>,
    /// Chooses the token.
    pub sampler: Sampler<'a>,
    /// A kernel that stands in for day 7's `log_softmax`; what it returns None for is left to that
    /// day.
    #[allow(clippy::type_complexity)] // a function's own signature says the most
    pub log_softmax: Option<fn(&[f32]) -> Option<Vec<f32>>>,
    /// The number of likeliest tokens that each token carries in its `top`; None: none.
    pub top_logprobs: Option<usize>,
}

impl<'a> Request<'a> {
    /// Request 0, with the model's own EOS ids, no stop strings and no processors.
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
        }
    }

    /// Fits the request to a model, before its first pass: refuses a prompt that does not fit, and
    /// lowers `max_new_tokens` to what the context has room for. The last token may stand just past
    /// the context, for it is never fed to the model.
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

/// What every loop asks of a prompt: at least one token, and no more than the context.
///
/// # Errors
/// If it is empty or too long.
pub fn check_prompt(model: &dyn Model, prompt: &[u32]) -> Result<()> {
    let context = model.config().max_position_embeddings;
    if prompt.is_empty() {
        bail!("the prompt is empty; give it at least one token")
    }
    if prompt.len() > context {
        bail!("the prompt is {} tokens long, the context {context}; shorten it", prompt.len())
    }
    Ok(())
}
