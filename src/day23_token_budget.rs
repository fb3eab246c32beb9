#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 23: a token budget. A step computes a bounded number of tokens: first the next token of each
//! running sequence, then chunks of prompts. When the blocks run out, the youngest sequence returns
//! its blocks and is computed again later.

use candecode::day07_greedy::Sequence;
use candecode::day21_pages::{varlen_step, NewTokens, PagedCache};
use candecode::day22_shared_prefixes::{attach_prefix, PrefixCache};
use candecode::kit::{
    CacheLoad, Chunk, Model, Request, SchedulerInterface, SchedulerLoad, Token, Tokenizer,
};
use candle_core::{bail, Result};
use std::collections::VecDeque;

/// The bounds of a scheduler (vLLM `SchedulerConfig`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of tokens that one step computes.
    pub max_num_batched_tokens: usize,
    /// The maximum number of sequences that run at a time.
    pub max_num_seqs: usize,
}

/// A scheduler in three steps, like vLLM's: `schedule` decides what to compute, `run`
/// computes it, and `postprocess` turns logits into tokens.
///
/// Prompts and single tokens are the same to it: a sequence has some tokens, the
/// cache holds some of them, and the difference has to be computed.
pub struct TokenScheduler<'a> {
    model: &'a dyn Model,
    tokenizer: &'a Tokenizer,
    /// The pages.
    pub cache: PagedCache,
    /// The cached blocks. None: no prefix is shared.
    pub prefixes: Option<PrefixCache>,
    limits: Limits,
    /// Sequences that wait, in the order in which they will run.
    pub waiting: VecDeque<Sequence<'a>>,
    /// Sequences that run, the oldest first.
    pub running: Vec<Sequence<'a>>,
    /// The number of preemptions so far.
    pub num_preemptions: usize,
}

impl<'a> TokenScheduler<'a> {
    /// Creates an idle scheduler.
    ///
    /// # Errors
    /// If a limit is 0.
    pub fn new(
        model: &'a dyn Model,
        tokenizer: &'a Tokenizer,
        cache: PagedCache,
        prefixes: Option<PrefixCache>,
        limits: Limits,
    ) -> Result<Self> {
        if limits.max_num_batched_tokens == 0 || limits.max_num_seqs == 0 {
            bail!("a step needs room for at least one token of one sequence, not {limits:?}")
        }
        Ok(Self {
            model,
            tokenizer,
            cache,
            prefixes,
            limits,
            waiting: VecDeque::new(),
            running: Vec::new(),
            num_preemptions: 0,
        })
    }

    // part 1: what to compute

    /// Puts a request at the end of the queue.
    ///
    /// # Errors
    /// If its prompt doesn't fit the model, it asks for no token, or all blocks
    /// together couldn't hold it at its full length.
    pub fn submit(&mut self, mut request: Request<'a>) -> Result<()> {
        request.fit(self.model)?;
        if request.max_new_tokens == 0 {
            bail!("max_new_tokens must be at least 1, got 0")
        }
        // task 23.1: Refuse a request that could never be finished, then queue it
        todo!("day 23, task 1: Refuse a request that could never be finished, then queue it")
    }

    /// Returns the number of tokens whose keys and values the cache doesn't hold yet:
    /// the rest of a prompt, or the token that was chosen last.
    fn num_uncomputed(&self, sequence: &Sequence) -> usize {
        sequence.tokens.len() - self.cache.len_of(sequence.request.id)
    }

    /// Preempts a running sequence: it waits from now on, and holds no blocks. It keeps
    /// its tokens, so when it runs again they are computed like a prompt, and its text
    /// continues where it stopped. Does nothing if no sequence runs.
    pub fn preempt(&mut self) {
        // task 23.2: Preempt one sequence, and count it
        todo!("day 23, task 2: Preempt one sequence, and count it")
    }

    /// Plans the running sequences' part of a step, the oldest first, within
    /// `budget` tokens. Each gets its uncomputed tokens, or what is left of the budget. Its
    /// blocks are taken at once.
    ///
    /// If there are too few blocks, the youngest running sequence is preempted until
    /// there are enough. If that is the sequence itself, the plan ends before it. The
    /// oldest is never preempted, because it fits alone, so one sequence always makes
    /// progress.
    ///
    /// # Errors
    /// If the cache fails.
    pub fn plan_running(&mut self, budget: usize) -> Result<Vec<Chunk>> {
        // task 23.3: Plan the oldest first, and preempt the youngest while blocks are missing
        todo!("day 23, task 3: Plan the oldest first, and preempt the youngest while blocks are missing")
    }

    /// Plans the first chunks of waiting sequences, within `budget` tokens, while
    /// fewer than `max_num_seqs` run and there are blocks. First come, first
    /// served: the first that doesn't fit ends the plan. A sequence that starts
    /// runs from now on, and begins with the longest cached prefix of its tokens.
    ///
    /// A sequence starts only if there are blocks for all tokens that it has so far.
    /// It takes only those for this chunk. What the sequence may become isn't counted
    /// (vLLM `scheduler_reserve_full_isl`).
    ///
    /// # Errors
    /// If the cache fails.
    pub fn plan_waiting(&mut self, budget: usize) -> Result<Vec<Chunk>> {
        // task 23.4: Start waiting sequences while tokens, places and blocks are left
        todo!("day 23, task 4: Start waiting sequences while tokens, places and blocks are left")
    }

    /// Returns true if there are blocks for `new` more tokens of a sequence.
    fn has_blocks(&self, sequence: usize, new: usize) -> bool {
        self.cache.blocks_needed(sequence, new) <= self.cache.pool.num_free()
    }

    /// Takes the blocks for the next `new` tokens of a sequence, and returns its part
    /// of the plan.
    fn take(&mut self, sequence: usize, new: usize) -> Result<Chunk> {
        let start = self.cache.len_of(sequence);
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.evict(&self.cache.pool, self.cache.blocks_needed(sequence, new));
        }
        self.cache.reserve(sequence, new)?;
        Ok(Chunk { sequence, start, new })
    }

    /// Starts a sequence with the longest cached prefix of its tokens.
    fn start_with_prefix(&mut self, sequence: &Sequence) {
        let Sequence { tokens, request, .. } = sequence;
        if let Some(prefixes) = &self.prefixes {
            let blocks = prefixes.lookup(tokens, self.cache.block_size, &request.cache_salt);
            attach_prefix(&mut self.cache, request.id, blocks);
        }
    }

    /// Decides what the next step computes: running sequences first, then waiting
    /// ones, at most `max_num_batched_tokens` tokens in all. Needs no model.
    ///
    /// # Errors
    /// If the cache fails.
    pub fn schedule(&mut self) -> Result<Vec<Chunk>> {
        // task 23.5: Spend the budget on running sequences, then on waiting ones
        todo!("day 23, task 5: Spend the budget on running sequences, then on waiting ones")
    }

    // part 2: tokens

    /// Computes a plan in one varlen batch. Returns the logits after the last token of
    /// each sequence.
    ///
    /// # Errors
    /// If the model fails.
    pub fn run(&mut self, plan: &[Chunk]) -> Result<Vec<Vec<f32>>> {
        let mut line = Vec::new();
        for Chunk { sequence, start, new } in plan {
            let tokens = self.running.iter().find(|running| running.request.id == *sequence);
            let Some(tokens) = tokens.map(|running| &running.tokens[*start..start + new]) else {
                bail!("sequence {sequence} is scheduled but doesn't run")
            };
            line.push(NewTokens { sequence: *sequence, start: *start, ids: tokens });
        }
        let step = varlen_step(self.model, &line)?;
        self.model.forward(&step, &mut self.cache)?.squeeze(0)?.to_vec2()
    }

    /// Turns the logits of a plan into tokens. A sequence whose tokens are all
    /// computed now gets its next one; an unfinished prompt yields no token. Full
    /// blocks are cached. Sequences that end release their blocks and
    /// leave.
    pub fn postprocess(&mut self, plan: &[Chunk], logits: &[Vec<f32>]) -> Vec<Token> {
        // task 23.6: Advance the sequences that are complete, and release those that end
        todo!("day 23, task 6: Advance the sequences that are complete, and release those that end")
    }

    /// One step: schedule, run, postprocess. Returns the new tokens, which may be
    /// none while a long prompt is computed chunk by chunk.
    ///
    /// # Errors
    /// If the model fails. All sequences are lost then, and the cache is empty.
    pub fn step(&mut self) -> Result<Vec<Token>> {
        let plan = self.schedule()?;
        if plan.is_empty() {
            return Ok(Vec::new());
        }
        match self.run(&plan) {
            Ok(logits) => Ok(self.postprocess(&plan, &logits)),
            Err(error) => {
                self.clear();
                Err(error)
            }
        }
    }

    /// Ends all sequences and forgets all blocks: after an error they may hold
    /// anything.
    fn clear(&mut self) {
        self.waiting.clear();
        for sequence in self.running.drain(..) {
            self.cache.release(sequence.request.id);
        }
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.evict(&self.cache.pool, self.cache.pool.num_free());
        }
    }

    /// Ends a sequence early, wherever it is. Its blocks are free at once. An
    /// unknown id is ignored.
    pub fn cancel(&mut self, id: usize) {
        // task 23.7: Take the sequence out, wherever it is, and release its blocks
        todo!("day 23, task 7: Take the sequence out, wherever it is, and release its blocks")
    }

    /// Returns true if there is nothing left to do.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }
}

/// How day 20's loop drives this scheduler.
impl<'a> SchedulerInterface<'a> for TokenScheduler<'a> {
    fn submit(&mut self, request: Request<'a>) -> Result<()> {
        TokenScheduler::submit(self, request)
    }

    fn step(&mut self) -> Result<Vec<Token>> {
        TokenScheduler::step(self)
    }

    fn cancel(&mut self, id: usize) {
        TokenScheduler::cancel(self, id);
    }

    fn load(&self) -> SchedulerLoad {
        SchedulerLoad { waiting: self.waiting.len(), running: self.running.len() }
    }

    fn cache_load(&self) -> CacheLoad {
        let blocks = self.cache.pool.ref_counts.len();
        let prefixes = self.prefixes.as_ref();
        CacheLoad {
            blocks,
            blocks_used: blocks - self.cache.pool.num_free(),
            preemptions: self.num_preemptions,
            prefix_queries: prefixes.map_or(0, |prefixes| prefixes.queries),
            prefix_hits: prefixes.map_or(0, |prefixes| prefixes.hits),
        }
    }
}

/// Divides a budget of tokens among prompts with `uncomputed[i]` tokens left, so that
/// no prompt holds up the others (max-min fairness). All get the same share. A prompt
/// with fewer left gets only those, and the rest is shared among the others, and so on.
/// Tokens left over by the division go to the earlier prompts, one each.
pub fn fair_shares(uncomputed: &[usize], budget: usize) -> Vec<usize> {
    // task 23.8 (challenge): Divide the budget so that the smallest share is as large as can be
    todo!("day 23, task 8: Divide the budget so that the smallest share is as large as can be")
}
