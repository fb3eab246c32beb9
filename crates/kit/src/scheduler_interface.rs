//! The interface between a serving loop and a scheduler.

use crate::{Request, Token};
use candle_core::Result;

/// The number of rows in a scheduler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SchedulerLoad {
    /// Rows waiting for their prefill.
    pub waiting: usize,
    /// Rows currently running.
    pub running: usize,
}

impl SchedulerLoad {
    /// Returns the total number of rows, waiting and running.
    pub fn rows(self) -> usize {
        self.waiting + self.running
    }
}

/// The state of a scheduler's paged cache, for metrics. All zeros for a scheduler without pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheLoad {
    /// Total number of blocks.
    pub blocks: usize,
    /// Blocks that running sequences hold.
    pub blocks_used: usize,
    /// Number of preemptions so far.
    pub preemptions: usize,
    /// Prompt tokens looked up in the prefix cache so far.
    pub prefix_queries: usize,
    /// Prompt tokens found in the prefix cache so far.
    pub prefix_hits: usize,
}

/// A scheduler, as day 20's loop drives it (vLLM's `SchedulerInterface`). A row is identified by
/// its request's `id`, which is also the `row` field of its tokens.
pub trait SchedulerInterface<'a> {
    /// Adds a request to the scheduler's queue.
    ///
    /// # Errors
    /// If the request can never run, for example because its prompt doesn't fit the model.
    fn submit(&mut self, request: Request<'a>) -> Result<()>;

    /// Does one indivisible piece of work, such as one prefill, or one pass over all running rows.
    /// Returns the tokens it produced. Does nothing if there are no rows.
    ///
    /// If a single row fails, it ends with a token that carries the error. Other rows continue.
    ///
    /// # Errors
    /// If the model fails. All rows are lost. The scheduler is then empty and can be used again.
    fn step(&mut self) -> Result<Vec<Token>>;

    /// Ends a row early. It may still produce a token in the next step. An unknown `id` is ignored.
    fn cancel(&mut self, id: usize);

    /// Returns the number of waiting and running rows.
    fn load(&self) -> SchedulerLoad;

    /// Returns the state of the scheduler's paged cache.
    fn cache_load(&self) -> CacheLoad {
        CacheLoad::default()
    }
}
