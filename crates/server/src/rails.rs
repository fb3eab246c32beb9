//! The automata of requests whose text must match a pattern: compiled on a helper thread before the
//! request goes to the loop, and kept for as long as its rows need them.

use crate::helper_threads::Lane;
use crate::http_routes::lock;
use crate::openai::ApiError;
use candecode::engine::requests::{Automata, AutomataMemo};
use candecode::kit::error::describe;
use candecode::kit::SamplingParams;
use std::sync::{Arc, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The memory for automata of up to [`SMALL`] that are in use, in bytes.
const MOST_SMALL: usize = 64 << 20;
/// The memory for larger ones. They don't share, so that a few large ones leave room for all others.
const MOST_LARGE: usize = 192 << 20;
/// The size in bytes of an automaton that is small.
const SMALL: usize = 1 << 20;

/// What automata are made from.
#[derive(Clone, PartialEq)]
struct Patterns {
    allow: Option<String>,
    block: Vec<String>,
}

impl Patterns {
    /// None if these parameters have no patterns.
    fn of(params: &SamplingParams) -> Option<Self> {
        let patterns = Self { allow: params.allow_regex.clone(), block: params.block.clone() };
        (patterns.allow.is_some() || !patterns.block.is_empty()).then_some(patterns)
    }
}

/// Automata that jobs use.
struct InUse {
    patterns: Patterns,
    automata: Automata,
    jobs: usize,
    /// Their share of the memory.
    _memory: OwnedSemaphorePermit,
}

/// All compiled automata: those in use, and some that may be asked for again.
pub struct Rails {
    memo: Arc<AutomataMemo>,
    in_use: Mutex<Vec<InUse>>,
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

impl Rails {
    /// None compiled yet.
    pub fn new() -> Self {
        Self {
            memo: Arc::default(),
            in_use: Mutex::default(),
            small: Arc::new(Semaphore::new(MOST_SMALL >> 10)),
            large: Arc::new(Semaphore::new(MOST_LARGE >> 10)),
        }
    }

    /// Compiles the automata of a request in this lane, unless they are known, and keeps them until
    /// what is returned is dropped. None if the request has no patterns.
    ///
    /// # Errors
    /// 400 if a pattern is refused; 503 if too many large ones are in use; and as [`Lane::run`].
    pub async fn compile(
        self: &Arc<Self>,
        params: &SamplingParams,
        lane: &Lane,
    ) -> Result<Option<InUseByJob>, ApiError> {
        let Some(patterns) = Patterns::of(params) else { return Ok(None) };
        let compiled = match self.memo.known(params) {
            Some(known) => known,
            None => {
                let (memo, params) = (self.memo.clone(), params.clone());
                lane.run(move || Ok(memo.get(&params))).await?
            }
        };
        let param = if params.allow_regex.is_some() { "structured_outputs" } else { "bad_words" };
        let automata = compiled.map_err(|error| ApiError::invalid(param, describe(&error)))?;
        self.hold(&patterns, automata)?;
        Ok(Some(InUseByJob { rails: self.clone(), patterns }))
    }

    fn hold(&self, patterns: &Patterns, automata: Automata) -> Result<(), ApiError> {
        let mut in_use = lock(&self.in_use);
        if let Some(one) = in_use.iter_mut().find(|one| one.patterns == *patterns) {
            one.jobs += 1;
            return Ok(());
        }
        let bytes = automata.memory_usage();
        let memory = if bytes <= SMALL { &self.small } else { &self.large };
        let kilobytes = u32::try_from(bytes.div_ceil(1 << 10).max(1)).unwrap_or(u32::MAX);
        let taken = memory.clone().try_acquire_many_owned(kilobytes);
        let memory = taken.map_err(|_| {
            let message =
                "too many large regular expressions are in use; try again in some seconds, \
                           or make yours simpler";
            ApiError { status: 503, retry_after: Some(5), ..ApiError::failed(message) }
        })?;
        in_use.push(InUse { patterns: patterns.clone(), automata, jobs: 1, _memory: memory });
        Ok(())
    }

    /// The automata of a job with these parameters, which are in use; none if it has no patterns.
    pub fn of(&self, params: &SamplingParams) -> Option<Automata> {
        let Some(patterns) = Patterns::of(params) else { return Some(Automata::default()) };
        let in_use = lock(&self.in_use);
        in_use.iter().find(|one| one.patterns == patterns).map(|one| one.automata.clone())
    }
}

/// Keeps a job's automata in use.
pub struct InUseByJob {
    rails: Arc<Rails>,
    patterns: Patterns,
}

impl Drop for InUseByJob {
    fn drop(&mut self) {
        let mut in_use = lock(&self.rails.in_use);
        let Some(at) = in_use.iter().position(|one| one.patterns == self.patterns) else { return };
        in_use[at].jobs -= 1;
        if in_use[at].jobs == 0 {
            in_use.swap_remove(at);
        }
    }
}
