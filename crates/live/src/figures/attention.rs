//! Day 1, who looks at whom: the attention weights of every head in every layer.

use super::Answer;
use crate::model;
use candecode::day01_attention::causal_mask;
use candecode::day04_attention_block::grouped_attention;
use candecode::day05_model::SelfAttention;
use candecode::kit::{NoCache, Step};
use candle_core::{DType, Device, Tensor};
use serde::Deserialize;
use serde_json::json;

/// The parameters that the page sends.
#[derive(Deserialize)]
pub struct Question {
    text: String,
    /// True if each token sees only itself and earlier tokens.
    causal: bool,
}

/// Returns a `(T, T)` matrix of weights for each layer and head. Row `i` holds the weights with
/// which token `i` attends to every token.
pub fn answer(q: Question) -> Answer {
    let mut tokens = model::tokens(&q.text)?;
    let all = tokens.len();
    tokens.truncate(MOST);
    let model = model::transformer()?;
    let width = tokens.len();
    let mask = if q.causal {
        causal_mask(width, 0, &Device::Cpu)?
    } else {
        Tensor::ones((1, 1, width, width), DType::U8, &Device::Cpu)?
    };
    let positions: Vec<u32> = (0..width as u32).collect();
    let step = Step::batch(model, &[tokens.clone()], &[positions], Some(mask.clone()))?;
    let angles = match &model.rotary_emb {
        Some(rotary) => Some(rotary.cos_sin(&step.positions)?),
        None => None,
    };
    // Attention returns a weighted mixture of the values. If the values are the rows of the
    // identity, the mixture is the weights themselves.
    let identity = Tensor::eye(width, DType::F32, &Device::Cpu)?.reshape((1, 1, width, width))?;
    let mut x = model.embed(&step)?;
    let mut layers = Vec::new();
    for layer in &model.layers {
        let SelfAttention::Grouped(attention) = &layer.attention else {
            return Err("this figure supports only day 4's attention".into());
        };
        let normed = layer.attention_norm.forward(&x)?;
        let (queries, keys, _) = attention.project(&normed, angles.as_ref())?;
        let values = identity.repeat((1, attention.num_kv_heads, 1, 1))?;
        let weights = weights(&queries, &keys, &values, &mask)?; // H matrices (T, T)
        layers.push(weights);
        x = layer.forward(&x, &step, angles.as_ref(), &mut NoCache)?;
    }
    Ok(json!({
        "tokens": model::all_shown(&tokens), "cut": all - width, "layers": layers,
    }))
}

/// Maximum number of tokens that fit in the figure.
const MOST: usize = 24;

fn weights(
    queries: &Tensor,
    keys: &Tensor,
    values: &Tensor,
    mask: &Tensor,
) -> candle_core::Result<Vec<Vec<Vec<f32>>>> {
    // Queries and keys have width D, values width T. Day 4 takes the scale from q's width and
    // assembles a (B, H, T, D) at the end, so all three are padded to the same width, and the
    // queries are scaled to make up for it.
    let (_, _, width, d) = queries.dims4()?;
    let wide = d.max(width);
    let scale = (wide as f64 / d as f64).sqrt();
    let queries = (queries.contiguous()?.pad_with_zeros(3, 0, wide - d)? * scale)?;
    let keys = keys.contiguous()?.pad_with_zeros(3, 0, wide - d)?;
    let values = values.pad_with_zeros(3, 0, wide - width)?;
    let out = grouped_attention(&queries, &keys, &values, Some(mask))?;
    out.narrow(3, 0, width)?.squeeze(0)?.to_vec3()
}
