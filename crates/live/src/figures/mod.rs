//! One file for each figure: a question of the page's, put to the days.

mod attention;
mod batch;
mod beam_tree;
mod cache_cells;
mod drafts;
mod generation;
mod passes;
mod roofline_dial;
mod rope;
mod sampler;
mod scheduler;
mod speculative;
mod spelling;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Answers a question, `{"ask": "sampler", …}`.
///
/// # Errors
/// In words that a figure shows: no such question, a text that does not fit, what a day refuses.
pub fn answer(question: &[u8]) -> Result<Value, String> {
    let question: Value = serde_json::from_slice(question).map_err(|e| e.to_string())?;
    let ask = question["ask"].as_str().unwrap_or_default().to_string();
    let figure = match ask.as_str() {
        "attention" => asked(attention::answer),
        "batch" => asked(batch::answer),
        "beams" => asked(beam_tree::answer),
        "cache" => asked(cache_cells::answer),
        "drafts" => asked(drafts::answer),
        "generate" => asked(generation::answer),
        "passes" => asked(passes::answer),
        "pieces" => asked(passes::pieces),
        "roofline" => asked(roofline_dial::answer),
        "rope" => asked(rope::answer),
        "sampler" => asked(sampler::answer),
        "scheduler" => asked(scheduler::answer),
        "speculative" => asked(speculative::answer),
        "spelling" => asked(spelling::answer),
        _ => return Err(format!("no figure asks \"{ask}\"")),
    };
    figure(question)
}

/// What a figure's function says, of days' results as well as of the page's mistakes.
type Answer = Result<Value, Failure>;

/// Why a figure has no answer, in words.
struct Failure(String);

impl<E: std::fmt::Display> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// A figure's function as one of plain JSON.
fn asked<Q: DeserializeOwned + 'static>(
    answer: fn(Q) -> Answer,
) -> Box<dyn Fn(Value) -> Result<Value, String>> {
    Box::new(move |question| {
        let question = serde_json::from_value(question).map_err(|e| e.to_string())?;
        answer(question).map_err(|Failure(text)| text)
    })
}
