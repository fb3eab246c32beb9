//! The loops of the days with one call for all: prompts in, tokens out.

use crate::day06_generate::{simple_generate, TextStream};
use crate::day07_greedy::{argmax, generate};
use crate::day08_sampling::torch_samplers;
use crate::day10_kv_cache::{generate_cached, Cached};
use crate::day11_beam_search::beam_search;
use crate::day12_batching::{generate_batch, BatchCache};
use crate::day13_speculative::{decode_block, ModelDrafter, NgramDrafter, SpeculativeDecoder};
use crate::day15_scheduler::{NewCache, Scheduler};
use crate::engine::ngram_table::{NgramTable, TableDrafter};
use crate::engine::requests::{self, Processors};
use crate::engine::{CacheKind, Engine};
use crate::kit::draft::{Counts, Drafter};
use crate::kit::rng::RequestRng;
use crate::kit::{BeamParams, FinishReason, Hypothesis, Model, PastContext, Request};
use crate::kit::{Sampler, SamplingParams, SharedOps, Token};
use anyhow::Result;

/// Takes a token of some row; false ends the loop. An error, too, if it cannot be shown.
pub type OnToken<'a> = dyn FnMut(Token) -> Result<bool> + 'a;

/// What a loop has found besides tokens.
#[derive(Default)]
pub struct Found {
    /// The texts of a beam search.
    pub hypotheses: Vec<Hypothesis>,
    /// What speculation did.
    pub counts: Option<Counts>,
}

/// Which loop runs, and what for.
pub struct LoopPlan {
    /// The day whose loop runs: 6, 7, 10 to 13 or 15.
    pub day: usize,
    /// What every request asks for.
    pub params: SamplingParams,
    /// The processors of these parameters.
    pub processors: Processors,
    /// The model's operations.
    pub ops: SharedOps,
    /// Draw from torch's stream, which all rows of a batch share.
    pub torch: bool,
    /// What happens at the end of the context.
    pub past_context: PastContext,
    /// How day 11 searches.
    pub beams: BeamParams,
    /// Tokens that an n-gram drafter of day 13 looks up.
    pub draft_ngram: usize,
    /// N-grams of a corpus, to draft from; None looks them up in the text itself.
    pub draft_table: Option<NgramTable>,
    /// Tokens to draft at most.
    pub num_draft_tokens: usize,
    /// Positions that day 15's batch may come to hold.
    pub max_batch_tokens: usize,
    /// How many of the likeliest tokens each token carries; days 6, 11 and 13 find none.
    pub top_logprobs: Option<usize>,
}

/// The models that loops run on: the engine's own, or one in front of it that can be stopped.
#[derive(Clone, Copy)]
pub struct Models<'a> {
    /// The engine whose tokenizer and caches are used.
    pub engine: &'a Engine,
    /// Its model.
    pub model: &'a dyn Model,
    /// A drafting engine and its model; None drafts by n-grams.
    pub drafter: Option<(&'a Engine, &'a dyn Model)>,
}

impl LoopPlan {
    /// Runs the loop for `prompts`, the first of which is request number `first` of all: row 0
    /// draws the random numbers of that request. Days 6, 7, 10, 11 and 13 take one prompt.
    ///
    /// # Errors
    /// If the prompt does not fit, the model or a processor fails, or `on_token` does.
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
            _ => self.stream(models, prompts, first, on_token)?,
        }
        Ok(found)
    }

    /// A request for this prompt, greedy or with the portable random stream number `stream`.
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

    /// The loops that are iterators of tokens: days 7, 10 and 12.
    fn stream(
        &self,
        models: Models,
        prompts: &[Vec<u32>],
        first: usize,
        on_token: &mut OnToken,
    ) -> Result<()> {
        let Models { engine, model, .. } = models;
        let tokenizer = engine.tokenizer();
        // Torch has one stream for all rows of a batch.
        let samplers = if self.torch {
            torch_samplers(self.params.seed, prompts.len())
        } else {
            let rows = first..first + prompts.len();
            rows.map(|row| requests::sampler(&self.params, row, &self.ops)).collect()
        };
        let rows = prompts.iter().zip(samplers);
        let mut batch: Vec<_> =
            rows.map(|(prompt, sampler)| self.request_with(model, prompt, sampler)).collect();
        let tokens = if self.day == 12 {
            generate_batch(model, tokenizer, batch, engine.new_batch()?)?
        } else {
            let request = batch.remove(0);
            if self.day == 7 {
                generate(model, tokenizer, request)?
            } else {
                generate_cached(Cached::new(model, engine.new_cache()), tokenizer, request)?
            }
        };
        for token in tokens {
            if !on_token(token?)? {
                break;
            }
        }
        Ok(())
    }

    /// Day 11: beams.
    fn search(&self, models: Models, prompt: &[u32]) -> Result<Vec<Hypothesis>> {
        let Models { engine, model, .. } = models;
        let mut request = self.request(model, prompt, 0);
        let mut cache = engine.new_batch()?;
        let tokenizer = engine.tokenizer();
        Ok(beam_search(model, tokenizer, &mut request, &self.beams, &mut *cache)?)
    }

    /// Day 13: blocks of drafted and verified tokens.
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
                cached: Cached::new(small, drafting.new_cache()),
                processors: self.processors.clone(),
                greedy: self.params.temperature == 0.0,
                vocab_size,
            }),
            (None, Some(table)) => Box::new(TableDrafter { table, vocab_size }),
            (None, None) => Box::new(NgramDrafter { n: self.draft_ngram, vocab_size }),
        };
        let mut decoder = SpeculativeDecoder::new(
            Cached::new(model, engine.new_cache()),
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

    /// Day 15: the prompts are requests to the scheduler, in the order given.
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
            for token in scheduler.step()? {
                going &= on_token(token)?;
            }
        }
        Ok(())
    }

    /// Day 6's loop knows ids only: text and ends are added here; log-probabilities it does not
    /// compute.
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
                candle_core::bail!("the loop was told to stop")
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
