//! A model that can be stopped, and that tells whether it computed a NaN.

use crate::medusa;
use anyhow::anyhow;
use candecode::day05_model::Transformer;
use candecode::kit::error::describe;
use candecode::kit::{Cache, Model, ModelConfig, Step};
use candecode::DAYS;
use candle_core::{bail, DType, Device, Result, Tensor};
use std::cell::RefCell;

/// A model whose next pass fails once `stop` returns true. This can stop any loop, even one like
/// beam search that returns no token for a long time. Keeps the logits of the last pass, in case a
/// loop fails on them.
pub struct Watched<'a> {
    model: &'a Transformer,
    /// The model's name in messages.
    name: String,
    stop: fn() -> bool,
    last: RefCell<Option<Tensor>>,
}

impl<'a> Watched<'a> {
    /// Wraps a model.
    pub fn new(model: &'a Transformer, name: String, stop: fn() -> bool) -> Self {
        Self { model, name, stop, last: RefCell::default() }
    }

    /// Returns true if the last pass's logits contain a NaN.
    fn computed_nan(&self) -> bool {
        let has_nan = |logits: &Tensor| -> Result<bool> {
            let logits = logits.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
            Ok(logits.into_iter().any(f32::is_nan))
        };
        self.last.borrow().as_ref().is_some_and(|logits| has_nan(logits).unwrap_or(false))
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

/// Returns the error of a loop that ran on these models. If one of them computed a NaN in its last
/// pass, the error names it and says what to do.
pub fn explained(error: anyhow::Error, models: &[&Watched]) -> anyhow::Error {
    let Some(model) = models.iter().find(|model| model.computed_nan()) else { return error };
    let way = if DAYS.iter().all(|day| day.reference) {
        "download the file again; with --dtype f16, try bf16 or f32, which have a larger range"
    } else {
        "some days are yours: does `cargo xtask check` pass for them?"
    };
    anyhow!("{}: {}; {way}", model.name, describe(&error))
}
