//! Day 15: the scheduler. Requests come and go while one batch keeps running: admit, step, retire.

use candecode::day07_greedy::Sequence;
use candecode::day12_batching::{batch_step, prefill_step, Row};
use candecode::kit::{Batch, Model, Request, SchedulerInterface, SchedulerLoad, Token, Tokenizer};
use candle_core::{bail, Result};
use std::collections::VecDeque;

/// Positions of padding to put in front of the running rows, and in front of the new row, when a
/// cache of `new` positions joins a running one of `running`: the shorter is padded on the left. In
/// this order: (of the running rows, of the new row).
pub fn paddings(running: usize, new: usize) -> (usize, usize) {
    // task 15.1: what each side lacks to be as long as the other
    // <solution>
    (new.saturating_sub(running), running.saturating_sub(new))
    // </solution>
}

/// Makes an empty cache that rows can join: day 12's, not `NoCache`.
pub type NewCache = Box<dyn Fn() -> Box<dyn Batch>>;

/// Continuous batching (Yu et al. 2022, *Orca*; vLLM's scheduler): one running batch, first come
/// first served, under a bound on the positions that its cache may come to hold.
pub struct Scheduler<'a> {
    model: &'a dyn Model,
    tokenizer: &'a Tokenizer,
    new_cache: NewCache,
    max_batch_tokens: usize,
    /// Sequences that wait for their prefill, in order of arrival.
    pub waiting: VecDeque<Sequence<'a>>,
    /// Rows that run.
    pub running: Vec<Row<'a>>,
    cache: Box<dyn Batch>,
}

impl<'a> Scheduler<'a> {
    /// An idle scheduler.
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

    /// How long a sequence may become: never longer than the context.
    fn max_len(&self, sequence: &Sequence) -> usize {
        let context = self.model.config().max_position_embeddings;
        sequence.prompt_len.saturating_add(sequence.request.max_new_tokens).min(context)
    }

    /// Puts a request at the end of the queue.
    ///
    /// # Errors
    /// If its prompt does not fit the model, it asks for no token, or it alone would pass the
    /// bound.
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

    /// Whether the first request in the queue fits beside the running rows, if every sequence grows
    /// as long as it may. Rows are padded to the longest, so the cache holds rows × longest
    /// positions. If none waits, it is false.
    pub fn has_room(&self) -> bool {
        // task 15.2: rows, the next one's too, times the longest they may become
        // <solution>
        let Some(next) = self.waiting.front() else { return false };
        let mut longest = self.max_len(next);
        for row in &self.running {
            longest = longest.max(self.max_len(&row.sequence));
        }
        let rows = self.running.len() + 1;
        rows * longest <= self.max_batch_tokens
        // </solution>
    }

    /// Runs a new sequence's prompt in a cache of its own, beside the batch. Its row, its first
    /// token, and that cache. If no token can be chosen, the row has ended with
    /// `FinishReason::Failed`.
    ///
    /// # Errors
    /// If the model fails.
    pub fn prefill(&mut self, sequence: Sequence<'a>) -> Result<(Row<'a>, Token, Box<dyn Batch>)> {
        // task 15.3: one pass over the prompt, in a cache of its own; its first token
        // <solution>
        let mut row = Row::new(sequence);
        let mut cache = (self.new_cache)();
        let step = prefill_step(self.model, std::slice::from_mut(&mut row))?;
        let logits = self.model.forward(&step, &mut *cache)?; // (1, 1, V)
        let logits: Vec<f32> = logits.flatten_all()?.to_vec1()?;
        let token = row.sequence.advance(&logits);
        Ok((row, token, cache))
        // </solution>
    }

    /// Takes a new row and its cache into the batch: it becomes the last row, and the shorter side
    /// is padded.
    ///
    /// # Errors
    /// If the caches do not fit together.
    pub fn join(&mut self, mut row: Row<'a>, cache: Box<dyn Batch>) -> Result<()> {
        // task 15.4: replace a cache without rows; else both sides learn their padding
        // <solution>
        if self.running.is_empty() {
            self.cache = cache;
        } else {
            let (running, new) = paddings(self.cache.len(), cache.len());
            for row in &mut self.running {
                row.padding += running;
            }
            row.padding = new;
            self.cache.join(&*cache)?;
        }
        self.running.push(row);
        Ok(())
        // </solution>
    }

    /// Admits requests while there is room, in order of arrival: none overtakes another. Their
    /// first tokens.
    ///
    /// # Errors
    /// As [`Scheduler::prefill`], or if the caches do not fit together.
    pub fn admit(&mut self) -> Result<Vec<Token>> {
        // task 15.5: while there is room, prefill the first; it joins if it goes on
        // <solution>
        let mut tokens = Vec::new();
        while self.has_room() {
            let Some(sequence) = self.waiting.pop_front() else { break };
            let (row, token, cache) = self.prefill(sequence)?;
            tokens.push(token);
            if row.sequence.finish.is_none() {
                self.join(row, cache)?;
            }
        }
        Ok(tokens)
        // </solution>
    }

    /// One turn: admits, then gives every running row, the new ones too, one more token, and
    /// retires the rows that ended. All the tokens of this turn.
    ///
    /// # Errors
    /// If the model fails. That is the end of the scheduler: the tokens of the turn are lost.
    pub fn step(&mut self) -> Result<Vec<Token>> {
        // task 15.6: admit, then one step of the batch; every token is handed on
        // <solution>
        let mut tokens = self.admit()?;
        if !self.running.is_empty() {
            tokens.extend(batch_step(self.model, &mut self.running, &mut *self.cache)?);
        }
        Ok(tokens)
        // </solution>
    }

    /// True when there is nothing left to do.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }
}

/// How day 20's loop drives this scheduler. Its `step` is smaller than the one above, so that a
/// first token needn't wait for other prompts: one prefill if there is room, else one pass.
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

    /// A waiting row leaves at once. A running row can't be taken out of the cache between two
    /// passes, so its bound becomes 0: it finds itself full after the next pass, and is retired.
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
    /// Prefills the first waiting row if there is room for it. Otherwise, or if that row has ended
    /// with its first token, the batch makes a step: many short requests can't hold it up.
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
