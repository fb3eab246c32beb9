//! Day 19: quantised weights. A block of 32 numbers becomes one scale and 32 small integers, a
//! product with it becomes a sum of products of integers, and then we measure what that does to a
//! text.
//!
//! The blocks are llama.cpp's, bit for bit: Q8_0 and Q4_0, and Q4_1 to be read.

use candecode::day07_greedy::argmax;
use candecode::day16_cost_of_a_token::{layer_weights, weights_read, Machine, Pass, Precision};
use candecode::kit::quantized::BLOCK_SIZE;
use candecode::kit::{Cache, ModelConfig, QuantType, QuantizedMatrix, View};
use candle_core::{bail, Device, Result, Tensor};
use half::f16;

/// A block of Q8_0 (llama.cpp's `block_q8_0`), 34 bytes: number `i` is `scale · quants[i]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockQ8_0 {
    /// The scale (llama.cpp's `d`).
    pub scale: f16,
    /// The integers, -127 to 127 (llama.cpp's `qs`).
    pub quants: [i8; BLOCK_SIZE],
}

impl BlockQ8_0 {
    /// The 34 bytes of a block in a file: the scale, its low byte first, and the integers.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.scale.to_le_bytes().to_vec();
        bytes.extend(self.quants.iter().map(|quant| *quant as u8));
        bytes
    }

    /// A block of its 34 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let scale = f16::from_le_bytes([bytes[0], bytes[1]]);
        Self { scale, quants: std::array::from_fn(|i| bytes[2 + i] as i8) }
    }
}

/// A block of Q4_0 (llama.cpp's `block_q4_0`), 18 bytes. Its integers n are 0 to 15, and a number
/// is `scale · (n - 8)`. Byte `i` of `quants` holds those of numbers `i` (low half) and `i + 16`
/// (high half).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockQ4_0 {
    /// The scale (llama.cpp's `d`), which may be negative.
    pub scale: f16,
    /// Two integers of 4 bits in each byte (llama.cpp's `qs`).
    pub quants: [u8; BLOCK_SIZE / 2],
}

impl BlockQ4_0 {
    /// The 18 bytes of a block in a file: the scale, its low byte first, and the integers.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.scale.to_le_bytes().to_vec();
        bytes.extend(self.quants);
        bytes
    }

    /// A block of its 18 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let scale = f16::from_le_bytes([bytes[0], bytes[1]]);
        Self { scale, quants: std::array::from_fn(|i| bytes[2 + i]) }
    }
}

/// A block of Q4_1 (llama.cpp's `block_q4_1`), 20 bytes. Its integers n are 0 to 15, packed as
/// those of [`BlockQ4_0`], and a number is `scale · n + min`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockQ4_1 {
    /// The scale (llama.cpp's `d`).
    pub scale: f16,
    /// What is added to every number (llama.cpp's `m`).
    pub min: f16,
    /// Two integers of 4 bits in each byte (llama.cpp's `qs`).
    pub quants: [u8; BLOCK_SIZE / 2],
}

impl BlockQ4_1 {
    /// A block of its 20 bytes: the scale, the minimum, and the integers.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self {
            scale: f16::from_le_bytes([bytes[0], bytes[1]]),
            min: f16::from_le_bytes([bytes[2], bytes[3]]),
            quants: std::array::from_fn(|i| bytes[4 + i]),
        }
    }
}

// part 1: a block of 32 numbers

/// Quantises a block to 8 bits (llama.cpp's `quantize_row_q8_0_ref`).
///
/// The scale d is the largest magnitude over 127, in f32. Each number times 1/d, rounded to the
/// nearest integer, halves away from zero, is its `quants`. d is rounded to f16 at the end, when it
/// is stored. Where all numbers are 0, all integers are.
///
/// # Errors
/// If a number is NaN or infinite, or so large that the scale is none in f16.
pub fn quantize_block_q8_0(x: &[f32; BLOCK_SIZE]) -> Result<BlockQ8_0> {
    // task 19.1: the largest magnitude, the scale, and every number in steps of it
    // <solution>
    check_finite(x)?;
    let mut largest = 0f32;
    for value in x {
        largest = largest.max(value.abs());
    }
    let d = largest / 127.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let quants = std::array::from_fn(|i| (x[i] * inverse).round() as i8);
    Ok(BlockQ8_0 { scale: stored_scale(d)?, quants })
    // </solution>
}

// <solution>
/// # Errors
/// If a number is NaN or infinite: the first one is named.
fn check_finite(x: &[f32]) -> Result<()> {
    match x.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(at) => bail!("number {at} is {}: only finite numbers can be quantised", x[at]),
    }
}

/// The scale as a block stores it.
///
/// # Errors
/// If it is too large for f16.
fn stored_scale(d: f32) -> Result<f16> {
    let scale = f16::from_f32(d);
    if !scale.is_finite() {
        bail!("a scale of {d} is too large for f16, whose largest number is {}", f16::MAX)
    }
    Ok(scale)
}
// </solution>

/// The numbers of a block again, as near as it has them: `scale · quants[i]`, in f32.
pub fn dequantize_block_q8_0(block: &BlockQ8_0) -> [f32; BLOCK_SIZE] {
    // task 19.2: every integer times the scale
    // <solution>
    let scale = block.scale.to_f32();
    std::array::from_fn(|i| scale * f32::from(block.quants[i]))
    // </solution>
}

/// How far a number can be from what Q8_0 makes of it, in a block whose largest magnitude is
/// `largest`: half a step d, because of the rounding to an integer, and at most 127 times what d
/// itself is off by when it is stored as f16.
pub fn largest_error_q8_0(largest: f32) -> f32 {
    // task 19.3: half a step, and 127 times the error of the scale
    // <solution>
    let d = largest / 127.0;
    let scale_error = (d - f16::from_f32(d).to_f32()).abs();
    0.5 * d + 127.0 * scale_error
    // </solution>
}

/// Quantises a block to 4 bits (llama.cpp's `quantize_row_q4_0_ref`).
///
/// Of the number with the largest magnitude, the first if there are several, the scale d is the
/// signed value over -8, so that this number becomes the integer 0, and is exact but for the
/// scale's rounding. Each number x becomes `x · (1/d) + 8.5` without its fraction, but at most 15.
/// d is rounded to f16 at the end. Where all numbers are 0, 1/d counts as 0, and all integers are
/// 8.
///
/// # Errors
/// As [`quantize_block_q8_0`].
pub fn quantize_block_q4_0(x: &[f32; BLOCK_SIZE]) -> Result<BlockQ4_0> {
    // task 19.4: the signed extreme, a scale of its own sign, and two integers a byte
    // <solution>
    check_finite(x)?;
    let mut extreme = 0f32; // with its sign
    for value in x {
        if value.abs() > extreme.abs() {
            extreme = *value;
        }
    }
    let d = extreme / -8.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let integer = |value: f32| ((value * inverse + 8.5) as u8).min(15);
    let quants = std::array::from_fn(|i| {
        let low = integer(x[i]);
        let high = integer(x[i + BLOCK_SIZE / 2]);
        low | (high << 4)
    });
    Ok(BlockQ4_0 { scale: stored_scale(d)?, quants })
    // </solution>
}

/// The numbers of a block again: `scale · (n - 8)`, in f32. The low halves of the 16 bytes are
/// numbers 0 to 15, the high halves are numbers 16 to 31.
pub fn dequantize_block_q4_0(block: &BlockQ4_0) -> [f32; BLOCK_SIZE] {
    // task 19.5: the low halves, then the high halves
    // <solution>
    let scale = block.scale.to_f32();
    let integers = unpack(&block.quants);
    std::array::from_fn(|i| scale * (f32::from(integers[i]) - 8.0))
    // </solution>
}

// <solution>
/// The 32 integers of 16 bytes, each 0 to 15: the low halves, then the high halves.
fn unpack(quants: &[u8; BLOCK_SIZE / 2]) -> [u8; BLOCK_SIZE] {
    let mut integers = [0; BLOCK_SIZE];
    for (i, byte) in quants.iter().enumerate() {
        integers[i] = byte & 0x0f;
        integers[i + BLOCK_SIZE / 2] = byte >> 4;
    }
    integers
}
// </solution>

/// How far a number can be from what Q4_0 makes of it, in a block whose largest magnitude is
/// `largest`: a whole step |d|, because there are 8 steps on the side of the largest number and 7
/// on the other, and at most 8 times what d itself is off by when it is stored as f16.
pub fn largest_error_q4_0(largest: f32) -> f32 {
    // task 19.6: a whole step, and 8 times the error of the scale
    // <solution>
    let d = largest / 8.0;
    let scale_error = (d - f16::from_f32(d).to_f32()).abs();
    d + 8.0 * scale_error
    // </solution>
}

/// Quantises a row of a matrix to Q8_0 or Q4_0: the bytes of its blocks, one after the other, as a
/// GGUF file has them.
///
/// # Errors
/// If the row is no multiple of [`BLOCK_SIZE`] long, a block cannot be quantised, or `kind` is
/// Q4_1, which we only read.
pub fn quantize_row(kind: QuantType, x: &[f32]) -> Result<Vec<u8>> {
    // task 19.7: block by block; refuse what is not whole blocks
    // <solution>
    let (blocks, rest) = x.as_chunks::<BLOCK_SIZE>();
    if !rest.is_empty() {
        bail!("a row of {} numbers cannot be quantised: a block has {BLOCK_SIZE}", x.len())
    }
    let mut bytes = Vec::with_capacity(blocks.len() * kind.bytes_per_block());
    for block in blocks {
        match kind {
            QuantType::Q8_0 => bytes.extend(quantize_block_q8_0(block)?.to_bytes()),
            QuantType::Q4_0 => bytes.extend(quantize_block_q4_0(block)?.to_bytes()),
            QuantType::Q4_1 => bail!("Q4_1 is only read; quantise to Q8_0 or Q4_0"),
        }
    }
    Ok(bytes)
    // </solution>
}

/// Quantises a matrix `(out, in)` of f32, row by row.
///
/// # Errors
/// If a row cannot be quantised: the row is named.
pub fn quantize_matrix(kind: QuantType, matrix: &Tensor) -> Result<QuantizedMatrix> {
    let (out, inner) = matrix.dims2()?;
    let mut blocks = Vec::new();
    for (at, row) in matrix.to_vec2::<f32>()?.iter().enumerate() {
        match quantize_row(kind, row) {
            Ok(bytes) => blocks.extend(bytes),
            Err(error) => bail!("row {at}: {error}"),
        }
    }
    QuantizedMatrix::new(kind, out, inner, blocks)
}

/// The numbers of a matrix again, `(out, in)` of f32 on the CPU.
///
/// # Errors
/// If the tensor cannot be made.
pub fn dequantize_matrix(matrix: &QuantizedMatrix) -> Result<Tensor> {
    let (out, _) = matrix.shape();
    let mut numbers = Vec::new();
    for row in 0..out {
        for bytes in matrix.row(row).chunks_exact(matrix.kind().bytes_per_block()) {
            numbers.extend(match matrix.kind() {
                QuantType::Q8_0 => dequantize_block_q8_0(&BlockQ8_0::from_bytes(bytes)),
                QuantType::Q4_0 => dequantize_block_q4_0(&BlockQ4_0::from_bytes(bytes)),
                QuantType::Q4_1 => dequantize_block_q4_1(&BlockQ4_1::from_bytes(bytes)),
            });
        }
    }
    Tensor::from_vec(numbers, matrix.shape(), &Device::Cpu)
}

// part 2: products of small integers

/// Quantises a row of activations, to Q8_0 whatever the weights are, as llama.cpp does: every block
/// of 32 numbers gets a scale of its own.
///
/// # Errors
/// If the row is no multiple of [`BLOCK_SIZE`] long, or a block cannot be quantised.
pub fn quantize_activations(x: &[f32]) -> Result<Vec<BlockQ8_0>> {
    // task 19.8: task 19.1 for every block
    // <solution>
    let (blocks, rest) = x.as_chunks::<BLOCK_SIZE>();
    if !rest.is_empty() {
        bail!("{} activations cannot be quantised: a block has {BLOCK_SIZE}", x.len())
    }
    blocks.iter().map(quantize_block_q8_0).collect()
    // </solution>
}

/// The dot product of a block of weights and a block of activations: the products of the integers
/// are added up as i32, and the sum is multiplied by both scales.
pub fn dot_q8_0(w: &BlockQ8_0, x: &BlockQ8_0) -> f32 {
    // task 19.9: a sum of integers, and two scales
    // <solution>
    let mut sum = 0i32;
    for (w, x) in w.quants.iter().zip(&x.quants) {
        sum += i32::from(*w) * i32::from(*x);
    }
    sum as f32 * (w.scale.to_f32() * x.scale.to_f32())
    // </solution>
}

/// As [`dot_q8_0`], for weights of 4 bits: of every integer 8 is subtracted before it is
/// multiplied.
pub fn dot_q4_0(w: &BlockQ4_0, x: &BlockQ8_0) -> f32 {
    // task 19.10: unpack, subtract 8, and go on as before
    // <solution>
    let integers = unpack(&w.quants);
    let mut sum = 0i32;
    for (w, x) in integers.iter().zip(&x.quants) {
        sum += (i32::from(*w) - 8) * i32::from(*x);
    }
    sum as f32 * (w.scale.to_f32() * x.scale.to_f32())
    // </solution>
}

/// The dot product of a row of a matrix, as its bytes, and a row of activations: the sum of those
/// of their blocks, in f32.
///
/// # Errors
/// If one has more blocks than the other.
pub fn dot_row(kind: QuantType, row: &[u8], x: &[BlockQ8_0]) -> Result<f32> {
    // task 19.11: block by block, each with scales of its own
    // <solution>
    let blocks = row.chunks_exact(kind.bytes_per_block());
    if blocks.len() != x.len() {
        bail!("a row of {} blocks cannot be multiplied with {}", blocks.len(), x.len())
    }
    let mut sum = 0.0;
    for (bytes, x) in blocks.zip(x) {
        sum += match kind {
            QuantType::Q8_0 => dot_q8_0(&BlockQ8_0::from_bytes(bytes), x),
            QuantType::Q4_0 => dot_q4_0(&BlockQ4_0::from_bytes(bytes), x),
            QuantType::Q4_1 => dot_q4_1(&BlockQ4_1::from_bytes(bytes), x),
        };
    }
    Ok(sum)
    // </solution>
}

/// `x · wᵀ` with quantised weights: `x` is `(…, in)` of f32, the result `(…, out)`. Every row of
/// `x` is quantised once, and multiplied with every row of `w`.
///
/// # Errors
/// If the last dimension of `x` is not `in`, or a number of `x` is NaN or infinite.
pub fn quantized_linear(x: &Tensor, w: &QuantizedMatrix) -> Result<Tensor> {
    // task 19.12: rows of x as blocks, then all rows of w with all rows of x
    // <solution>
    let (out, inner) = w.shape();
    let mut shape = x.dims().to_vec();
    match shape.last_mut() {
        Some(last) if *last == inner => *last = out,
        _ => bail!("linear: x is {:?}, its last dimension must be {inner}", x.shape()),
    }
    let mut rows = Vec::new();
    for row in x.reshape(((), inner))?.to_vec2::<f32>()? {
        rows.push(quantize_activations(&row)?);
    }
    let mut y = vec![0.0; rows.len() * out];
    // A row of weights is read once, and meets all rows of x while it is in the processor's cache.
    for column in 0..out {
        let weights = w.row(column);
        for (row, x) in rows.iter().enumerate() {
            y[row * out + column] = dot_row(w.kind(), &weights, x)?;
        }
    }
    Tensor::from_vec(y, shape, x.device())
    // </solution>
}

/// Day 16's sizes for a model whose weights are quantised: the bytes of a weight, on average over
/// those that a pass reads, and 4 bytes for a number in the cache, which stays f32.
///
/// All matrices of the layers are of this kind, and so is the head, except that a tied head is Q8_0
/// at least: it is the embedding table, too, and 4 bits would show in both.
pub fn quantized_precision(config: &ModelConfig, kind: QuantType) -> Precision {
    // task 19.13: bytes of a block over 32; two kinds of weights, and their mean
    // <solution>
    let bytes = |kind: QuantType| kind.bytes_per_block() as f64 / BLOCK_SIZE as f64;
    let in_layers = config.num_hidden_layers as f64 * layer_weights(config);
    let all = weights_read(config);
    let in_head = all - in_layers;
    let head_kind = if config.tie_word_embeddings { QuantType::Q8_0 } else { kind };
    let total = in_layers * bytes(kind) + in_head * bytes(head_kind);
    Precision { weight_bytes: total / all, cache_bytes: 4.0 }
    // </solution>
}

/// How many times as fast a decoding step can be with quantised weights as with weights of f32, by
/// day 16's roofline: one row, after `past` cached positions.
pub fn predicted_speedup(
    config: &ModelConfig,
    past: usize,
    kind: QuantType,
    machine: &Machine,
) -> f64 {
    // task 19.14: the predicted time before over the predicted time after
    // <solution>
    let pass = Pass::decode(1, past);
    let full = Precision { weight_bytes: 4.0, cache_bytes: 4.0 };
    let before = machine.predict_pass(config, &pass, &full);
    let after = machine.predict_pass(config, &pass, &quantized_precision(config, kind));
    before.seconds / after.seconds
    // </solution>
}

/// The numbers of a block of Q4_1 again: `scale · n + min`, in f32; the integers are packed as
/// those of Q4_0.
pub fn dequantize_block_q4_1(block: &BlockQ4_1) -> [f32; BLOCK_SIZE] {
    // task 19.15 (further): the integers times the scale, and the minimum
    // <solution>
    let scale = block.scale.to_f32();
    let min = block.min.to_f32();
    let integers = unpack(&block.quants);
    std::array::from_fn(|i| scale * f32::from(integers[i]) + min)
    // </solution>
}

/// As [`dot_q8_0`], for weights of Q4_1: `Σ (d·n + m) · (e·q) = e · (d · Σ n·q + m · Σ q)`, both
/// sums of integers.
pub fn dot_q4_1(w: &BlockQ4_1, x: &BlockQ8_0) -> f32 {
    // task 19.16 (further): two sums of integers, and three scales
    // <solution>
    let integers = unpack(&w.quants);
    let mut products = 0i32;
    let mut sum = 0i32;
    for (w, x) in integers.iter().zip(&x.quants) {
        products += i32::from(*w) * i32::from(*x);
        sum += i32::from(*x);
    }
    let of_weights = w.scale.to_f32() * products as f32 + w.min.to_f32() * sum as f32;
    x.scale.to_f32() * of_weights
    // </solution>
}

// part 3: what it does to a text

/// How surprised a model is by a text: e to the mean of -ln p over the tokens after the first,
/// where p is the probability that the model gave to the token when it had seen those before it.
///
/// `log_probs` has, for each position, ln of the probabilities of all tokens to come next: its
/// entry `t` is about token `t + 1`. So the first token is predicted by none, and the last entry
/// predicts none of `tokens`.
///
/// # Errors
/// If the two differ in length, there are fewer than two tokens, or a token is not in the
/// vocabulary.
pub fn perplexity(log_probs: &[Vec<f32>], tokens: &[u32]) -> Result<f64> {
    // task 19.17: entry t and token t + 1; a mean, and e to it
    // <solution>
    if log_probs.len() != tokens.len() || tokens.len() < 2 {
        bail!(
            "{} positions and {} tokens: there must be as many, and at least 2",
            log_probs.len(),
            tokens.len()
        )
    }
    let mut sum = 0.0;
    for (entry, token) in log_probs.iter().zip(&tokens[1..]) {
        let Some(log_prob) = entry.get(*token as usize) else {
            bail!("token {token} is not in the vocabulary of {} tokens", entry.len())
        };
        sum -= f64::from(*log_prob);
    }
    let mean = sum / (tokens.len() - 1) as f64;
    Ok(mean.exp())
    // </solution>
}

/// The mean over all positions of the Kullback-Leibler divergence KL(p ‖ q) = Σ p · (ln p - ln q),
/// where p is the reference's distribution and q the other's: what llama.cpp's `--kl-divergence`
/// states. Both are given as logarithms. A token whose p is 0 (its logarithm is -∞) counts as 0.
///
/// # Errors
/// If there are no positions, or the two differ in their number or in the vocabulary.
pub fn mean_kl(reference: &[Vec<f32>], other: &[Vec<f32>]) -> Result<f64> {
    // task 19.18: p is exp of its logarithm; sum in f64
    // <solution>
    check_alike(reference, other)?;
    let mut sum = 0.0;
    for (p, q) in reference.iter().zip(other) {
        for (ln_p, ln_q) in p.iter().zip(q) {
            let ln_p = f64::from(*ln_p);
            if ln_p > f64::NEG_INFINITY {
                sum += ln_p.exp() * (ln_p - f64::from(*ln_q));
            }
        }
    }
    Ok(sum / reference.len() as f64)
    // </solution>
}

// <solution>
/// # Errors
/// If there are no positions, or the two differ in their number or in the vocabulary.
fn check_alike(reference: &[Vec<f32>], other: &[Vec<f32>]) -> Result<()> {
    if reference.is_empty() || reference.len() != other.len() {
        bail!(
            "{} and {} positions: there must be as many, and at least 1",
            reference.len(),
            other.len()
        )
    }
    for (p, q) in reference.iter().zip(other) {
        if p.len() != q.len() {
            bail!("vocabularies of {} and {} tokens cannot be compared", p.len(), q.len())
        }
    }
    Ok(())
}
// </solution>

/// The share of positions, 0 to 1, at which both have the same best token; of equal ones the first
/// counts as the best (day 7's `argmax`).
///
/// # Errors
/// As [`mean_kl`].
pub fn same_best(reference: &[Vec<f32>], other: &[Vec<f32>]) -> Result<f64> {
    // task 19.19: compare two argmaxes at every position
    // <solution>
    check_alike(reference, other)?;
    let mut same = 0;
    for (p, q) in reference.iter().zip(other) {
        if argmax(p)? == argmax(q)? {
            same += 1;
        }
    }
    Ok(f64::from(same) / reference.len() as f64)
    // </solution>
}

/// Where two texts part: the index of the first token that differs. Where one is the beginning of
/// the other it is the length of the shorter one. None: they are equal.
pub fn first_difference(a: &[u32], b: &[u32]) -> Option<usize> {
    // task 19.20: the first place that differs; mind the lengths
    // <solution>
    let differs = a.iter().zip(b).position(|(a, b)| a != b);
    if differs.is_none() && a.len() != b.len() {
        return Some(a.len().min(b.len()));
    }
    differs
    // </solution>
}

/// Keys or values of one layer in Q8_0: one list of blocks for each row and head, row by row, in
/// which position follows position.
type QuantizedHeads = Vec<Vec<BlockQ8_0>>;

/// A KV cache that keeps keys and values in Q8_0: 34 bytes for 32 numbers, where f32 takes 128. It
/// gives them back widened.
#[derive(Debug, Clone)]
pub struct QuantizedCache {
    layers: Vec<(QuantizedHeads, QuantizedHeads)>, // keys and values
    shape: (usize, usize, usize),                  // rows, key/value heads, head dimension
    device: Device,
    len: usize,
}

impl QuantizedCache {
    /// An empty cache for a model of `layers` layers.
    pub fn new(layers: usize, device: &Device) -> Self {
        let layers = vec![Default::default(); layers];
        Self { layers, shape: (0, 0, 0), device: device.clone(), len: 0 }
    }

    /// Bytes of the blocks that it keeps.
    pub fn bytes(&self) -> usize {
        let heads = self.layers.iter().flat_map(|(k, v)| k.iter().chain(v));
        heads.map(|blocks| blocks.len() * QuantType::Q8_0.bytes_per_block()).sum()
    }

    /// What is kept of keys or values, widened: `(B, Hkv, positions, D)`.
    fn widened(&self, heads: &QuantizedHeads) -> Result<Tensor> {
        let (rows, num_heads, width) = self.shape;
        let blocks = heads.iter().flatten();
        let numbers: Vec<f32> = blocks.flat_map(dequantize_block_q8_0).collect();
        let positions = numbers.len() / (rows * num_heads * width).max(1);
        Tensor::from_vec(numbers, (rows, num_heads, positions, width), &self.device)
    }
}

/// Quantises new keys or values, `(B, Hkv, T, D)`, and appends them to those that are kept: the T
/// positions of row `b` and head `h` go to the end of list `b · Hkv + h`, each as D / 32 blocks. An
/// empty `kept` gets its lists first.
///
/// # Errors
/// If D is no multiple of [`BLOCK_SIZE`], or `kept` has another number of lists than B · Hkv.
pub fn append_quantized(kept: &mut Vec<Vec<BlockQ8_0>>, new: &Tensor) -> Result<()> {
    // task 19.21 (further): one list for each row and head; quantise its positions, append
    // <solution>
    let (rows, heads, positions, width) = new.dims4()?;
    if kept.is_empty() {
        kept.resize(rows * heads, Vec::new());
    }
    if kept.len() != rows * heads {
        bail!("{rows} rows of {heads} heads do not continue {} lists", kept.len())
    }
    let lists = new.reshape((rows * heads, positions, width))?.to_vec3::<f32>()?;
    for (kept, new) in kept.iter_mut().zip(lists) {
        for position in new {
            kept.extend(quantize_activations(&position)?);
        }
    }
    Ok(())
    // </solution>
}

/// How far a score `q · k / √D` can be off if the key is kept in Q8_0: every number of a block can
/// be off by [`largest_error_q8_0`] of the block, and the query multiplies it.
///
/// # Errors
/// If the two differ in length, or are no multiple of [`BLOCK_SIZE`] long.
pub fn largest_score_error(q: &[f32], k: &[f32]) -> Result<f32> {
    // task 19.22 (further): the magnitudes of a block of q, times the error of that block of k
    // <solution>
    let (q_blocks, rest) = q.as_chunks::<BLOCK_SIZE>();
    let (k_blocks, _) = k.as_chunks::<BLOCK_SIZE>();
    if q.len() != k.len() || !rest.is_empty() {
        bail!("a query of {} and a key of {} numbers", q.len(), k.len())
    }
    let mut error = 0.0;
    for (q, k) in q_blocks.iter().zip(k_blocks) {
        let largest = k.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        let magnitudes: f32 = q.iter().map(|value| value.abs()).sum();
        error += magnitudes * largest_error_q8_0(largest);
    }
    Ok(error / (q.len() as f32).sqrt())
    // </solution>
}

impl Cache for QuantizedCache {
    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<View> {
        let (rows, heads, new, width) = k.dims4()?;
        if layer >= self.layers.len() {
            bail!("layer {layer} of a cache for {} layers", self.layers.len())
        }
        if self.len > 0 && self.shape != (rows, heads, width) {
            bail!("keys {:?} do not continue rows, heads and width {:?}", k.dims(), self.shape)
        }
        self.shape = (rows, heads, width);
        let (keys, values) = &mut self.layers[layer];
        append_quantized(keys, k)?;
        append_quantized(values, v)?;
        if layer + 1 == self.layers.len() {
            self.len += new;
        }
        let (keys, values) = &self.layers[layer];
        Ok(View::new(self.widened(keys)?, self.widened(values)?))
    }

    fn len(&self) -> usize {
        self.len
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        if len > self.len {
            bail!("a cache of {} positions cannot be truncated to {len}", self.len)
        }
        let blocks_of_a_position = self.shape.2 / BLOCK_SIZE;
        for (k, v) in &mut self.layers {
            k.iter_mut().chain(v).for_each(|list| list.truncate(len * blocks_of_a_position));
        }
        self.len = len;
        Ok(())
    }
}
