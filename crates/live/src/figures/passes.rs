//! Day 6: the growing loop step by step, the predictions of a single pass, and split characters.

use super::Answer;
use crate::model;
use candecode::day06_generate::{predictions, simple_generate, TextStream};
use candecode::day07_greedy::argmax;
use candecode::kit::Model;
use serde::Deserialize;
use serde_json::json;

/// The parameters that the page sends.
#[derive(Deserialize)]
pub struct Question {
    text: String,
    new: usize,
}

/// Returns the loop's tokens with the number of positions each pass computed, and the predictions
/// that one pass over the finished text makes at every position.
pub fn answer(q: Question) -> Answer {
    let model = model::transformer()?;
    let prompt = model::tokens(&q.text)?;
    let eos = model.config().eos_token_ids.clone();
    let mut text = prompt.clone();
    let mut steps = Vec::new();
    // One step at a time, to get the number of positions for each pass.
    for _ in 0..q.new {
        let trace = simple_generate(model, &text, 1, &eos, argmax, |_| Ok(()))?;
        let Some(id) = trace.new_ids.first().copied() else { break };
        text.push(id);
        steps.push(json!({ "token": model::shown(id), "computed": trace.positions_computed }));
        if eos.contains(&id) {
            break;
        }
    }
    let chosen = predictions(model, &text, 1, argmax)?;
    Ok(json!({
        "prompt": model::all_shown(&prompt), "steps": steps, "text": model::all_shown(&text),
        "chosen": model::all_shown(&chosen),
    }))
}

/// The page's question about streaming a text token by token.
#[derive(Deserialize)]
pub struct Pieces {
    text: String,
}

/// Returns a text's tokens, and the text that day 6's stream prints after each one.
pub fn pieces(q: Pieces) -> Answer {
    let engine = model::engine()?;
    let tokens = model::tokens(&q.text)?;
    let mut stream = TextStream::new(engine.tokenizer());
    let mut pieces = Vec::new();
    for id in &tokens {
        let bytes: Vec<String> =
            engine.tokenizer().token_bytes(*id).iter().map(|b| format!("{b:02x}")).collect();
        let shown = stream.push(*id)?;
        pieces.push(json!({ "token": model::shown(*id), "bytes": bytes, "shown": shown }));
    }
    Ok(json!({ "pieces": pieces, "rest": stream.finish()? }))
}
