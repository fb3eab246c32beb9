#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 15: the scheduler. Requests come and go while one batch keeps running: admit, step, retire.

use candecode::day07_greedy::Sequence;
use candecode::day12_batching::{batch_step, prefill_step, Row};
use candecode::kit::{check_prompt, Cache, GenerationOptions, Model, Token, Tokenizer};
use candle_core::{bail, Result};
use std::collections::VecDeque;

/// A prompt that waits for its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Its number: the `row` of its tokens, and the key of its random stream.
    pub id: usize,
    /// Its tokens.
    pub prompt: Vec<u32>,
}

/// Columns of padding to put in front of the running rows, and in front of the newcomer, when a cache of `other` columns joins
/// a running one of `held`: the shorter is padded on the left. In this order: (of the running, of the newcomer).
pub fn paddings(held: usize, other: usize) -> (usize, usize) {
    // task 15.1: what each side lacks to be as long as the other
    todo!("day 15, task 1: what each side lacks to be as long as the other")
}

/// Makes an empty cache, one that rows can join: of day 10, not `NoCache`.
pub type NewCache<'a> = Box<dyn Fn() -> Box<dyn Cache + 'a> + 'a>;

/// Continuous batching (Yu et al. 2022, *Orca*; vLLM's scheduler): one running batch, first come first served, under a bound
/// on the tokens that its cache may come to hold.
pub struct Scheduler<'a> {
    model: &'a dyn Model,
    tokenizer: &'a Tokenizer,
    options: GenerationOptions<'a>,
    new_cache: NewCache<'a>,
    max_batch_tokens: usize,
    /// Requests that wait, in order of arrival.
    pub waiting: VecDeque<Request>,
    /// Rows that run.
    pub running: Vec<Row<'a>>,
    cache: Box<dyn Cache + 'a>,
}

impl<'a> Scheduler<'a> {
    /// An idle scheduler. All requests share `options`; each has its own `max_new_tokens` of them.
    ///
    /// # Errors
    /// If the cache slides: its columns are not the same positions in every row; or if no token may be generated.
    pub fn new(
        model: &'a dyn Model,
        tokenizer: &'a Tokenizer,
        options: GenerationOptions<'a>,
        new_cache: NewCache<'a>,
        max_batch_tokens: usize,
    ) -> Result<Self> {
        let cache = new_cache();
        if cache.num_evicted().is_some() {
            bail!("a sliding cache cannot admit rows; use a dynamic or static one")
        }
        if options.max_new_tokens == 0 {
            bail!("max_new_tokens must be at least 1, got 0")
        }
        let (waiting, running) = (VecDeque::new(), Vec::new());
        Ok(Self { model, tokenizer, options, new_cache, max_batch_tokens, waiting, running, cache })
    }

    /// Tokens that a text of this prompt may come to hold in the cache: never more than the context.
    fn most(&self, prompt_len: usize) -> usize {
        let context = self.model.config().max_position_embeddings;
        prompt_len.saturating_add(self.options.max_new_tokens).min(context)
    }

    /// Puts a request at the end of the queue.
    ///
    /// # Errors
    /// If its prompt does not fit the model, or it alone would pass the bound.
    pub fn submit(&mut self, request: Request) -> Result<()> {
        check_prompt(self.model, &request.prompt)?;
        let (most, bound) = (self.most(request.prompt.len()), self.max_batch_tokens);
        if most > bound {
            bail!("request {} may hold {most} tokens, the batch at most {bound}", request.id)
        }
        self.waiting.push_back(request);
        Ok(())
    }

    /// Whether the first request in the queue fits beside what runs, if every text grows as long as it may.
    pub fn has_room(&self) -> bool {
        // task 15.2: count what every text may come to hold, the next one's too
        todo!("day 15, task 2: count what every text may come to hold, the next one's too")
    }

    /// Runs a newcomer's prompt in a cache of its own, beside the batch. Its row, its first token, and that cache.
    ///
    /// # Errors
    /// If the model or the choice fails.
    pub fn prefill(&mut self, request: &Request) -> Result<(Row<'a>, Token, Box<dyn Cache + 'a>)> {
        // task 15.3: one pass over the prompt, in a cache of its own; its first token
        todo!("day 15, task 3: one pass over the prompt, in a cache of its own; its first token")
    }

    /// Takes a newcomer and its cache into the batch: its row becomes the last one, and the shorter side is padded.
    ///
    /// # Errors
    /// If the caches do not fit together.
    pub fn join(&mut self, mut row: Row<'a>, cache: Box<dyn Cache + 'a>) -> Result<()> {
        // task 15.4: a cache with no rows left is replaced; else both sides learn of their padding
        todo!("day 15, task 4: a cache with no rows left is replaced; else both sides learn of their padding")
    }

    /// Admits requests while there is room, in order of arrival: nobody overtakes. Their first tokens.
    ///
    /// # Errors
    /// As [`Scheduler::prefill`], or if the caches do not fit together.
    pub fn admit(&mut self) -> Result<Vec<Token>> {
        // task 15.5: while there is room: prefill the first in the queue; it joins if it goes on
        todo!("day 15, task 5: while there is room: prefill the first in the queue; it joins if it goes on")
    }

    /// One turn: admits, then gives every running row, newcomers too, one more token, and retires the rows that ended. All the
    /// tokens of this turn.
    ///
    /// # Errors
    /// If the model or a row fails. That is the end of the scheduler: the tokens of the turn are lost.
    pub fn step(&mut self) -> Result<Vec<Token>> {
        // task 15.6: admit, then one step of the batch; nobody's token is lost
        todo!("day 15, task 6: admit, then one step of the batch; nobody's token is lost")
    }

    /// True when there is nothing left to do.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }
}
