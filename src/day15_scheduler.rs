#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 15: the scheduler. Requests come and go while one batch keeps running.

use candecode::day07_greedy::Sequence;
use candecode::day12_batching::{batch_step, prefill_step, Row};
use candecode::kit::{Batch, Model, Request, SchedulerInterface, SchedulerLoad, Token, Tokenizer};
use candle_core::{bail, Result};
use std::collections::VecDeque;

/// Returns the padding that each side needs when a cache of `new` columns joins one of
/// `running` columns: (columns for the running rows, columns for the new row). The
/// shorter side is padded on the left until both have the same length.
pub fn paddings(running: usize, new: usize) -> (usize, usize) {
    // task 15.1: Compute the padding for each side
    todo!("day 15, task 1: Compute the padding for each side")
}

/// Creates an empty cache that rows can join: day 12's, not `NoCache`.
pub type NewCache = Box<dyn Fn() -> Box<dyn Batch>>;

/// Continuous batching (Yu et al. 2022, *Orca*; vLLM's scheduler): one running batch, a
/// queue, and a bound on the number of positions in its cache.
pub struct Scheduler<'a> {
    model: &'a dyn Model,
    tokenizer: &'a Tokenizer,
    new_cache: NewCache,
    max_batch_tokens: usize,
    /// Sequences that are waiting for their prefill, in order of arrival.
    pub waiting: VecDeque<Sequence<'a>>,
    /// Running rows, in the order of the cache's rows.
    pub running: Vec<Row<'a>>,
    cache: Box<dyn Batch>,
}

impl<'a> Scheduler<'a> {
    /// Creates an idle scheduler. Its cache holds at most `max_batch_tokens` positions,
    /// padding included.
    pub fn new(
        model: &'a dyn Model,
        tokenizer: &'a Tokenizer,
        new_cache: NewCache,
        max_batch_tokens: usize,
    ) -> Self {
        Self {
            model,
            tokenizer,
            cache: new_cache(),
            new_cache,
            max_batch_tokens,
            waiting: VecDeque::new(),
            running: Vec::new(),
        }
    }

    /// Returns the maximum length that a sequence can reach, in tokens, including its
    /// prompt. Never more than the context.
    fn max_len(&self, sequence: &Sequence) -> usize {
        let context = self.model.config().max_position_embeddings;
        sequence.prompt_len.saturating_add(sequence.request.max_new_tokens).min(context)
    }

    /// Adds a request to the end of the queue.
    ///
    /// # Errors
    /// If its prompt doesn't fit the model, it asks for no tokens, or it would exceed
    /// the limit even alone.
    pub fn submit(&mut self, mut request: Request<'a>) -> Result<()> {
        request.fit(self.model)?;
        if request.max_new_tokens == 0 {
            bail!("max_new_tokens must be at least 1, got 0")
        }
        let sequence = Sequence::new(request, self.tokenizer);
        let max_len = self.max_len(&sequence);
        let bound = self.max_batch_tokens;
        if max_len > bound {
            let id = sequence.request.id;
            bail!("request {id} may grow to {max_len} tokens, but the batch holds at most {bound}")
        }
        self.waiting.push_back(sequence);
        Ok(())
    }

    /// Returns whether the first request in the queue can join the running rows,
    /// assuming that every sequence grows to its maximum length. Rows are padded to the
    /// longest one, so the cache holds rows × longest positions. False if the queue is
    /// empty.
    pub fn has_room(&self) -> bool {
        // task 15.2: Decide whether the first request in the queue fits
        todo!("day 15, task 2: Decide whether the first request in the queue fits")
    }

    /// Runs a new sequence's prompt in its own cache and chooses the first token.
    /// Returns the row, the token, and that cache. If no token can be chosen, the row
    /// ends with `FinishReason::Failed`.
    ///
    /// # Errors
    /// If the model fails.
    pub fn prefill(&mut self, sequence: Sequence<'a>) -> Result<(Row<'a>, Token, Box<dyn Batch>)> {
        // task 15.3: Run the prompt in its own cache, and choose the first token
        todo!("day 15, task 3: Run the prompt in its own cache, and choose the first token")
    }

    /// Adds a prefilled row and its cache to the batch, as the last row. The shorter
    /// side is padded. If no row is running, the new cache replaces the batch's.
    ///
    /// # Errors
    /// If the caches can't be joined.
    pub fn join(&mut self, mut row: Row<'a>, cache: Box<dyn Batch>) -> Result<()> {
        // task 15.4: Add the row and its cache to the batch
        todo!("day 15, task 4: Add the row and its cache to the batch")
    }

    /// Admits requests while there is room, in order of arrival, and returns their
    /// first tokens. No request overtakes another. A request that ends with its first
    /// token doesn't join the batch.
    ///
    /// # Errors
    /// If the model fails, or the caches can't be joined.
    pub fn admit(&mut self) -> Result<Vec<Token>> {
        // task 15.5: Admit requests while there is room
        todo!("day 15, task 5: Admit requests while there is room")
    }

    /// Runs one iteration: admits requests, generates one token for every running row,
    /// including new ones, and retires the rows that have ended. Returns all tokens of
    /// the iteration.
    ///
    /// # Errors
    /// If the model fails. The tokens of the iteration are lost, and the scheduler
    /// can't be used again.
    pub fn run_iteration(&mut self) -> Result<Vec<Token>> {
        // task 15.6: Admit, then make one step of the batch
        todo!("day 15, task 6: Admit, then make one step of the batch")
    }

    /// Returns whether there is nothing left to do.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }
}

/// A sequence's stay in the batch, assuming that it uses all the tokens it's allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stay {
    /// The maximum length of the sequence, in tokens, including its prompt.
    pub max_len: usize,
    /// The number of iterations that the sequence is in the batch, at least 1. For a
    /// running sequence, counted from this iteration.
    pub iterations: usize,
}

/// Backfilling: returns the queue index of the first request that can overtake without
/// making the request at the front wait longer. None if there is no such request, or if
/// the one at the front doesn't have to wait.
///
/// All sequences are assumed to use all the tokens they're allowed. A request that is
/// admitted now is in the batch for its `iterations`, starting with this one. In any
/// iteration, a request can be admitted if rows × longest is at most `bound`, as in
/// [`Scheduler::has_room`]. The request at the front fits alone.
///
/// The rule is EASY backfilling (Lifka 1995), which supercomputers' batch schedulers
/// use to fill gaps.
pub fn backfill(running: &[Stay], waiting: &[Stay], bound: usize) -> Option<usize> {
    // task 15.7 (challenge): Find a request that may overtake without harm
    todo!("day 15, task 7: Find a request that may overtake without harm")
}

/// The interface for day 20's loop. A step is smaller than an iteration, so that a
/// first token doesn't have to wait for other prompts: it's one prefill if there is
/// room, or else one pass.
impl<'a> SchedulerInterface<'a> for Scheduler<'a> {
    fn submit(&mut self, request: Request<'a>) -> Result<()> {
        Scheduler::submit(self, request)
    }

    fn step(&mut self) -> Result<Vec<Token>> {
        let stepped = self.prefill_or_decode();
        if stepped.is_err() {
            self.waiting.clear();
            self.running.clear();
        }
        stepped
    }

    /// Removes a waiting request at once. A running row leaves only after a pass, so
    /// its `max_new_tokens` becomes 0. The next pass ends it, and it retires.
    fn cancel(&mut self, id: usize) {
        self.waiting.retain(|sequence| sequence.request.id != id);
        for row in &mut self.running {
            if row.sequence.request.id == id {
                row.sequence.request.max_new_tokens = 0;
            }
        }
    }

    fn load(&self) -> SchedulerLoad {
        SchedulerLoad { waiting: self.waiting.len(), running: self.running.len() }
    }
}

impl<'a> Scheduler<'a> {
    /// Prefills the first waiting request if there is room. If there isn't, makes a
    /// step of the batch. It also makes that step if the prefilled sequence has already
    /// ended: otherwise a stream of one-token requests could stall the running rows.
    fn prefill_or_decode(&mut self) -> Result<Vec<Token>> {
        let mut tokens = Vec::new();
        if self.has_room() {
            if let Some(sequence) = self.waiting.pop_front() {
                let (row, first, cache) = self.prefill(sequence)?;
                let has_ended = row.sequence.finish.is_some();
                tokens.push(first);
                if !has_ended {
                    self.join(row, cache)?;
                    return Ok(tokens);
                }
            }
        }
        if self.running.is_empty() {
            return Ok(tokens);
        }
        tokens.append(&mut batch_step(self.model, &mut self.running, &mut *self.cache)?);
        Ok(tokens)
    }
}
