//! A cache for a batch with rows that come and go, as on a server. It writes in place where day
//! 12's cache copies at every step.
//!
//! Day 12's cache grows by concatenation, so every step copies everything stored. For one sequence
//! that is little compared with the weights; for 32 rows of a few hundred tokens it is more than
//! the weights themselves. Here, a layer's memory has room for more rows and positions than are in
//! use, and the part in use is a window into it.

use crate::kit::{Batch, Cache, View};
use candle_core::{bail, Result, Tensor};

/// Number of spare positions to add when a layer's memory has to grow.
const SPARE: usize = 64;

/// Keys and values of all layers, each stored in memory of shape `(rows, Hkv, positions, D)` that
/// is only partly in use.
pub struct RoomyCache {
    layers: Vec<Option<(Tensor, Tensor)>>,
    /// Number of rows in use, starting at row 0.
    rows: usize,
    /// The first position in use.
    start: usize,
    /// Number of positions in use.
    len: usize,
}

impl RoomyCache {
    /// Creates an empty cache for `layers` layers.
    pub fn new(layers: usize) -> Self {
        Self { layers: vec![None; layers], rows: 0, start: 0, len: 0 }
    }

    /// Returns the part of a layer's memory that is in use.
    fn window(&self, memory: &Tensor) -> Result<Tensor> {
        memory.narrow(0, 0, self.rows)?.narrow(2, self.start, self.len)
    }

    /// Applies `change` to the keys and values of every layer.
    fn each(&mut self, change: impl Fn(&Tensor) -> Result<Tensor>) -> Result<()> {
        for (k, v) in self.layers.iter_mut().flatten() {
            *k = change(k)?;
            *v = change(v)?;
        }
        Ok(())
    }

    /// Ensures memory for `rows` rows, with at least `before` free positions ahead of those in use
    /// and `behind` after them.
    fn make_room(&mut self, rows: usize, before: usize, behind: usize) -> Result<()> {
        let Some((memory, _)) = self.layers.iter().flatten().next() else { return Ok(()) };
        let (has_rows, _, has_positions, _) = memory.dims4()?;
        let end = self.start + self.len;
        if rows <= has_rows && before <= self.start && end + behind <= has_positions {
            return Ok(());
        }
        let rows = if rows > has_rows { rows.next_power_of_two() } else { has_rows };
        let positions = before + self.len + behind;
        let positions = positions + positions / 4 + SPARE;
        let this = &*self;
        let mut layers = Vec::with_capacity(this.layers.len());
        for layer in &this.layers {
            let moved = |memory: &Tensor| {
                let (_, heads, _, width) = memory.dims4()?;
                let shape = (rows, heads, positions, width);
                let larger = Tensor::zeros(shape, memory.dtype(), memory.device())?;
                let used = this.window(memory)?.force_contiguous()?;
                larger.narrow(0, 0, this.rows)?.slice_set(&used, 2, before)?;
                Ok::<Tensor, candle_core::Error>(larger)
            };
            layers.push(match layer {
                Some((k, v)) => Some((moved(k)?, moved(v)?)),
                None => None,
            });
        }
        self.layers = layers;
        self.start = before;
        Ok(())
    }
}

impl Cache for RoomyCache {
    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<View> {
        if layer >= self.layers.len() {
            bail!("layer {layer} of a cache for {} layers", self.layers.len())
        }
        let (rows, _, new, _) = k.dims4()?;
        let last_layer = layer + 1 == self.layers.len();
        if self.len == 0 {
            // Store a prompt's keys and values unchanged. Room is made once a token follows.
            self.layers[layer] = Some((k.force_contiguous()?, v.force_contiguous()?));
            if last_layer {
                (self.rows, self.start, self.len) = (rows, 0, new);
            }
            return Ok(View::new(k.clone(), v.clone()));
        }
        if rows != self.rows {
            bail!("{rows} rows cannot follow a cache's {}", self.rows)
        }
        if layer == 0 {
            self.make_room(self.rows, 0, new)?;
        }
        let Some((all_k, all_v)) = &self.layers[layer] else {
            bail!("layer {layer} of the cache is empty")
        };
        let end = self.start + self.len;
        let written = |memory: &Tensor, new_ones: &Tensor| {
            memory.narrow(0, 0, rows)?.slice_set(&new_ones.contiguous()?, 2, end)?;
            memory.narrow(0, 0, rows)?.narrow(2, self.start, self.len + new)
        };
        let all = View::new(written(all_k, k)?, written(all_v, v)?);
        if last_layer {
            self.len += new;
        }
        Ok(all)
    }

    fn len(&self) -> usize {
        self.len
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        if len > self.len {
            bail!("a cache of {} positions cannot be truncated to {len}", self.len)
        }
        self.len = len;
        Ok(())
    }
}

impl Batch for RoomyCache {
    fn layer(&self, layer: usize) -> Result<View> {
        match self.layers.get(layer) {
            Some(Some((k, v))) => Ok(View::new(self.window(k)?, self.window(v)?)),
            _ => bail!("layer {layer} of the cache is empty"),
        }
    }

    fn select(&mut self, rows: &[u32]) -> Result<()> {
        if let Some(row) = rows.iter().find(|row| **row as usize >= self.rows) {
            bail!("row {row} of a cache of {} rows", self.rows)
        }
        let in_order = rows.windows(2).all(|pair| pair[0] < pair[1]);
        if !in_order {
            self.each(|memory| memory.index_select(&Tensor::new(rows, memory.device())?, 0))?;
            self.rows = rows.len();
            return Ok(());
        }
        // Move the remaining rows up one by one. None is overwritten before it has moved.
        let (start, len) = (self.start, self.len);
        for (to, from) in rows.iter().enumerate() {
            let from = *from as usize;
            if from == to {
                continue;
            }
            self.each(|memory| {
                let row = memory.narrow(0, from, 1)?.narrow(2, start, len)?.force_contiguous()?;
                memory.narrow(0, to, 1)?.slice_set(&row, 2, start)?;
                Ok(memory.clone())
            })?;
        }
        self.rows = rows.len();
        Ok(())
    }

    fn join(&mut self, other: &dyn Batch) -> Result<()> {
        let theirs = other.len();
        let more = other.layer(0)?.k.dim(0)?;
        if self.len == 0 {
            for layer in 0..self.layers.len() {
                let View { k, v, .. } = other.layer(layer)?;
                self.layers[layer] = Some((k.force_contiguous()?, v.force_contiguous()?));
            }
            (self.rows, self.start, self.len) = (more, 0, theirs);
            return Ok(());
        }
        let (mine, all) = (self.len, self.len.max(theirs));
        let (front, gap) = (all - mine, all - theirs);
        self.make_room(self.rows + more, front, 0)?;
        let start = self.start - front;
        for layer in 0..self.layers.len() {
            let theirs = other.layer(layer)?;
            let Some((k, v)) = &self.layers[layer] else {
                bail!("layer {layer} of the cache is empty")
            };
            for (memory, theirs) in [(k, theirs.k), (v, theirs.v)] {
                // Pad with zeros: leftovers from a previous row may include NaN.
                if front > 0 {
                    let of_mine = memory.narrow(0, 0, self.rows)?;
                    let zeros = of_mine.narrow(2, 0, front)?.zeros_like()?;
                    of_mine.slice_set(&zeros, 2, start)?;
                }
                let new_rows = memory.narrow(0, self.rows, more)?;
                if gap > 0 {
                    let zeros = new_rows.narrow(2, 0, gap)?.zeros_like()?;
                    new_rows.slice_set(&zeros, 2, start)?;
                }
                new_rows.slice_set(&theirs.force_contiguous()?, 2, start + gap)?;
            }
        }
        (self.rows, self.start, self.len) = (self.rows + more, start, all);
        Ok(())
    }

    fn trim(&mut self, front: usize) -> Result<()> {
        if front > self.len {
            bail!("a cache of {} positions has no {front} to trim", self.len)
        }
        self.start += front;
        self.len -= front;
        Ok(())
    }
}
