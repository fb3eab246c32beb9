//! What a run reports: a line of JSON for each sequence, and speeds.

use crate::kit::draft::Counts;
use crate::kit::FinishReason;
use serde::Serialize;

/// One finished sequence, as `--format json` prints it.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Ids of the prompt.
    pub prompt_ids: Vec<u32>,
    /// Ids generated, EOS included.
    pub new_ids: Vec<u32>,
    /// The text generated.
    pub text: String,
    /// Why it ended; null if it was interrupted.
    pub finish_reason: Option<FinishReason>,
    /// What went wrong, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// ln of each new token's probability.
    pub logprobs: Vec<f32>,
    /// The likeliest tokens of each step, the best first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_logprobs: Option<Vec<Vec<TopLogprob>>>,
    /// A beam's score: its log-probability over `length ^ length_penalty`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f32>,
    /// What speculation did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drafts: Option<Counts>,
    /// Timings.
    #[serde(flatten)]
    pub timings: Timings,
}

/// One of the likeliest tokens of a step (OpenAI's `top_logprobs`).
#[derive(Debug, Clone, Serialize)]
pub struct TopLogprob {
    /// Its id.
    pub id: u32,
    /// Its text.
    pub token: String,
    /// ln of its probability, by the model itself.
    pub logprob: f32,
}

/// How long it took, in seconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Timings {
    /// Reading the model.
    pub load_s: f64,
    /// Until the first token.
    pub prefill_s: f64,
    /// From the first token to the last.
    pub decode_s: f64,
    /// New tokens after the first, a second of `decode_s`.
    pub tokens_per_second: f64,
}

impl Timings {
    /// Fills in the rate for `new` tokens of `rows` texts: the first token of each came with the prefill.
    pub fn with_rate(mut self, new: usize, rows: usize) -> Self {
        let steps = new.saturating_sub(rows) as f64;
        self.tokens_per_second = if self.decode_s > 0.0 { steps / self.decode_s } else { 0.0 };
        self
    }

    /// The lines of `--stats`, for `prompt` tokens of prompts and `new` tokens of `rows` sequences.
    pub fn lines(&self, prompt: usize, new: usize, rows: usize) -> String {
        let rate = if self.prefill_s > 0.0 { prompt as f64 / self.prefill_s } else { 0.0 };
        format!(
            "load    {:>8.1} ms\nprefill {:>8.1} ms  {prompt} tokens, {rate:.0} tokens/s\ndecode  {:>8.1} ms  {} tokens, {:.0} tokens/s",
            self.load_s * 1e3,
            self.prefill_s * 1e3,
            self.decode_s * 1e3,
            new.saturating_sub(rows),
            self.tokens_per_second
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_token_of_each_row_belongs_to_the_prefill() {
        let timings = Timings { decode_s: 2.0, prefill_s: 1.0, ..Timings::default() };
        let timings = timings.with_rate(16, 2);
        assert_eq!(timings.tokens_per_second, 7.0);
        assert!(timings.lines(8, 16, 2).ends_with("14 tokens, 7 tokens/s"));
    }
}
