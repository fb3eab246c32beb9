//! The fifth noun: what comes out.

use serde::Serialize;

/// Why a text ended. `length` is the word of OpenAI's and vLLM's `finish_reason`. Their `stop`
/// means the end by an EOS id as well as by a stop string; here the two are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FinishReason {
    /// An EOS id was chosen.
    Eos,
    /// A stop string appeared; an EOS id is [`FinishReason::Eos`].
    Stop,
    /// The bound on new tokens was reached.
    Length,
    /// No next token could be chosen: a processor or the sampler failed, or the logits made no
    /// sense. The last [`Token`] carries the error. Other texts of the batch go on.
    Failed,
}

/// One generated token, or the end of a row that failed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Token {
    /// The id of the request it belongs to; in a static batch that is the row.
    pub row: usize,
    /// Its id. If the row failed there is no token, and this is 0.
    pub id: u32,
    /// ln of the probability that the model gave it, before any processor (vLLM's `raw_logprobs`).
    /// If the row failed, this is 0.
    pub logprob: f32,
    /// The text that became certain with it; empty while a character or a possible stop string is
    /// incomplete.
    pub text: String,
    /// Set on the last token of a row.
    pub finish: Option<FinishReason>,
    /// The likeliest tokens of this step with their logprobs, likeliest first, by the model itself:
    /// as many as the request's `top_logprobs` asks for (OpenAI's field of the same name).
    pub top: Vec<(u32, f32)>,
    /// What went wrong, if `finish` is [`FinishReason::Failed`].
    pub error: Option<String>,
}

/// Returns the `k` largest of `logprobs` `(V)` with their ids, largest first; ties go to the
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
    fn the_largest_come_first_and_ties_go_to_the_smaller_id() {
        let logprobs = [-3.0, -1.0, f32::NEG_INFINITY, -1.0, -2.0];
        assert_eq!(top_logprobs(&logprobs, 3), [(1, -1.0), (3, -1.0), (4, -2.0)]);
        assert_eq!(top_logprobs(&logprobs, 1), [(1, -1.0)]);
        assert_eq!(top_logprobs(&logprobs[..1], 3), [(0, -3.0)]);
        assert_eq!(top_logprobs(&logprobs, 0), []);
    }
}
