//! Where a NaN comes from. It is looked for after a text has failed; a run without one pays nothing for it.

use crate::day05_model::Transformer;
use crate::kit::{Cache, Family, Model, ModelConfig, Step};
use candle_core::{bail, DType, Device, Result, Tensor};
use std::cell::{Cell, RefCell};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// For each layer the keys and values that the last pass attended to, if it had a cache.
type Seen = RefCell<Vec<Option<(Tensor, Tensor)>>>;

/// A model that can say what its last pass was, and do it again: it keeps the step, what came of it, and what the layers
/// attended to. All three are references to tensors that are there anyway.
pub struct Watched {
    model: Transformer,
    steps: Cell<usize>,
    last: RefCell<Option<(Step, Tensor)>>,
    seen: Seen,
}

impl Watched {
    /// Watches over a model.
    pub fn new(model: Transformer) -> Self {
        let seen = RefCell::new(vec![None; model.layers.len()]);
        Self { model, steps: Cell::new(0), last: RefCell::new(None), seen }
    }

    /// Counts steps from here on: a text begins.
    pub fn begin(&self) {
        self.steps.set(0);
        self.last.take();
    }

    /// A cache as `kept`; what the layers get from it is remembered until they get more, or the cache changes.
    pub fn cache<'a>(&'a self, kept: Box<dyn Cache + 'a>) -> Box<dyn Cache + 'a> {
        Box::new(Noted { kept, seen: &self.seen })
    }

    /// Where the NaN of the last pass's logits came from: the step, and the layer whose output is the first with one. None:
    /// they have none.
    pub fn nan(&self) -> Option<String> {
        let last = self.last.borrow();
        let (step, logits) = last.as_ref()?;
        let (row, position) = nan_logits(step, logits).ok()??;
        // The pass is done once more; if a day's code panics on the way, there is no layer to name, and that is all.
        let source = catch_unwind(AssertUnwindSafe(|| self.source(step)));
        let source = source.ok().and_then(Result::ok).unwrap_or_default();
        let row = match step.ids.dims() {
            [1, ..] => String::new(),
            [rows, ..] => format!(", row {row} of {rows}"),
            [] => String::new(),
        };
        Some(format!(
            "logits are NaN at step {}, position {position}{row}{source}",
            self.steps.get()
        ))
    }

    /// Does a pass again, stage by stage, and says which is the first that gives a NaN.
    fn source(&self, step: &Step) -> Result<String> {
        let mut cache = Replay(&self.seen);
        let mut x = self.model.embed(step)?;
        if let Some((row, i)) = first(&x, f32::is_nan)? {
            let id = step.ids.get(row)?.get(i)?.to_scalar::<u32>()?;
            return Ok(format!(": the embedding of token {id} is NaN"));
        }
        let mut infinite = match first(&x, f32::is_infinite)? {
            Some(_) => ", after an infinity in the embedding".to_string(),
            None => String::new(),
        };
        let stem = match self.model.config.family {
            Family::Gpt2 => "transformer.h",
            _ => "model.layers",
        };
        let rotary = self.model.rotary_emb.as_ref();
        let cos_sin = rotary.map(|rotary| rotary.cos_sin(&step.positions)).transpose()?;
        for (i, layer) in self.model.layers.iter().enumerate() {
            for half in ["attention", "MLP"] {
                let update = if half == "attention" {
                    let normed = layer.attention_norm.forward(&x)?;
                    layer.attention.forward(&normed, step, cos_sin.as_ref(), &mut cache)?
                } else {
                    layer.mlp.forward(&layer.mlp_norm.forward(&x)?)?
                };
                x = (x + update)?;
                if first(&x, f32::is_nan)?.is_some() {
                    return Ok(format!(
                        ": layer {i}'s output is the first with NaN, from its {half} ({stem}.{i}){infinite}"
                    ));
                }
                if infinite.is_empty() && first(&x, f32::is_infinite)?.is_some() {
                    infinite = format!(", after an infinity in layer {i}'s {half}");
                }
            }
        }
        Ok(format!(
            ": every layer's output is a number, the last norm's or the head's is not{infinite}"
        ))
    }
}

impl Model for Watched {
    fn config(&self) -> &ModelConfig {
        &self.model.config
    }

    fn device(&self) -> &Device {
        &self.model.device
    }

    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> Result<Tensor> {
        self.steps.set(self.steps.get() + 1);
        self.last.take(); // the old logits go before the new ones come
        let logits = self.model.forward(step, cache)?;
        self.last.replace(Some((step.clone(), logits.clone())));
        Ok(logits)
    }
}

/// Row and position of the first NaN among the logits of a step.
fn nan_logits(step: &Step, logits: &Tensor) -> Result<Option<(usize, u32)>> {
    let Some((row, i)) = first(logits, f32::is_nan)? else { return Ok(None) };
    let positions = step.positions.to_dtype(DType::F32)?.unsqueeze(2)?; // (B, T, 1)
    let position = step.chosen(&positions)?.get(row)?.get(i)?.get(0)?.to_scalar::<f32>()?;
    Ok(Some((row, position as u32)))
}

/// Row and index, in the second dimension, of the first number of `x`, `(B, T, C)`, that is `such`.
fn first(x: &Tensor, such: fn(f32) -> bool) -> Result<Option<(usize, usize)>> {
    let (_, t, c) = x.dims3()?;
    let numbers = x.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
    let at = numbers.iter().position(|number| such(*number));
    Ok(at.map(|at| (at / (t * c), at / c % t)))
}

/// A cache, and what it gave each layer last.
struct Noted<'a> {
    kept: Box<dyn Cache + 'a>,
    seen: &'a Seen,
}

impl Noted<'_> {
    /// Lets go of what the layers got: it would keep memory that the cache is about to give back.
    fn forget(&self) {
        self.seen.borrow_mut().fill(None);
    }
}

impl Cache for Noted<'_> {
    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor)> {
        let note = |all| {
            if let Some(seen) = self.seen.borrow_mut().get_mut(layer) {
                *seen = all;
            }
        };
        note(None);
        let all = self.kept.append(layer, k, v)?;
        note(Some(all.clone()));
        Ok(all)
    }

    fn layer(&self, layer: usize) -> Result<(Tensor, Tensor)> {
        self.kept.layer(layer)
    }

    fn len(&self) -> usize {
        self.kept.len()
    }

    fn slid(&self) -> Option<usize> {
        self.kept.slid()
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        self.forget();
        self.kept.truncate(len)
    }

    fn select(&mut self, rows: &[u32]) -> Result<()> {
        self.forget();
        self.kept.select(rows)
    }

    fn join(&mut self, other: &dyn Cache) -> Result<()> {
        self.forget();
        self.kept.join(other)
    }

    fn trim(&mut self, front: usize) -> Result<()> {
        self.forget();
        self.kept.trim(front)
    }
}

/// Gives every layer what it got in the last pass, or, after a pass without a cache, what it brings.
struct Replay<'a>(&'a Seen);

impl Cache for Replay<'_> {
    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor)> {
        let seen = self.0.borrow().get(layer).cloned().flatten();
        Ok(seen.unwrap_or_else(|| (k.clone(), v.clone())))
    }

    fn layer(&self, layer: usize) -> Result<(Tensor, Tensor)> {
        bail!("layer {layer}: a pass that is done again only appends")
    }

    fn len(&self) -> usize {
        0
    }

    fn truncate(&mut self, _len: usize) -> Result<()> {
        bail!("a pass that is done again only appends")
    }

    fn select(&mut self, _rows: &[u32]) -> Result<()> {
        self.truncate(0)
    }

    fn join(&mut self, _other: &dyn Cache) -> Result<()> {
        self.truncate(0)
    }

    fn trim(&mut self, _front: usize) -> Result<()> {
        self.truncate(0)
    }
}
