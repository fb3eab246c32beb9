//! Day 10: the KV cache. Keys and values of the past do not change, so they are kept, and a step
//! computes only what is new.

use candecode::day07_greedy::Sequence;
use candecode::kit::{Batch, Cache, CacheKind, Logits, Model, ModelConfig, PastContext, Request};
use candecode::kit::{Step, Token, TokenIter, Tokenizer, View};
use candle_core::{bail, DType, Result, Tensor};

// part 1: keep and feed

/// Bytes of keys and values of `rows` sequences of `len` positions each.
pub fn cache_bytes(config: &ModelConfig, rows: usize, len: usize, dtype: DType) -> usize {
    // task 10.1: count the numbers that all layers keep, and their bytes
    // <solution>
    let keys_of_a_layer = rows * config.num_key_value_heads * len * config.head_dim;
    2 * config.num_hidden_layers * keys_of_a_layer * dtype.size_in_bytes()
    // </solution>
}

/// Appends positions: `old`, `(B, Hkv, S, D)`, and `new`, `(B, Hkv, T, D)`, become
/// `(B, Hkv, S + T, D)`, contiguous, in new memory. So every append of a growing cache copies all
/// it has.
///
/// # Errors
/// If any other dimension differs.
pub fn concat(old: &Tensor, new: &Tensor) -> Result<Tensor> {
    // task 10.2: the old positions, then the new ones
    // <solution>
    Tensor::cat(&[old, &new.contiguous()?], 2)
    // </solution>
}

/// Keys and values of every layer. It is not `Clone`: clones would share the buffers that a static
/// cache writes in place.
#[derive(Debug)]
pub struct KvCache {
    kind: CacheKind,
    layers: Vec<Option<(Tensor, Tensor)>>, // keys and values; only the first `len` positions count
    len: usize,
    num_evicted: usize, // positions that a sliding cache has dropped in front
}

impl KvCache {
    /// An empty cache for a model of `layers` layers; memory is taken at the first `append`.
    pub fn new(kind: CacheKind, layers: usize) -> Self {
        Self { kind, layers: vec![None; layers], len: 0, num_evicted: 0 }
    }

    /// Puts a layer's new keys and values, `(B, Hkv, T, D)`, after its `len` positions, and gives
    /// all of them, `(B, Hkv, len + T, D)`. The first positions are stored as `CacheKind::allocate`
    /// lays them out; later ones come by [`concat`], or by [`write_at`] in a static cache. `len`
    /// moves when the last layer has appended: until then all layers of a step append at the same
    /// position.
    ///
    /// # Errors
    /// If there is no such layer, or the new positions do not fit what it has.
    fn append_layer(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<View> {
        // task 10.3: store the first positions, append the others; len moves with the last layer
        // <solution>
        if layer >= self.layers.len() {
            bail!("layer {layer} of a cache for {} layers", self.layers.len())
        }
        let stored = self.layers[layer].as_ref().filter(|_| self.len > 0);
        let all = match (stored, self.kind) {
            (None, kind) => {
                self.layers[layer] = Some((kind.allocate(k)?, kind.allocate(v)?));
                View { k: k.clone(), v: v.clone() }
            }
            (Some((buffer_k, buffer_v)), CacheKind::Static(_)) => {
                View { k: write_at(buffer_k, k, self.len)?, v: write_at(buffer_v, v, self.len)? }
            }
            (Some(_), CacheKind::Dynamic | CacheKind::Sliding(_)) => {
                let old = self.layer(layer)?;
                let all = View { k: concat(&old.k, k)?, v: concat(&old.v, v)? };
                self.layers[layer] = Some((all.k.clone(), all.v.clone()));
                all
            }
        };
        let last_layer = layer + 1 == self.layers.len();
        if last_layer {
            self.len += k.dim(2)?;
        }
        Ok(all)
        // </solution>
    }
}

/// One sequence's cache, and the tokens whose keys and values are in it: the one owner of the
/// answer to "what does the cache hold?". Generation, chats, drafters and verification all ask it
/// the same question, [`Cached::logits`].
pub struct Cached<'a> {
    /// The model that fills the cache.
    pub model: &'a dyn Model,
    /// Keys and values of `tokens`; with [`candecode::kit::NoCache`], of none.
    pub cache: Box<dyn Cache + 'a>,
    /// The tokens of the last call, whose keys and values the cache has as far as it keeps any.
    pub tokens: Vec<u32>,
    /// Positions that the model has computed so far, over all calls: what they cost.
    pub computed: usize,
}

impl<'a> Cached<'a> {
    /// An empty cache, and nothing in it.
    pub fn new(model: &'a dyn Model, cache: Box<dyn Cache + 'a>) -> Self {
        Self { model, cache, tokens: Vec::new(), computed: 0 }
    }

    /// The logits `(V)` after each of the last `n` of `tokens`, which are a whole sequence from its
    /// position 0 on. The cache keeps the longest common prefix of the last call's tokens and
    /// these, and forgets the rest; the tokens after the prefix are fed, and at least the last `n`.
    ///
    /// A key or value depends on its own token, the tokens before it, and their positions, and on
    /// nothing after it: that is why a common prefix may stay (vLLM: automatic prefix caching).
    ///
    /// (Task 10.13.) A cache that has evicted its first positions cannot go back: it takes tokens
    /// that extend the last call's, by `n` or more, and refuses all else. An error forgets
    /// everything, so that the next call starts from scratch (one that has evicted refuses from
    /// then on).
    ///
    /// # Errors
    /// If `n` is not in 1 to the number of tokens, they do not fit the model, or the model fails.
    pub fn logits(&mut self, tokens: &[u32], n: usize) -> Result<Vec<Vec<f32>>> {
        // task 10.4: keep the common prefix, feed the rest, remember what the cache has now
        // <solution>
        if n == 0 || n > tokens.len() {
            bail!("the logits after the last {n} of {} tokens cannot be had", tokens.len())
        }
        let common = self.tokens.iter().zip(tokens).take_while(|(old, new)| old == new).count();
        let evicted = self.cache.num_evicted().unwrap_or(0);
        let fed = evicted + self.cache.len();
        let keep = common.min(fed).min(tokens.len() - n);
        if keep < fed && evicted > 0 {
            bail!("a cache that has evicted {evicted} positions only takes what extends its tokens")
        }
        // Until the pass has succeeded nothing is known: an error may leave anything in the cache.
        self.tokens.clear();
        if keep < fed {
            self.cache.truncate(keep)?;
        }
        let step = match self.cache.num_evicted() {
            None => Step::new(self.model, &tokens[keep..], keep)?,
            Some(_) => Step::sliding(self.model, tokens, keep)?, // positions may pass the context
        };
        let step = step.with_logits(Logits::Last(n));
        let logits = self.model.forward(&step, &mut *self.cache)?; // (1, n, V)
        self.computed += step.ids.elem_count();
        self.tokens = tokens.to_vec();
        logits.squeeze(0)?.to_vec2()
        // </solution>
    }
}

/// The next token of a sequence: one pass over the tokens that its cache lacks, the choice, and
/// what comes of it.
///
/// # Errors
/// If the model, a processor or the sampler fails.
pub fn next_token(cached: &mut Cached, sequence: &mut Sequence) -> Result<Token> {
    // task 10.5: day 7's next_token, with logits from the cache
    // <solution>
    let tokens = sequence.visible(cached.model)?;
    let logits = cached.logits(tokens, 1)?;
    let (id, logprob) = sequence.choose(&logits[0])?;
    sequence.push(id, logprob)
    // </solution>
}

/// Generates from a prompt: the prompt in one pass, then one position for each token.
///
/// # Errors
/// If the prompt is empty or longer than the context; later, each token may be an error.
pub fn generate_cached<'a>(
    mut cached: Cached<'a>,
    tokenizer: &'a Tokenizer,
    mut request: Request<'a>,
) -> Result<TokenIter<'a>> {
    if cached.cache.num_evicted().is_some() {
        request.past_context = PastContext::Slide;
    }
    request.fit(cached.model)?;
    let mut sequence = Sequence::new(request, tokenizer);
    let rows = usize::from(sequence.remaining() > 0);
    Ok(TokenIter::new(rows, move || Ok(vec![next_token(&mut cached, &mut sequence)?])))
}

// part 2: preallocate, take back, reorder

/// Writes `new`, `(B, Hkv, T, D)`, into `buffer`, `(B, Hkv, capacity, D)`, at position `at`, in
/// place, and gives a view of the positions up to its end, `(B, Hkv, at + T, D)`. So an append of a
/// static cache copies only what is new.
///
/// # Errors
/// If there is no room, or rows, heads or head dimensions differ.
pub fn write_at(buffer: &Tensor, new: &Tensor, at: usize) -> Result<Tensor> {
    // task 10.6: refuse what does not fit, write in place, give a view
    // <solution>
    let capacity = buffer.dim(2)?;
    let end = at + new.dim(2)?;
    if end > capacity {
        bail!("a cache of {capacity} positions has no room for {end}")
    }
    buffer.slice_set(&new.contiguous()?, 2, at)?;
    buffer.narrow(2, 0, end)
    // </solution>
}

/// Puts the rows of `b` below those of `a`, each `(B, Hkv, len, D)`; the shorter of the two is
/// padded with zeros on the left, so that the newest positions of all rows are the last.
///
/// # Errors
/// If heads or head dimensions differ.
pub fn stack_rows(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    // task 10.7 (further): make both equally long, then put one below the other
    // <solution>
    let len = a.dim(2)?.max(b.dim(2)?);
    let pad = |x: &Tensor| x.pad_with_zeros(2, len - x.dim(2)?, 0);
    Tensor::cat(&[pad(a)?, pad(b)?], 0)
    // </solution>
}

impl KvCache {
    /// Replaces every tensor by `change` of it.
    fn replace(&mut self, change: impl Fn(&Tensor) -> Result<Tensor>) -> Result<()> {
        for (k, v) in self.layers.iter_mut().flatten() {
            *k = change(k)?;
            *v = change(v)?;
        }
        Ok(())
    }

    /// A copy that shares no memory with this one.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn try_clone(&self) -> Result<Self> {
        // task 10.8: copy every tensor; Tensor::clone only counts one more reference
        // <solution>
        let mut copy = Self { layers: self.layers.clone(), ..*self };
        copy.replace(|tensor| tensor.force_contiguous())?;
        Ok(copy)
        // </solution>
    }
}

impl Cache for KvCache {
    /// A sliding cache gives all positions back before it evicts: the new tokens attend to them.
    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<View> {
        let all = self.append_layer(layer, k, v)?;
        if layer + 1 == self.layers.len() {
            if let CacheKind::Sliding(window) = self.kind {
                self.slide(window)?;
            }
        }
        Ok(all)
    }

    fn len(&self) -> usize {
        self.len
    }

    fn num_evicted(&self) -> Option<usize> {
        matches!(self.kind, CacheKind::Sliding(_)).then_some(self.num_evicted)
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        // task 10.9: positions beyond len no longer count; evicted ones do not come back
        // <solution>
        if len > self.len {
            bail!("a cache of {} positions cannot be truncated to {len}", self.len)
        }
        if len < self.len && self.num_evicted > 0 {
            bail!("a cache that has evicted {} positions cannot be truncated", self.num_evicted)
        }
        self.len = len;
        Ok(())
        // </solution>
    }
}

impl Batch for KvCache {
    fn layer(&self, layer: usize) -> Result<View> {
        match self.layers.get(layer) {
            Some(Some((k, v))) => {
                Ok(View { k: k.narrow(2, 0, self.len)?, v: v.narrow(2, 0, self.len)? })
            }
            _ => bail!("layer {layer} of the cache is empty"),
        }
    }

    fn select(&mut self, rows: &[u32]) -> Result<()> {
        // task 10.10: new row i is a copy of old row rows[i], in every layer
        // <solution>
        self.replace(|tensor| tensor.index_select(&Tensor::new(rows, tensor.device())?, 0))
        // </solution>
    }

    fn join(&mut self, other: &dyn Batch) -> Result<()> {
        // task 10.11 (further): stack_rows of what counts, in every layer; no sliding cache
        // <solution>
        if self.num_evicted().is_some() || other.num_evicted().is_some() {
            bail!("a sliding cache cannot join another: their rows are not at the same positions")
        }
        let mut layers = Vec::new();
        for layer in 0..self.layers.len() {
            let View { mut k, mut v } = other.layer(layer)?;
            if self.len > 0 {
                let old = self.layer(layer)?;
                k = stack_rows(&old.k, &k)?;
                v = stack_rows(&old.v, &v)?;
            }
            layers.push(Some((self.kind.allocate(&k)?, self.kind.allocate(&v)?)));
        }
        self.layers = layers;
        self.len = self.len.max(other.len());
        Ok(())
        // </solution>
    }

    fn trim(&mut self, front: usize) -> Result<()> {
        // task 10.12 (further): drop the first positions; a static cache keeps its capacity
        // <solution>
        if front > self.len {
            bail!("a cache of {} positions has no {front} to trim", self.len)
        }
        if front > 0 {
            let kind = self.kind;
            let len = self.len - front;
            self.replace(|tensor| kind.allocate(&tensor.narrow(2, front, len)?))?;
            self.len = len;
        }
        Ok(())
        // </solution>
    }
}

impl KvCache {
    /// Evicts what the next token may not see: of a window of `window` positions, itself included,
    /// it leaves at most `window - 1`. `append` calls it after the last layer.
    ///
    /// # Errors
    /// If more than `window` positions were appended at once: the newest must not have seen the
    /// first.
    fn slide(&mut self, window: usize) -> Result<()> {
        // task 10.13 (further): the next token counts itself in the window; count what goes
        // <solution>
        if self.len > window {
            bail!("a sliding cache of {window} positions cannot take {} at once", self.len)
        }
        let front = (self.len + 1).saturating_sub(window);
        self.num_evicted += front;
        self.trim(front)
        // </solution>
    }
}
