//! A request in OpenAI's format, as prompts and sampling parameters.

use super::fields::{Endpoint, Fields};
use candecode::kit::SamplingParams;
use candecode_engine::chat::Message;
use candecode_structured::Constraint;

/// A prompt as the client sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptInput {
    /// A text to continue.
    Text(String),
    /// Token ids, if the client tokenized the text itself.
    Ids(Vec<u32>),
    /// Chat messages, which the model's template renders to text.
    Messages(Vec<Message>),
}

/// A parsed request. Its prompts aren't encoded yet.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiRequest {
    /// The endpoint, which determines the request and response format.
    pub endpoint: Endpoint,
    /// The prompts. A chat has exactly one.
    pub prompts: Vec<PromptInput>,
    /// The sampling parameters for every prompt.
    pub params: SamplingParams,
    /// The JSON schema or grammar that every completion must follow.
    pub constraint: Option<Constraint>,
    /// The request field that `params.allow_regex` or `constraint` was read from.
    pub pattern_field: Option<&'static str>,
    /// Completions per prompt.
    pub n: usize,
    /// Number of top alternatives to report with each token. None: no logprobs.
    pub logprobs: Option<usize>,
    /// All other fields, as they were sent.
    pub fields: Fields,
    /// Names of fields that were ignored.
    pub ignored: Vec<String>,
}

impl ApiRequest {
    /// Returns true if the answer is the prompt and nothing else: `max_tokens` is 0 with `echo`.
    pub fn only_echoes(&self) -> bool {
        self.fields.most_tokens() == Some(0)
    }

    /// Returns the number of top alternatives to compute for each token of the prompt. None: no
    /// logprobs. As in vLLM, `echo` with `logprobs` asks for them, too.
    pub fn prompt_logprobs(&self) -> Option<usize> {
        let echoed = self.logprobs.filter(|_| self.fields.echo);
        self.fields.prompt_logprobs.max(echoed)
    }
}

/// The seed of a request without one, or with -1, as in vLLM and llama.cpp. Each of its choices
/// gets a random seed of its own.
pub const NO_SEED: u64 = -1_i64 as u64;
