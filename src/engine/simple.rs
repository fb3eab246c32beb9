//! The smallest way to use the course's code: a text in, a text out, with day 6's loop.

use crate::day06_generate::{self as day06, TextStream};
use crate::day07_greedy::argmax;
use crate::kit::{Model, Tokenizer};
use candle_core::{bail, Result};

/// Continues `prompt` greedily and returns what was added to it (tiny-llm `simple_generate`). The
/// text ends at EOS, which is not shown, or after `max_new_tokens`, or where the context is full.
///
/// Every step computes all positions again. The prompt is taken as it is: an instruct model wants
/// its chat template around it, which [`chat`](crate::engine::chat) renders.
///
/// # Errors
/// If the prompt is empty or longer than the context, or the model fails.
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
    let room = max_new_tokens.min(context - ids.len() + 1); // the last token is never fed
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
