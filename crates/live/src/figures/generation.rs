//! A complete text from day 10's loop, the same one that the command prints for this prompt, these
//! parameters and this seed. No figure uses this; `live.py` uses it to compare the page with the
//! command.

use super::Answer;
use crate::model;
use candecode::kit::SamplingParams;
use serde::Deserialize;
use serde_json::json;

/// The parameters that the page sends.
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
