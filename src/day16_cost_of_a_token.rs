#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 16: the cost of a token. Which bytes a pass moves and which operations it does, how long
//! that takes at least, and what somebody who waits for the text feels of it.
//!
//! Everything here is arithmetic on a configuration: no tensor, no weights, no clock. Counts are
//! f64, which is exact up to 2⁵³ and never overflows.

use candecode::kit::{Family, ModelConfig};
use candle_core::{bail, DType, Result};

/// One forward pass by its sizes: what a `Step` looks like from a distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// Sequences side by side: B in shapes.
    pub rows: usize,
    /// New tokens of each row: T. All of the prompt in prefill, 1 in decoding.
    pub new: usize,
    /// Positions of each row that the KV cache holds already: S.
    pub past: usize,
    /// How many of the new positions of each row get logits.
    pub logits: usize,
}

impl Pass {
    /// The pass over a prompt: `prompt` new tokens a row, logits for the last of them.
    pub fn prefill(rows: usize, prompt: usize) -> Self {
        Self { rows, new: prompt, past: 0, logits: 1 }
    }

    /// The pass that decodes one more token of every row, after `past` cached positions.
    pub fn decode(rows: usize, past: usize) -> Self {
        Self { rows, new: 1, past, logits: 1 }
    }
}

/// Bytes that one number takes in memory. A quantised weight may take a fraction: 4.5 bits in
/// llama.cpp's Q4_0, which is 0.5625 bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Precision {
    /// Bytes of a weight.
    pub weight_bytes: f64,
    /// Bytes of a number in the KV cache.
    pub cache_bytes: f64,
}

impl Precision {
    /// Weights of one type and a cache of another, as a model with `--dtype bf16` on the CPU has.
    pub fn new(weights: DType, cache: DType) -> Self {
        Self {
            weight_bytes: weights.size_in_bytes() as f64,
            cache_bytes: cache.size_in_bytes() as f64,
        }
    }
}

/// Bytes of a logit: logits are f32, whatever the weights are.
pub const LOGIT_BYTES: f64 = 4.0;

/// Bytes that a pass moves between memory and processor, by what they are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BytesMoved {
    /// Weights of the matrices.
    pub weights: f64,
    /// Keys and values.
    pub cache: f64,
    /// Logits.
    pub logits: f64,
}

impl BytesMoved {
    /// All of them.
    pub fn total(&self) -> f64 {
        self.weights + self.cache + self.logits
    }
}

/// Floating-point operations of a pass, by what they are for. A multiplication and the addition of
/// its result are two.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Operations {
    /// Products with the weights, the LM head's among them.
    pub weights: f64,
    /// Queries with keys, and probabilities with values.
    pub attention: f64,
}

impl Operations {
    /// All of them.
    pub fn total(&self) -> f64 {
        self.weights + self.attention
    }
}

// part 1: what a pass costs

/// How many weights the matrices of one layer have: q, k, v and output projection, and the MLP's
/// three (Llama, Qwen) or two (GPT-2). Norms and biases are left out: they are vectors.
pub fn layer_weights(config: &ModelConfig) -> f64 {
    // task 16.1: the weights of all matrices of one layer
    todo!("day 16, task 1: the weights of all matrices of one layer")
}

/// How many weights a pass reads: those of all layers, and those of the LM head, `(V, C)`.
///
/// Of the embedding table a pass looks up a few rows, which do not count. But where the table is
/// tied it is the LM head, too.
pub fn weights_read(config: &ModelConfig) -> f64 {
    // task 16.2: all layers and the head; mind the embedding table
    todo!("day 16, task 2: all layers and the head; mind the embedding table")
}

/// The bytes that a pass moves: every weight once, whatever the number of rows and tokens; every
/// key and value that is attended to once a row, those of the new tokens among them; and the
/// logits once.
///
/// What else a pass touches (activations, norms, the rows of the embedding table) stays in the
/// processor's caches, and is left out.
pub fn bytes_moved(config: &ModelConfig, pass: &Pass, precision: &Precision) -> BytesMoved {
    // task 16.3: the bytes of weights, keys and values, and logits
    todo!("day 16, task 3: the bytes of weights, keys and values, and logits")
}

/// The operations that a pass does. Every new token is multiplied with every weight of the layers,
/// and every position that gets logits with those of the LM head. In each layer and query head,
/// every new token's query meets all keys up to its own, and as many values are added up: D
/// multiplications and D additions for each of the two.
///
/// Norms, softmax, RoPE and the like are left out: they grow with C, and products with C².
pub fn operations(config: &ModelConfig, pass: &Pass) -> Operations {
    // task 16.4: two operations for a weight and a token, and those of attention
    todo!("day 16, task 4: two operations for a weight and a token, and those of attention")
}

/// Arithmetic intensity: operations for each byte that is moved (Williams, Waterman and Patterson
/// 2009, *Roofline*).
pub fn intensity(bytes: f64, operations: f64) -> f64 {
    // task 16.5: operations a byte
    todo!("day 16, task 5: operations a byte")
}

/// A machine as the roofline sees it: two numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Bytes that memory gives in a second.
    pub bandwidth: f64,
    /// Floating-point operations that the processor does in a second, at most.
    pub peak: f64,
}

/// What a pass waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Bytes.
    Memory,
    /// Operations.
    Compute,
}

/// How long a pass takes at least, and what it waits for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// Seconds.
    pub seconds: f64,
    /// What takes so long.
    pub bound: Bound,
}

impl Machine {
    /// The roofline: operations that the machine does in a second, at most, for a program of this
    /// intensity. It rises with the intensity as far as the peak.
    pub fn attainable(&self, intensity: f64) -> f64 {
        // task 16.6: what memory feeds, but never more than the peak
        todo!("day 16, task 6: what memory feeds, but never more than the peak")
    }

    /// The time of a pass: that of its bytes or that of its operations, whichever is longer, for
    /// the two go on side by side. It is bound by memory if the bytes take longer than the
    /// operations.
    pub fn predict(&self, bytes: f64, operations: f64) -> Prediction {
        // task 16.7: the longer of two times, and which it is
        todo!("day 16, task 7: the longer of two times, and which it is")
    }

    /// The time of a pass of a model: that of the products with the weights plus that of attention.
    /// The two run one after the other, and each waits for memory or for the processor by itself.
    /// The bound is that of the longer one.
    pub fn predict_pass(
        &self,
        config: &ModelConfig,
        pass: &Pass,
        precision: &Precision,
    ) -> Prediction {
        let bytes = bytes_moved(config, pass, precision);
        let operations = operations(config, pass);
        let products = self.predict(bytes.weights + bytes.logits, operations.weights);
        let attention = self.predict(bytes.cache, operations.attention);
        let longer = if products.seconds < attention.seconds { attention } else { products };
        Prediction { seconds: products.seconds + attention.seconds, bound: longer.bound }
    }
}

/// How many rows of `length` positions have room for their keys and values in `memory` bytes, next
/// to the weights: those of all matrices, the embedding table among them even if it isn't tied.
pub fn rows_that_fit(
    config: &ModelConfig,
    length: usize,
    precision: &Precision,
    memory: f64,
) -> usize {
    let table = config.vocab_size as f64 * config.hidden_size as f64;
    let untied = if config.tie_word_embeddings { 0.0 } else { table };
    let weights = (weights_read(config) + untied) * precision.weight_bytes;
    let row = bytes_moved(config, &Pass::decode(1, length.saturating_sub(1)), precision).cache;
    ((memory - weights) / row).max(0.0) as usize
}

/// The smallest batch at which the products with the weights are bound by operations and no longer
/// by memory, in a decoding step. How long the rows are doesn't matter: the products don't read the
/// cache. None if memory stays the bound however many rows there are, because a row's logits take
/// longer to move than its products to compute.
pub fn critical_batch(
    config: &ModelConfig,
    precision: &Precision,
    machine: &Machine,
) -> Option<usize> {
    // task 16.8: where the two times meet, as a function of the number of rows
    todo!("day 16, task 8: where the two times meet, as a function of the number of rows")
}

// part 2: what somebody waits for

/// Tokens a second, of all rows together, in one decoding step after `past` cached positions.
pub fn decode_rate(
    config: &ModelConfig,
    rows: usize,
    past: usize,
    precision: &Precision,
    machine: &Machine,
) -> f64 {
    // task 16.9: one token a row, in the time of the pass
    todo!("day 16, task 9: one token a row, in the time of the pass")
}

/// What somebody who waits for a text feels, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency {
    /// Time to first token: from the request to its first token.
    pub ttft: f64,
    /// Time per output token: the mean time between two tokens after that. None if there is only
    /// one token.
    pub tpot: Option<f64>,
}

/// What a request will take that has the machine for itself: `prompt` tokens in, `new` tokens out,
/// with a KV cache. The first token comes out of the prefill. Every other one takes a decoding
/// step, which feeds the token before it.
///
/// # Errors
/// If there is no prompt, or no token is asked for.
pub fn predict_latency(
    config: &ModelConfig,
    prompt: usize,
    new: usize,
    precision: &Precision,
    machine: &Machine,
) -> Result<Latency> {
    // task 16.10: the prefill, and the mean of the decoding steps
    todo!("day 16, task 10: the prefill, and the mean of the decoding steps")
}

/// What it costs to verify `drafts` drafted tokens (day 13), in decoding steps: the time of the
/// pass that verifies over that of the pass that decodes one token, both of one row after `past`
/// cached positions.
pub fn verification_cost(
    config: &ModelConfig,
    past: usize,
    drafts: usize,
    precision: &Precision,
    machine: &Machine,
) -> f64 {
    // task 16.11: how many tokens are fed, how many get logits?
    todo!("day 16, task 11: how many tokens are fed, how many get logits?")
}

/// The number of drafted tokens, 0 to `most`, that gives the most tokens a second, if each draft is
/// accepted with probability `acceptance` whatever the others are, and drafting itself takes no
/// time. A pass that verifies K drafts then gives 1 + a + a² + … + aᴷ tokens on average (Leviathan
/// et al. 2023, equation 1). Of equal ones the smallest counts.
///
/// # Errors
/// If `acceptance` is no probability.
pub fn best_draft_length(
    config: &ModelConfig,
    past: usize,
    acceptance: f64,
    most: usize,
    precision: &Precision,
    machine: &Machine,
) -> Result<usize> {
    // task 16.12 (further): tokens a pass over cost of a pass, the best of all K
    todo!("day 16, task 12: tokens a pass over cost of a pass, the best of all K")
}

/// A request as a clock saw it: all times in seconds, of one clock.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestTrace {
    /// When the request was sent.
    pub sent: f64,
    /// When each of its tokens came, in order.
    pub tokens: Vec<f64>,
}

impl RequestTrace {
    /// Time to first token and time per output token, as vLLM's benchmark counts them: the second
    /// is the time from the first token to the last, over the tokens after the first.
    ///
    /// # Errors
    /// If no token came.
    pub fn latency(&self) -> Result<Latency> {
        // task 16.13: differences of times; how many gaps have n tokens?
        todo!("day 16, task 13: differences of times; how many gaps have n tokens?")
    }
}

/// The `percent`-th percentile of `values`, which are in any order: so many percent of them are not
/// larger. Between two values it is interpolated linearly (numpy's `percentile` with its default
/// method).
///
/// # Errors
/// If there are no values, one of them is not a finite number, or `percent` is not between 0 and
/// 100.
pub fn percentile(values: &[f64], percent: f64) -> Result<f64> {
    // task 16.14: sort; find the place, which may lie between two values
    todo!("day 16, task 14: sort; find the place, which may lie between two values")
}

/// Three percentiles of one quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percentiles {
    /// The median.
    pub p50: f64,
    /// Nine of ten are not larger.
    pub p90: f64,
    /// 99 of 100 are not larger.
    pub p99: f64,
}

/// What a service says of itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Of the times to first token, in seconds.
    pub ttft: Percentiles,
    /// Of the times per output token, in seconds; None if no request had two tokens.
    pub tpot: Option<Percentiles>,
    /// All tokens of all requests, over the time from the first request to the last token.
    pub tokens_per_second: f64,
}

/// What many requests felt. A request of one token has no time per output token, and is left out of
/// those percentiles; it still counts for the others.
///
/// # Errors
/// If there are no requests, or one of them got no token.
pub fn summarize(traces: &[RequestTrace]) -> Result<Summary> {
    // task 16.15: percentiles of both times, and tokens a second of all together
    todo!("day 16, task 15: percentiles of both times, and tokens a second of all together")
}

/// The three percentiles that a [`Summary`] has.
///
/// # Errors
/// As [`percentile`].
pub fn three_percentiles(values: &[f64]) -> Result<Percentiles> {
    Ok(Percentiles {
        p50: percentile(values, 50.0)?,
        p90: percentile(values, 90.0)?,
        p99: percentile(values, 99.0)?,
    })
}
