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

/// Columns of padding in front of the running rows and of a newcomer, when a cache of `other` columns joins one of `held`:
/// the shorter is padded on the left.
pub fn paddings(held: usize, other: usize) -> (usize, usize) {
    // task 15.1: how much each side lacks
    // <solution>
    (other.saturating_sub(held), held.saturating_sub(other))
    // </solution>
}

/// Makes an empty cache.
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
    /// If the cache slides: its columns are not the same positions in every row.
    pub fn new(
        model: &'a dyn Model,
        tokenizer: &'a Tokenizer,
        options: GenerationOptions<'a>,
        new_cache: NewCache<'a>,
        max_batch_tokens: usize,
    ) -> Result<Self> {
        let cache = new_cache();
        if cache.slid().is_some() {
            bail!("a sliding cache cannot admit rows; use a dynamic or static one")
        }
        let (waiting, running) = (VecDeque::new(), Vec::new());
        Ok(Self { model, tokenizer, options, new_cache, max_batch_tokens, waiting, running, cache })
    }

    /// Tokens that a text of this prompt may come to hold in the cache: never more than the context.
    fn most(&self, prompt_len: usize) -> usize {
        let context = self.model.config().max_position_embeddings;
        (prompt_len + self.options.max_new_tokens).min(context)
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
        // task 15.2: the running rows' most, plus the next one's, within the bound
        // <solution>
        let Some(next) = self.waiting.front() else { return false };
        let running = self.running.iter().map(|row| self.most(row.sequence.prompt_len));
        running.sum::<usize>() + self.most(next.prompt.len()) <= self.max_batch_tokens
        // </solution>
    }

    /// Runs a newcomer's prompt in a cache of its own, beside the batch. Its row, its first token, and that cache.
    ///
    /// # Errors
    /// If the model or the choice fails.
    pub fn prefill(&mut self, request: &Request) -> Result<(Row<'a>, Token, Box<dyn Cache + 'a>)> {
        // task 15.3: a row, an empty cache, one pass, choose, push
        // <solution>
        let stops = &self.options.stop_strings;
        let mut rows =
            vec![Row::new(Sequence::new(request.id, &request.prompt, self.tokenizer, stops))];
        let mut cache = (self.new_cache)();
        let step = prefill_step(self.model, &mut rows)?;
        let logits = self.model.forward(&step, &mut *cache)?.flatten_all()?.to_vec1::<f32>()?;
        let mut row = rows.remove(0);
        let (id, logprob) = row.sequence.choose(&logits, &mut self.options)?;
        let token = row.sequence.push(id, logprob, &self.options)?;
        Ok((row, token, cache))
        // </solution>
    }

    /// Admits requests while there is room, in order of arrival: nobody overtakes. Their first tokens.
    ///
    /// # Errors
    /// As [`Scheduler::prefill`], or if the caches do not fit together.
    pub fn admit(&mut self) -> Result<Vec<Token>> {
        // task 15.4: prefill; a text that ended at once never joins; pad the shorter side
        // <solution>
        let mut tokens = Vec::new();
        while self.has_room() {
            let Some(request) = self.waiting.pop_front() else { break };
            let (mut row, token, cache) = self.prefill(&request)?;
            let goes_on = token.finish.is_none();
            tokens.push(token);
            if goes_on {
                let held = if self.running.is_empty() { 0 } else { self.cache.len() };
                let (theirs, mine) = match held {
                    0 => (0, 0),
                    held => paddings(held, cache.len()),
                };
                self.running.iter_mut().for_each(|row| row.padding += theirs);
                row.padding = mine;
                match held {
                    0 => self.cache = cache,
                    _ => self.cache.join(&*cache)?,
                }
                self.running.push(row);
            }
        }
        Ok(tokens)
        // </solution>
    }

    /// One turn: admits, then gives every row that already ran one more token, and retires the rows that ended.
    ///
    /// # Errors
    /// If the model or a row fails.
    pub fn step(&mut self) -> Result<Vec<Token>> {
        // task 15.5: admit, then day 12's batch_step
        // <solution>
        let mut tokens = self.admit()?;
        if !self.running.is_empty() {
            let (model, cache) = (self.model, &mut *self.cache);
            tokens.extend(batch_step(model, &mut self.running, &mut self.options, cache)?);
        }
        Ok(tokens)
        // </solution>
    }

    /// True when there is nothing left to do.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }
}
