//! Code that puts the days together: the engine that generates text, model loading, chat, and
//! tracing a NaN to its source.

#![warn(missing_docs)]

// Without forwarding in Cargo.toml, a feature that the kit reads would silently be false in it.
const _: () = assert!(candecode::kit::device::METAL || !cfg!(feature = "metal"));
const _: () = assert!(candecode::kit::device::CUDA || !cfg!(feature = "cuda"));

pub mod cache_config;
pub mod chat;
pub mod credits;
pub mod extras;
pub mod forecast;
pub mod generation_config;
pub mod kernels;
pub mod load;
pub mod loops;
pub mod medusa;
pub mod memory_check;
pub mod ngram_table;
pub mod operations;
pub mod requests;
pub mod right_padding;
pub mod score;
pub mod token_rules;
pub mod trace;
pub mod watched;

pub use cache_config::{CacheConfig, CacheKind};
pub use load::load_model;

use anyhow::{ensure, Result};
use candecode::day05_model::Transformer;
use candecode::day06_generate::TextStream;
use candecode::day10_kv_cache::{generate_cached, Cached};
use candecode::day12_batching::generate_batch;
use candecode::day21_pages::{generate_paged, PagedCache};
use candecode::kit::{Batch, Cache, FinishReason, Model, ModelConfig, NoCache};
use candecode::kit::{SamplingParams, SharedOps, TokenIter, Tokenizer, WeightFormat, Weights};
use candecode_formats::ModelFiles;
use candle_core::Device;

/// A model and its tokenizer, ready to generate. This is the library's entry point.
///
/// Uses the device's kernels ([`operations::choose`]), except that any day you have written runs
/// your code. Engines with different kernels can share a process, and each thread can have its own.
/// Call [`kernels::set_threads`] first, which makes a step a third shorter, and run in the pool
/// ([`kernels::in_pool`]), which avoids a wait at every product.
///
/// ```no_run
/// use candecode_engine::Engine;
/// use candecode_engine::kernels;
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
    /// The kind of KV cache to use. None: recompute every position at every step.
    pub cache: Option<CacheConfig>,
}

/// A finished completion, returned by [`Engine::generate_batch`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Completion {
    /// The generated tokens, including EOS.
    pub new_ids: Vec<u32>,
    /// The generated text, up to the stop string.
    pub text: String,
    /// The natural log of the probability the model assigned to each token, before any processor.
    pub logprobs: Vec<f32>,
    /// Why it ended. None if no tokens were requested.
    pub finish: Option<FinishReason>,
    /// The error, if `finish` is [`FinishReason::Failed`]. The tokens and text stop just before it.
    pub error: Option<String>,
}

impl Engine {
    /// Opens a model on the CPU: an embedded name, a folder, a GGUF file, or a short name or
    /// `owner/repo` in the Hugging Face hub's cache. Weights are f32, but quantized files stay
    /// quantized if there are kernels for them (Q8_0, Q4_0, Q4_1).
    ///
    /// # Errors
    /// If there is no such model on this machine, or its files are damaged.
    pub fn open(name: &str) -> Result<Self> {
        let files = ModelFiles::open(name)?;
        let ops = operations::choose(None, &Device::Cpu);
        Self::from_files(&files, load::own_format(&files, &Device::Cpu), &Device::Cpu, &ops)
    }

    /// Loads a model from its files, with the operations from [`operations::choose`]. `format` is
    /// how to store the matrices in memory; a dtype converts into one.
    ///
    /// # Errors
    /// If its files are damaged or the configuration is invalid.
    pub fn from_files(
        files: &ModelFiles,
        format: impl Into<WeightFormat>,
        device: &Device,
        ops: &SharedOps,
    ) -> Result<Self> {
        Ok(Self::new(load::load_files(files, format, device, ops)?, files.tokenizer()?))
    }

    /// Creates an engine from parts in memory.
    ///
    /// # Errors
    /// If a tensor is missing, or its shape doesn't match the configuration.
    pub fn from_parts(
        config: ModelConfig,
        tokenizer: Tokenizer,
        weights: &Weights,
    ) -> candle_core::Result<Self> {
        let ops = operations::choose(None, weights.device());
        Ok(Self::new(load::build(config, weights, &ops)?, tokenizer))
    }

    /// Creates an engine from a model that is already loaded.
    pub fn new(model: Transformer, tokenizer: Tokenizer) -> Self {
        Self { model, tokenizer, cache: Some(CacheConfig::Dynamic) }
    }

    /// Returns the model.
    pub fn model(&self) -> &Transformer {
        &self.model
    }

    /// Returns the operations that the model computes with.
    pub fn ops(&self) -> &SharedOps {
        &self.model.ops
    }

    /// Returns the tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Returns these parameters with any stop string that is a special token replaced by its id.
    fn own_params(&self, params: &SamplingParams) -> Result<SamplingParams> {
        requests::check_stops(&params.stop, &self.tokenizer)?;
        let mut params = params.clone();
        requests::special_stops(&mut params, &self.tokenizer, self.model().config().vocab_size);
        Ok(params)
    }

    /// Creates an empty cache of this engine's kind.
    ///
    /// # Errors
    /// Same as [`CacheConfig::new_cache`].
    pub fn new_cache(&self) -> candle_core::Result<Box<dyn Cache>> {
        match self.cache {
            None => Ok(Box::new(NoCache)),
            Some(kind) => kind.new_cache(self.model.config().num_hidden_layers),
        }
    }

    /// Creates an empty cache of this engine's kind for rows that come and go, as in beam search
    /// and batching.
    ///
    /// # Errors
    /// If this is a sliding cache.
    pub fn new_batch(&self) -> candle_core::Result<Box<dyn Batch>> {
        match self.cache {
            None => Ok(Box::new(NoCache)),
            Some(kind) => kind.new_batch(self.model.config().num_hidden_layers),
        }
    }

    /// Creates an empty cache of this engine's kind for `model`: the engine's own, or a wrapper
    /// around it.
    ///
    /// # Errors
    /// Same as [`CacheConfig::new_cache`].
    pub fn new_cached<'a>(&self, model: &'a dyn Model) -> candle_core::Result<Cached<'a>> {
        Ok(Cached::new(model, self.new_cache()?))
    }

    /// Continues a prompt and returns an iterator over its tokens, each with the text that is final
    /// once the token is known. Every call has its own cache, so several can run concurrently.
    ///
    /// # Errors
    /// If a parameter is out of range, or the prompt is empty or longer than the context. After
    /// that, any item of the iterator can be an error.
    pub fn generate(&self, prompt: &str, params: &SamplingParams) -> Result<TokenIter<'_>> {
        let config = self.model.config();
        let prompt = self.tokenizer.encode(prompt)?;
        let params = self.own_params(params)?;
        let processors = requests::processors(&params, &self.tokenizer, config)?;
        let sampler = requests::sampler(&params, 0, self.ops());
        let request = requests::request(config, &prompt, &params, &processors, sampler, self.ops());
        let cached = self.new_cached(&self.model)?;
        Ok(generate_cached(cached, &self.tokenizer, request)?)
    }

    /// Continues several prompts in one batch. `params` has one entry per prompt, or a single entry
    /// for all. Every completion is the same as if its prompt ran alone. A row that fails, because
    /// its constraints leave no legal token or its logits are invalid, ends with
    /// [`FinishReason::Failed`] and its error. The others continue.
    ///
    /// # Errors
    /// If there are no prompts or one doesn't fit, the counts differ, a parameter is out of range,
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
        let (model, tokenizer) = (&self.model, &self.tokenizer);
        let tokens = match self.cache {
            Some(CacheConfig::Paged { block_size, num_blocks }) => {
                let layers = model.config().num_hidden_layers;
                let cache = PagedCache::new(layers, num_blocks, block_size)?;
                generate_paged(model, tokenizer, batch, cache)?
            }
            _ => generate_batch(model, tokenizer, batch, self.new_batch()?)?,
        };
        for token in tokens {
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

/// Decodes `ids` as a continuation of `prompt`: a tokenizer may decode a token differently at the
/// start of a text.
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
