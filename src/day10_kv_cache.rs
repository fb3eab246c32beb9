#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 10: the KV cache. The keys and values of earlier tokens don't change, so a cache
//! stores them, and each step computes only the new positions.

use candecode::day07_greedy::Sequence;
use candecode::kit::{Cache, Logits, Model, ModelConfig, PastContext, Request, Step, Token};
use candecode::kit::{TokenIter, Tokenizer, View};
use candle_core::{bail, DType, Result, Tensor};

// part 1: keep and feed

/// Returns the size in bytes of the keys and values of `rows` sequences of `len`
/// positions each.
pub fn cache_bytes(config: &ModelConfig, rows: usize, len: usize, dtype: DType) -> usize {
    // task 10.1: Count the numbers that all layers keep, in bytes
    todo!("day 10, task 1: Count the numbers that all layers keep, in bytes")
}

/// Returns the positions of `old`, `(B, Hkv, S, D)`, followed by those of `new`,
/// `(B, Hkv, T, D)`: `(B, Hkv, S + T, D)`, contiguous, in new memory. `new` can be a
/// transposed view.
///
/// # Errors
/// If any other dimension differs.
pub fn concat(old: &Tensor, new: &Tensor) -> Result<Tensor> {
    // task 10.2: Join the old positions and the new ones
    todo!("day 10, task 2: Join the old positions and the new ones")
}

/// Keys and values of every layer, and the number of valid positions. Most caches in
/// this course are built on it.
///
/// Positions from `len` on are garbage, in every layer. This type isn't `Clone`,
/// because clones would share the buffers that [`KvLayers::write`] writes in place.
#[derive(Debug)]
pub struct KvLayers {
    /// Keys and values of each layer. `None` before its first append. The tensors can be
    /// longer than `len`.
    pub stored: Vec<Option<View>>,
    /// Number of valid positions, the same in every layer.
    pub len: usize,
}

impl KvLayers {
    /// Creates empty layers. Memory is allocated by the first append.
    pub fn new(layers: usize) -> Self {
        Self { stored: vec![None; layers], len: 0 }
    }

    /// Returns a layer's valid positions, `(B, Hkv, len, D)`. None if there are none.
    ///
    /// # Errors
    /// If the layer doesn't exist.
    pub fn held(&self, layer: usize) -> Result<Option<View>> {
        let Some(stored) = self.stored.get(layer) else {
            bail!("layer {layer} of a cache for {} layers", self.stored.len())
        };
        let Some(all) = stored.as_ref().filter(|_| self.len > 0) else { return Ok(None) };
        Ok(Some(View::new(all.k.narrow(2, 0, self.len)?, all.v.narrow(2, 0, self.len)?)))
    }

    /// Appends new positions, `(B, Hkv, T, D)`, to the `len` valid ones of a layer.
    /// Stores the result, contiguous, and returns it: `(B, Hkv, len + T, D)`.
    ///
    /// `len` grows when the last layer has appended, so that all layers of a step
    /// append at the same position.
    ///
    /// # Errors
    /// If the layer doesn't exist, or the shapes don't match what it holds.
    pub fn grow(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<View> {
        let held = self.held(layer)?;
        // task 10.3: Append to the valid positions; advance len after the last layer
        todo!("day 10, task 3: Append to the valid positions; advance len after the last layer")
    }
}

/// A cache that grows by one concatenation per layer and step (`DynamicCache` in
/// transformers).
#[derive(Debug)]
pub struct DynamicCache {
    /// Keys and values.
    pub layers: KvLayers,
}

impl DynamicCache {
    /// Creates an empty cache for a model of `layers` layers.
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

/// The cache of one sequence, together with the tokens that are in it. Because it owns
/// both, it always knows what the cache holds. Generation, chats, drafters and
/// verification all call [`Cached::logits`].
pub struct Cached<'a> {
    /// The model that fills the cache.
    pub model: &'a dyn Model,
    /// Keys and values of `tokens`. A [`candecode::kit::NoCache`] holds none.
    pub cache: Box<dyn Cache + 'a>,
    /// The tokens of the previous call. The cache holds the first `cache.len()` of them.
    pub tokens: Vec<u32>,
    /// Number of positions that the model has computed so far, in all calls.
    pub computed: usize,
}

impl<'a> Cached<'a> {
    /// Creates a `Cached` with an empty cache.
    pub fn new(model: &'a dyn Model, cache: Box<dyn Cache + 'a>) -> Self {
        Self { model, cache, tokens: Vec::new(), computed: 0 }
    }

    /// Returns the step that feeds `ids` at positions `start`, `start + 1`, … Positions
    /// past the context are allowed only with a sliding cache.
    ///
    /// # Errors
    /// If an id or a position doesn't fit the model.
    fn step(&self, ids: &[u32], start: usize) -> Result<Step> {
        match self.cache.num_evicted() {
            None => Step::new(self.model, ids, start),
            Some(_) => Step::sliding(self.model, ids, start),
        }
    }

    /// Returns the logits, `(V)`, after each of the last `n` tokens. `tokens` is the
    /// whole text, from position 0 on.
    ///
    /// Keeps what the cache holds of the longest common prefix with the previous
    /// call's tokens, and forgets everything else. Then feeds the tokens that are missing,
    /// and in any case the last `n`.
    ///
    /// A common prefix can stay because a key depends only on its own token, the tokens
    /// before it, and their positions, never on later tokens (`cache_prompt` in
    /// llama.cpp).
    ///
    /// After an error from the pass, the next call starts from scratch.
    ///
    /// A sliding cache (10.10) that has evicted positions can't go back. Then `tokens`
    /// must begin with all of the previous call's tokens and have at least `n` new ones.
    ///
    /// # Errors
    /// If `n` is 0 or larger than the number of tokens, if the tokens don't fit the
    /// model, or if the model fails.
    pub fn logits(&mut self, tokens: &[u32], n: usize) -> Result<Vec<Vec<f32>>> {
        if n == 0 || n > tokens.len() {
            bail!("asked for {n} logits, but there are {} tokens", tokens.len())
        }
        // task 10.4: Keep the common prefix, feed the rest, and record which tokens are cached
        todo!("day 10, task 4: Keep the common prefix, feed the rest, and record which tokens are cached")
    }
}

/// Runs the model on the tokens that the cache doesn't hold, chooses the next token and
/// appends it.
///
/// # Errors
/// If the model, a processor or the sampler fails.
pub fn next_token(cached: &mut Cached, sequence: &mut Sequence) -> Result<Token> {
    // task 10.5: Write day 7's next_token with logits from the cache
    todo!("day 10, task 5: Write day 7's next_token with logits from the cache")
}

/// Generates from a prompt: the prompt in one pass, then one position for each token.
///
/// # Errors
/// If the prompt is empty or longer than the context. The iterator's items can also be
/// errors.
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

// part 2: take back, preallocate

/// Writes `new`, `(B, Hkv, T, D)`, into `buffer`, `(B, Hkv, capacity, D)`, at position
/// `at`, in place. Returns a view of the positions up to the last one written,
/// `(B, Hkv, at + T, D)`. Only the new positions are copied.
///
/// # Errors
/// If the buffer is too small, or if rows, heads or head dimensions differ.
pub fn write_at(buffer: &Tensor, new: &Tensor, at: usize) -> Result<Tensor> {
    let (capacity, end) = (buffer.dim(2)?, at + new.dim(2)?);
    if end > capacity {
        bail!("a cache of {capacity} positions has no room for {end}")
    }
    // task 10.6 (optional): Write in place, and return a view of everything written so far
    todo!("day 10, task 6: Write in place, and return a view of everything written so far")
}

impl KvLayers {
    /// Returns a layer's buffers, `(B, Hkv, capacity, D)`. If no position is valid, the
    /// buffers are new and full of zeros, with the rows, heads and head dimension of
    /// `new`.
    ///
    /// # Errors
    /// If the layer doesn't exist.
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

    /// Appends new positions, `(B, Hkv, T, D)`, to a layer, in place, in buffers of
    /// `capacity` positions. Returns all valid positions, `(B, Hkv, len + T, D)`. `len`
    /// grows as in [`KvLayers::grow`].
    ///
    /// # Errors
    /// If the layer doesn't exist or is full, or the shapes don't match what it holds.
    pub fn write(&mut self, layer: usize, k: &Tensor, v: &Tensor, capacity: usize) -> Result<View> {
        let buffers = self.buffers(layer, k, capacity)?;
        // task 10.7 (optional): Write keys and values after the valid positions
        todo!("day 10, task 7: Write keys and values after the valid positions")
    }

    /// Forgets all positions from `len` on.
    ///
    /// # Errors
    /// If there are fewer than `len` positions.
    pub fn truncate(&mut self, len: usize) -> Result<()> {
        // task 10.8: Forget the positions from len on
        todo!("day 10, task 8: Forget the positions from len on")
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

/// A cache allocated once, with room for `capacity` positions, and written in place
/// (`StaticCache` in transformers).
#[derive(Debug)]
pub struct StaticCache {
    /// Keys and values. Every stored tensor is a buffer of `capacity` positions.
    pub layers: KvLayers,
    capacity: usize,
}

impl StaticCache {
    /// Creates an empty cache for a model of `layers` layers. Memory is allocated by
    /// the first append.
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

// part 3: a challenge, and sliding windows

/// Picks the cache that should serve a new prompt. `caches` lists the tokens in each
/// cache.
///
/// Returns the index of the cache with which [`Cached::logits`] computes the fewest
/// positions for `tokens` and `n` = 1. Ties go to the cache that forgets the fewest
/// positions, then to the first. None if there are no caches.
pub fn pick_cache(caches: &[&[u32]], tokens: &[u32]) -> Option<usize> {
    // task 10.9 (challenge): Pick the cache that saves the most and loses the least
    todo!("day 10, task 9: Pick the cache that saves the most and loses the least")
}

/// A cache that grows, and evicts positions from the front: a token sees the last
/// `window` positions, itself included (`sliding_window` in transformers).
#[derive(Debug)]
pub struct SlidingCache {
    /// The positions that haven't been evicted.
    pub layers: KvLayers,
    window: usize,
    num_evicted: usize,
}

impl SlidingCache {
    /// Creates an empty cache for a model of `layers` layers.
    pub fn new(layers: usize, window: usize) -> Self {
        Self { layers: KvLayers::new(layers), window, num_evicted: 0 }
    }

    /// Evicts the positions that the next token must not see. At most `window - 1`
    /// stay, because each token is part of its own window. `append` calls this after
    /// the last layer.
    ///
    /// # Errors
    /// If there are more than `window` positions, because the newest token has then
    /// seen too many.
    fn evict(&mut self) -> Result<()> {
        let (window, held) = (self.window, self.layers.len);
        if held > window {
            bail!("a sliding cache of {window} positions cannot take {held} at once")
        }
        // task 10.10 (optional): Drop the positions that the next token must not see; count them
        todo!("day 10, task 10: Drop the positions that the next token must not see; count them")
    }
}

impl Cache for SlidingCache {
    /// Returns the positions as they were before evicting, because the new tokens
    /// attend to them.
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
        // task 10.11 (optional): Refuse to go back once positions were evicted
        todo!("day 10, task 11: Refuse to go back once positions were evicted")
    }

    fn num_evicted(&self) -> Option<usize> {
        Some(self.num_evicted)
    }
}
