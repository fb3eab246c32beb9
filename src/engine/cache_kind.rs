//! Which cache: what a flag names, and what it makes.

use crate::day10_kv_cache::{DynamicCache, SlidingCache, StaticCache};
use crate::day12_batching::BatchCache;
use crate::kit::{Batch, Cache};
use candle_core::{bail, Result};

/// How a cache makes room. The names are those of HF's caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheKind {
    /// Grows by concatenation.
    Dynamic,
    /// Allocated once, for this many positions, and written in place.
    Static(usize),
    /// Grows, and evicts positions from the front: a token sees this many, itself included.
    Sliding(usize),
}

impl CacheKind {
    /// An empty cache for one text, for a model of `layers` layers: day 10's.
    pub fn new_cache(self, layers: usize) -> Box<dyn Cache> {
        match self {
            Self::Dynamic => Box::new(DynamicCache::new(layers)),
            Self::Static(capacity) => Box::new(StaticCache::new(layers, capacity)),
            Self::Sliding(window) => Box::new(SlidingCache::new(layers, window)),
        }
    }

    /// An empty cache for rows that come and go: day 12's.
    ///
    /// # Errors
    /// As [`CacheKind::batch_capacity`].
    pub fn new_batch(self, layers: usize) -> Result<Box<dyn Batch>> {
        Ok(Box::new(BatchCache::new(layers, self.batch_capacity()?)))
    }

    /// The capacity of [`BatchCache`] for this kind.
    ///
    /// # Errors
    /// If the kind slides: a position would not be the same column in every row.
    pub fn batch_capacity(self) -> Result<Option<usize>> {
        match self {
            Self::Dynamic => Ok(None),
            Self::Static(capacity) => Ok(Some(capacity)),
            Self::Sliding(_) => {
                bail!(
                    "a sliding cache is for one text; for several, or for beams, use a dynamic \
                    or static one"
                )
            }
        }
    }
}
