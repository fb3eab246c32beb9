//! One file per figure, each answering the page's question with the code of the days.

mod attention;
mod batch;
mod beam_tree;
mod blocks;
mod budget;
mod cache_cells;
mod draft_trees;
mod drafts;
mod generation;
mod online;
mod pages;
mod passes;
mod prefixes;
mod roofline_dial;
mod rope;
mod sampler;
mod scheduler;
mod serving;
mod speculative;
mod spelling;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Answers a question, `{"ask": "sampler", …}`.
///
/// # Errors
/// Returns a message to show in the figure if the question is unknown, the text doesn't fit, or a
/// day's code fails.
pub fn answer(question: &[u8]) -> Result<Value, String> {
    let question: Value = serde_json::from_slice(question).map_err(|e| e.to_string())?;
    let ask = question["ask"].as_str().unwrap_or_default().to_string();
    let figure = match ask.as_str() {
        "attention" => asked(attention::answer),
        "batch" => asked(batch::answer),
        "beams" => asked(beam_tree::answer),
        "blocks" => asked(blocks::answer),
        "budget" => asked(budget::answer),
        "cache" => asked(cache_cells::answer),
        "drafts" => asked(drafts::answer),
        "generate" => asked(generation::answer),
        "online" => asked(online::answer),
        "pages" => asked(pages::answer),
        "passes" => asked(passes::answer),
        "pieces" => asked(passes::pieces),
        "prefixes" => asked(prefixes::answer),
        "roofline" => asked(roofline_dial::answer),
        "rope" => asked(rope::answer),
        "sampler" => asked(sampler::answer),
        "scheduler" => asked(scheduler::answer),
        "serving" => asked(serving::answer),
        "speculative" => asked(speculative::answer),
        "spelling" => asked(spelling::answer),
        "trees" => asked(draft_trees::answer),
        _ => return Err(format!("no figure asks \"{ask}\"")),
    };
    figure(question)
}

/// The result of a figure's function. Errors come from the days' code or from a bad question.
type Answer = Result<Value, Failure>;

/// The reason why a figure has no answer, as text.
struct Failure(String);

impl<E: std::fmt::Display> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// Wraps a figure's function to take and return plain JSON.
fn asked<Q: DeserializeOwned + 'static>(
    answer: fn(Q) -> Answer,
) -> Box<dyn Fn(Value) -> Result<Value, String>> {
    Box::new(move |question| {
        let question = serde_json::from_value(question).map_err(|e| e.to_string())?;
        answer(question).map_err(|Failure(text)| text)
    })
}
