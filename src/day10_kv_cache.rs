#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 10: the KV cache. Keys and values of the past do not change, so they are kept; a step computes only what is new.

use candecode::day07_greedy::{window, Sequence};
use candecode::kit::{
    check_prompt, Cache, GenerationOptions, Logits, Model, ModelConfig, Step, Token, Tokenizer,
};
use candle_core::{bail, DType, Result, Tensor};

/// Keys and values of one layer, each `(B, Hkv, columns, D)`.
pub type KeysValues = (Tensor, Tensor);

/// Bytes of keys and values: two tensors a layer, `rows · Hkv · columns · D` numbers each.
pub fn cache_bytes(config: &ModelConfig, rows: usize, columns: usize, dtype: DType) -> usize {
    // task 10.1: two tensors for each layer
    todo!("day 10, task 1: two tensors for each layer")
}

/// A growing cache's append: the columns of `new` after those of `old`. `(B, Hkv, S, D)` and `(B, Hkv, T, D)` become
/// `(B, Hkv, S + T, D)`. Nothing is shared with `old`, and everything is copied.
///
/// # Errors
/// If rows, heads or head dimensions differ.
pub fn grow(old: Option<&Tensor>, new: &Tensor) -> Result<Tensor> {
    // task 10.2: concatenate along the columns; without an old one, the new one, contiguous
    todo!("day 10, task 2: concatenate along the columns; without an old one, the new one, contiguous")
}

/// A preallocated cache's append: writes `new`, `(B, Hkv, T, D)`, into `buffer`, `(B, Hkv, capacity, D)`, at column `at`,
/// in place, and gives a view of the columns up to its end, `(B, Hkv, at + T, D)`.
///
/// # Errors
/// If there is no room, or rows, heads or head dimensions differ.
pub fn write_at(buffer: &Tensor, new: &Tensor, at: usize) -> Result<Tensor> {
    // task 10.3: check the room, slice_set, narrow
    todo!("day 10, task 3: check the room, slice_set, narrow")
}

/// Puts the rows of `b` below those of `a`; the shorter of the two is padded with zeros on the left. `(B, Hkv, len, D)`.
///
/// # Errors
/// If heads or head dimensions differ.
pub fn stack_rows(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    // task 10.7 (further): pad in front along the columns, then concatenate along the rows
    todo!("day 10, task 7: pad in front along the columns, then concatenate along the rows")
}

/// How a [`KvCache`] makes room. Names are those of HF's caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheKind {
    /// Grows by concatenation.
    Dynamic,
    /// Is allocated once, for so many columns, and written in place.
    Static(usize),
    /// Grows, and keeps the last so many columns.
    Sliding(usize),
}

/// Keys and values of every layer. A clone would share its buffers, and a static cache writes in place: so there is
/// [`KvCache::try_clone`] instead, which copies.
#[derive(Debug)]
pub struct KvCache {
    kind: CacheKind,
    layers: Vec<Option<KeysValues>>,
    len: usize,
    slid: usize, // columns that a sliding cache has dropped
}

impl KvCache {
    /// An empty cache for a model of `layers` layers; memory is taken at the first `append`.
    pub fn new(kind: CacheKind, layers: usize) -> Self {
        Self { kind, layers: vec![None; layers], len: 0, slid: 0 }
    }

    /// A copy that shares no number with this one.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn try_clone(&self) -> Result<Self> {
        // task 10.4: Tensor::clone counts references; Tensor::copy copies
        todo!("day 10, task 4: Tensor::clone counts references; Tensor::copy copies")
    }

    /// Replaces every tensor by `change` of it.
    fn replace(&mut self, change: impl Fn(&Tensor) -> Result<Tensor>) -> Result<()> {
        for (k, v) in self.layers.iter_mut().flatten() {
            (*k, *v) = (change(k)?, change(v)?);
        }
        Ok(())
    }

    /// What a layer must hold for `used` columns: a static one, a buffer with room behind them.
    fn with_room(&self, used: &Tensor) -> Result<Tensor> {
        match self.kind {
            CacheKind::Static(capacity) if used.dim(2)? < capacity => {
                used.pad_with_zeros(2, 0, capacity - used.dim(2)?)
            }
            _ => used.contiguous(),
        }
    }
}

impl Cache for KvCache {
    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor)> {
        // task 10.5: a static cache writes at len, the others grow; len moves with the last layer
        todo!("day 10, task 5: a static cache writes at len, the others grow; len moves with the last layer")
    }

    fn layer(&self, layer: usize) -> Result<(Tensor, Tensor)> {
        match self.layers.get(layer) {
            Some(Some((k, v))) => Ok((k.narrow(2, 0, self.len)?, v.narrow(2, 0, self.len)?)),
            _ => bail!("layer {layer} of the cache is empty"),
        }
    }

    fn len(&self) -> usize {
        self.len
    }

    fn slid(&self) -> Option<usize> {
        matches!(self.kind, CacheKind::Sliding(_)).then_some(self.slid)
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        // task 10.6: a static cache only moves len; a growing one keeps the first columns; a slid one refuses
        todo!("day 10, task 6: a static cache only moves len; a growing one keeps the first columns; a slid one refuses")
    }

    fn select(&mut self, rows: &[u32]) -> Result<()> {
        // task 10.8: new row i is a copy of old row rows[i], in every layer
        todo!("day 10, task 8: new row i is a copy of old row rows[i], in every layer")
    }

    fn join(&mut self, other: &dyn Cache) -> Result<()> {
        // task 10.9 (further): stack_rows of the columns in use, in every layer; a sliding cache refuses
        todo!("day 10, task 9: stack_rows of the columns in use, in every layer; a sliding cache refuses")
    }

    fn trim(&mut self, front: usize) -> Result<()> {
        // task 10.10 (further): drop the first columns; a static cache keeps its capacity
        todo!("day 10, task 10: drop the first columns; a static cache keeps its capacity")
    }
}

impl KvCache {
    /// Drops the first columns of a sliding cache that holds more than its window.
    fn slide(&mut self) -> Result<()> {
        // task 10.11 (further): what is too much in front goes, and is counted
        todo!("day 10, task 11: what is too much in front goes, and is counted")
    }
}

/// A text being generated with a cache: an iterator of its tokens.
pub struct CachedGeneration<'a> {
    model: &'a dyn Model,
    options: GenerationOptions<'a>,
    sequence: Sequence<'a>,
    cache: Box<dyn Cache + 'a>,
    first: usize, // the first token of the window that the cache holds
    ended: bool,
}

/// Generates from a prompt with a cache: the prompt in one pass, then one position a token. Past the context the cache is
/// emptied and filled again from day 7's window; a sliding cache slides instead, which is another algorithm.
///
/// # Errors
/// If the prompt is empty or longer than the context; later, each token may be an error.
pub fn generate_cached<'a>(
    model: &'a dyn Model,
    tokenizer: &'a Tokenizer,
    prompt: &[u32],
    options: GenerationOptions<'a>,
    cache: impl Cache + 'a,
) -> Result<CachedGeneration<'a>> {
    check_prompt(model, prompt)?;
    let sequence = Sequence::new(0, prompt, tokenizer, &options.stop_strings);
    let ended = options.max_new_tokens == 0;
    Ok(CachedGeneration { model, options, sequence, cache: Box::new(cache), first: 0, ended })
}

impl CachedGeneration<'_> {
    fn step(&mut self) -> Result<Token> {
        // task 10.12: feed the tokens that the cache does not hold, at their positions; a new window empties the cache
        todo!("day 10, task 12: feed the tokens that the cache does not hold, at their positions; a new window empties the cache")
    }
}

impl Iterator for CachedGeneration<'_> {
    type Item = Result<Token>;

    /// The next token. The one with a `finish`, or an error, is the last.
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let token = self.step();
        self.ended = !matches!(&token, Ok(token) if token.finish.is_none());
        Some(token)
    }
}
