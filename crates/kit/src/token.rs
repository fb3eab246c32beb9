//! A generated token, with its text and its log-probability.

use serde::Serialize;

/// The reason a sequence ended. `length` is spelled as in OpenAI's and vLLM's `finish_reason`.
/// Their `stop` covers both EOS ids and stop strings; here the two are separate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FinishReason {
    /// An EOS id was chosen.
    Eos,
    /// A stop string appeared. EOS ids count as [`FinishReason::Eos`].
    Stop,
    /// The limit on new tokens was reached.
    Length,
    /// No next token could be chosen: a processor or the sampler failed, or the logits were
    /// invalid. The last [`Token`] carries the error. Other sequences in the batch continue.
    Failed,
}

/// One generated token, or the end of a row that failed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Token {
    /// The id of the token's request. In a static batch, this is the row.
    pub row: usize,
    /// The token id, or 0 if the row failed.
    pub id: u32,
    /// Log-probability (natural log) under the model itself, before any processor (vLLM's
    /// `raw_logprobs`), or 0 if the row failed.
    pub logprob: f32,
    /// The text that this token completes. Empty while a character or a possible stop string is
    /// incomplete.
    pub text: String,
    /// Set on the last token of a row.
    pub finish: Option<FinishReason>,
    /// The most likely tokens at this step with their logprobs, most likely first, under the model
    /// itself. The request's `top_logprobs` sets how many (OpenAI's field of the same name).
    pub top: Vec<(u32, f32)>,
    /// The error message, if `finish` is [`FinishReason::Failed`].
    pub error: Option<String>,
}

/// Returns the `k` largest of `logprobs`, `(V)`, with their ids, largest first. Ties go to the
/// smaller id. Doesn't sort the rest.
pub fn top_logprobs(logprobs: &[f32], k: usize) -> Vec<(u32, f32)> {
    if k == 0 {
        return Vec::new();
    }
    let mut all: Vec<(u32, f32)> = (0..).zip(logprobs.iter().copied()).collect();
    let order = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if k < all.len() {
        all.select_nth_unstable_by(k, order);
        all.truncate(k);
    }
    all.sort_unstable_by(order);
    all
}

#[cfg(test)]
mod tests {
    use super::top_logprobs;

    #[test]
    fn top_logprobs_are_sorted_and_ties_go_to_the_smaller_id() {
        let logprobs = [-3.0, -1.0, f32::NEG_INFINITY, -1.0, -2.0];
        assert_eq!(top_logprobs(&logprobs, 3), [(1, -1.0), (3, -1.0), (4, -2.0)]);
        assert_eq!(top_logprobs(&logprobs, 1), [(1, -1.0)]);
        assert_eq!(top_logprobs(&logprobs[..1], 3), [(0, -3.0)]);
        assert_eq!(top_logprobs(&logprobs, 0), []);
    }
}
