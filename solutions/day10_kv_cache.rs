//! Day 10: the KV cache. Keys and values of the past do not change, so they are kept; a step computes only what is new.

use candecode::day07_greedy::{window, Sequence};
use candecode::kit::{check_prompt, Cache, CacheKind, GenerationOptions, Logits, Model};
use candecode::kit::{ModelConfig, Step, TokenIter, Tokenizer};
use candle_core::{bail, DType, Result, Tensor};

/// Bytes of keys and values of `rows` texts of `columns` tokens.
pub fn cache_bytes(config: &ModelConfig, rows: usize, columns: usize, dtype: DType) -> usize {
    // task 10.1: count the numbers that all layers keep, and their bytes
    // <solution>
    let numbers = rows * config.num_key_value_heads * columns * config.head_dim;
    2 * config.num_hidden_layers * numbers * dtype.size_in_bytes()
    // </solution>
}

/// A growing cache's append: the columns of `new` after those of `old`. `(B, Hkv, S, D)` and `(B, Hkv, T, D)` become
/// `(B, Hkv, S + T, D)`, in new memory: every append copies everything. An error if any other dimension differs.
pub fn grow(old: &Tensor, new: &Tensor) -> Result<Tensor> {
    // task 10.2: old columns, then new ones
    // <solution>
    Tensor::cat(&[old, &new.contiguous()?], 2)
    // </solution>
}

/// A preallocated cache's append: writes `new`, `(B, Hkv, T, D)`, into `buffer`, `(B, Hkv, capacity, D)`, at column `at`,
/// in place, and gives a view of the columns up to its end, `(B, Hkv, at + T, D)`.
///
/// # Errors
/// If there is no room, or rows, heads or head dimensions differ.
pub fn write_at(buffer: &Tensor, new: &Tensor, at: usize) -> Result<Tensor> {
    // task 10.3: refuse what does not fit, write in place, give a view
    // <solution>
    let (end, capacity) = (at + new.dim(2)?, buffer.dim(2)?);
    if end > capacity {
        bail!("a cache of {capacity} columns has no room for {end}")
    }
    buffer.slice_set(&new.contiguous()?, 2, at)?;
    buffer.narrow(2, 0, end)
    // </solution>
}

/// Puts the rows of `b` below those of `a`, each `(B, Hkv, len, D)`; the shorter of the two is padded with zeros on the left.
/// An error if heads or head dimensions differ.
pub fn stack_rows(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    // task 10.9 (further): make both equally long, then put one below the other
    // <solution>
    let columns = a.dim(2)?.max(b.dim(2)?);
    let pad = |x: &Tensor| x.pad_with_zeros(2, columns - x.dim(2)?, 0);
    Tensor::cat(&[pad(a)?, pad(b)?], 0)
    // </solution>
}

/// Keys and values of every layer. It is not `Clone`: clones would share buffers that a static cache writes in place.
#[derive(Debug)]
pub struct KvCache {
    kind: CacheKind,
    layers: Vec<Option<(Tensor, Tensor)>>, // keys and values; what is beyond `len` columns does not count
    len: usize,
    slid: usize, // columns that a sliding cache has dropped
}

impl KvCache {
    /// An empty cache for a model of `layers` layers; memory is taken at the first `append`.
    pub fn new(kind: CacheKind, layers: usize) -> Self {
        Self { kind, layers: vec![None; layers], len: 0, slid: 0 }
    }

    /// A copy that shares no memory with this one; an error if there is none for it.
    pub fn try_clone(&self) -> Result<Self> {
        // task 10.6: copy every tensor; Tensor::clone only counts one more reference to the same numbers
        // <solution>
        let mut copy = Self { layers: self.layers.clone(), ..*self };
        copy.replace(|held| held.copy())?;
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

    /// Drops the columns of a sliding cache that the next token may not see; an error if it holds more than `window`.
    /// `append` calls it last, and gives all columns back, those that are dropped included.
    fn slide(&mut self, window: usize) -> Result<()> {
        // task 10.12 (further): the next token counts itself among the window; count what is dropped
        // <solution>
        if self.len > window {
            bail!("a sliding cache of {window} columns cannot take {} at once", self.len)
        }
        let front = (self.len + 1).saturating_sub(window);
        self.slid += front;
        self.trim(front)
        // </solution>
    }
}

impl Cache for KvCache {
    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor)> {
        // task 10.4: after the columns held, by grow or write_at; len moves with the last layer
        // <solution>
        let all = match (self.kind, self.layers.get(layer)) {
            (_, None) => bail!("layer {layer} of a cache for {} layers", self.layers.len()),
            (CacheKind::Static(_), Some(Some((buffer_k, buffer_v)))) if self.len > 0 => {
                (write_at(buffer_k, k, self.len)?, write_at(buffer_v, v, self.len)?)
            }
            _ if self.len > 0 => {
                let (old_k, old_v) = self.layer(layer)?;
                let all = (grow(&old_k, k)?, grow(&old_v, v)?);
                self.layers[layer] = Some(all.clone());
                all
            }
            _ => {
                self.layers[layer] = Some((self.kind.hold(k)?, self.kind.hold(v)?));
                (k.clone(), v.clone())
            }
        };
        if layer + 1 == self.layers.len() {
            self.len += k.dim(2)?;
            if let CacheKind::Sliding(window) = self.kind {
                self.slide(window)?;
            }
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
        // task 10.5: columns beyond len do not count; what a sliding cache has dropped does not come back
        // <solution>
        if len > self.len || (self.slid > 0 && len < self.len) {
            bail!("{} columns, after {} that slid away, cannot become {len}", self.len, self.slid)
        }
        self.len = len;
        Ok(())
        // </solution>
    }

    fn select(&mut self, rows: &[u32]) -> Result<()> {
        // task 10.7: new row i is a copy of old row rows[i], in every layer
        // <solution>
        self.replace(|held| held.index_select(&Tensor::new(rows, held.device())?, 0))
        // </solution>
    }

    fn join(&mut self, other: &dyn Cache) -> Result<()> {
        // task 10.10 (further): stack_rows of the columns in use, in every layer; no cache that slides
        // <solution>
        if self.slid().is_some() || other.slid().is_some() {
            bail!("a sliding cache cannot admit rows: its columns are not the same positions in every row")
        }
        let stacked = |layer| {
            let (mut k, mut v) = other.layer(layer)?;
            if self.len > 0 {
                let (old_k, old_v) = self.layer(layer)?;
                (k, v) = (stack_rows(&old_k, &k)?, stack_rows(&old_v, &v)?);
            }
            Ok(Some((self.kind.hold(&k)?, self.kind.hold(&v)?)))
        };
        self.layers = (0..self.layers.len()).map(stacked).collect::<Result<_>>()?;
        self.len = self.len.max(other.len());
        Ok(())
        // </solution>
    }

    fn trim(&mut self, front: usize) -> Result<()> {
        // task 10.11 (further): drop the first columns; a static cache keeps its capacity
        // <solution>
        if front > self.len {
            bail!("a cache of {} columns has no {front} to trim", self.len)
        }
        if front > 0 {
            let (kind, len) = (self.kind, self.len - front);
            self.replace(|held| kind.hold(&held.narrow(2, front, len)?))?;
            self.len = len;
        }
        Ok(())
        // </solution>
    }
}

/// The next pass of a text: the tokens of its window that the cache does not hold, at their positions. `first` is the first
/// token of the window that the cache was filled from; a cache that holds nothing makes every pass whole.
///
/// # Errors
/// If the stride is out of range, or the step does not fit the model.
pub fn next_step(
    model: &dyn Model,
    tokens: &[u32],
    first: &mut usize,
    stride: usize,
    cache: &mut dyn Cache,
) -> Result<Step> {
    // task 10.8: day 7's window; if it has moved, nothing in the cache is at its position any more
    // <solution>
    let start = window(tokens.len(), model.config().max_position_embeddings, stride)?;
    if start != *first {
        cache.truncate(0)?;
        *first = start;
    }
    let held = cache.len();
    Step::new(model, &tokens[start + held..], held)
    // </solution>
}

/// Generates from a prompt: the prompt in one pass, then one position a token. Past the context the cache is emptied and
/// filled again from day 7's window; a sliding cache slides instead, which is another algorithm.
///
/// # Errors
/// If the prompt is empty or longer than the context; later, each token may be an error.
pub fn generate_cached<'a>(
    model: &'a dyn Model,
    tokenizer: &'a Tokenizer,
    prompt: &[u32],
    mut options: GenerationOptions<'a>,
    mut cache: impl Cache + 'a,
) -> Result<TokenIter<'a>> {
    check_prompt(model, prompt)?;
    let mut text = Sequence::new(0, prompt, tokenizer, &options.stop_strings);
    let (rows, mut first) = (usize::from(options.max_new_tokens > 0), 0);
    Ok(TokenIter::new(rows, move || {
        let step = match cache.slid() {
            Some(slid) => Step::sliding(model, &text.tokens, slid + cache.len())?,
            None => next_step(model, &text.tokens, &mut first, options.stride, &mut cache)?,
        };
        let logits = model.forward(&step.with_logits(Logits::Last(1)), &mut cache)?; // (1, 1, V)
        let (id, logprob) = text.choose(&logits.flatten_all()?.to_vec1()?, &mut options)?;
        Ok(vec![text.push(id, logprob, &options)?])
    }))
}
