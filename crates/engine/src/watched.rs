//! Finds the source of a NaN. After a sequence has failed, its tokens go through the model again,
//! stage by stage. This costs nothing in a run without a NaN.

use crate::medusa;
use anyhow::anyhow;
use candecode::day05_model::Transformer;
use candecode::kit::error::describe;
use candecode::kit::{Cache, Family, Model, ModelConfig, NoCache, Step};
use candecode::DAYS;
use candle_core::{bail, DType, Device, Result, Tensor};
use std::cell::RefCell;
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// A model whose next pass fails once `stop` returns true. This can stop any loop, even one like
/// beam search that returns no token for a long time. Keeps the logits of the last pass, in case a
/// loop fails on them.
pub struct Watched<'a> {
    model: &'a Transformer,
    /// The model's name in messages.
    pub name: String,
    stop: fn() -> bool,
    last: RefCell<Option<Tensor>>,
}

impl<'a> Watched<'a> {
    /// Wraps a model.
    pub fn new(model: &'a Transformer, name: String, stop: fn() -> bool) -> Self {
        Self { model, name, stop, last: RefCell::default() }
    }

    /// Returns true if the last pass's logits contain a NaN.
    pub fn computed_nan(&self) -> bool {
        let last = self.last.borrow();
        last.as_ref().is_some_and(|logits| !matches!(first(logits, f32::is_nan), Ok(None)))
    }
}

impl Model for Watched<'_> {
    fn config(&self) -> &ModelConfig {
        self.model.config()
    }

    fn device(&self) -> &Device {
        self.model.device()
    }

    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> Result<Tensor> {
        if (self.stop)() {
            bail!("stopped")
        }
        self.last.take(); // free the old logits before the next pass
        let logits = self.model.forward(step, cache)?;
        self.last.replace(Some(logits.clone()));
        Ok(logits)
    }

    fn forward_with_hidden(
        &self,
        step: &Step,
        cache: &mut dyn Cache,
    ) -> Result<(Tensor, Option<Tensor>)> {
        if (self.stop)() {
            bail!("stopped")
        }
        self.last.take();
        let (logits, hidden) = medusa::forward_with_hidden(self.model, step, cache)?;
        self.last.replace(Some(logits.clone()));
        Ok((logits, hidden))
    }
}

/// The sequence a loop has generated so far.
#[derive(Debug, Clone)]
pub struct TextSoFar {
    /// Label for messages: empty, or "text 2 of 3: ".
    pub which: String,
    /// Its tokens, including the prompt.
    pub tokens: Vec<u32>,
    /// Number of tokens in its prompt.
    pub prompt_len: usize,
}

/// Returns the error of a loop that ran on these models or, if one of them computes NaN for one of
/// the texts, an error that names the first stage with a NaN. `all` is true if the models computed
/// nothing but these texts.
pub fn explained(
    error: anyhow::Error,
    models: &[&Watched],
    texts: &[TextSoFar],
    all: bool,
) -> anyhow::Error {
    let mut without_source = if all { NanTrace::NoNan } else { NanTrace::NotRepeatable };
    for model in models {
        for TextSoFar { which, tokens, prompt_len } in texts {
            match first_nan(model.model, tokens) {
                NanTrace::NoNan => {}
                NanTrace::NotRepeatable => without_source = NanTrace::NotRepeatable,
                NanTrace::FirstIn(stage) => {
                    let (step, position) = (tokens.len() - prompt_len + 1, tokens.len() - 1);
                    let way = if DAYS.iter().all(|day| day.reference) {
                        "download the file again; with --dtype f16, try bf16 or f32, which have a \
                         larger range"
                    } else {
                        "some days are yours: does `cargo xtask check` pass for them?"
                    };
                    return anyhow!(
                        "{which}{}: logits are NaN at step {step}, position {position}: {stage}; \
                         {way}",
                        model.name
                    );
                }
            }
        }
    }
    if models.iter().any(|model| model.computed_nan()) {
        anyhow!("{}; {without_source}", describe(&error))
    } else {
        error
    }
}

/// Result of a trace, displayed at the end of an error about a NaN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NanTrace {
    /// The model alone can't compute the text: it doesn't fit the context, or a day's code fails.
    NotRepeatable,
    /// The model alone computes the text without any NaN.
    NoNan,
    /// The first stage that produces a NaN.
    FirstIn(String),
}

impl fmt::Display for NanTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotRepeatable => {
                "where the NaN first appeared is unknown, because this text could not be computed \
                 again without a cache"
            }
            Self::NoNan => {
                "recomputed without a cache, this text gives no NaN, so look at the cache, the \
                 mask and the positions of the step that failed"
            }
            Self::FirstIn(stage) => stage,
        })
    }
}

/// Recomputes `tokens` without a cache and finds the first stage that produces a NaN.
pub fn first_nan(model: &Transformer, tokens: &[u32]) -> NanTrace {
    match catch_unwind(AssertUnwindSafe(|| trace(model, tokens))) {
        Ok(Ok(Some(stage))) => NanTrace::FirstIn(stage),
        Ok(Ok(None)) => NanTrace::NoNan,
        Ok(Err(_)) | Err(_) => NanTrace::NotRepeatable,
    }
}

/// Describes the first stage that produces a NaN. None if there isn't one.
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
                    "NaN first appears in layer {i}'s output, from its {half} \
                     ({stem}.{i}){infinity}"
                )));
            }
            if infinity.is_empty() && first(&x, f32::is_infinite)?.is_some() {
                infinity = format!(", after an infinity in layer {i}'s {half}");
            }
        }
    }
    Ok(Some(format!(
        "every layer's output is free of NaN, but that of the last norm or the head isn't{infinity}"
    )))
}

/// Returns the last-dimension row that contains the first number in `x` satisfying `pred`.
fn first(x: &Tensor, pred: fn(f32) -> bool) -> Result<Option<usize>> {
    let width = x.dims().last().copied().unwrap_or(1);
    let numbers: Vec<f32> = x.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?;
    Ok(numbers.iter().position(|number| pred(*number)).map(|at| at / width))
}
