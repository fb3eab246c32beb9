//! The fifth noun: what comes out.

use serde::Serialize;

/// Why a text ended. `length` is the word of OpenAI's and vLLM's `finish_reason`. Their `stop` means the end
/// by an EOS id as well as by a stop string; here the two are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FinishReason {
    /// An EOS id was chosen.
    Eos,
    /// A stop string appeared; an EOS id is [`FinishReason::Eos`].
    Stop,
    /// The bound on new tokens was reached.
    Length,
}

/// One generated token.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// Which prompt of the batch it belongs to.
    pub row: usize,
    /// Its id.
    pub id: u32,
    /// ln of the probability that the model gave it, before any processor (vLLM's `raw_logprobs`).
    pub logprob: f32,
    /// The text that became certain with it; empty while a character or a possible stop string is incomplete.
    pub text: String,
    /// Set on the last token of a row.
    pub finish: Option<FinishReason>,
}
