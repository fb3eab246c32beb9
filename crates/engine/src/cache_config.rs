//! The kinds of KV cache, and how to create each one.

use candecode::day10_kv_cache::{DynamicCache, SlidingCache, StaticCache};
use candecode::day12_batching::BatchCache;
use candecode::day21_pages::PagedCache;
use candecode::kit::{Batch, Cache};
use candle_core::{bail, Result};

/// A kind of KV cache, without its size: the values of `--cache`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum CacheKind {
    /// Grows by concatenation.
    Dynamic,
    /// Allocated once, for the whole context.
    Static,
    /// Keeps only the last positions, as many as the context has. Past the context, that isn't the
    /// same algorithm. RoPE models only.
    Sliding,
    /// Blocks from one pool. Several texts share one row of tokens (day 21).
    Paged,
}

/// A KV cache and its size (vLLM `CacheConfig`). The names are those of HF's cache classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheConfig {
    /// Grows by concatenation.
    Dynamic,
    /// Allocated once, for this many positions, and written in place.
    Static(usize),
    /// Grows, and drops the oldest positions: each token sees the last N, including itself.
    Sliding(usize),
    /// Blocks from one pool, as in vLLM.
    Paged {
        /// Positions in a block: a divisor of 64.
        block_size: usize,
        /// Blocks in the pool.
        num_blocks: usize,
    },
}

impl CacheConfig {
    /// Creates an empty cache for one sequence and a model with `layers` layers, from day 10 or day
    /// 21.
    ///
    /// # Errors
    /// If a block size isn't a divisor of 64, or there are no blocks.
    pub fn new_cache(self, layers: usize) -> Result<Box<dyn Cache>> {
        Ok(match self {
            Self::Dynamic => Box::new(DynamicCache::new(layers)),
            Self::Static(capacity) => Box::new(StaticCache::new(layers, capacity)),
            Self::Sliding(window) => Box::new(SlidingCache::new(layers, window)),
            Self::Paged { block_size, num_blocks } => {
                Box::new(PagedCache::new(layers, num_blocks, block_size)?)
            }
        })
    }

    /// Creates an empty cache for a batch, whose rows can join and leave, from day 12 or day 21.
    ///
    /// # Errors
    /// Same as [`CacheConfig::batch_capacity`] and [`CacheConfig::new_cache`].
    pub fn new_batch(self, layers: usize) -> Result<Box<dyn Batch>> {
        if let Self::Paged { block_size, num_blocks } = self {
            return Ok(Box::new(PagedCache::new(layers, num_blocks, block_size)?));
        }
        Ok(Box::new(BatchCache::new(layers, self.batch_capacity()?)))
    }

    /// Returns the capacity to pass to [`BatchCache`] for this kind.
    ///
    /// # Errors
    /// If this is a sliding cache, in which a position's column would differ from row to row, or a
    /// paged one.
    pub fn batch_capacity(self) -> Result<Option<usize>> {
        match self {
            Self::Dynamic => Ok(None),
            Self::Static(capacity) => Ok(Some(capacity)),
            Self::Paged { .. } => bail!("a paged cache has no padded batch; use day 21's loop"),
            Self::Sliding(_) => {
                bail!(
                    "a sliding cache is for one text; for several, or for beams, use a dynamic \
                    or static one"
                )
            }
        }
    }
}
