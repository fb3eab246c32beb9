//! The kinds of KV cache, and how to create each one.

use crate::day10_kv_cache::{DynamicCache, SlidingCache, StaticCache};
use crate::day12_batching::BatchCache;
use crate::kit::{Batch, Cache};
use candle_core::{bail, Result};

/// How a cache makes room. Names follow HF's cache classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheKind {
    /// Grows by concatenation.
    Dynamic,
    /// Allocated once, for this many positions, and written in place.
    Static(usize),
    /// Grows, and drops the oldest positions: each token sees the last N, including itself.
    Sliding(usize),
}

impl CacheKind {
    /// Creates an empty day 10 cache for one sequence and a model with `layers` layers.
    pub fn new_cache(self, layers: usize) -> Box<dyn Cache> {
        match self {
            Self::Dynamic => Box::new(DynamicCache::new(layers)),
            Self::Static(capacity) => Box::new(StaticCache::new(layers, capacity)),
            Self::Sliding(window) => Box::new(SlidingCache::new(layers, window)),
        }
    }

    /// Creates an empty day 12 cache for a batch: rows can join and leave.
    ///
    /// # Errors
    /// Same as [`CacheKind::batch_capacity`].
    pub fn new_batch(self, layers: usize) -> Result<Box<dyn Batch>> {
        Ok(Box::new(BatchCache::new(layers, self.batch_capacity()?)))
    }

    /// Returns the capacity to pass to [`BatchCache`] for this kind.
    ///
    /// # Errors
    /// If this is a sliding cache: a position's column would differ from row to row.
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
