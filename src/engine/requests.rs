//! From [`SamplingParams`] to a [`Request`]: the processors of days 8, 9 and 14 in HF's order, and a sampler.

use crate::day08_sampling::{chacha_sampler, torch_samplers, warpers};
use crate::day09_penalties::penalties;
use crate::day14_guard_rails::{allow_rail, block_rails};
use crate::engine::token_rules;
use crate::kit::error::{plain, usage};
use crate::kit::fused::argmax;
use crate::kit::{LogitsProcessor, ModelConfig, Request, Sampler, SamplingParams, Tokenizer};
use anyhow::Result;
use std::rc::Rc;

/// Processors of one or more requests.
pub type Processors = Vec<Rc<dyn LogitsProcessor>>;

/// Refuses parameters that are out of range, before a model is loaded.
///
/// # Errors
/// As wrong usage: the message names the parameter.
pub fn check(params: &SamplingParams) -> Result<()> {
    let refused = |e| usage(plain(&e));
    token_rules::check(params).map_err(|(_, message)| usage(message))?;
    penalties(params).map_err(refused)?;
    if params.temperature != 0.0 {
        warpers(params).map_err(refused)?;
    }
    Ok(())
}

/// The processors in vLLM's and HF's order: rules for single tokens, penalties, guard rails, when the text
/// may end, warpers. Greedy decoding needs no warpers: none
/// of them changes which token is the best.
///
/// They keep no state, so one set serves all requests with the same parameters; a long block list takes
/// seconds to compile.
///
/// # Errors
/// As wrong usage, if a parameter is out of range or a pattern is refused.
pub fn processors(
    params: &SamplingParams,
    tokenizer: &Tokenizer,
    config: &ModelConfig,
) -> Result<Processors> {
    let refused = |e| usage(plain(&e));
    let vocab_size = config.vocab_size;
    token_rules::check_ids(params, vocab_size).map_err(|(_, message)| usage(message))?;
    let mut all: Processors = token_rules::before_penalties(params, tokenizer).map_err(refused)?;
    all.extend(penalties(params).map_err(refused)?);
    if !params.block.is_empty() {
        let whole = params.block_whole_words;
        let rails = block_rails(&params.block, whole, &params.stop, tokenizer, vocab_size);
        for rail in rails.map_err(refused)? {
            all.push(Rc::new(rail));
        }
    }
    if let Some(regex) = &params.allow_regex {
        all.push(Rc::new(allow_rail(regex, tokenizer, vocab_size).map_err(refused)?));
    }
    all.extend(token_rules::end_rules(params));
    if params.temperature != 0.0 {
        all.extend(warpers(params).map_err(refused)?);
    }
    Ok(all)
}

/// A sampler: greedy, or one that draws from the portable random stream number `stream` of the seed. A
/// request that is to draw the same numbers in every loop gets the same stream in every loop.
pub fn sampler(params: &SamplingParams, stream: usize) -> Sampler<'static> {
    if params.temperature == 0.0 {
        return Box::new(argmax);
    }
    chacha_sampler(params.seed, stream)
}

/// The samplers of a batch of `rows` that all have these parameters: with `torch`, they share torch's
/// stream, as the rows of a batch in transformers do.
pub fn samplers(params: &SamplingParams, rows: usize, torch: bool) -> Vec<Sampler<'static>> {
    if torch && params.temperature != 0.0 {
        return torch_samplers(params.seed, rows);
    }
    (0..rows).map(|row| sampler(params, row)).collect()
}

/// A request with these parts.
pub fn request<'a>(
    config: &ModelConfig,
    prompt: &[u32],
    params: &SamplingParams,
    processors: &[Rc<dyn LogitsProcessor + 'a>],
    sampler: Sampler<'a>,
) -> Request<'a> {
    let mut request = Request::new(config, prompt, params.max_new_tokens, sampler);
    if token_rules::ends_ignored(params) {
        request.eos_token_ids.clear();
    }
    request.eos_token_ids.extend(&params.stop_token_ids);
    request.stop_strings.clone_from(&params.stop);
    request.processors = processors.to_vec();
    request
}
