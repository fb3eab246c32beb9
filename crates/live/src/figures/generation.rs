//! A whole text from day 10's loop, the same as the command prints for this prompt, parameters and
//! seed. No figure uses it; `live.py` compares the page with the command through it.

use super::Answer;
use crate::model;
use candecode::kit::SamplingParams;
use serde::Deserialize;
use serde_json::json;

/// The page's question.
#[derive(Deserialize)]
pub struct Question {
    text: String,
    params: SamplingParams,
}

/// Returns the tokens of the generated text.
pub fn answer(q: Question) -> Answer {
    let mut new = Vec::new();
    for token in model::engine()?.generate(&q.text, &q.params)? {
        let id = token?.id;
        new.push(json!({ "id": id, "token": model::shown(id) }));
    }
    Ok(json!({ "new": new }))
}
