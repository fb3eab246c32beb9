//! Where a NaN comes from: after a text has failed, its tokens go through the model once more, stage by
//! stage. A run without a NaN pays nothing for it.

use crate::day05_model::Transformer;
use crate::day07_greedy::argmax;
use crate::kit::{Family, Logits, Model, NoCache, Step};
use candle_core::{DType, Result, Tensor};
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// What a trace came to. It is shown as the end of an error that speaks of a NaN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NanTrace {
    /// The model alone cannot compute the text: it does not fit the context, or a day's code fails.
    NotRepeatable,
    /// The model alone computes the text, and every logit is a number.
    NoNan,
    /// This stage is the first that gives a NaN.
    FirstIn(String),
}

impl fmt::Display for NanTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotRepeatable => {
                "which stage it comes from is not known, because the model cannot compute this text \
                 again without a cache"
            }
            Self::NoNan => {
                "computed again without a cache, this text gives no NaN, so look at the cache, the \
                 mask and the positions of the step that failed"
            }
            Self::FirstIn(stage) => stage,
        })
    }
}

/// Computes `tokens` again, without a cache, and looks for the first stage that gives a NaN.
pub fn first_nan(model: &Transformer, tokens: &[u32]) -> NanTrace {
    match catch_unwind(AssertUnwindSafe(|| trace(model, tokens))) {
        Ok(Ok(Some(stage))) => NanTrace::FirstIn(stage),
        Ok(Ok(None)) => NanTrace::NoNan,
        Ok(Err(_)) | Err(_) => NanTrace::NotRepeatable,
    }
}

/// As [`first_nan`], for a search whose texts are not known: follows the greedy continuation of `prompt` for
/// up to `max_new_tokens`, until a pass is not all numbers. Gives the tokens of the last pass, too.
pub fn first_nan_behind(
    model: &Transformer,
    prompt: &[u32],
    max_new_tokens: usize,
) -> (Vec<u32>, NanTrace) {
    let mut tokens = prompt.to_vec();
    for _ in 0..max_new_tokens {
        let trace = first_nan(model, &tokens);
        if trace != NanTrace::NoNan {
            return (tokens, trace);
        }
        let Ok(next) = greedy_next(model, &tokens) else {
            return (tokens, NanTrace::NotRepeatable);
        };
        tokens.push(next);
    }
    (tokens, NanTrace::NoNan)
}

/// The token that greedy decoding adds to `tokens`.
fn greedy_next(model: &Transformer, tokens: &[u32]) -> Result<u32> {
    let step = Step::new(model, tokens, 0)?.with_logits(Logits::Last(1));
    let logits: Vec<f32> = model.forward(&step, &mut NoCache)?.flatten_all()?.to_vec1()?;
    argmax(&logits)
}

/// The first stage that gives a NaN, in words; None: there is none.
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
