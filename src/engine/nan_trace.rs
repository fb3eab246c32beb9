//! Where a NaN comes from: after a text has failed, its tokens go through the model once more, stage by
//! stage. A run without a NaN pays nothing for it.

use crate::day05_model::Transformer;
use crate::day07_greedy::argmax;
use crate::kit::{Family, Logits, Model, NoCache, Step};
use candle_core::{DType, Result, Tensor};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Computes `tokens` again, without a cache, and says which stage is the first that gives a NaN, or that
/// none does. None: the pass cannot be done again (the tokens do not fit, or a day's code panics).
pub fn first_nan(model: &Transformer, tokens: &[u32]) -> Option<Option<String>> {
    let trace = catch_unwind(AssertUnwindSafe(|| trace(model, tokens)));
    trace.ok()?.ok()
}

/// As [`first_nan`], for a search whose texts are not known: follows the greedy continuation of `prompt` for
/// up to `max_new_tokens`, until a pass gives a NaN. The tokens of that pass, and its first stage with one.
pub fn first_nan_behind(
    model: &Transformer,
    prompt: &[u32],
    max_new_tokens: usize,
) -> Option<(Vec<u32>, String)> {
    let mut tokens = prompt.to_vec();
    for _ in 0..max_new_tokens {
        if let Some(source) = first_nan(model, &tokens)? {
            return Some((tokens, source));
        }
        let step = Step::new(model, &tokens, 0).ok()?.with_logits(Logits::Last(1));
        let logits = model.forward(&step, &mut NoCache).and_then(|x| x.flatten_all()).ok()?;
        tokens.push(argmax(&logits.to_vec1::<f32>().ok()?).ok()?);
    }
    None
}

fn trace(model: &Transformer, tokens: &[u32]) -> Result<Option<String>> {
    let step = Step::new(model, tokens, 0)?;
    let logits = model.forward(&step, &mut NoCache)?;
    if first(&logits, f32::is_nan)?.is_none() {
        return Ok(None);
    }
    let mut x = model.embed(&step)?;
    if let Some(i) = first(&x, f32::is_nan)? {
        return Ok(Some(format!("the embedding of token {} is NaN", tokens[i])));
    }
    let mut infinity = String::new();
    if first(&x, f32::is_infinite)?.is_some() {
        infinity = ", after an infinity in the embedding".to_string();
    }
    let stem = match model.config.family {
        Family::Gpt2 => "transformer.h",
        _ => "model.layers",
    };
    let rotary = model.rotary_emb.as_ref();
    let cos_sin = rotary.map(|rotary| rotary.cos_sin(&step.positions)).transpose()?;
    for (i, layer) in model.layers.iter().enumerate() {
        for half in ["attention", "MLP"] {
            let update = if half == "attention" {
                let normed = layer.attention_norm.forward(&x)?;
                layer.attention.forward(&normed, &step, cos_sin.as_ref(), &mut NoCache)?
            } else {
                layer.mlp.forward(&layer.mlp_norm.forward(&x)?)?
            };
            x = (x + update)?;
            if first(&x, f32::is_nan)?.is_some() {
                return Ok(Some(format!(
                    "layer {i}'s output is the first with NaN, from its {half} \
                     ({stem}.{i}){infinity}"
                )));
            }
            if infinity.is_empty() && first(&x, f32::is_infinite)?.is_some() {
                infinity = format!(", after an infinity in layer {i}'s {half}");
            }
        }
    }
    Ok(Some(format!(
        "every layer's output is a number, the last norm's or the head's is not{infinity}"
    )))
}

/// The position of the first number of `x`, `(1, T, C)`, for which `pred` holds.
fn first(x: &Tensor, pred: fn(f32) -> bool) -> Result<Option<usize>> {
    let (_, _, c) = x.dims3()?;
    let numbers: Vec<f32> = x.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?;
    Ok(numbers.iter().position(|number| pred(*number)).map(|at| at / c))
}
