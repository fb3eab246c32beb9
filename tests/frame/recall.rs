//! An embedded model that remembers its passes, so that running a check on twenty known mistakes
//! costs little more than running it once.

use candecode::kit::{Cache, Model, ModelConfig, Step};
use candle_core::{Device, Error, IndexOp, Result, Tensor};
use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// All passes remembered in this process, by model name: the ids, and their logits `(T, V)`.
static PASSES: Mutex<Option<HashMap<String, Vec<Pass>>>> = Mutex::new(None);
type Pass = (Vec<u32>, Tensor);

/// An embedded model for loops without a cache. It is loaded on the first pass that isn't
/// remembered.
///
/// A pass over one row from position 0 is remembered and reused for every prefix of its ids: later
/// tokens don't change earlier logits (see day 6's `predictions`). All other passes are computed
/// every time.
pub struct Recall {
    name: String,
    config: ModelConfig,
    device: Device,
    model: OnceCell<Box<dyn Model>>,
    bound: usize,
    asked: Cell<usize>,
    only: Option<Vec<Vec<u32>>>,
}

impl Recall {
    /// Wraps the embedded model with this name. Passes after the first `bound` fail, which stops an
    /// infinite loop.
    pub fn new(name: &str, bound: usize) -> Result<Self> {
        let config = candecode_formats::read_config(&super::models_dir()?.join(name));
        let config = config.map_err(|e| Error::Msg(format!("{e:#}")))?;
        let (device, model, asked) = (super::device()?, OnceCell::new(), Cell::new(0));
        Ok(Self { name: name.into(), config, device, model, bound, asked, only: None })
    }

    /// Like [`Recall::new`], for long expected texts: a pass over one row from position 0 must be a
    /// prefix of one of `texts`, or it fails. Each text is computed once.
    pub fn only(name: &str, bound: usize, texts: Vec<Vec<u32>>) -> Result<Self> {
        Ok(Self { only: Some(texts), ..Self::new(name, bound)? })
    }

    /// Runs these texts in advance. A loop that grows one of them token by token then finds every
    /// prefix remembered, and needs no pass of its own.
    pub fn prime(&self, texts: &[&[u32]]) -> Result<()> {
        texts.iter().try_for_each(|ids| self.row(ids).map(|_| ()))
    }

    fn model(&self) -> Result<&dyn Model> {
        if self.model.get().is_none() {
            let _ = self.model.set(super::model(&self.name)?);
        }
        self.model.get().map(|model| &**model).ok_or(Error::Msg("no model".into()))
    }

    /// Returns the logits of every position of `ids`, `(T, V)`.
    fn row(&self, ids: &[u32]) -> Result<Tensor> {
        let Some(only) = &self.only else { return self.pass(ids) };
        match only.iter().find(|text| text.starts_with(ids)) {
            Some(text) => self.pass(text)?.narrow(0, 0, ids.len()),
            None => candle_core::bail!(
                "pass {} was over {} tokens starting with {:?}, which doesn't match this text",
                self.asked.get(),
                ids.len(),
                &ids[..ids.len().min(4)]
            ),
        }
    }

    fn pass(&self, ids: &[u32]) -> Result<Tensor> {
        let known = |passes: &mut Option<HashMap<String, Vec<Pass>>>| {
            let passes = passes.get_or_insert_default().entry(self.name.clone()).or_default();
            passes
                .iter()
                .find(|(known, _)| known.starts_with(ids))
                .map(|(_, logits)| logits.clone())
        };
        let passes = || PASSES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(logits) = known(&mut passes()) {
            return logits.narrow(0, 0, ids.len());
        }
        let model = self.model()?;
        let step = Step::new(model, ids, 0)?;
        let logits = model.forward(&step, &mut candecode::kit::NoCache)?.i(0)?;
        let pass = (ids.to_vec(), logits.clone());
        passes().get_or_insert_default().entry(self.name.clone()).or_default().push(pass);
        Ok(logits)
    }
}

impl Model for Recall {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> Result<Tensor> {
        self.asked.set(self.asked.get() + 1);
        super::fake::refuse_more_than(self.bound, self.asked.get())?;
        let (rows, width) = step.ids.dims2()?;
        let from_zero = step.positions.to_vec2::<u32>()? == [(0..width as u32).collect::<Vec<_>>()];
        if rows != 1 || !from_zero || step.mask.is_some() || !cache.is_empty() {
            return self.model()?.forward(step, cache);
        }
        step.chosen(&self.row(&step.ids.i(0)?.to_vec1::<u32>()?)?.unsqueeze(0)?)
    }
}
