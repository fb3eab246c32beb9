//! Day 16: the cost of a token. The bytes a pass moves, the operations it performs, how long that
//! takes at least on a given machine, and how many sequences fit in its memory.
//!
//! Everything here is arithmetic on a configuration: no tensors, no weights, no clock. Counts are
//! f64, which is exact up to 2⁵³ and never overflows.

use candecode::kit::{Family, ModelConfig};
use candle_core::{bail, DType, Result};

/// The sizes of a forward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// Sequences in the batch: B in shapes.
    pub rows: usize,
    /// New tokens per row: T. The whole prompt in prefill, 1 in decoding.
    pub new: usize,
    /// Positions per row that are already in the KV cache: S.
    pub past: usize,
    /// New positions per row that get logits.
    pub logits: usize,
}

impl Pass {
    /// A prefill: `prompt` new tokens per row, with logits for the last one.
    pub fn prefill(rows: usize, prompt: usize) -> Self {
        Self { rows, new: prompt, past: 0, logits: 1 }
    }

    /// A decode step: one new token per row after `past` cached positions.
    pub fn decode(rows: usize, past: usize) -> Self {
        Self { rows, new: 1, past, logits: 1 }
    }
}

/// Bytes per number. Quantized weights can take a fraction of a byte:
/// llama.cpp's Q4_0 stores a weight in 4.5 bits, which is 0.5625 bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Precision {
    /// Bytes per weight.
    pub weight_bytes: f64,
    /// Bytes per number in the KV cache.
    pub cache_bytes: f64,
}

impl Precision {
    /// Takes the widths of two types. They can differ: with `--dtype bf16` on the
    /// CPU the weights are bf16 and the cache is f32.
    pub fn new(weights: DType, cache: DType) -> Self {
        Self {
            weight_bytes: weights.size_in_bytes() as f64,
            cache_bytes: cache.size_in_bytes() as f64,
        }
    }
}

/// Bytes per logit. Logits are f32 regardless of the weights' type.
pub const LOGIT_BYTES: f64 = 4.0;

/// Bytes a pass moves between memory and processor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BytesMoved {
    /// The matrices' weights.
    pub weights: f64,
    /// Keys and values.
    pub cache: f64,
    /// Logits.
    pub logits: f64,
}

impl BytesMoved {
    /// Returns the sum.
    pub fn total(&self) -> f64 {
        self.weights + self.cache + self.logits
    }
}

/// Floating-point operations of a pass. A multiply-add counts as two.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Operations {
    /// Matmuls with the weights, including the LM head's.
    pub weights: f64,
    /// Queries with keys, and probabilities with values.
    pub attention: f64,
}

impl Operations {
    /// Returns the sum.
    pub fn total(&self) -> f64 {
        self.weights + self.attention
    }
}

// part 1: what a pass costs

/// Returns the number of weights in the matrices of one layer: those of attention
/// and those of the MLP, which GPT-2 builds differently from Llama and Qwen. Norms
/// and biases aren't counted, because they are only vectors.
pub fn layer_weights(config: &ModelConfig) -> f64 {
    // task 16.1: Count the weights in the matrices of one layer
    // <solution>
    let hidden = config.hidden_size as f64;
    let queries = (config.num_attention_heads * config.head_dim) as f64;
    let keys = (config.num_key_value_heads * config.head_dim) as f64;
    let attention = hidden * queries + 2.0 * hidden * keys + queries * hidden; // q, k and v, output
    let mlp_matrices = match config.family {
        Family::Gpt2 => 2.0,
        Family::Llama | Family::Qwen2 | Family::Qwen3 => 3.0,
    };
    attention + mlp_matrices * hidden * config.intermediate_size as f64
    // </solution>
}

/// Returns the number of weights a pass reads from memory.
///
/// These are the matrices of all layers, and every table that is multiplied as
/// a whole. A few rows that are looked up in a table don't count.
pub fn weights_read(config: &ModelConfig) -> f64 {
    // task 16.2: Count the weights that a pass reads
    // <solution>
    let head = config.vocab_size as f64 * config.hidden_size as f64;
    config.num_hidden_layers as f64 * layer_weights(config) + head
    // </solution>
}

/// Returns the bytes a pass moves: the weights it reads, the keys and values of
/// every position that a row's new tokens attend to (read once per row), and
/// the logits.
///
/// Activations, norms and rows of the embedding table aren't counted. They are
/// few, and mostly stay in the processor's caches.
pub fn bytes_moved(config: &ModelConfig, pass: &Pass, precision: &Precision) -> BytesMoved {
    // task 16.3: Compute the bytes of the weights, of the keys and values, and of the logits
    // <solution>
    let numbers_per_position =
        2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim;
    let positions = pass.rows as f64 * (pass.past + pass.new) as f64;
    let logits = pass.rows as f64 * pass.logits as f64 * config.vocab_size as f64;
    BytesMoved {
        weights: weights_read(config) * precision.weight_bytes,
        cache: positions * numbers_per_position as f64 * precision.cache_bytes,
        logits: logits * LOGIT_BYTES,
    }
    // </solution>
}

/// Returns the operations of a pass: those of the matmuls with the weights, and
/// those of attention. A new token attends to all cached keys, and to the new ones
/// up to its own. Only positions that get logits go through the LM head.
///
/// Norms and RoPE aren't counted: they grow with C, and the matmuls with C².
/// Softmax isn't, either: it takes a few operations per score, where attention's
/// dot products take 4 · D.
pub fn operations(config: &ModelConfig, pass: &Pass) -> Operations {
    // task 16.4: Count the operations of the matmuls with the weights, and of attention
    // <solution>
    let rows = pass.rows as f64;
    let new = pass.new as f64;
    let past = pass.past as f64;

    let layers = config.num_hidden_layers as f64;
    let head = config.vocab_size as f64 * config.hidden_size as f64;
    let in_layers = layers * layer_weights(config) * rows * new;
    let in_head = head * rows * pass.logits as f64;

    // The first new token sees `past` keys and its own, the next one key more, and so on.
    let pairs = new * past + new * (new + 1.0) / 2.0;
    let queries = (config.num_attention_heads * config.head_dim) as f64;
    let scores_and_values = 2.0;
    Operations {
        weights: 2.0 * (in_layers + in_head),
        attention: 2.0 * scores_and_values * layers * rows * pairs * queries,
    }
    // </solution>
}

/// Returns the arithmetic intensity: operations per byte moved (Williams,
/// Waterman and Patterson 2009, *Roofline*).
pub fn intensity(bytes: f64, operations: f64) -> f64 {
    operations / bytes
}

/// A machine, described by two numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Bytes per second that memory delivers.
    pub bandwidth: f64,
    /// Floating-point operations per second that the processor can do at most.
    pub peak: f64,
}

/// The resource that limits a stage of a pass, or the whole pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Moving the bytes takes longer.
    Memory,
    /// Computing takes at least as long.
    Compute,
}

/// A lower bound on the time, and what sets it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// Seconds.
    pub seconds: f64,
    /// The resource that sets it.
    pub bound: Bound,
}

impl Machine {
    /// Returns the roofline's height: the most operations per second that a program
    /// of this intensity can reach. It rises with the intensity until it meets the
    /// peak.
    pub fn attainable(&self, intensity: f64) -> f64 {
        (self.bandwidth * intensity).min(self.peak)
    }

    /// Predicts the time of one stage of a pass, which moves `bytes` and computes
    /// `operations`. Moving and computing overlap, so the longer of the two counts.
    pub fn predict(&self, bytes: f64, operations: f64) -> Prediction {
        let moving = bytes / self.bandwidth;
        let computing = operations / self.peak;
        if moving > computing {
            Prediction { seconds: moving, bound: Bound::Memory }
        } else {
            Prediction { seconds: computing, bound: Bound::Compute }
        }
    }

    /// Predicts the time of a model's pass, from its two stages: the matmuls with the
    /// weights, and attention. Every byte of [`bytes_moved`], and every one of the
    /// [`operations`], belongs to one of the two. Within a stage, moving and computing
    /// overlap. The bound is that of the stage that takes longer, or of the matmuls
    /// if both take the same time.
    pub fn predict_pass(
        &self,
        config: &ModelConfig,
        pass: &Pass,
        precision: &Precision,
    ) -> Prediction {
        // task 16.5: Predict the time of a pass from its matmuls and its attention
        // <solution>
        let bytes = bytes_moved(config, pass, precision);
        let operations = operations(config, pass);
        let products = self.predict(bytes.weights + bytes.logits, operations.weights);
        let attention = self.predict(bytes.cache, operations.attention);
        let longer = if products.seconds < attention.seconds { attention } else { products };
        Prediction { seconds: products.seconds + attention.seconds, bound: longer.bound }
        // </solution>
    }
}

// part 2: what a draft and a batch cost

/// Returns the cost of verifying `drafts` drafted tokens (day 13), in decode
/// steps: the time of the verifying pass divided by the time of a pass that
/// decodes one token. Both run one row after `past` cached positions.
pub fn verification_cost(
    config: &ModelConfig,
    past: usize,
    drafts: usize,
    precision: &Precision,
    machine: &Machine,
) -> f64 {
    // task 16.6: Compare the time of a verifying pass with the time of a decode step
    // <solution>
    let fed = drafts + 1; // the last token of the text has not been fed yet
    let verify = Pass { rows: 1, new: fed, past, logits: fed };
    let decode = Pass::decode(1, past);
    let seconds = |pass| machine.predict_pass(config, pass, precision).seconds;
    seconds(&verify) / seconds(&decode)
    // </solution>
}

/// Returns the tokens per second, summed over all rows, of one decode step
/// after `past` cached positions.
pub fn decode_rate(
    config: &ModelConfig,
    rows: usize,
    past: usize,
    precision: &Precision,
    machine: &Machine,
) -> f64 {
    rows as f64 / machine.predict_pass(config, &Pass::decode(rows, past), precision).seconds
}

/// Returns the critical batch: the smallest number of rows at which a decode
/// step's matmuls with the weights are compute-bound. Attention has no part in
/// it.
///
/// Returns None if the matmuls are memory-bound at any number of rows.
pub fn critical_batch(
    config: &ModelConfig,
    precision: &Precision,
    machine: &Machine,
) -> Option<usize> {
    // task 16.7: Find the smallest batch that makes the matmuls compute-bound
    // <solution>
    let one_row = Pass::decode(1, 0);
    let bytes = bytes_moved(config, &one_row, precision);
    let shared = bytes.weights / machine.bandwidth; // seconds for all rows together
    let moving_a_row = bytes.logits / machine.bandwidth;
    let computing_a_row = operations(config, &one_row).weights / machine.peak;
    // rows · computing ≥ shared + rows · moving
    let gained_a_row = computing_a_row - moving_a_row;
    if gained_a_row <= 0.0 {
        return None;
    }
    Some((shared / gained_a_row).ceil() as usize)
    // </solution>
}

/// Returns the number of rows that fit in `memory` bytes with their keys and
/// values, next to the weights of all matrices. Every row has `length`
/// positions.
///
/// The embedding table has to be in memory as well, even though a pass doesn't
/// read all of it. Returns 0 if the weights leave no room for a row.
pub fn rows_that_fit(
    config: &ModelConfig,
    length: usize,
    precision: &Precision,
    memory: f64,
) -> usize {
    // task 16.8: Count the rows that fit in memory next to the weights
    // <solution>
    let table = config.vocab_size as f64 * config.hidden_size as f64;
    let lookup_only = if config.tie_word_embeddings { 0.0 } else { table };
    let weights = (weights_read(config) + lookup_only) * precision.weight_bytes;
    let row = bytes_moved(config, &Pass::prefill(1, length), precision).cache;
    let rows = (memory - weights) / row;
    rows.max(0.0) as usize
    // </solution>
}

/// Returns the largest number of rows that a service can run at once: the rows
/// fit in `memory` bytes next to the weights, and their decode step takes at
/// most `seconds`. Every row has `length` positions, at least 1, including the
/// token that the step feeds.
///
/// Returns 0 if not even one row fits, or a step of one row takes too long.
pub fn largest_batch(
    config: &ModelConfig,
    length: usize,
    precision: &Precision,
    machine: &Machine,
    memory: f64,
    seconds: f64,
) -> usize {
    // task 16.9 (challenge): Find the largest batch that fits in memory and is fast enough
    // <solution>
    let is_fast_enough = |rows: usize| {
        let pass = Pass::decode(rows, length - 1);
        machine.predict_pass(config, &pass, precision).seconds <= seconds
    };
    let mut enough = 0; // largest batch known to be fast enough
    let mut too_many = rows_that_fit(config, length, precision, memory) + 1;
    while too_many - enough > 1 {
        let middle = enough + (too_many - enough) / 2;
        if is_fast_enough(middle) {
            enough = middle;
        } else {
            too_many = middle;
        }
    }
    enough
    // </solution>
}

// part 3: what a user feels, after the end

/// The latency of a request, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency {
    /// Time to first token: from the request to its first token.
    pub ttft: f64,
    /// Time per output token: the mean time between two tokens after that. None if
    /// there is only one token.
    pub tpot: Option<f64>,
}

/// Predicts the latency of a request that has the machine to itself: `prompt`
/// tokens in, `new` tokens out, with a KV cache.
///
/// # Errors
/// If the prompt is empty or no token is requested.
pub fn predict_latency(
    config: &ModelConfig,
    prompt: usize,
    new: usize,
    precision: &Precision,
    machine: &Machine,
) -> Result<Latency> {
    // task 16.10 (optional): Predict the time to first token and the time per output token
    // <solution>
    if prompt == 0 || new == 0 {
        bail!("a prompt of {prompt} tokens and {new} new ones: both must be at least 1")
    }
    let ttft = machine.predict_pass(config, &Pass::prefill(1, prompt), precision).seconds;
    let steps = new - 1;
    if steps == 0 {
        return Ok(Latency { ttft, tpot: None });
    }
    let mut total = 0.0;
    for step in 0..steps {
        let pass = Pass::decode(1, prompt + step);
        total += machine.predict_pass(config, &pass, precision).seconds;
    }
    Ok(Latency { ttft, tpot: Some(total / steps as f64) })
    // </solution>
}

/// Returns the number of drafted tokens, 0 to `most`, with the highest decoding
/// speed, assuming that each draft is accepted with probability `acceptance`
/// independently of the others and that drafting takes no time. A pass that
/// verifies K drafts then yields 1 + a + a² + … + aᴷ tokens on average
/// (Leviathan et al. 2023, equation 1). Ties go to the smallest number.
///
/// # Errors
/// If `acceptance` isn't between 0 and 1.
pub fn best_draft_length(
    config: &ModelConfig,
    past: usize,
    acceptance: f64,
    most: usize,
    precision: &Precision,
    machine: &Machine,
) -> Result<usize> {
    // task 16.11 (optional): Find the draft length that yields the most tokens per second
    // <solution>
    if !(0.0..=1.0).contains(&acceptance) {
        bail!("an acceptance of {acceptance}: it must be between 0 and 1")
    }
    let mut best = 0;
    let mut best_gain = 1.0;
    let mut tokens = 1.0;
    let mut all_accepted = 1.0;
    for drafts in 1..=most {
        all_accepted *= acceptance;
        tokens += all_accepted;
        let gain = tokens / verification_cost(config, past, drafts, precision, machine);
        if gain > best_gain {
            best = drafts;
            best_gain = gain;
        }
    }
    Ok(best)
    // </solution>
}

/// The measured times of a request, in seconds on one clock.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestTrace {
    /// When the request was sent.
    pub sent: f64,
    /// When each token arrived, in order.
    pub tokens: Vec<f64>,
}

impl RequestTrace {
    /// Returns the latency as vLLM's benchmark defines it: the time per output
    /// token is the time from the first token to the last, divided by the number of
    /// tokens after the first.
    ///
    /// # Errors
    /// If no token arrived.
    pub fn latency(&self) -> Result<Latency> {
        let (Some(first), Some(last)) = (self.tokens.first(), self.tokens.last()) else {
            bail!("the request sent at {} s got no tokens", self.sent)
        };
        let gaps = self.tokens.len() - 1;
        let tpot = if gaps > 0 { Some((last - first) / gaps as f64) } else { None };
        Ok(Latency { ttft: first - self.sent, tpot })
    }
}

/// Returns the `percent`-th percentile of `values`, in any order: the value
/// that `percent` percent of them don't exceed. Between two values it
/// interpolates linearly, like numpy's `percentile` with its default method.
///
/// # Errors
/// If there are no values, one of them isn't finite, or `percent` isn't between
/// 0 and 100.
pub fn percentile(values: &[f64], percent: f64) -> Result<f64> {
    if !(0.0..=100.0).contains(&percent) {
        bail!("a percentile of {percent}: it must be between 0 and 100")
    }
    if values.is_empty() || !values.iter().all(|value| value.is_finite()) {
        bail!("a percentile needs at least one value, and only finite ones, but got {values:?}")
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = percent / 100.0 * (sorted.len() - 1) as f64;
    let below = place.floor() as usize;
    let above = place.ceil() as usize;
    let share = place - place.floor();
    Ok(sorted[below] + share * (sorted[above] - sorted[below]))
}

/// Three percentiles of one quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percentiles {
    /// The median.
    pub p50: f64,
    /// Not exceeded by nine in ten.
    pub p90: f64,
    /// Not exceeded by 99 in 100.
    pub p99: f64,
}

/// Returns the 50th, 90th and 99th percentile.
///
/// # Errors
/// Same as [`percentile`].
pub fn three_percentiles(values: &[f64]) -> Result<Percentiles> {
    Ok(Percentiles {
        p50: percentile(values, 50.0)?,
        p90: percentile(values, 90.0)?,
        p99: percentile(values, 99.0)?,
    })
}

/// A service's performance over many requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Times to first token, in seconds.
    pub ttft: Percentiles,
    /// Times per output token, in seconds. None if every request got only one
    /// token.
    pub tpot: Option<Percentiles>,
    /// Tokens of all requests, divided by the time from the first request to the
    /// last token.
    pub tokens_per_second: f64,
}

/// Summarizes the requests, listed in any order. A request with a single token
/// has no time per output token, so those percentiles leave it out. It counts
/// towards everything else.
///
/// # Errors
/// If there are no requests, or one of them got no tokens.
pub fn summarize(traces: &[RequestTrace]) -> Result<Summary> {
    // task 16.12 (optional): Compute the percentiles of both times, and the service's throughput
    // <solution>
    let mut ttfts = Vec::new();
    let mut tpots = Vec::new();
    let mut tokens = 0;
    let mut begin = f64::INFINITY;
    let mut end = f64::NEG_INFINITY;
    for trace in traces {
        let latency = trace.latency()?;
        ttfts.push(latency.ttft);
        tpots.extend(latency.tpot);
        tokens += trace.tokens.len();
        begin = begin.min(trace.sent);
        end = trace.tokens.iter().copied().fold(end, f64::max);
    }
    let tpot = if tpots.is_empty() { None } else { Some(three_percentiles(&tpots)?) };
    Ok(Summary {
        ttft: three_percentiles(&ttfts)?,
        tpot,
        tokens_per_second: tokens as f64 / (end - begin),
    })
    // </solution>
}
