//! Day 2, the RoPE dial: a query and a key, each at its own position, and their score.

use super::Answer;
use crate::model;
use candecode::day02_positions::{inverse_frequencies, rotate};
use candecode::day05_model::SelfAttention;
use candecode::kit::{Model, Step};
use candle_core::{DType, Device, Tensor};
use serde::Deserialize;
use serde_json::json;

/// The page's question: two words and their positions.
#[derive(Deserialize)]
pub struct Question {
    query: String,
    key: String,
    /// The two positions. The answer also has the score for every key position in `0..places`.
    query_at: usize,
    key_at: usize,
    places: usize,
}

/// Returns the rotated vectors, the frequencies of their pairs, and the score `q · k / √D`.
pub fn answer(q: Question) -> Answer {
    let model = model::transformer()?;
    let Some(rotary) = &model.rotary_emb else { return Err("this model has no RoPE".into()) };
    let (query, key) = (last(&q.query)?, last(&q.key)?);
    let step = Step::new(model, &[query, key], 0)?;
    let Some(layer) = model.layers.first() else { return Err("the model has no layers".into()) };
    let SelfAttention::Grouped(attention) = &layer.attention else {
        return Err("this model has no RoPE".into());
    };
    let normed = layer.attention_norm.forward(&model.embed(&step)?)?;
    let (queries, keys, _) = attention.project(&normed, None)?; // not rotated
    let queries = queries.narrow(1, 0, 1)?.narrow(2, 0, 1)?.contiguous()?; // (1, 1, 1, D)
    let keys = keys.narrow(1, 0, 1)?.narrow(2, 1, 1)?.contiguous()?;

    let turned = |x: &Tensor, at: usize| -> candle_core::Result<Vec<f32>> {
        let positions = Tensor::new(&[[at as u32]], &Device::Cpu)?;
        let (cos, sin) = rotary.cos_sin(&positions)?;
        rotate(x, &cos, &sin)?.to_dtype(DType::F32)?.flatten_all()?.to_vec1()
    };
    let now_query = turned(&queries, q.query_at)?;
    let now_key = turned(&keys, q.key_at)?;
    let score = |query: &[f32], key: &[f32]| {
        let dot: f32 = query.iter().zip(key).map(|(a, b)| a * b).sum();
        dot / (query.len() as f32).sqrt()
    };
    let mut scores = Vec::new();
    for at in 0..q.places {
        scores.push(score(&now_query, &turned(&keys, at)?));
    }
    let width = now_query.len();
    Ok(json!({
        "query": { "token": model::shown(query), "turned": now_query },
        "key": { "token": model::shown(key), "turned": now_key },
        "frequencies": inverse_frequencies(width, model.config().rope_theta)?,
        "score": score(&now_query, &now_key), "scores": scores,
    }))
}

/// Returns the last token of a word.
fn last(word: &str) -> Result<u32, String> {
    let tokens = model::tokens(word)?;
    tokens.last().copied().ok_or_else(|| "no token".to_string())
}
