//! Turns [`SamplingParams`] into a [`Request`]: the processors of days 8, 9 and 14 in HF's order,
//! and a sampler.

use crate::kernels;
use crate::{operations, token_rules};
use anyhow::Result;
use candecode::day08_sampling::{chacha_sampler, warpers};
use candecode::day09_penalties::penalties;
use candecode::day14_guard_rails::{
    allow_automaton, block_automata, block_sequences, Automaton, GuardRail,
};
use candecode::kit::error::{plain, shown, usage};
use candecode::kit::{
    named, LogitsProcessor, ModelConfig, Request, Sampler, SamplingParams, SharedOps, Tokenizer,
};
use std::rc::Rc;
use std::sync::Arc;

/// Logits processors of one or more requests.
pub type Processors = Vec<Rc<dyn LogitsProcessor>>;

/// Rejects out-of-range parameters before a model is loaded.
///
/// # Errors
/// A usage error that names the parameter.
pub fn check(params: &SamplingParams) -> Result<()> {
    let refused = |e| usage(plain(&e));
    token_rules::check(params).map_err(|(_, message)| usage(message))?;
    penalties(params).map_err(refused)?;
    if params.temperature != 0.0 {
        warpers(params).map_err(refused)?;
    }
    Ok(())
}

/// Moves every stop string that is exactly a special token, such as `<|im_end|>`, to the stop token
/// ids. A special token has no text, so only its id can end a completion (as HF's `stop_strings`
/// does). One that the model, with its `vocab_size`, can't generate is dropped.
pub fn special_stops(params: &mut SamplingParams, tokenizer: &Tokenizer, vocab_size: usize) {
    let SamplingParams { stop, stop_token_ids, .. } = params;
    stop.retain(|stop| match tokenizer.special_token(stop) {
        Some(id) => {
            if (id as usize) < vocab_size {
                stop_token_ids.push(id);
            }
            false
        }
        None => true,
    });
}

/// Rejects stop strings that mix a special token with other text. Generated text never contains a
/// special token, so the stop string could never match.
///
/// # Errors
/// A usage error that names the string and the token.
pub fn check_stops(stop: &[String], tokenizer: &Tokenizer) -> Result<()> {
    for stop in stop {
        let Some(token) = tokenizer.special_token_in(stop).filter(|token| token != stop) else {
            continue;
        };
        return Err(usage(format!(
            "stop string {stop:?}: {token} is a special token, and special tokens are not part of \
             the text, so this would never match; to stop at the token, use {token} by itself"
        )));
    }
    Ok(())
}

/// The compiled automata of a request's guard rails. Compiling can take a second and 100 MB but
/// needs neither a tokenizer nor a model, so any thread can do it and hand over the result in
/// [`SamplingParams::prepared`]. Clones are cheap.
#[derive(Clone, Default)]
pub struct Automata {
    block: Vec<Arc<Automaton>>,
    allow: Option<Arc<Automaton>>,
}

impl Automata {
    /// Compiles the automata for these parameters.
    ///
    /// # Errors
    /// A usage error, if a word is empty or a pattern is rejected.
    pub fn compile(params: &SamplingParams) -> Result<Self> {
        let refused = |e| usage(plain(&e));
        let mut automata = Self::default();
        if !params.block.is_empty() {
            let whole = params.block_whole_words;
            let block = block_automata(&params.block, whole, &params.stop).map_err(refused)?;
            automata.block = block.into_iter().map(Arc::new).collect();
        }
        if let Some(regex) = &params.allow_regex {
            automata.allow = Some(Arc::new(allow_automaton(regex).map_err(refused)?));
        }
        Ok(automata)
    }

    /// Returns the automata that [`SamplingParams::prepared`] holds, or compiles them now.
    ///
    /// # Errors
    /// Same as [`Automata::compile`].
    pub fn of(params: &SamplingParams) -> Result<Arc<Self>> {
        match params.prepared.get() {
            Some(automata) => Ok(automata),
            None => Self::compile(params).map(Arc::new),
        }
    }

    /// Returns the memory used, in bytes.
    pub fn memory_usage(&self) -> usize {
        self.block.iter().chain(&self.allow).map(|automaton| automaton.memory_usage()).sum()
    }
}

/// Returns the processors in vLLM's and HF's order: rules for single tokens, penalties, guard
/// rails, rules for the end of the text, warpers. Greedy decoding needs no warpers, because they
/// never change which token is best.
///
/// Processors keep no state, so requests with the same parameters share one set. A long block list
/// takes seconds to compile; automata that are [`SamplingParams::prepared`] are used as they are.
///
/// # Errors
/// A usage error, if a parameter is out of range, a pattern is rejected, or a guard rail can't get
/// the bytes of the tokenizer's tokens.
pub fn processors(
    params: &SamplingParams,
    tokenizer: &Tokenizer,
    config: &ModelConfig,
) -> Result<Processors> {
    processors_with(params, tokenizer, config, |name, automaton| {
        Rc::new(GuardRail::new(name, automaton.clone(), tokenizer, config.vocab_size))
    })
}

/// Same as [`processors`], with guard rails from `rail`. It gets a rail's name and automaton, and
/// can return one that has already computed masks.
///
/// # Errors
/// Same as [`processors`].
pub fn processors_with(
    params: &SamplingParams,
    tokenizer: &Tokenizer,
    config: &ModelConfig,
    rail: impl Fn(String, &Arc<Automaton>) -> Rc<GuardRail>,
) -> Result<Processors> {
    let refused = |e| usage(plain(&e));
    let vocab_size = config.vocab_size;
    let automata = Automata::of(params)?;
    token_rules::check_ids(params, vocab_size).map_err(|(_, message)| usage(message))?;
    let mut all: Processors = token_rules::before_penalties(params, tokenizer).map_err(refused)?;
    all.extend(penalties(params).map_err(refused)?);
    if !params.block_ids.is_empty() {
        let sequences = params.block_ids.clone();
        all.push(named("block_ids", move |input, logits| {
            block_sequences(logits, input.tokens, &sequences, input.eos);
            Ok(())
        }));
    }
    if !params.block.is_empty() || params.allow_regex.is_some() {
        tokenizer.check_token_bytes().map_err(refused)?;
    }
    for automaton in &automata.block {
        all.push(rail(format!("the block list of size {}", params.block.len()), automaton));
    }
    if let (Some(regex), Some(automaton)) = (&params.allow_regex, &automata.allow) {
        all.push(rail(format!("the pattern {}", shown(regex)), automaton));
    }
    all.extend(params.format.as_ref().map(|format| format.processor()));
    all.extend(token_rules::end_of_pattern(params, tokenizer, config));
    all.extend(token_rules::end_rules(params));
    if params.temperature != 0.0 {
        all.extend(warpers(params).map_err(refused)?);
    }
    Ok(all)
}

/// Returns a sampler: greedy, or one that draws from portable random stream number `stream` of the
/// seed. A request uses the same stream in every loop, so it draws the same numbers in each.
pub fn sampler(params: &SamplingParams, stream: usize, ops: &SharedOps) -> Sampler<'static> {
    if params.temperature == 0.0 {
        return operations::greedy(ops);
    }
    chacha_sampler(params.seed, stream)
}

/// Creates a request from these parts, for a model with these operations.
pub fn request<'a>(
    config: &ModelConfig,
    prompt: &[u32],
    params: &SamplingParams,
    processors: &[Rc<dyn LogitsProcessor + 'a>],
    sampler: Sampler<'a>,
    ops: &SharedOps,
) -> Request<'a> {
    let mut request = Request::new(config, prompt, params.max_new_tokens, sampler);
    request.log_softmax = ops.chooses_fast().then_some(kernels::log_softmax);
    if token_rules::ends_ignored(params) {
        request.eos_token_ids.clear();
    }
    request.eos_token_ids.extend(&params.stop_token_ids);
    request.eos_token_ids.extend(processors.iter().filter_map(|rule| rule.end_token()));
    request.stop_strings.clone_from(&params.stop);
    request.cache_salt.clone_from(&params.cache_salt);
    request.processors = processors.to_vec();
    request
}
