//! The automata of requests whose text must match a pattern. They are compiled on a helper thread
//! before the request goes to the serving loop, and kept for as long as its rows need them.

use crate::helper_threads::Lane;
use crate::http_routes::lock;
use crate::openai::ApiError;
use candecode::kit::error::describe;
use candecode::kit::SamplingParams;
use candecode_engine::requests::{Automata, AutomataMemo};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

/// Maximum memory of small automata (up to [`SMALL`]) in use at once, in bytes.
const MOST_SMALL: usize = 64 << 20;
/// Maximum memory of larger automata in use at once, in bytes. Counted separately, so that a few
/// large ones can't crowd out the small ones.
const MOST_LARGE: usize = 192 << 20;
/// Maximum size of a small automaton, in bytes.
const SMALL: usize = 1 << 20;

/// The compiled automata: the ones in use, keyed by pattern, and a memo of recent ones.
#[derive(Default)]
pub struct Rails {
    memo: Arc<AutomataMemo>,
    in_use: Mutex<HashMap<String, Weak<Automata>>>,
}

impl Rails {
    /// Compiles a request's automata in this lane, unless they are already known. They count as in
    /// use until the returned `Arc` is dropped. None if the request has no pattern.
    ///
    /// # Errors
    /// 400, naming `param`, if the pattern is rejected; 503 if too much memory is in use by
    /// automata of the same class; otherwise as [`Lane::run`].
    pub async fn compile(
        &self,
        params: &SamplingParams,
        param: &str,
        lane: &Lane,
    ) -> Result<Option<Arc<Automata>>, ApiError> {
        let Some(pattern) = &params.allow_regex else { return Ok(None) };
        let compiled = match self.memo.known(params) {
            Some(known) => known,
            None => {
                let (memo, params) = (self.memo.clone(), params.clone());
                lane.run(move || Ok(memo.get(&params))).await?
            }
        };
        let automata = compiled.map_err(|error| ApiError::invalid(param, describe(&error)))?;
        let mut in_use = lock(&self.in_use);
        if let Some(known) = in_use.get(pattern).and_then(Weak::upgrade) {
            return Ok(Some(known));
        }
        in_use.retain(|_, automata| automata.strong_count() > 0);
        let bytes = automata.memory_usage();
        let others = in_use.values().filter_map(Weak::upgrade).map(|other| other.memory_usage());
        let alike: usize = others.filter(|other| (*other > SMALL) == (bytes > SMALL)).sum();
        if alike + bytes > if bytes > SMALL { MOST_LARGE } else { MOST_SMALL } {
            return Err(ApiError::overloaded(
                "too many large regular expressions are in use; try again in a few seconds, or \
                 make yours simpler",
            ));
        }
        let automata = Arc::new(automata);
        in_use.insert(pattern.clone(), Arc::downgrade(&automata));
        Ok(Some(automata))
    }

    /// Returns the automata for a job with these parameters. None if they are no longer in use.
    pub fn of(&self, params: &SamplingParams) -> Option<Automata> {
        let Some(pattern) = &params.allow_regex else { return Some(Automata::default()) };
        Some((*lock(&self.in_use).get(pattern)?.upgrade()?).clone())
    }
}
