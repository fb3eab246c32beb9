//! Storage for the keys and values of past tokens.

use crate::{Pages, Step};
use candle_core::{bail, Result, Tensor};
use std::sync::Arc;

/// Everything a layer may attend to: the keys and values that [`Cache::append`] returns.
#[derive(Debug, Clone)]
pub struct View {
    /// Keys, `(B, Hkv, S + T, D)`: the S positions held before, then the T new ones. With `pages`,
    /// all blocks of the layer, `(blocks, Hkv, block size, D)`.
    pub k: Tensor,
    /// Values, in the same shape.
    pub v: Tensor,
    /// In a paged cache (day 21), the location of each sequence's positions. None: `k` and
    /// `v` are the positions themselves, in order.
    pub pages: Option<Arc<Pages>>,
}

impl View {
    /// Returns a view of keys and values in order, `(B, Hkv, S + T, D)`.
    pub fn new(k: Tensor, v: Tensor) -> Self {
        Self { k, v, pages: None }
    }
}

/// Keys and values of every token so far. One cache serves the whole stack of layers and lives
/// outside the model. These methods are enough to generate one sequence; [`Batch`] adds the ones a
/// batch needs.
///
/// Keys and values are `(B, Hkv, len, D)`: rows, key/value heads, positions held, head dimension.
/// All rows hold the same number of positions, so shorter rows are padded on the left. You write
/// the caches that actually store something on day 10; until then there is [`NoCache`].
pub trait Cache {
    /// Prepares for a step whose keys and values are about to be appended. A model calls this once
    /// per step, before its first layer. Only a paged cache has work to do here. Every
    /// other cache rejects a step that puts several sequences in one line ([`Step::chunks`]),
    /// because it would treat them as a single sequence.
    ///
    /// # Errors
    /// If the cache can't hold such a step, or has no room for it.
    fn begin(&mut self, step: &Step) -> Result<()> {
        match step.chunks {
            None => Ok(()),
            Some(_) => bail!(
                "this cache holds one rectangle of rows; a step with several sequences in one line \
                 needs day 21's PagedCache"
            ),
        }
    }

    /// Appends the new tokens' keys and values, `(B, Hkv, T, D)`, to a layer and returns everything
    /// stored in it, `(B, Hkv, S + T, D)`.
    ///
    /// # Errors
    /// If the shapes don't match the ones already stored in the layer, or the cache is full.
    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<View>;

    /// Returns the number of positions appended and not truncated, which is the next token's
    /// position. The length advances once the last layer has appended, and includes evicted
    /// positions.
    fn len(&self) -> usize;

    /// Returns true before the first token.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops all positions from `len` on, for example the rejected tokens in speculative decoding.
    ///
    /// # Errors
    /// If the cache holds fewer positions, or has evicted some: those can't be brought back.
    fn truncate(&mut self, len: usize) -> Result<()>;

    /// Returns the number of positions that a sliding cache has evicted from the front. None for a
    /// cache that never evicts.
    fn num_evicted(&self) -> Option<usize> {
        None
    }
}

/// A cache whose rows can change: for reordered beams, and for the batches of days 12 and 15.
///
/// A sliding cache doesn't qualify, because the same position could be in a different column in
/// each row.
pub trait Batch: Cache {
    /// Returns the keys and values stored in a layer, each `(B, Hkv, len, D)`.
    ///
    /// # Errors
    /// If the layer is empty.
    fn layer(&self, layer: usize) -> Result<View>;

    /// Replaces row `i` with the old row `rows[i]`. Used to reorder beams and to drop finished
    /// rows.
    ///
    /// # Errors
    /// If a row doesn't exist.
    fn select(&mut self, rows: &[u32]) -> Result<()>;

    /// Appends the rows of `other` below the existing rows. The shorter of the two is padded on the
    /// left.
    ///
    /// # Errors
    /// If the two differ in layers, heads or head dimensions.
    fn join(&mut self, other: &dyn Batch) -> Result<()>;

    /// Drops the first `front` positions, which must be padding in every row.
    ///
    /// # Errors
    /// If the cache holds fewer positions.
    fn trim(&mut self, front: usize) -> Result<()>;
}

/// A cache that stores nothing, so that every pass recomputes every position.
#[derive(Debug, Default, Clone, Copy)]
pub struct NoCache;

impl Cache for NoCache {
    fn append(&mut self, _layer: usize, k: &Tensor, v: &Tensor) -> Result<View> {
        Ok(View::new(k.clone(), v.clone()))
    }

    fn len(&self) -> usize {
        0
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        if len > 0 {
            bail!("NoCache is empty; it cannot be truncated to {len} positions")
        }
        Ok(())
    }
}

impl Batch for NoCache {
    fn layer(&self, layer: usize) -> Result<View> {
        bail!("layer {layer}: NoCache holds no keys and values")
    }

    fn select(&mut self, _rows: &[u32]) -> Result<()> {
        Ok(())
    }

    fn join(&mut self, _other: &dyn Batch) -> Result<()> {
        bail!("NoCache cannot admit rows; use day 12's BatchCache")
    }

    fn trim(&mut self, front: usize) -> Result<()> {
        if front > 0 {
            bail!("NoCache is empty; it has no {front} positions to trim")
        }
        Ok(())
    }
}

/// Forwards [`Cache`] through boxes and mutable references.
macro_rules! holders {
    ($($holder:ty),+) => {
        $(impl<C: Cache + ?Sized> Cache for $holder {
            fn begin(&mut self, step: &Step) -> Result<()> {
                (**self).begin(step)
            }

            fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<View> {
                (**self).append(layer, k, v)
            }

            fn len(&self) -> usize {
                (**self).len()
            }

            fn truncate(&mut self, len: usize) -> Result<()> {
                (**self).truncate(len)
            }

            fn num_evicted(&self) -> Option<usize> {
                (**self).num_evicted()
            }
        })+
    };
}
holders!(Box<C>, &mut C);
