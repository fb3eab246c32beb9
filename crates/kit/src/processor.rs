//! Logits processors, which change the logits before a token is chosen.

use candle_core::Result;
use std::fmt::Debug;
use std::rc::Rc;

/// Read-only context for a processor: the sequence so far and how it can end.
#[derive(Debug, Clone, Copy)]
pub struct ProcessorInput<'a> {
    /// The prompt and the generated tokens.
    pub tokens: &'a [u32],
    /// Number of prompt tokens at the start of `tokens`.
    pub prompt_len: usize,
    /// Number of tokens that may still be generated, this one included.
    pub remaining: usize,
    /// Ids that end the sequence.
    pub eos: &'a [u32],
}

/// Changes the logits of one row in place. A processor is stateless: it gets the whole context on
/// every call, so beams, rollback and batches can't get out of sync.
pub trait LogitsProcessor {
    /// Returns the name and parameters for error messages, such as `top_k(50)`.
    fn name(&self) -> String;

    /// Changes `logits`, `(V)`. A token that must not be chosen is set to `-inf`.
    ///
    /// # Errors
    /// If the processor can't enforce its rule.
    fn process(&self, input: &ProcessorInput, logits: &mut [f32]) -> Result<()>;

    /// Returns a token that ends the sequence when this processor leaves nothing else, for models
    /// without an EOS id.
    fn end_token(&self) -> Option<u32> {
        None
    }
}

/// A format that the whole completion must have, such as a JSON schema, compiled for one
/// vocabulary. It travels with its parameters to the thread that runs the model.
pub trait TextFormat: Debug + Send + Sync {
    /// Returns the format in words, for error messages.
    fn name(&self) -> &str;

    /// Returns a processor for the texts of one request.
    fn processor(&self) -> Rc<dyn LogitsProcessor>;
}

impl PartialEq for dyn TextFormat {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
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

/// Wraps a closure as a processor. Error messages use `name`.
pub fn named<'a>(
    name: impl Into<String>,
    process: impl Fn(&ProcessorInput, &mut [f32]) -> Result<()> + 'a,
) -> Rc<dyn LogitsProcessor + 'a> {
    Rc::new(Named(name.into(), process))
}

/// The error text for constraints that contradict each other, which is a mistake in the request and
/// not a bug in the program.
pub const LEFT_NO_TOKEN: &str = "left no token to choose";

/// Runs the processors in order.
///
/// # Errors
/// If a processor fails, or leaves no token. The message names the processor.
pub fn process_all(
    processors: &[Rc<dyn LogitsProcessor + '_>],
    input: &ProcessorInput,
    logits: &mut [f32],
) -> Result<()> {
    let Some(processor) = first_to_leave_none(processors, input, logits)? else { return Ok(()) };
    let generated = input.tokens.len() - input.prompt_len;
    let tokens = if generated == 1 { "token" } else { "tokens" };
    candle_core::bail!(
        "{} {LEFT_NO_TOKEN} after {generated} generated {tokens}; loosen it",
        processor.name()
    )
}

/// Runs the processors on a draft model's logits, and returns whether they left a token. It isn't
/// an error if they didn't: the draft ends there, and the target may go another way.
///
/// # Errors
/// If a processor fails.
pub fn process_draft(
    processors: &[Rc<dyn LogitsProcessor + '_>],
    input: &ProcessorInput,
    logits: &mut [f32],
) -> Result<bool> {
    Ok(first_to_leave_none(processors, input, logits)?.is_none())
}

/// Runs the processors in order, and stops at the first that leaves no token. Returns that one, or
/// None if a token is left in the end.
fn first_to_leave_none<'a>(
    processors: &'a [Rc<dyn LogitsProcessor + '_>],
    input: &ProcessorInput,
    logits: &mut [f32],
) -> Result<Option<&'a dyn LogitsProcessor>> {
    for processor in processors {
        processor.process(input, logits)?;
        if logits.iter().all(|logit| *logit == f32::NEG_INFINITY) {
            return Ok(Some(processor.as_ref()));
        }
    }
    Ok(None)
}
