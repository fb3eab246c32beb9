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
    // <solution>
    let numbers = rows * config.num_key_value_heads * columns * config.head_dim;
    2 * config.num_hidden_layers * numbers * dtype.size_in_bytes()
    // </solution>
}

/// A growing cache's append: the columns of `new` after those of `old`. `(B, Hkv, S, D)` and `(B, Hkv, T, D)` become
/// `(B, Hkv, S + T, D)`. Nothing is shared with `old`, and everything is copied.
///
/// # Errors
/// If rows, heads or head dimensions differ.
pub fn grow(old: Option<&Tensor>, new: &Tensor) -> Result<Tensor> {
    // task 10.2: concatenate along the columns; without an old one, the new one, contiguous
    // <solution>
    match old {
        Some(old) => Tensor::cat(&[old, new], 2),
        None => new.contiguous(),
    }
    // </solution>
}

/// A preallocated cache's append: writes `new`, `(B, Hkv, T, D)`, into `buffer`, `(B, Hkv, capacity, D)`, at column `at`,
/// in place, and gives a view of the columns up to its end, `(B, Hkv, at + T, D)`.
///
/// # Errors
/// If there is no room, or rows, heads or head dimensions differ.
pub fn write_at(buffer: &Tensor, new: &Tensor, at: usize) -> Result<Tensor> {
    // task 10.3: check the room, slice_set, narrow
    // <solution>
    let (end, capacity) = (at + new.dim(2)?, buffer.dim(2)?);
    if end > capacity {
        bail!("a cache of {capacity} columns has no room for {end}")
    }
    buffer.slice_set(&new.contiguous()?, 2, at)?;
    buffer.narrow(2, 0, end)
    // </solution>
}

/// Puts the rows of `b` below those of `a`; the shorter of the two is padded with zeros on the left. `(B, Hkv, len, D)`.
///
/// # Errors
/// If heads or head dimensions differ.
pub fn stack_rows(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    // task 10.7 (further): pad in front along the columns, then concatenate along the rows
    // <solution>
    let columns = a.dim(2)?.max(b.dim(2)?);
    let pad = |x: &Tensor| x.pad_with_zeros(2, columns - x.dim(2)?, 0);
    Tensor::cat(&[pad(a)?, pad(b)?], 0)
    // </solution>
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
        // <solution>
        let mut copy = Self { layers: self.layers.clone(), ..*self };
        copy.replace(|x| x.copy())?;
        Ok(copy)
        // </solution>
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
        // <solution>
        let held = self.layers[layer].take();
        let all = match (self.kind, held) {
            (CacheKind::Static(_), Some((buffer_k, buffer_v))) => {
                let all = (write_at(&buffer_k, k, self.len)?, write_at(&buffer_v, v, self.len)?);
                self.layers[layer] = Some((buffer_k, buffer_v));
                all
            }
            (_, held) => {
                let (old_k, old_v) = held.as_ref().map(|(k, v)| (k, v)).unzip();
                let all = (grow(old_k, k)?, grow(old_v, v)?);
                self.layers[layer] = Some((self.with_room(&all.0)?, self.with_room(&all.1)?));
                all
            }
        };
        if layer + 1 == self.layers.len() {
            self.len = all.0.dim(2)?;
            self.slide()?;
        }
        Ok(all)
        // </solution>
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
        // <solution>
        if len > self.len {
            bail!("a cache of {} columns cannot be truncated to {len}", self.len)
        }
        if self.slid > 0 && len < self.len {
            bail!("a sliding cache cannot be truncated once it has dropped columns")
        }
        self.len = len;
        match self.kind {
            CacheKind::Static(_) => Ok(()),
            _ if len == 0 => Ok(self.layers.fill(None)),
            _ => self.replace(|x| x.narrow(2, 0, len)?.contiguous()),
        }
        // </solution>
    }

    fn select(&mut self, rows: &[u32]) -> Result<()> {
        // task 10.8: new row i is a copy of old row rows[i], in every layer
        // <solution>
        self.replace(|x| x.index_select(&Tensor::new(rows, x.device())?, 0))
        // </solution>
    }

    fn join(&mut self, other: &dyn Cache) -> Result<()> {
        // task 10.9 (further): stack_rows of the columns in use, in every layer; a sliding cache refuses
        // <solution>
        if self.slid().is_some() || other.slid().is_some() {
            bail!("a sliding cache cannot admit rows: its columns are not the same positions in every row")
        }
        for layer in 0..self.layers.len() {
            let (k, v) = other.layer(layer)?;
            let (k, v) = match self.len {
                0 => (k, v),
                _ => {
                    let (old_k, old_v) = self.layer(layer)?;
                    (stack_rows(&old_k, &k)?, stack_rows(&old_v, &v)?)
                }
            };
            self.layers[layer] = Some((self.with_room(&k)?, self.with_room(&v)?));
        }
        self.len = self.len.max(other.len());
        Ok(())
        // </solution>
    }

    fn trim(&mut self, front: usize) -> Result<()> {
        // task 10.10 (further): drop the first columns; a static cache keeps its capacity
        // <solution>
        if front > self.len {
            bail!("a cache of {} columns has no {front} to trim", self.len)
        }
        self.len -= front;
        for layer in 0..self.layers.len() {
            let Some((k, v)) = &self.layers[layer] else { continue };
            let keep = |x: &Tensor| self.with_room(&x.narrow(2, front, self.len)?);
            self.layers[layer] = Some((keep(k)?, keep(v)?));
        }
        Ok(())
        // </solution>
    }
}

impl KvCache {
    /// Drops the first columns of a sliding cache that holds more than its window.
    fn slide(&mut self) -> Result<()> {
        // task 10.11 (further): what is too much in front goes, and is counted
        // <solution>
        if let CacheKind::Sliding(window) = self.kind {
            let front = self.len.saturating_sub(window);
            self.slid += front;
            self.trim(front)?;
        }
        Ok(())
        // </solution>
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
        // <solution>
        let tokens = &self.sequence.tokens;
        let step = match self.cache.slid() {
            Some(slid) => {
                let held = slid + self.cache.len();
                Step::sliding(self.model, &tokens[held..], held)?
            }
            None => {
                let context = self.model.config().max_position_embeddings;
                let first = window(tokens.len(), context, self.options.stride)?;
                if first != self.first {
                    self.cache.truncate(0)?;
                    self.first = first;
                }
                let held = self.cache.len();
                Step::new(self.model, &tokens[first + held..], held)?
            }
        };
        let logits = self.model.forward(&step.with_logits(Logits::Last(1)), &mut *self.cache)?;
        let logits: Vec<f32> = logits.flatten_all()?.to_vec1()?;
        let (id, logprob) = self.sequence.choose(&logits, &mut self.options)?;
        self.sequence.push(id, logprob, &self.options)
        // </solution>
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
