//! Rules for single tokens: a logit bias, a list of allowed ids, bad words, and a minimum length.
//! They run in the same order as vLLM's sampler and HF's processors.

use candecode::kit::{
    named, LogitsProcessor, ModelConfig, ProcessorInput, SamplingParams, Tokenizer,
};
use candle_core::Result;
use std::rc::Rc;

/// Logits processors of one or more requests.
type Processors = Vec<Rc<dyn LogitsProcessor>>;

/// The name of a rejected parameter, and a message that starts with the name.
pub type Fault = (&'static str, String);

/// Rejects parameters that are out of range for every model.
///
/// # Errors
/// Returns a [`Fault`] for the first invalid parameter.
pub fn check(params: &SamplingParams) -> std::result::Result<(), Fault> {
    for (id, bias) in &params.logit_bias {
        if !(bias.is_finite() || *bias == f32::NEG_INFINITY) {
            let message =
                format!("logit_bias of token {id} must be a finite number or -inf, got {bias}");
            return Err(("logit_bias", message));
        }
    }
    if params.allowed_token_ids.as_ref().is_some_and(Vec::is_empty) {
        let message =
            "allowed_token_ids is empty, so no token could be generated; list at least one";
        return Err(("allowed_token_ids", message.to_string()));
    }
    if params.bad_words.iter().any(|word| word.trim().is_empty()) {
        let message = "bad_words has an empty word, which would forbid everything; leave it out";
        return Err(("bad_words", message.to_string()));
    }
    if params.min_new_tokens > params.max_new_tokens {
        let (min, max) = (params.min_new_tokens, params.max_new_tokens);
        let message =
            format!("min_tokens {min} is more than max_tokens {max}; lower one or raise the other");
        return Err(("min_tokens", message));
    }
    Ok(())
}

/// Rejects token ids that a vocabulary of `vocab_size` tokens doesn't have.
///
/// # Errors
/// Returns a [`Fault`] that names the parameter and the id.
pub fn check_ids(params: &SamplingParams, vocab_size: usize) -> std::result::Result<(), Fault> {
    let biased: Vec<u32> = params.logit_bias.iter().map(|(id, _)| *id).collect();
    for (name, ids) in [
        ("logit_bias", biased.as_slice()),
        ("allowed_token_ids", params.allowed_token_ids.as_deref().unwrap_or_default()),
        ("stop_token_ids", &params.stop_token_ids),
        ("block_ids", &params.block_ids.concat()),
    ] {
        if let Some(id) = ids.iter().find(|id| **id as usize >= vocab_size) {
            let message =
                format!("{name}: token id {id} is not in the vocabulary of {vocab_size} tokens");
            return Err((name, message));
        }
    }
    Ok(())
}

/// Returns the rules that run before the penalties: allowed ids, bad words, bias.
///
/// # Errors
/// If the tokenizer can't encode a word.
pub fn before_penalties(params: &SamplingParams, tokenizer: &Tokenizer) -> Result<Processors> {
    let mut all = Processors::new();
    if let Some(ids) = &params.allowed_token_ids {
        all.push(only(ids));
    }
    if !params.bad_words.is_empty() {
        all.push(forbid_words(spellings(&params.bad_words, tokenizer)?));
    }
    if !params.logit_bias.is_empty() {
        all.push(add_bias(&params.logit_bias));
    }
    Ok(all)
}

/// Returns the rules about the end of a text, which run after the guard rails.
pub fn end_rules(params: &SamplingParams) -> Processors {
    let mut all = Processors::new();
    if params.min_new_tokens > 0 {
        all.push(no_end_before(params.min_new_tokens, &[]));
    }
    if params.ignore_eos && !ends_ignored(params) {
        all.push(no_end_before(usize::MAX, &params.stop_token_ids));
    }
    all
}

/// Ends a text when its pattern is complete, for a model without an EOS id. Any token without bytes
/// can act as EOS: a guard rail allows no other such token and treats this one as EOS. If the
/// pattern can also continue, the text does.
struct EndOfPattern(u32);

impl LogitsProcessor for EndOfPattern {
    fn name(&self) -> String {
        "the end of the pattern".to_string()
    }

    fn process(&self, _: &ProcessorInput, logits: &mut [f32]) -> Result<()> {
        let others = (0..).zip(logits.iter()).any(|(id, x)| *x > f32::NEG_INFINITY && id != self.0);
        if let (true, Some(end)) = (others, logits.get_mut(self.0 as usize)) {
            *end = f32::NEG_INFINITY;
        }
        Ok(())
    }

    fn end_token(&self) -> Option<u32> {
        Some(self.0)
    }
}

/// Returns the rule that ends a text with a complete pattern, if the model has no EOS id and the
/// vocabulary has a token without bytes.
pub fn end_of_pattern(
    params: &SamplingParams,
    tokenizer: &Tokenizer,
    config: &ModelConfig,
) -> Option<Rc<dyn LogitsProcessor>> {
    if !params.has_form() || !config.eos_token_ids.is_empty() {
        return None;
    }
    let mut ids = 0..config.vocab_size as u32;
    let end = ids.find(|id| tokenizer.token_bytes(*id).is_empty())?;
    Some(Rc::new(EndOfPattern(end)))
}

/// Forbids every token except these.
fn only(ids: &[u32]) -> Rc<dyn LogitsProcessor> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    named("allowed_token_ids", move |_, logits| {
        for (id, logit) in (0..).zip(logits) {
            if ids.binary_search(&id).is_err() {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(())
    })
}

/// Adds each bias to its token's logit.
fn add_bias(bias: &[(u32, f32)]) -> Rc<dyn LogitsProcessor> {
    let bias = bias.to_vec();
    named("logit_bias", move |_, logits| {
        for (id, bias) in &bias {
            if let Some(logit) = logits.get_mut(*id as usize) {
                *logit += bias;
            }
        }
        Ok(())
    })
}

/// Returns the tokens of each word, alone and after a space. (vLLM's
/// `SamplingParams.update_from_tokenizer` drops the second if its number of tokens differs, so the
/// word can still appear after a space.)
fn spellings(words: &[String], tokenizer: &Tokenizer) -> Result<Vec<Vec<u32>>> {
    let mut all = Vec::new();
    for word in words {
        let word = word.trim_start();
        all.push(tokenizer.encode_rendered(word)?);
        all.push(tokenizer.encode_rendered(&format!(" {word}"))?);
    }
    all.retain(|ids| !ids.is_empty());
    Ok(all)
}

/// Forbids the last token of each sequence when the generated text ends with the tokens before it.
fn forbid_words(words: Vec<Vec<u32>>) -> Rc<dyn LogitsProcessor> {
    named("bad_words", move |input, logits| {
        let generated = &input.tokens[input.prompt_len..];
        for word in &words {
            let Some((last, before)) = word.split_last() else { continue };
            if generated.ends_with(before) {
                if let Some(logit) = logits.get_mut(*last as usize) {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
        Ok(())
    })
}

/// Forbids the ids that end the text, except `allowed`, until it has `least` tokens. If a guard
/// rail leaves no other token, the text may still end, because a complete pattern can't continue.
fn no_end_before(least: usize, allowed: &[u32]) -> Rc<dyn LogitsProcessor> {
    let allowed = allowed.to_vec();
    named("min_tokens", move |input, logits| {
        if input.tokens.len() - input.prompt_len >= least {
            return Ok(());
        }
        let is_held = |id: u32| input.eos.contains(&id) && !allowed.contains(&id);
        let others = (0..).zip(logits.iter()).any(|(id, x)| *x > f32::NEG_INFINITY && !is_held(id));
        if others {
            for id in input.eos.iter().filter(|id| is_held(**id)) {
                if let Some(logit) = logits.get_mut(*id as usize) {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
        Ok(())
    })
}

/// Returns true if EOS is treated like any other token. With a pattern it isn't, because a text
/// that completes the pattern has to end.
pub fn ends_ignored(params: &SamplingParams) -> bool {
    params.ignore_eos && !params.has_form()
}
