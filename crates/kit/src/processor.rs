//! The fourth noun: what changes the logits before a token is chosen.

use candle_core::Result;
use std::rc::Rc;

/// What a processor may know: the whole text so far, and how it will end.
#[derive(Debug, Clone, Copy)]
pub struct ProcessorInput<'a> {
    /// Prompt and generated tokens.
    pub tokens: &'a [u32],
    /// How many of `tokens` are the prompt.
    pub prompt_len: usize,
    /// Tokens that may still be generated, this one included.
    pub remaining: usize,
    /// Ids that end the text.
    pub eos: &'a [u32],
}

/// Changes the logits of one row, in place. It keeps no state: the whole context comes in, so
/// beams, rollback and batches cannot desynchronise.
pub trait LogitsProcessor {
    /// What errors call it, with its parameters: `top_k(50)`.
    fn name(&self) -> String;

    /// Changes `logits`, `(V)`; a token that must not be chosen becomes `-inf`.
    ///
    /// # Errors
    /// If the processor cannot do what it promises.
    fn process(&self, input: &ProcessorInput, logits: &mut [f32]) -> Result<()>;

    /// A token that ends the text where this processor leaves nothing else, for models without an
    /// EOS id.
    fn end_token(&self) -> Option<u32> {
        None
    }
}

struct Named<F>(String, F);

impl<F: Fn(&ProcessorInput, &mut [f32]) -> Result<()>> LogitsProcessor for Named<F> {
    fn name(&self) -> String {
        self.0.clone()
    }

    fn process(&self, input: &ProcessorInput, logits: &mut [f32]) -> Result<()> {
        (self.1)(input, logits)
    }
}

/// A closure as a processor, under the name that errors call it.
pub fn named<'a>(
    name: impl Into<String>,
    process: impl Fn(&ProcessorInput, &mut [f32]) -> Result<()> + 'a,
) -> Rc<dyn LogitsProcessor + 'a> {
    Rc::new(Named(name.into(), process))
}

/// What an error says if rules contradict each other: whoever set them is to blame, and not the
/// program.
pub const LEFT_NO_TOKEN: &str = "left no token to choose";

/// Runs the processors in order.
///
/// # Errors
/// If one fails, or leaves no token: it is named.
pub fn process_all(
    processors: &[Rc<dyn LogitsProcessor + '_>],
    input: &ProcessorInput,
    logits: &mut [f32],
) -> Result<()> {
    for processor in processors {
        processor.process(input, logits)?;
        if logits.iter().all(|logit| *logit == f32::NEG_INFINITY) {
            let generated = input.tokens.len() - input.prompt_len;
            let tokens = if generated == 1 { "token" } else { "tokens" };
            candle_core::bail!(
                "{} {LEFT_NO_TOKEN} after {generated} generated {tokens}; loosen it",
                processor.name()
            )
        }
    }
    Ok(())
}
