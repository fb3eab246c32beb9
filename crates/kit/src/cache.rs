//! The third noun: where keys and values of past tokens are kept.

use candle_core::{bail, Result, Tensor};

/// Everything a layer may attend to: the keys and values that [`Cache::append`] returns.
#[derive(Debug, Clone)]
pub struct View {
    /// Keys, `(B, Hkv, S + T, D)`: the S positions held before, then the T new ones.
    pub k: Tensor,
    /// Values, in the same shape.
    pub v: Tensor,
}

/// Keys and values of every token so far: one cache for the whole stack of layers, outside the
/// model. This is all that generating one text needs; [`Batch`] adds what a batch needs.
///
/// Keys and values are `(B, Hkv, len, D)`: rows, key/value heads, positions held, head dimension.
/// All rows hold equally many; a row shorter than the others is padded on the left. Day 10 writes
/// the caches that keep something; until then there is [`NoCache`].
pub trait Cache {
    /// Adds the new tokens' keys and values, `(B, Hkv, T, D)`, and returns all of them,
    /// `(B, Hkv, S + T, D)`.
    ///
    /// # Errors
    /// If the shapes do not continue what the layer holds, or there is no room.
    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<View>;

    /// The number of positions appended and not taken back: where the next token stands. It moves
    /// when the last layer has appended. A cache that evicts counts what it has evicted, too.
    fn len(&self) -> usize;

    /// True before the first token.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all positions from `len` on, as when speculative decoding takes back rejected
    /// tokens.
    ///
    /// # Errors
    /// If fewer are held, or the cache has evicted some, which cannot come back.
    fn truncate(&mut self, len: usize) -> Result<()>;

    /// How many positions a sliding cache has evicted from the front; None for a cache that never
    /// evicts.
    fn num_evicted(&self) -> Option<usize> {
        None
    }
}

/// A cache whose rows come and go: beams that are reordered, and the batches of days 12 and 15.
///
/// A sliding cache isn't one, because a position wouldn't be in the same column of every row.
pub trait Batch: Cache {
    /// Keys and values that a layer holds, each `(B, Hkv, len, D)`.
    ///
    /// # Errors
    /// If the layer holds nothing.
    fn layer(&self, layer: usize) -> Result<View>;

    /// Makes row `i` a copy of old row `rows[i]`. Beams are reordered this way, and finished rows
    /// are dropped this way.
    ///
    /// # Errors
    /// If a row does not exist.
    fn select(&mut self, rows: &[u32]) -> Result<()>;

    /// Adds the rows of `other` below the rows held; the shorter of the two is padded on the left.
    ///
    /// # Errors
    /// If the two have different layers, heads or head dimensions.
    fn join(&mut self, other: &dyn Batch) -> Result<()>;

    /// Drops the first `front` positions, which must be padding in every row.
    ///
    /// # Errors
    /// If fewer are held.
    fn trim(&mut self, front: usize) -> Result<()>;
}

/// Keeps nothing: every pass computes every position again.
#[derive(Debug, Default, Clone, Copy)]
pub struct NoCache;

impl Cache for NoCache {
    fn append(&mut self, _layer: usize, k: &Tensor, v: &Tensor) -> Result<View> {
        Ok(View { k: k.clone(), v: v.clone() })
    }

    fn len(&self) -> usize {
        0
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        if len > 0 {
            bail!("NoCache is empty, it cannot be truncated to {len} positions")
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
            bail!("NoCache is empty, it has no {front} positions to trim")
        }
        Ok(())
    }
}

/// Forwards [`Cache`] through a box and a mutable reference.
macro_rules! holders {
    ($($holder:ty),+) => {
        $(impl<C: Cache + ?Sized> Cache for $holder {
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
