//! The automata of requests whose text must match a pattern: compiled on a helper thread before the
//! request goes to the loop, and kept for as long as its rows need them.

use crate::helper_threads::Lane;
use crate::http_routes::lock;
use crate::openai::ApiError;
use candecode::engine::requests::{Automata, AutomataMemo};
use candecode::kit::error::describe;
use candecode::kit::SamplingParams;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

/// The memory for automata of up to [`SMALL`] that are in use, in bytes.
const MOST_SMALL: usize = 64 << 20;
/// The memory for larger ones. They don't share, so that a few large ones leave room for all
/// others.
const MOST_LARGE: usize = 192 << 20;
/// The size in bytes of an automaton that is small.
const SMALL: usize = 1 << 20;

/// All compiled automata: those in use, by their pattern, and some that may be asked for again.
#[derive(Default)]
pub struct Rails {
    memo: Arc<AutomataMemo>,
    in_use: Mutex<HashMap<String, Weak<Automata>>>,
}

impl Rails {
    /// Compiles the automata of a request in this lane, unless they are known. They are in use
    /// until what is returned is dropped. None if the request has no pattern.
    ///
    /// # Errors
    /// 400, naming `param`, if the pattern is refused; 503 if too many large ones are in use; and
    /// as [`Lane::run`].
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
                "too many large regular expressions are in use; try again in some seconds, or \
                 make yours simpler",
            ));
        }
        let automata = Arc::new(automata);
        in_use.insert(pattern.clone(), Arc::downgrade(&automata));
        Ok(Some(automata))
    }

    /// The automata of a job with these parameters, which are in use.
    pub fn of(&self, params: &SamplingParams) -> Option<Automata> {
        let Some(pattern) = &params.allow_regex else { return Some(Automata::default()) };
        Some((*lock(&self.in_use).get(pattern)?.upgrade()?).clone())
    }
}
