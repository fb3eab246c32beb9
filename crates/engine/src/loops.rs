//! One interface to the days' generation loops: prompts in, tokens out.

use crate::ngram_table::{NgramTable, TableDrafter};
use crate::requests::{self, Processors};
use crate::{CacheKind, Engine};
use anyhow::{ensure, Result};
use candecode::day06_generate::{simple_generate, TextStream};
use candecode::day07_greedy::{argmax, generate};
use candecode::day08_sampling::torch_samplers;
use candecode::day10_kv_cache::generate_cached;
use candecode::day11_beam_search::beam_search;
use candecode::day12_batching::{generate_batch, BatchCache};
use candecode::day13_speculative::{decode_block, ModelDrafter, NgramDrafter, SpeculativeDecoder};
use candecode::day15_scheduler::{NewCache, Scheduler};
use candecode::day21_pages::{generate_paged, PagedCache};
use candecode::day24_draft_trees::{decode_tree, Accept, MedusaHeads, MedusaTree, ModelTree};
use candecode::day24_draft_trees::{NgramTree, TreeCache, TreeDecoder};
use candecode::kit::draft::{Counts, Drafter, TreeDrafter};
use candecode::kit::rng::RequestRng;
use candecode::kit::{BeamParams, FinishReason, Hypothesis, Model, PastContext, Request};
use candecode::kit::{Sampler, SamplingParams, SharedOps, Token};

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
}

/// The loop to run, and its settings.
pub struct LoopPlan {
    /// The day of the loop to run: 6, 7, 10 to 13, 15, 21 or 24.
    pub day: usize,
    /// Sampling parameters of every request.
    pub params: SamplingParams,
    /// Logits processors built from these parameters.
    pub processors: Processors,
    /// The model's operations.
    pub ops: SharedOps,
    /// Whether to draw from torch's random stream, which all rows of a batch share.
    pub torch: bool,
    /// Behavior when the context is full.
    pub past_context: PastContext,
    /// Day 11's beam search parameters.
    pub beams: BeamParams,
    /// Number of tokens that day 13's n-gram drafter looks up.
    pub draft_ngram: usize,
    /// N-grams of a corpus to draft from. None: look them up in the sequence itself.
    pub draft_table: Option<NgramTable>,
    /// Maximum number of tokens to draft.
    pub num_draft_tokens: usize,
    /// Day 24's trees.
    pub tree: TreePlan,
    /// Maximum number of positions in day 15's batch.
    pub max_batch_tokens: usize,
    /// Number of top alternatives to report with each token. Days 6, 11 and 13 don't report any.
    pub top_logprobs: Option<usize>,
}

/// Day 24's settings.
#[derive(Default)]
pub struct TreePlan {
    /// Maximum number of children at each depth.
    pub shape: Vec<usize>,
    /// Whether to use typical acceptance for drafted tokens, which changes the text.
    pub typical: bool,
    /// The heads to draft with. None: draft with a model or with n-grams.
    pub heads: Option<MedusaHeads>,
}

/// The models that loops run on: the engine's own, or a wrapper around it that can be stopped.
#[derive(Clone, Copy)]
pub struct Models<'a> {
    /// The engine that provides the tokenizer and caches.
    pub engine: &'a Engine,
    /// The model to run: the engine's own, or its wrapper.
    pub model: &'a dyn Model,
    /// A draft engine and its model. None: draft with n-grams.
    pub drafter: Option<(&'a Engine, &'a dyn Model)>,
}

impl LoopPlan {
    /// Runs the loop for `prompts`. The first one is request number `first` of the whole run, and
    /// row 0 draws that request's random numbers. Days 6, 7, 10, 11, 13 and 24 take one prompt.
    ///
    /// # Errors
    /// If the prompt doesn't fit, or if the model, a processor or `on_token` fails.
    pub fn run(
        &self,
        models: Models,
        prompts: &[Vec<u32>],
        first: usize,
        on_token: &mut OnToken,
    ) -> Result<Found> {
        let mut found = Found::default();
        match self.day {
            6 => self.simple(models, &prompts[0], on_token)?,
            11 => found.hypotheses = self.search(models, &prompts[0])?,
            13 => found.counts = Some(self.speculate(models, &prompts[0], first, on_token)?),
            15 => self.serve(models, prompts, on_token)?,
            24 => found.counts = Some(self.grow_trees(models, &prompts[0], first, on_token)?),
            _ => self.stream(models, prompts, first, on_token)?,
        }
        Ok(found)
    }

    /// Creates a request for this prompt, greedy or with portable random stream number `stream`.
    pub fn request(&self, model: &dyn Model, prompt: &[u32], stream: usize) -> Request<'static> {
        self.request_with(model, prompt, requests::sampler(&self.params, stream, &self.ops))
    }

    fn request_with(
        &self,
        model: &dyn Model,
        prompt: &[u32],
        sampler: Sampler<'static>,
    ) -> Request<'static> {
        let processors = &self.processors;
        let mut request =
            requests::request(model.config(), prompt, &self.params, processors, sampler, &self.ops);
        request.past_context = self.past_context;
        request.top_logprobs = self.top_logprobs;
        request
    }

    /// Runs the loops that are iterators of tokens: days 7, 10, 12 and 21.
    fn stream(
        &self,
        models: Models,
        prompts: &[Vec<u32>],
        first: usize,
        on_token: &mut OnToken,
    ) -> Result<()> {
        let Models { engine, model, .. } = models;
        let tokenizer = engine.tokenizer();
        // In torch, all rows of a batch share one stream.
        let samplers = if self.torch {
            torch_samplers(self.params.seed, prompts.len())
        } else {
            let rows = first..first + prompts.len();
            rows.map(|row| requests::sampler(&self.params, row, &self.ops)).collect()
        };
        let rows = prompts.iter().zip(samplers);
        let mut batch: Vec<_> =
            rows.map(|(prompt, sampler)| self.request_with(model, prompt, sampler)).collect();
        let tokens = if let (21, Some(CacheKind::Paged { block_size, num_blocks })) =
            (self.day, engine.cache)
        {
            let layers = model.config().num_hidden_layers;
            let cache = PagedCache::new(layers, num_blocks, block_size)?;
            generate_paged(model, tokenizer, batch, cache)?
        } else if self.day == 12 {
            generate_batch(model, tokenizer, batch, engine.new_batch()?)?
        } else {
            ensure!(batch.len() == 1, "day {}'s loop takes one prompt", self.day);
            let request = batch.remove(0);
            if self.day == 7 {
                generate(model, tokenizer, request)?
            } else {
                generate_cached(engine.new_cached(model)?, tokenizer, request)?
            }
        };
        for token in tokens {
            if !on_token(token?)? {
                break;
            }
        }
        Ok(())
    }

    /// Runs day 11: beam search.
    fn search(&self, models: Models, prompt: &[u32]) -> Result<Vec<Hypothesis>> {
        let Models { engine, model, .. } = models;
        let mut request = self.request(model, prompt, 0);
        let mut cache = engine.new_batch()?;
        let tokenizer = engine.tokenizer();
        Ok(beam_search(model, tokenizer, &mut request, &self.beams, &mut *cache)?)
    }

    /// Runs day 13: blocks of drafted and verified tokens.
    fn speculate(
        &self,
        models: Models,
        prompt: &[u32],
        number: usize,
        on_token: &mut OnToken,
    ) -> Result<Counts> {
        let Models { engine, model, .. } = models;
        let vocab_size = model.config().vocab_size;
        let drafter: Box<dyn Drafter + '_> = match (models.drafter, &self.draft_table) {
            (Some((drafting, small)), _) => Box::new(ModelDrafter {
                cached: drafting.new_cached(small)?,
                processors: self.processors.clone(),
                greedy: self.params.temperature == 0.0,
                vocab_size,
            }),
            (None, Some(table)) => Box::new(TableDrafter { table, vocab_size }),
            (None, None) => Box::new(NgramDrafter { n: self.draft_ngram, vocab_size }),
        };
        let mut decoder = SpeculativeDecoder::new(
            engine.new_cached(model)?,
            engine.tokenizer(),
            self.request(model, prompt, 0),
            drafter,
            self.num_draft_tokens,
        )?;
        if self.params.temperature != 0.0 {
            decoder.rng = Some(RequestRng::new(self.params.seed, number as u64));
        }
        let mut going = true;
        while going && decoder.sequence.finish.is_none() {
            for token in decode_block(&mut decoder)? {
                going &= on_token(token)?;
            }
        }
        Ok(decoder.counts)
    }

    /// Runs day 24: blocks of drafted and verified trees.
    fn grow_trees(
        &self,
        models: Models,
        prompt: &[u32],
        number: usize,
        on_token: &mut OnToken,
    ) -> Result<Counts> {
        let Models { engine, model, .. } = models;
        let vocab_size = model.config().vocab_size;
        let greedy = self.params.temperature == 0.0;
        let drafter: Box<dyn TreeDrafter + '_> = match (&self.tree.heads, models.drafter) {
            (Some(heads), _) => Box::new(MedusaTree { heads }),
            (None, Some((_, small))) => Box::new(ModelTree {
                model: small,
                cache: TreeCache::new(small.config().num_hidden_layers),
                tokens: Vec::new(),
                processors: self.processors.clone(),
                greedy,
                vocab_size,
            }),
            (None, None) => Box::new(NgramTree { n: self.draft_ngram, vocab_size }),
        };
        let request = self.request(model, prompt, 0);
        let shape = self.tree.shape.clone();
        let tokenizer = engine.tokenizer();
        let mut decoder = TreeDecoder::new(model, tokenizer, request, drafter, shape)?;
        if !greedy {
            decoder.rng = Some(RequestRng::new(self.params.seed, number as u64));
        }
        if self.tree.typical {
            decoder.accept = Accept::Typical;
        }
        let mut going = true;
        while going && decoder.sequence.finish.is_none() {
            for token in decode_tree(&mut decoder)? {
                going &= on_token(token)?;
            }
        }
        Ok(decoder.counts)
    }

    /// Runs day 15: submits the prompts to the scheduler as requests, in order.
    fn serve(&self, models: Models, prompts: &[Vec<u32>], on_token: &mut OnToken) -> Result<()> {
        let Models { engine, model, .. } = models;
        let capacity = engine.cache.unwrap_or(CacheKind::Dynamic).batch_capacity()?;
        let layers = model.config().num_hidden_layers;
        let new_cache: NewCache = Box::new(move || Box::new(BatchCache::new(layers, capacity)));
        let mut scheduler =
            Scheduler::new(model, engine.tokenizer(), new_cache, self.max_batch_tokens);
        for (id, prompt) in prompts.iter().enumerate() {
            let mut request = self.request(model, prompt, id);
            request.id = id;
            scheduler.submit(request)?;
        }
        let mut going = true;
        while going && !scheduler.is_idle() {
            for token in scheduler.turn()? {
                going &= on_token(token)?;
            }
        }
        Ok(())
    }

    /// Runs day 6. Its loop works with ids only, so text and finish reasons are added here. It
    /// doesn't compute log-probabilities.
    fn simple(&self, models: Models, prompt: &[u32], on_token: &mut OnToken) -> Result<()> {
        let Models { engine, model, .. } = models;
        let mut request = self.request(model, prompt, 0);
        request.fit(model)?;
        let eos = &request.eos_token_ids;
        let mut stream = TextStream::after(engine.tokenizer(), prompt);
        let mut remaining = request.max_new_tokens;
        let mut ended = Ok(true);
        let on_id = |id| {
            remaining -= 1;
            let is_eos = eos.contains(&id);
            let finish = match (is_eos, remaining) {
                (true, _) => Some(FinishReason::Eos),
                (_, 0) => Some(FinishReason::Length),
                _ => None,
            };
            let mut text = if is_eos { String::new() } else { stream.push(id)? };
            if finish.is_some() {
                text.push_str(&stream.finish()?);
            }
            let logprob = f32::NAN;
            ended = on_token(Token { id, logprob, text, finish, ..Token::default() });
            if !matches!(ended, Ok(true)) {
                candle_core::bail!("the loop was stopped")
            }
            Ok(())
        };
        let bound = request.max_new_tokens;
        let result = simple_generate(model, prompt, bound, eos, argmax, on_id);
        if ended? {
            result?;
        }
        Ok(())
    }
}
