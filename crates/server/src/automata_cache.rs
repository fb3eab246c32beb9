//! The automata of requests whose text must match a pattern. Each is compiled once, on a helper
//! thread, and goes to the model's thread with its job. It is kept for the next request with the
//! same pattern, within a limit.

use crate::helper_threads::HelperThreads;
use crate::openai::ApiError;
use crate::util::lock;
use candecode::kit::error::describe;
use candecode::kit::{Prepared, SamplingParams};
use candecode_engine::requests::Automata;
use regex_automata::dfa::dense;
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use regex_automata::MatchKind;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Maximum memory of all entries, in bytes. Only the newest entry, and those that jobs still hold,
/// stay in spite of it.
const MOST_BYTES: usize = 128 << 20;
/// Maximum number of entries, with the same exceptions.
const MOST_ENTRIES: usize = 4096;
/// Maximum memory of small automata (up to [`SMALL`]) in use at once, in bytes.
const MOST_SMALL: usize = 64 << 20;
/// Maximum memory of larger automata in use at once, in bytes. Counted separately, so that a few
/// large ones can't crowd out the small ones.
const MOST_LARGE: usize = 192 << 20;
/// Maximum size of a small automaton, in bytes.
const SMALL: usize = 1 << 20;
/// Limits within which a pattern compiles in a few milliseconds: its length in bytes, the size of
/// its NFA, and the size of its automaton and of all that is needed to build it.
const QUICK: (usize, usize, usize) = (500, 1 << 20, 1 << 18);

/// Compiled automata and rejected patterns, newest first.
#[derive(Default)]
pub struct AutomataCache(Mutex<VecDeque<Entry>>);

/// Automata, or the reason why their pattern was rejected.
type Compiled = Result<Arc<Automata>, String>;

/// A pattern and what came of it.
struct Entry {
    pattern: String,
    compiled: Compiled,
    /// Memory of the whole entry, in bytes.
    bytes: usize,
}

impl Entry {
    fn new(pattern: &str, compiled: Compiled) -> Self {
        let of_result = match &compiled {
            Ok(automata) => automata.memory_usage(),
            Err(why) => why.len(),
        };
        let bytes = size_of::<Self>() + pattern.len() + of_result;
        Self { pattern: pattern.to_string(), compiled, bytes }
    }

    /// Returns the automata if a job holds them.
    fn in_use(&self) -> Option<&Arc<Automata>> {
        // One reference is the entry's own. All others are handed out with the lock held.
        self.compiled.as_ref().ok().filter(|automata| Arc::strong_count(automata) > 1)
    }
}

impl AutomataCache {
    /// Returns a request's automata, compiled on a helper thread unless they are already known.
    /// They count as in use until the last copy of the returned value is dropped. Empty if the
    /// request has no pattern.
    ///
    /// # Errors
    /// 400, naming `param`, if the pattern is rejected; 503 if too much memory is in use by
    /// automata of the same class; otherwise as [`Lane::run`](crate::helper_threads::Lane::run).
    pub async fn prepare(
        self: &Arc<Self>,
        params: &SamplingParams,
        param: &str,
        helpers: &HelperThreads,
    ) -> Result<Prepared, ApiError> {
        let Some(pattern) = &params.allow_regex else { return Ok(Prepared::default()) };
        let compiled = match self.known(pattern) {
            Some(compiled) => compiled,
            None => {
                // Quick patterns have their own lane, so that slow ones don't hold them up.
                let (cache, text) = (self.clone(), pattern.clone());
                let work = move || Ok(is_quick(&text).then(|| cache.compile(&text)));
                match helpers.small_patterns.run(work).await? {
                    Some(compiled) => compiled,
                    None => {
                        let (cache, text) = (self.clone(), pattern.clone());
                        helpers.patterns.run(move || Ok(cache.compile(&text))).await?
                    }
                }
            }
        };
        let automata = compiled.map_err(|why| ApiError::invalid(param, why))?;
        self.hand_out(pattern, automata).map(Prepared::new)
    }

    /// Returns what came of a pattern, if it is still known. The copy doesn't count as in use.
    fn known(&self, pattern: &str) -> Option<Result<Automata, String>> {
        let entries = lock(&self.0);
        let entry = entries.iter().find(|entry| entry.pattern == pattern)?;
        Some(entry.compiled.as_ref().map(|automata| (**automata).clone()).map_err(Clone::clone))
    }

    /// Compiles a pattern, unless it is known by now, and keeps the result.
    fn compile(&self, pattern: &str) -> Result<Automata, String> {
        if let Some(known) = self.known(pattern) {
            return known;
        }
        let params =
            SamplingParams { allow_regex: Some(pattern.to_string()), ..SamplingParams::default() };
        let compiled = Automata::compile(&params).map_err(|error| describe(&error));
        let mut entries = lock(&self.0);
        entries.push_front(Entry::new(pattern, compiled.clone().map(Arc::new)));
        evict(&mut entries);
        compiled
    }

    /// Hands out automata to a job, if the limit on those in use allows it.
    fn hand_out(&self, pattern: &str, automata: Automata) -> Result<Arc<Automata>, ApiError> {
        let mut entries = lock(&self.0);
        let known = entries.iter().find(|entry| entry.pattern == pattern);
        if let Some(shared) = known.and_then(Entry::in_use) {
            return Ok(shared.clone());
        }
        let bytes = automata.memory_usage();
        let others = entries.iter().filter_map(Entry::in_use).map(|other| other.memory_usage());
        let alike: usize = others.filter(|other| (*other > SMALL) == (bytes > SMALL)).sum();
        if alike + bytes > if bytes > SMALL { MOST_LARGE } else { MOST_SMALL } {
            return Err(ApiError::overloaded(
                "too many large regular expressions are in use; try again in a few seconds, or \
                 make yours simpler",
            ));
        }
        if let Some(Ok(shared)) = known.map(|entry| &entry.compiled) {
            return Ok(shared.clone());
        }
        // It has been evicted since it was compiled.
        let shared = Arc::new(automata);
        entries.push_front(Entry::new(pattern, Ok(shared.clone())));
        evict(&mut entries);
        Ok(shared)
    }
}

/// Returns true if a pattern compiles in a few milliseconds, or can't be parsed. Finds out by
/// compiling it until it exceeds [`QUICK`].
fn is_quick(pattern: &str) -> bool {
    let (bytes, nfa, automaton) = QUICK;
    if pattern.len() > bytes {
        return false;
    }
    let syntax = syntax::Config::new().utf8(false);
    if syntax::parse_with(pattern, &syntax).is_err() {
        return true;
    }
    let nfa = thompson::Config::new().nfa_size_limit(Some(nfa));
    let config = dense::Config::new()
        .match_kind(MatchKind::All)
        .dfa_size_limit(Some(automaton))
        .determinize_size_limit(Some(automaton));
    dense::Builder::new().configure(config).thompson(nfa).syntax(syntax).build(pattern).is_ok()
}

/// Drops the oldest entries that no job holds, until the rest is within the limits.
fn evict(entries: &mut VecDeque<Entry>) {
    let mut bytes: usize = entries.iter().map(|entry| entry.bytes).sum();
    for i in (1..entries.len()).rev() {
        if bytes <= MOST_BYTES && entries.len() <= MOST_ENTRIES {
            break;
        }
        if entries[i].in_use().is_none() {
            bytes -= entries.remove(i).map_or(0, |entry| entry.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pattern whose automaton takes a few megabytes, different for every `n`.
    fn large(n: usize) -> String {
        format!("{}.{{5000}}", "a".repeat(n))
    }

    fn bytes(cache: &AutomataCache) -> usize {
        lock(&cache.0).iter().map(|entry| entry.bytes).sum()
    }

    fn len(cache: &AutomataCache) -> usize {
        lock(&cache.0).len()
    }

    fn use_one(cache: &AutomataCache, pattern: &str) -> Result<Arc<Automata>, ApiError> {
        cache.hand_out(pattern, cache.compile(pattern).unwrap())
    }

    #[test]
    fn accepted_and_rejected_patterns_are_compiled_once() {
        let cache = AutomataCache::default();
        assert!(cache.known("[ab]+").is_none() && cache.known("(a").is_none());
        for _ in 0..3 {
            assert!(cache.compile("[ab]+").unwrap().memory_usage() > 0);
            for (pattern, words) in
                [(r"\w{99999}", ["invalid pattern", "too large"]), ("(a", ["unclosed", "group"])]
            {
                let why = cache.compile(pattern).err().unwrap();
                assert!(words.iter().all(|word| why.contains(word)), "{why}");
            }
        }
        assert!(cache.known("[ab]+").unwrap().is_ok() && cache.known("(a").unwrap().is_err());
        assert_eq!(len(&cache), 3);
    }

    #[test]
    fn memory_and_entries_are_limited() {
        let cache = AutomataCache::default();
        let one = cache.compile(&large(1)).unwrap().memory_usage();
        assert!(one > 1 << 21, "{one}");
        let held = use_one(&cache, &large(1)).unwrap();
        for n in 2..MOST_BYTES / one + 4 {
            cache.compile(&large(n)).unwrap();
            assert!(bytes(&cache) <= MOST_BYTES);
        }
        assert!(len(&cache) > 1);
        assert!(cache.known(&large(2)).is_none(), "the oldest has to go");
        assert!(cache.known(&large(1)).is_some(), "a job holds it");
        drop(held);
        for n in 0..MOST_ENTRIES + 1 {
            let _ = cache.compile(&format!("({n}"));
            assert!(len(&cache) <= MOST_ENTRIES);
        }
        assert!(cache.known(&large(1)).is_none(), "the job has ended");
    }

    #[test]
    fn what_jobs_hold_is_limited_and_shared() {
        let cache = AutomataCache::default();
        let mut held = vec![use_one(&cache, &large(1)).unwrap()];
        let refused = loop {
            match use_one(&cache, &large(1 + held.len())) {
                Ok(automata) => held.push(automata),
                Err(error) => break error,
            }
        };
        let total = |held: &[Arc<Automata>]| -> usize {
            held.iter().map(|automata| automata.memory_usage()).sum()
        };
        let one = held[0].memory_usage();
        assert!((MOST_LARGE - 2 * one..=MOST_LARGE).contains(&total(&held)));
        assert_eq!((refused.status, refused.retry_after), (503, Some(5)));
        let again = use_one(&cache, &large(1)).unwrap();
        assert!(Arc::ptr_eq(&again, &held[0]), "what is in use costs nothing more");
        assert!(use_one(&cache, "yes|no").is_ok(), "small automata have a limit of their own");
        held.pop();
        assert!(use_one(&cache, &large(1000)).is_ok());
    }
}
