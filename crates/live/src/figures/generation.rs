//! A text, token by token, by day 10's loop: what the command prints for the same prompt,
//! parameters and seed.

use super::Answer;
use crate::model;
use candecode::kit::{SamplingParams, TokenIter};
use serde::Deserialize;
use serde_json::{json, Value};
use std::cell::RefCell;
use std::collections::BTreeMap;

type Running = BTreeMap<String, TokenIter<'static>>;

thread_local! {
    /// The texts that are being generated, by the figure that began them.
    static RUNNING: RefCell<Running> = const { RefCell::new(BTreeMap::new()) };
}

/// What the page asks: to begin a text, or with `more` to go on with it.
#[derive(Deserialize)]
pub struct Question {
    /// Which figure asks.
    whose: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    params: Params,
    /// Go on with the text that was begun last.
    #[serde(default)]
    more: bool,
    /// Tokens to generate now, at most.
    steps: usize,
}

/// The parameters that figures set, with the defaults of [`SamplingParams`].
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Params {
    max_new_tokens: Option<usize>,
    temperature: Option<f64>,
    top_k: Option<usize>,
    top_p: Option<f64>,
    min_p: Option<f64>,
    seed: Option<u64>,
    repetition_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    block: Vec<String>,
    block_whole_words: bool,
    allow_regex: Option<String>,
}

impl Params {
    fn complete(self) -> SamplingParams {
        let default = SamplingParams::default();
        SamplingParams {
            max_new_tokens: self.max_new_tokens.unwrap_or(default.max_new_tokens),
            temperature: self.temperature.unwrap_or(default.temperature),
            top_k: self.top_k,
            top_p: self.top_p.unwrap_or(default.top_p),
            min_p: self.min_p.unwrap_or(default.min_p),
            seed: self.seed.unwrap_or(default.seed),
            repetition_penalty: self.repetition_penalty.unwrap_or(default.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(default.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(default.frequency_penalty),
            block: self.block,
            block_whole_words: self.block_whole_words,
            allow_regex: self.allow_regex,
            ..default
        }
    }
}

/// The next tokens, and why the text ended if it did.
pub fn answer(q: Question) -> Answer {
    let mut running = if q.more {
        let begun = RUNNING.with_borrow_mut(|running| running.remove(&q.whose));
        begun.ok_or("this text has ended, or was never begun")?
    } else {
        model::engine()?.generate(&q.text, &q.params.complete())?
    };
    let mut tokens: Vec<Value> = Vec::new();
    for token in running.by_ref().take(q.steps) {
        let token = token?;
        tokens.push(json!({
            "id": token.id, "token": model::shown(token.id), "text": token.text,
            "logprob": token.logprob, "finish": token.finish,
        }));
    }
    let ended = tokens.last().is_none_or(|token| !token["finish"].is_null());
    if !ended {
        RUNNING.with_borrow_mut(|all| all.insert(q.whose, running));
    }
    Ok(json!({ "new": tokens, "ended": ended }))
}
