//! The simplest way to use the course's code: text in, text out, with day 6's loop.

use candecode::day06_generate::{self as day06, TextStream};
use candecode::day07_greedy::argmax;
use candecode::kit::{Model, Tokenizer};
use candle_core::{bail, Result};

/// Continues `prompt` greedily and returns the generated text (tiny-llm's `simple_generate`).
/// Generation ends at EOS (which isn't included), after `max_new_tokens` tokens, or when the
/// context is full.
///
/// Every step recomputes all positions. The prompt is used as is. For an instruct model, wrap it in
/// the chat template first, with [`chat`](crate::chat).
///
/// # Errors
/// If the prompt can't be tokenized, is empty, or is longer than the context, or if the model
/// fails.
pub fn simple_generate(
    model: &dyn Model,
    tokenizer: &Tokenizer,
    prompt: &str,
    max_new_tokens: usize,
) -> Result<String> {
    let config = model.config();
    let ids = tokenizer.encode(prompt)?;
    let context = config.max_position_embeddings;
    if ids.is_empty() || ids.len() > context {
        bail!("the prompt has {} tokens; the model takes 1 to {context}", ids.len())
    }
    // + 1: the last token is never fed back in.
    let room = max_new_tokens.min(context - ids.len() + 1);
    let mut stream = TextStream::after(tokenizer, &ids);
    let mut text = String::new();
    day06::simple_generate(model, &ids, room, &config.eos_token_ids, argmax, |id| {
        if !config.eos_token_ids.contains(&id) {
            text += &stream.push(id)?;
        }
        Ok(())
    })?;
    Ok(text + &stream.finish()?)
}
