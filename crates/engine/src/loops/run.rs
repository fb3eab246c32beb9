//! A loop with all that it needs to run.

use super::Loop;
use crate::ngram_table::NgramTable;
use crate::requests::{self, Processors};
use crate::trace::Trace;
use crate::{CacheConfig, Engine};
use anyhow::{bail, ensure, Context as _, Result};
use candecode::day08_sampling::torch_samplers;
use candecode::day21_pages::PagedCache;
use candecode::day23_token_budget::Limits;
use candecode::day24_draft_trees::MedusaHeads;
use candecode::kit::draft::Counts;
use candecode::kit::{BeamParams, Hypothesis, Model, PastContext, Request};
use candecode::kit::{Sampler, SamplingParams, Token, TokenIter, Tokenizer};

/// Callback for each token of any row. Returns false to end the loop, or an error if the token
/// can't be shown.
pub type OnToken<'a> = dyn FnMut(Token) -> Result<bool> + 'a;

/// Results of a loop other than tokens.
#[derive(Default)]
pub struct Found {
    /// The hypotheses of a beam search.
    pub hypotheses: Vec<Hypothesis>,
    /// Statistics of speculative decoding.
    pub counts: Option<Counts>,
    /// Tasks that aren't written yet, for which the reference's code ran.
    pub open_tasks: Vec<String>,
}

/// A loop with all that it needs to run: models, parameters and settings.
pub struct Run<'a> {
    /// The loop.
    pub day_loop: &'static Loop,
    /// The engine that provides the tokenizer and caches.
    pub engine: &'a Engine,
    /// The model to run: the engine's own, or a wrapper around it that can be stopped.
    pub model: &'a dyn Model,
    /// Sampling parameters of every request.
    pub params: SamplingParams,
    /// Logits processors built from these parameters.
    pub processors: Processors,
    /// Whether to draw from torch's random stream, which all rows of a batch share.
    pub torch_stream: bool,
    /// Number of top alternatives to report with each token.
    pub top_logprobs: Option<usize>,
    /// Behavior when the context is full.
    pub past_context: PastContext,
    /// Parameters of a beam search.
    pub beams: BeamParams,
    /// Drafts to verify.
    pub drafts: Option<Drafts<'a>>,
    /// Maximum number of positions in a batch whose loop limits it.
    pub max_batch_tokens: usize,
    /// Bounds of a step whose loop has a token budget.
    pub limits: Limits,
    /// The wrapper around the model that shows its passes, if they are to be shown.
    pub trace: Option<&'a Trace<'a>>,
}

/// Drafts for speculative decoding.
pub struct Drafts<'a> {
    /// Their source.
    pub source: DraftSource<'a>,
    /// Maximum number of tokens in a draft that isn't a tree.
    pub num_tokens: usize,
    /// Maximum number of children at each depth of a tree.
    pub tree_shape: Vec<usize>,
    /// Whether to use typical acceptance for trees, which changes the text.
    pub typical: bool,
}

/// The source of the drafts.
pub enum DraftSource<'a> {
    /// What followed the last N tokens earlier in the sequence.
    Ngrams(usize),
    /// N-grams of a corpus.
    Table(NgramTable),
    /// A smaller engine, and its model or a wrapper around it.
    Model(&'a Engine, &'a dyn Model),
    /// Medusa heads.
    Heads(MedusaHeads),
}

impl<'a> Run<'a> {
    /// Runs the loop for `prompts`. The first one is request number `first` of the whole run, and
    /// row 0 draws that request's random numbers. Only loops that take batches accept several.
    ///
    /// # Errors
    /// If the prompt doesn't fit, or if the model, a processor or `on_token` fails.
    pub fn run(&self, prompts: &[Vec<u32>], first: usize, on_token: &mut OnToken) -> Result<Found> {
        let takes = prompts.len() == 1 || self.day_loop.takes_batches();
        ensure!(takes, "{} takes one prompt", self.day_loop);
        let Some(trace) = self.trace else {
            return (self.day_loop.run)(self, prompts, first, on_token);
        };
        trace.begin(first, prompts);
        let ran = (self.day_loop.run)(self, prompts, first, &mut |token| {
            trace.token(&token);
            on_token(token)
        });
        trace.flush();
        ran
    }

    /// Shows the counts of a loop that drafts, after each of its passes.
    pub(super) fn trace_counts(&self, counts: Counts) {
        if let Some(trace) = self.trace {
            trace.counts(counts);
        }
    }

    /// Creates an empty paged cache of the engine's size.
    pub(super) fn paged_cache(&self) -> Result<PagedCache> {
        let Some(CacheConfig::Paged { block_size, num_blocks }) = self.engine.cache else {
            bail!("{} needs a paged cache", self.day_loop)
        };
        let layers = self.model.config().num_hidden_layers;
        Ok(PagedCache::new(layers, num_blocks, block_size)?)
    }

    /// Creates a request for this prompt, greedy or with portable random stream number `stream`.
    pub fn request(&self, prompt: &[u32], stream: usize) -> Request<'static> {
        self.request_with(prompt, requests::sampler(&self.params, stream, self.engine.ops()))
    }

    fn request_with(&self, prompt: &[u32], sampler: Sampler<'static>) -> Request<'static> {
        let (config, ops) = (self.model.config(), self.engine.ops());
        let processors = &self.processors;
        let mut request = requests::request(config, prompt, &self.params, processors, sampler, ops);
        request.past_context = self.past_context;
        request.top_logprobs = self.top_logprobs;
        request
    }

    /// Creates the requests of a batch, the first of which draws random stream number `first`. In
    /// torch, all rows share one stream.
    pub(super) fn requests(&self, prompts: &[Vec<u32>], first: usize) -> Vec<Request<'static>> {
        if self.torch_stream {
            let samplers = torch_samplers(self.params.seed, prompts.len());
            let rows = prompts.iter().zip(samplers);
            return rows.map(|(prompt, sampler)| self.request_with(prompt, sampler)).collect();
        }
        prompts.iter().zip(first..).map(|(prompt, row)| self.request(prompt, row)).collect()
    }

    /// Creates the request of a loop that takes one prompt. Its random stream is number `first`.
    pub(super) fn only_request(
        &self,
        prompts: &[Vec<u32>],
        first: usize,
    ) -> Result<Request<'static>> {
        self.requests(prompts, first).pop().context("a loop needs a prompt")
    }

    /// Returns the tokenizer.
    pub(super) fn tokenizer(&self) -> &'a Tokenizer {
        self.engine.tokenizer()
    }

    /// Returns the drafts.
    pub(super) fn drafts(&self) -> Result<&Drafts<'a>> {
        self.drafts.as_ref().with_context(|| format!("{} needs drafts", self.day_loop))
    }

    /// Returns true if tokens are chosen rather than drawn.
    pub(super) fn is_greedy(&self) -> bool {
        self.params.temperature == 0.0
    }
}

/// Passes the tokens on until they end or `on_token` returns false.
pub(super) fn stream(tokens: TokenIter, on_token: &mut OnToken) -> Result<Found> {
    for token in tokens {
        if !on_token(token?)? {
            break;
        }
    }
    Ok(Found::default())
}
