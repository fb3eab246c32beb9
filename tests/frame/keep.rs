//! A plain cache that follows its traits to the letter. Used by checks outside day 10.

use candecode::kit::{Batch, Cache, View};
use candle_core::{bail, Result, Tensor};
use std::collections::BTreeMap;

/// Keys and values of every layer, joined along the columns, and a log of the operations.
#[derive(Default)]
pub struct Keep {
    layers: BTreeMap<usize, (Tensor, Tensor)>,
    /// The layer of each `append`, in order.
    pub appended: Vec<usize>,
    /// Every other operation that changed the cache, in order: `truncate(0)`, `select([0, 2])`.
    pub done: Vec<String>,
}

impl Keep {
    fn change(&mut self, what: String, change: impl Fn(&Tensor) -> Result<Tensor>) -> Result<()> {
        self.done.push(what);
        for (k, v) in self.layers.values_mut() {
            (*k, *v) = (change(k)?, change(v)?);
        }
        Ok(())
    }
}

impl Cache for Keep {
    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<View> {
        self.appended.push(layer);
        let (k, v) = match self.layers.get(&layer) {
            Some((old_k, old_v)) => (Tensor::cat(&[old_k, k], 2)?, Tensor::cat(&[old_v, v], 2)?),
            None => (k.clone(), v.clone()),
        };
        self.layers.insert(layer, (k.clone(), v.clone()));
        Ok(View::new(k, v))
    }

    /// Returns the length of the shortest layer stored, so in later passes it changes only after
    /// the last layer's `append`.
    fn len(&self) -> usize {
        self.layers.values().filter_map(|(k, _)| k.dim(2).ok()).min().unwrap_or(0)
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        if len > self.len() {
            bail!("{} columns cannot be truncated to {len}", self.len())
        }
        self.change(format!("truncate({len})"), |held| held.narrow(2, 0, len))?;
        if len == 0 {
            self.layers.clear(); // the next pass can have a different number of rows
        }
        Ok(())
    }
}

impl Batch for Keep {
    fn layer(&self, layer: usize) -> Result<View> {
        match self.layers.get(&layer) {
            Some((k, v)) => Ok(View::new(k.clone(), v.clone())),
            None => bail!("layer {layer} holds nothing"),
        }
    }

    fn select(&mut self, rows: &[u32]) -> Result<()> {
        let pick = |held: &Tensor| {
            let rows = rows.iter().map(|row| held.narrow(0, *row as usize, 1));
            Tensor::cat(&rows.collect::<Result<Vec<_>>>()?, 0)
        };
        self.change(format!("select({rows:?})"), pick)
    }

    fn join(&mut self, other: &dyn Batch) -> Result<()> {
        self.done.push(format!("join({} columns)", other.len()));
        let columns = self.len().max(other.len());
        let pad = |x: &Tensor| x.pad_with_zeros(2, columns - x.dim(2)?, 0);
        for layer in 0.. {
            let Ok(new) = other.layer(layer) else { break };
            let all = match self.layers.get(&layer) {
                Some((k, v)) => (
                    Tensor::cat(&[pad(k)?, pad(&new.k)?], 0)?,
                    Tensor::cat(&[pad(v)?, pad(&new.v)?], 0)?,
                ),
                None => (new.k.force_contiguous()?, new.v.force_contiguous()?),
            };
            self.layers.insert(layer, all);
        }
        Ok(())
    }

    fn trim(&mut self, front: usize) -> Result<()> {
        let Some(left) = self.len().checked_sub(front) else {
            bail!("cannot trim {front} columns of {}", self.len())
        };
        self.change(format!("trim({front})"), |held| held.narrow(2, front, left))
    }
}
