//! How a text is to be generated: what all loops from day 7 on take.

use crate::kit::{LogitsProcessor, Model, ModelConfig};
use candle_core::{bail, Result};

/// Chooses a token of a row from its processed logits.
pub type Choose<'a> = Box<dyn FnMut(usize, &[f32]) -> Result<u32> + 'a>;

/// When to stop, what to do to the logits, and how to choose. Names are those of HF's `GenerationConfig`.
pub struct GenerationOptions<'a> {
    /// TokenIter to generate at most, EOS included.
    pub max_new_tokens: usize,
    /// Ids that end the text.
    pub eos_token_ids: Vec<u32>,
    /// Strings that end the text; they are not part of it.
    pub stop_strings: Vec<String>,
    /// How many tokens leave the context window at once when it is full.
    pub stride: usize,
    /// Applied to the logits of every step, in this order.
    pub processors: Vec<Box<dyn LogitsProcessor + 'a>>,
    /// Chooses the token. Day 7's `greedy` is the plain one.
    pub choose: Choose<'a>,
}

impl<'a> GenerationOptions<'a> {
    /// Options with the model's own EOS ids, the course's stride (a quarter of the context), and no processors.
    pub fn new(
        config: &ModelConfig,
        max_new_tokens: usize,
        choose: impl FnMut(usize, &[f32]) -> Result<u32> + 'a,
    ) -> Self {
        Self {
            max_new_tokens,
            eos_token_ids: config.eos_token_ids.clone(),
            stop_strings: Vec::new(),
            stride: (config.max_position_embeddings / 4).max(1),
            processors: Vec::new(),
            choose: Box::new(choose),
        }
    }
}

/// What every loop asks of a prompt: at least one token, and no more than the context.
///
/// # Errors
/// If it is empty or too long.
pub fn check_prompt(model: &dyn Model, prompt: &[u32]) -> Result<()> {
    let context = model.config().max_position_embeddings;
    if prompt.is_empty() {
        bail!("the prompt is empty; give it at least one token")
    }
    if prompt.len() > context {
        bail!("the prompt is {} tokens long, the context {context}; shorten it", prompt.len())
    }
    Ok(())
}
