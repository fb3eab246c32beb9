//! A whole text by day 10's loop: what the command prints for the same prompt, parameters and seed.
//! No figure asks for it; `live.py` compares the page with the command by it.

use super::Answer;
use crate::model;
use candecode::kit::SamplingParams;
use serde::Deserialize;
use serde_json::json;

/// What the page asks.
#[derive(Deserialize)]
pub struct Question {
    text: String,
    params: SamplingParams,
}

/// Returns the tokens of the text.
pub fn answer(q: Question) -> Answer {
    let mut new = Vec::new();
    for token in model::engine()?.generate(&q.text, &q.params)? {
        let id = token?.id;
        new.push(json!({ "id": id, "token": model::shown(id) }));
    }
    Ok(json!({ "new": new }))
}
