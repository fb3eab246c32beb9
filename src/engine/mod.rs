//! What assembles the days: an engine that generates, a model from its weights, a chat turn by
//! turn, and the place where a NaN began.

pub mod cache_kind;
pub mod chat;
pub mod chat_template;
pub mod forecast;
pub mod jinja;
pub mod load;
pub mod loops;
pub mod nan_trace;
pub mod ngram_table;
pub mod operations;
pub mod requests;
pub mod roomy_cache;
pub mod simple;
pub mod token_rules;

pub use cache_kind::CacheKind;
pub use load::load_model;
pub use simple::simple_generate;

use crate::day05_model::Transformer;
use crate::day06_generate::TextStream;
use crate::day10_kv_cache::{generate_cached, Cached};
use crate::day12_batching::generate_batch;
use crate::formats::ModelFiles;
use crate::kit::{Batch, Cache, FinishReason, Model, ModelConfig, NoCache};
use crate::kit::{SamplingParams, SharedOps, TokenIter, Tokenizer, WeightFormat, Weights};
use anyhow::{ensure, Result};
use candle_core::Device;

/// A model and its tokenizer, ready to generate: the entrance to the library.
///
/// It computes with the kernels of the device ([`operations::choose`]); a day that is yours
/// computes itself. Engines with different kernels may run in one process, and several threads may
/// each have theirs. A program may call [`kernels::set_threads`](crate::kernels::set_threads) first
/// of all, which makes a step shorter by a third, and run in the pool
/// ([`kernels::in_pool`](crate::kernels::in_pool)), which saves the waits at every product.
///
/// ```no_run
/// use candecode::engine::Engine;
/// use candecode::kernels;
/// use candecode::kit::SamplingParams;
///
/// # fn main() -> anyhow::Result<()> {
/// kernels::set_threads();
/// let engine = Engine::open("story-3m")?; // a name, a folder or a GGUF file
/// let params = SamplingParams { temperature: 0.8, top_p: 0.9, ..Default::default() };
/// for token in engine.generate("Once upon a time", &params)? {
///     print!("{}", token?.text);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Engine {
    model: Transformer,
    tokenizer: Tokenizer,
    /// How the caches of this engine make room; None computes every position again at every step.
    pub cache: Option<CacheKind>,
}

/// A finished completion, of [`Engine::generate_batch`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Completion {
    /// The generated tokens, EOS included.
    pub new_ids: Vec<u32>,
    /// The generated text, up to a stop string.
    pub text: String,
    /// ln of the probability that the model gave to each token, before any processor.
    pub logprobs: Vec<f32>,
    /// Why it ended; None if no token was asked for.
    pub finish: Option<FinishReason>,
    /// What went wrong, if `finish` is [`FinishReason::Failed`]: its tokens and text end before it.
    pub error: Option<String>,
}

impl Engine {
    /// Opens a model on the CPU: an embedded name, a folder, a GGUF file, a short name or
    /// `owner/repo` on the Hugging Face hub. Weights are f32, but those of a file that is quantised
    /// stay so, where there are kernels for them (Q8_0, Q4_0, Q4_1).
    ///
    /// # Errors
    /// If there is no such model, it cannot be fetched, or its files are damaged.
    pub fn open(name: &str) -> Result<Self> {
        let files = ModelFiles::open(name)?;
        let ops = operations::choose(None, &Device::Cpu);
        Self::from_files(&files, load::own_format(&files, &Device::Cpu), &Device::Cpu, &ops)
    }

    /// Loads a model from its files; `format` says what its matrices are in memory, and may be a
    /// type.
    /// [`operations::choose`] has the operations.
    ///
    /// # Errors
    /// If its files are damaged, or the configuration makes no sense.
    pub fn from_files(
        files: &ModelFiles,
        format: impl Into<WeightFormat>,
        device: &Device,
        ops: &SharedOps,
    ) -> Result<Self> {
        Ok(Self::new(load::load_files(files, format, device, ops)?, files.tokenizer()?))
    }

    /// Makes an engine of parts that are in memory.
    ///
    /// # Errors
    /// If a tensor is missing or of another shape than the configuration says.
    pub fn from_parts(
        config: ModelConfig,
        tokenizer: Tokenizer,
        weights: &Weights,
    ) -> candle_core::Result<Self> {
        let ops = operations::choose(None, weights.device());
        Ok(Self::new(load::build(config, weights, &ops)?, tokenizer))
    }

    /// An engine of a model that is loaded already.
    pub fn new(model: Transformer, tokenizer: Tokenizer) -> Self {
        Self { model, tokenizer, cache: Some(CacheKind::Dynamic) }
    }

    /// The model.
    pub fn model(&self) -> &Transformer {
        &self.model
    }

    /// The operations that the model computes with.
    pub fn ops(&self) -> &SharedOps {
        &self.model.ops
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// These parameters, with stop strings that are special tokens of this tokenizer as ids.
    fn own_params(&self, params: &SamplingParams) -> Result<SamplingParams> {
        requests::check_stops(&params.stop, &self.tokenizer)?;
        let mut params = params.clone();
        requests::special_stops(&mut params, &self.tokenizer);
        Ok(params)
    }

    /// An empty cache of this engine's kind.
    pub fn new_cache(&self) -> Box<dyn Cache> {
        match self.cache {
            None => Box::new(NoCache),
            Some(kind) => kind.new_cache(self.model.config().num_hidden_layers),
        }
    }

    /// An empty cache of this engine's kind for rows that come and go: beams, and batches.
    ///
    /// # Errors
    /// If the kind slides.
    pub fn new_batch(&self) -> candle_core::Result<Box<dyn Batch>> {
        match self.cache {
            None => Ok(Box::new(NoCache)),
            Some(kind) => kind.new_batch(self.model.config().num_hidden_layers),
        }
    }

    /// An empty cache of this engine's kind, for `model`: the engine's own, or one in front of it.
    pub fn new_cached<'a>(&self, model: &'a dyn Model) -> Cached<'a> {
        Cached::new(model, self.new_cache())
    }

    /// Continues a prompt: an iterator of its tokens, each with the text that became certain with
    /// it. Every call has a cache of its own, so several may go on side by side.
    ///
    /// # Errors
    /// If a parameter is out of range, or the prompt is empty or longer than the context; later,
    /// each token may be an error.
    pub fn generate(&self, prompt: &str, params: &SamplingParams) -> Result<TokenIter<'_>> {
        let config = self.model.config();
        let prompt = self.tokenizer.encode(prompt)?;
        let params = self.own_params(params)?;
        let processors = requests::processors(&params, &self.tokenizer, config)?;
        let sampler = requests::sampler(&params, 0, self.ops());
        let request = requests::request(config, &prompt, &params, &processors, sampler, self.ops());
        let cached = self.new_cached(&self.model);
        Ok(generate_cached(cached, &self.tokenizer, request)?)
    }

    /// Continues several prompts in one batch; `params` has one entry for each, or one for all.
    /// Every completion is what it would be alone. One that fails, because its rules leave no token
    /// or its logits make no sense, ends with [`FinishReason::Failed`] and its error; the others go
    /// on.
    ///
    /// # Errors
    /// If there is no prompt or one does not fit, the counts differ, a parameter is out of range,
    /// or the model fails.
    pub fn generate_batch(
        &self,
        prompts: &[&str],
        params: &[SamplingParams],
    ) -> Result<Vec<Completion>> {
        ensure!(
            params.len() == 1 || params.len() == prompts.len(),
            "{} prompts need as many parameters, or one for all; got {}",
            prompts.len(),
            params.len()
        );
        let config = self.model.config();
        let mut batch = Vec::new();
        for (id, prompt) in prompts.iter().enumerate() {
            let params = self.own_params(params.get(id).unwrap_or(&params[0]))?;
            let prompt = self.tokenizer.encode(prompt)?;
            let processors = requests::processors(&params, &self.tokenizer, config)?;
            let sampler = requests::sampler(&params, id, self.ops());
            let ops = self.ops();
            batch.push(requests::request(config, &prompt, &params, &processors, sampler, ops));
        }
        let mut completions = vec![Completion::default(); prompts.len()];
        for token in generate_batch(&self.model, &self.tokenizer, batch, self.new_batch()?)? {
            let token = token?;
            let completion = &mut completions[token.row];
            if token.error.is_none() {
                completion.new_ids.push(token.id);
                completion.logprobs.push(token.logprob);
            }
            completion.error = token.error;
            completion.text.push_str(&token.text);
            completion.finish = token.finish;
        }
        Ok(completions)
    }
}

/// The text of `ids` where they go on after `prompt`: a tokenizer may decode a token differently at
/// the beginning of a text.
///
/// # Errors
/// If the tokenizer fails.
pub fn text_after(
    tokenizer: &Tokenizer,
    prompt: &[u32],
    ids: &[u32],
) -> candle_core::Result<String> {
    let mut stream = TextStream::after(tokenizer, prompt);
    let mut text = String::new();
    for id in ids {
        text += &stream.push(*id)?;
    }
    Ok(text + &stream.finish()?)
}
