//! A cache that keeps, for the checks of days before the reader has written one.

use candecode::kit::Cache;
use candle_core::{bail, Result, Tensor};
use std::collections::BTreeMap;

/// Keys and values of every layer, joined column by column; and which layers appended, in order.
#[derive(Default)]
pub struct Keep {
    layers: BTreeMap<usize, (Tensor, Tensor)>,
    /// The layer of every `append`.
    pub appended: Vec<usize>,
}

impl Cache for Keep {
    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor)> {
        self.appended.push(layer);
        let all = match self.layers.get(&layer) {
            Some((old_k, old_v)) => (Tensor::cat(&[old_k, k], 2)?, Tensor::cat(&[old_v, v], 2)?),
            None => (k.clone(), v.clone()),
        };
        self.layers.insert(layer, all.clone());
        Ok(all)
    }

    fn layer(&self, layer: usize) -> Result<(Tensor, Tensor)> {
        match self.layers.get(&layer) {
            Some(kept) => Ok(kept.clone()),
            None => bail!("layer {layer} holds nothing"),
        }
    }

    /// Of the layer that holds least: it moves when the last has appended.
    fn len(&self) -> usize {
        self.layers.values().filter_map(|(k, _)| k.dim(2).ok()).min().unwrap_or(0)
    }

    fn truncate(&mut self, _len: usize) -> Result<()> {
        bail!("a check's cache does not truncate")
    }

    fn select(&mut self, _rows: &[u32]) -> Result<()> {
        bail!("a check's cache does not select")
    }

    fn join(&mut self, _other: &dyn Cache) -> Result<()> {
        bail!("a check's cache does not join")
    }

    fn trim(&mut self, _front: usize) -> Result<()> {
        bail!("a check's cache does not trim")
    }
}
