//! Day 10: the KV cache. Keys and values of the past do not change, so they are kept, and a step
//! computes only what is new.

use candecode::day07_greedy::Sequence;
use candecode::kit::{Cache, Logits, Model, ModelConfig, PastContext, Request, Step, Token};
use candecode::kit::{TokenIter, Tokenizer, View};
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
/// `(B, Hkv, S + T, D)`, contiguous, in new memory. Every append copies everything held so far.
///
/// # Errors
/// If any other dimension differs.
pub fn concat(old: &Tensor, new: &Tensor) -> Result<Tensor> {
    // task 10.2: the old positions, then the new ones
    // <solution>
    Tensor::cat(&[old, &new.contiguous()?], 2)
    // </solution>
}

/// Keys and values of every layer, and how many of their positions count: the storage shared by
/// every cache in this course.
///
/// Positions from `len` on are garbage, in every layer. It isn't `Clone`, because clones would
/// share the buffers that [`KvLayers::write`] writes in place.
#[derive(Debug)]
pub struct KvLayers {
    /// Keys and values of each layer; None before its first append. A tensor may be longer than
    /// `len`.
    pub stored: Vec<Option<View>>,
    /// The number of positions that count, the same in every layer.
    pub len: usize,
}

impl KvLayers {
    /// Empty layers; memory is taken at the first append.
    pub fn new(layers: usize) -> Self {
        Self { stored: vec![None; layers], len: 0 }
    }

    /// Returns the positions of a layer that count, `(B, Hkv, len, D)`; None if there are none.
    ///
    /// # Errors
    /// If there is no such layer.
    pub fn held(&self, layer: usize) -> Result<Option<View>> {
        let Some(stored) = self.stored.get(layer) else {
            bail!("layer {layer} of a cache for {} layers", self.stored.len())
        };
        let Some(all) = stored.as_ref().filter(|_| self.len > 0) else { return Ok(None) };
        Ok(Some(View::new(all.k.narrow(2, 0, self.len)?, all.v.narrow(2, 0, self.len)?)))
    }

    /// Appends to a layer by [`concat()`]: the `len` positions that count, then the new ones,
    /// `(B, Hkv, T, D)`. Stores the result and returns it, `(B, Hkv, len + T, D)`.
    ///
    /// `len` moves when the last layer has appended, so all layers of a step append at the same
    /// position.
    ///
    /// # Errors
    /// If there is no such layer, or the shapes don't continue what it holds.
    pub fn grow(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<View> {
        let held = self.held(layer)?;
        // task 10.3: append to what counts and store the result; len moves with the last layer
        // <solution>
        let all = match held {
            None => View::new(k.contiguous()?, v.contiguous()?),
            Some(old) => View::new(concat(&old.k, k)?, concat(&old.v, v)?),
        };
        self.stored[layer] = Some(all.clone());
        let last_layer = layer + 1 == self.stored.len();
        if last_layer {
            self.len += k.dim(2)?;
        }
        Ok(all)
        // </solution>
    }
}

/// A cache that grows by one concatenation per layer and step (HF `DynamicCache`).
#[derive(Debug)]
pub struct DynamicCache {
    /// What it holds.
    pub layers: KvLayers,
}

impl DynamicCache {
    /// An empty cache for a model of `layers` layers.
    pub fn new(layers: usize) -> Self {
        Self { layers: KvLayers::new(layers) }
    }
}

impl Cache for DynamicCache {
    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<View> {
        self.layers.grow(layer, k, v)
    }

    fn len(&self) -> usize {
        self.layers.len
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        self.layers.truncate(len)
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
    /// Creates a `Cached` with an empty cache.
    pub fn new(model: &'a dyn Model, cache: Box<dyn Cache + 'a>) -> Self {
        Self { model, cache, tokens: Vec::new(), computed: 0 }
    }

    /// The step that feeds `ids` at positions `start`, `start + 1`, …; only a sliding cache goes
    /// past the context.
    ///
    /// # Errors
    /// If an id or a position does not fit the model.
    fn step(&self, ids: &[u32], start: usize) -> Result<Step> {
        match self.cache.num_evicted() {
            None => Step::new(self.model, ids, start),
            Some(_) => Step::sliding(self.model, ids, start),
        }
    }

    /// The logits `(V)` after each of the last `n` of `tokens`, which are a whole sequence from its
    /// position 0 on. The cache keeps the longest common prefix of the last call's tokens and
    /// these, and forgets the rest; the tokens after the prefix are fed, and at least the last `n`.
    ///
    /// A key or value depends on its own token, the tokens before it, and their positions, and on
    /// nothing after it: that is why a common prefix may stay (vLLM: automatic prefix caching).
    ///
    /// A cache that has evicted positions can't go back: it takes only tokens that extend the last
    /// call's, by `n` or more. After any error from the pass the next call starts from scratch.
    ///
    /// # Errors
    /// If `n` is not in 1 to the number of tokens, they do not fit the model, or the model fails.
    pub fn logits(&mut self, tokens: &[u32], n: usize) -> Result<Vec<Vec<f32>>> {
        if n == 0 || n > tokens.len() {
            bail!("asked for {n} logits, but there are {} tokens", tokens.len())
        }
        // task 10.4: keep the common prefix, feed the rest, remember what the cache has now
        // <solution>
        let common = self.tokens.iter().zip(tokens).take_while(|(old, new)| old == new).count();
        let keep = common.min(self.cache.len()).min(tokens.len() - n);
        if keep < self.cache.len() {
            self.cache.truncate(keep)?;
        }
        self.tokens.clear(); // until the pass has succeeded, the cache may hold anything
        let step = self.step(&tokens[keep..], keep)?.with_logits(Logits::Last(n));
        let logits = self.model.forward(&step, &mut *self.cache)?; // (1, n, V)
        self.computed += tokens.len() - keep;
        self.tokens = tokens.to_vec();
        logits.squeeze(0)?.to_vec2()
        // </solution>
    }
}

/// Runs the model on the tokens the cache lacks, samples the next token and appends it.
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

// part 2: preallocate, take back

/// Writes `new`, `(B, Hkv, T, D)`, into `buffer`, `(B, Hkv, capacity, D)`, at position `at`, in
/// place, and returns a view of the positions up to its end, `(B, Hkv, at + T, D)`. Only the new
/// positions are copied.
///
/// # Errors
/// If there is no room, or rows, heads or head dimensions differ.
pub fn write_at(buffer: &Tensor, new: &Tensor, at: usize) -> Result<Tensor> {
    let (capacity, end) = (buffer.dim(2)?, at + new.dim(2)?);
    if end > capacity {
        bail!("a cache of {capacity} positions has no room for {end}")
    }
    // task 10.6: write in place; return a view of all that was written so far
    // <solution>
    buffer.slice_set(&new.contiguous()?, 2, at)?;
    buffer.narrow(2, 0, end)
    // </solution>
}

impl KvLayers {
    /// Returns a layer's buffers, `(B, Hkv, capacity, D)`. If no position counts, they are new and
    /// full of zeros, with the rows, heads and head dimension of `new`.
    ///
    /// # Errors
    /// If there is no such layer.
    fn buffers(&mut self, layer: usize, new: &Tensor, capacity: usize) -> Result<View> {
        if self.held(layer)?.is_none() {
            let (rows, heads, _, width) = new.dims4()?;
            let shape = (rows, heads, capacity, width);
            let zeros = || Tensor::zeros(shape, new.dtype(), new.device());
            self.stored[layer] = Some(View::new(zeros()?, zeros()?));
        }
        match &self.stored[layer] {
            Some(buffers) => Ok(buffers.clone()),
            None => bail!("layer {layer} of the cache is empty"),
        }
    }

    /// Appends to a layer by [`write_at`], in buffers of `capacity` positions, and returns all
    /// positions that count then, `(B, Hkv, len + T, D)`. `len` moves as in [`KvLayers::grow`].
    ///
    /// # Errors
    /// If there is no such layer, no room, or the shapes don't continue what it holds.
    pub fn write(&mut self, layer: usize, k: &Tensor, v: &Tensor, capacity: usize) -> Result<View> {
        let buffers = self.buffers(layer, k, capacity)?;
        // task 10.7: write keys and values after the positions that count
        // <solution>
        let new = k.dim(2)?;
        let k = write_at(&buffers.k, k, self.len)?;
        let v = write_at(&buffers.v, v, self.len)?;
        let last_layer = layer + 1 == self.stored.len();
        if last_layer {
            self.len += new;
        }
        Ok(View::new(k, v))
        // </solution>
    }

    /// Forgets all positions from `len` on.
    ///
    /// # Errors
    /// If fewer are held.
    pub fn truncate(&mut self, len: usize) -> Result<()> {
        // task 10.8: positions from len on no longer count
        // <solution>
        if len > self.len {
            bail!("a cache of {} positions cannot be truncated to {len}", self.len)
        }
        self.len = len;
        Ok(())
        // </solution>
    }

    /// Applies `change` to every stored tensor.
    ///
    /// # Errors
    /// If `change` fails.
    pub fn replace(&mut self, change: impl Fn(&Tensor) -> Result<Tensor>) -> Result<()> {
        for view in self.stored.iter_mut().flatten() {
            view.k = change(&view.k)?;
            view.v = change(&view.v)?;
        }
        Ok(())
    }
}

/// A cache allocated once, for `capacity` positions, and written in place (HF `StaticCache`).
#[derive(Debug)]
pub struct StaticCache {
    /// What it holds; every stored tensor is a buffer of `capacity` positions.
    pub layers: KvLayers,
    capacity: usize,
}

impl StaticCache {
    /// An empty cache for a model of `layers` layers; memory is taken at the first append.
    pub fn new(layers: usize, capacity: usize) -> Self {
        Self { layers: KvLayers::new(layers), capacity }
    }
}

impl Cache for StaticCache {
    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<View> {
        self.layers.write(layer, k, v, self.capacity)
    }

    fn len(&self) -> usize {
        self.layers.len
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        self.layers.truncate(len)
    }
}

// part 3: sliding windows, after the end

/// A cache that grows, and evicts positions from the front: a token sees the last `window`
/// positions, itself included (HF `sliding_window`).
#[derive(Debug)]
pub struct SlidingCache {
    /// The positions that it still holds.
    pub layers: KvLayers,
    window: usize,
    num_evicted: usize,
}

impl SlidingCache {
    /// An empty cache for a model of `layers` layers.
    pub fn new(layers: usize, window: usize) -> Self {
        Self { layers: KvLayers::new(layers), window, num_evicted: 0 }
    }

    /// Evicts positions the next token must not see, keeping at most `window - 1`, because a token
    /// counts as part of its own window. `append` calls it after the last layer.
    ///
    /// # Errors
    /// If more than `window` positions are held: the newest must not have seen the first.
    fn evict(&mut self) -> Result<()> {
        let (window, held) = (self.window, self.layers.len);
        if held > window {
            bail!("a sliding cache of {window} positions cannot take {held} at once")
        }
        // task 10.9 (further): drop from the front what the next token must not see, and count it
        // <solution>
        let front = (held + 1).saturating_sub(window);
        if front > 0 {
            self.layers.replace(|x| x.narrow(2, front, held - front)?.force_contiguous())?;
            self.layers.len -= front;
            self.num_evicted += front;
        }
        Ok(())
        // </solution>
    }
}

impl Cache for SlidingCache {
    /// Returns all positions before it evicts any, because the new tokens attend to them.
    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<View> {
        let all = self.layers.grow(layer, k, v)?;
        if layer + 1 == self.layers.stored.len() {
            self.evict()?;
        }
        Ok(all)
    }

    fn len(&self) -> usize {
        self.num_evicted + self.layers.len
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        // task 10.10 (further): what was evicted doesn't come back
        // <solution>
        if len == self.len() {
            return Ok(());
        }
        if self.num_evicted > 0 {
            bail!("a cache that has evicted {} positions cannot go back to {len}", self.num_evicted)
        }
        self.layers.truncate(len)
        // </solution>
    }

    fn num_evicted(&self) -> Option<usize> {
        Some(self.num_evicted)
    }
}
