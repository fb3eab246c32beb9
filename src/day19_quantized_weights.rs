#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 19: quantized weights. A block of 32 numbers becomes a scale and 32 small integers, and a
//! product with it becomes a sum of integer products. Then we measure what that costs a text.
//!
//! The blocks are llama.cpp's, bit for bit: Q8_0 and Q4_0, and Q4_1 for reading only.

use candecode::day07_greedy::argmax;
use candecode::day16_cost_of_a_token::{layer_weights, weights_read, Machine, Pass, Precision};
use candecode::kit::quantized::BLOCK_SIZE;
use candecode::kit::{Cache, ModelConfig, QuantType, QuantizedMatrix, View};
use candle_core::{bail, Device, Result, Tensor};
use half::f16;

/// A block of Q8_0 (llama.cpp's `block_q8_0`), 34 bytes: number `i` is
/// `scale · quants[i]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockQ8_0 {
    /// The scale (llama.cpp's `d`).
    pub scale: f16,
    /// The integers, -127 to 127 (llama.cpp's `qs`).
    pub quants: [i8; BLOCK_SIZE],
}

impl BlockQ8_0 {
    /// Returns the block's 34 bytes in a file: the scale, low byte first, then the
    /// integers.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.scale.to_le_bytes().to_vec();
        bytes.extend(self.quants.iter().map(|quant| *quant as u8));
        bytes
    }

    /// Reads a block from its 34 bytes.
    #[inline(always)]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let scale = f16::from_le_bytes([bytes[0], bytes[1]]);
        let mut quants = [0; BLOCK_SIZE];
        for (i, byte) in bytes[2..][..BLOCK_SIZE].iter().enumerate() {
            quants[i] = *byte as i8;
        }
        Self { scale, quants }
    }
}

/// A block of Q4_0 (llama.cpp's `block_q4_0`), 18 bytes. Each number has an integer
/// from 0 to 15, which counts steps of the scale. Byte `i` of `quants` holds the
/// integers of numbers `i` (low half) and `i + 16` (high half).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockQ4_0 {
    /// The scale (llama.cpp's `d`), which may be negative.
    pub scale: f16,
    /// Two 4-bit integers per byte (llama.cpp's `qs`).
    pub quants: [u8; BLOCK_SIZE / 2],
}

impl BlockQ4_0 {
    /// Returns the block's 18 bytes in a file: the scale, low byte first, then the
    /// integers.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.scale.to_le_bytes().to_vec();
        bytes.extend(self.quants);
        bytes
    }

    /// Reads a block from its 18 bytes.
    #[inline(always)]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let scale = f16::from_le_bytes([bytes[0], bytes[1]]);
        let mut quants = [0; BLOCK_SIZE / 2];
        quants.copy_from_slice(&bytes[2..][..BLOCK_SIZE / 2]);
        Self { scale, quants }
    }
}

/// Checks the numbers of a block before they are quantized.
///
/// # Errors
/// If a number is NaN or infinite. The message names the first one.
fn check_finite(x: &[f32]) -> Result<()> {
    match x.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(at) => bail!("number {at} is {}: only finite numbers can be quantized", x[at]),
    }
}

/// Rounds a scale to f16, as a block stores it.
///
/// # Errors
/// If the scale is too large for f16.
fn stored_scale(d: f32) -> Result<f16> {
    let scale = f16::from_f32(d);
    if !scale.is_finite() {
        bail!("a scale of {d} is too large for f16, whose largest number is {}", f16::MAX)
    }
    Ok(scale)
}

// part 1: a block of 32 numbers

/// Quantizes a block to 8 bits, bit for bit as llama.cpp's `quantize_row_q8_0_ref`
/// does.
///
/// The number with the largest magnitude becomes 127 or -127. Each number is
/// multiplied by 1/d, where d is the scale in f32, and rounded to the nearest
/// integer, halves away from zero. The block stores d as f16. A block of zeros gets
/// a scale of 0 and integers of 0.
///
/// # Errors
/// If a number is NaN or infinite, or the scale is too large for f16.
pub fn quantize_block_q8_0(x: &[f32; BLOCK_SIZE]) -> Result<BlockQ8_0> {
    // task 19.1: Turn 32 numbers into a scale and 32 8-bit integers
    todo!("day 19, task 1: Turn 32 numbers into a scale and 32 8-bit integers")
}

/// Restores the numbers of a block, as closely as it stores them:
/// `scale · quants[i]`, in f32.
pub fn dequantize_block_q8_0(block: &BlockQ8_0) -> [f32; BLOCK_SIZE] {
    let scale = block.scale.to_f32();
    std::array::from_fn(|i| scale * f32::from(block.quants[i]))
}

/// Quantizes a block to 4 bits, bit for bit as llama.cpp's `quantize_row_q4_0_ref`
/// does.
///
/// The number with the largest magnitude, the first of several, becomes the integer
/// 0. A number x becomes the integer `x · (1/d) + 8.5`, truncated, and 15 at most,
/// where d is the scale in f32. The block stores d as f16. In a block of zeros, every
/// integer is 8.
///
/// # Errors
/// Same as [`quantize_block_q8_0`].
pub fn quantize_block_q4_0(x: &[f32; BLOCK_SIZE]) -> Result<BlockQ4_0> {
    // task 19.2: Turn 32 numbers into a signed scale and 32 4-bit integers
    todo!("day 19, task 2: Turn 32 numbers into a signed scale and 32 4-bit integers")
}

/// Restores the numbers of a block in f32, as closely as it stores them.
pub fn dequantize_block_q4_0(block: &BlockQ4_0) -> [f32; BLOCK_SIZE] {
    // task 19.3: Restore the 32 numbers from the scale and the 16 bytes
    todo!("day 19, task 3: Restore the 32 numbers from the scale and the 16 bytes")
}

/// Returns an upper bound for the error of a number, `|x - restored x|`, in any
/// block of this format with the largest magnitude `largest`. The bound is tight: an
/// error within 2% of it can occur.
///
/// Infinity for Q4_1, which this day only reads.
pub fn largest_error(kind: QuantType, largest: f32) -> f32 {
    // task 19.4: Bound the error of a number, before anything is quantized
    todo!("day 19, task 4: Bound the error of a number, before anything is quantized")
}

/// Quantizes a row of a matrix to Q8_0 or Q4_0. Returns the bytes of its blocks, one
/// after the other, as in a GGUF file.
///
/// # Errors
/// If the row's length isn't a multiple of [`BLOCK_SIZE`], a block can't be
/// quantized, or `kind` is Q4_1, which this day only reads.
pub fn quantize_row(kind: QuantType, x: &[f32]) -> Result<Vec<u8>> {
    let (blocks, rest) = x.as_chunks::<BLOCK_SIZE>();
    if !rest.is_empty() {
        bail!("a row of {} numbers cannot be quantized: a block has {BLOCK_SIZE}", x.len())
    }
    let mut bytes = Vec::with_capacity(blocks.len() * kind.bytes_per_block());
    for block in blocks {
        match kind {
            QuantType::Q8_0 => bytes.extend(quantize_block_q8_0(block)?.to_bytes()),
            QuantType::Q4_0 => bytes.extend(quantize_block_q4_0(block)?.to_bytes()),
            QuantType::Q4_1 => bail!("Q4_1 is only read; quantize to Q8_0 or Q4_0"),
        }
    }
    Ok(bytes)
}

/// Quantizes a matrix `(out, in)` of f32, row by row.
///
/// # Errors
/// If a row can't be quantized. The message names it.
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

/// Restores the numbers of a matrix, `(out, in)` of f32 on the CPU.
///
/// # Errors
/// If the tensor can't be built.
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

/// Quantizes a row of activations. The result is Q8_0 for every format of the
/// weights, as in llama.cpp.
///
/// # Errors
/// If the row's length isn't a multiple of [`BLOCK_SIZE`], or a block can't be
/// quantized.
pub fn quantize_activations(x: &[f32]) -> Result<Vec<BlockQ8_0>> {
    let (blocks, rest) = x.as_chunks::<BLOCK_SIZE>();
    if !rest.is_empty() {
        bail!("{} activations cannot be quantized: a block has {BLOCK_SIZE}", x.len())
    }
    blocks.iter().map(quantize_block_q8_0).collect()
}

/// Returns the dot product of a block of weights and a block of activations. The
/// loop over the 32 numbers has no floating-point operation.
#[inline(always)]
pub fn dot_q8_0(w: &BlockQ8_0, x: &BlockQ8_0) -> f32 {
    // task 19.5: Multiply two blocks of 8-bit integers
    todo!("day 19, task 5: Multiply two blocks of 8-bit integers")
}

/// Same as [`dot_q8_0`], for 4-bit weights.
#[inline(always)]
pub fn dot_q4_0(w: &BlockQ4_0, x: &BlockQ8_0) -> f32 {
    // task 19.6: Multiply a block of 4-bit integers by a block of 8-bit ones
    todo!("day 19, task 6: Multiply a block of 4-bit integers by a block of 8-bit ones")
}

/// Returns the dot product of a block of weights, given as its bytes, and a block of
/// activations.
#[inline(always)]
fn dot_block(kind: QuantType, bytes: &[u8], x: &BlockQ8_0) -> f32 {
    match kind {
        QuantType::Q8_0 => dot_q8_0(&BlockQ8_0::from_bytes(bytes), x),
        QuantType::Q4_0 => dot_q4_0(&BlockQ4_0::from_bytes(bytes), x),
        QuantType::Q4_1 => dot_q4_1(&BlockQ4_1::from_bytes(bytes), x),
    }
}

/// Returns the dot product, in f32, of a row of a matrix, given as its bytes, and a
/// row of activations.
///
/// # Errors
/// If one has more blocks than the other.
#[inline(always)]
pub fn dot_row(kind: QuantType, row: &[u8], x: &[BlockQ8_0]) -> Result<f32> {
    // task 19.7: Multiply a row of weights by a row of activations
    todo!("day 19, task 7: Multiply a row of weights by a row of activations")
}

/// Returns `x · wᵀ` with quantized weights: `x` is `(…, in)` of f32, the result
/// `(…, out)` on the same device. Each row of `x` is quantized once.
///
/// # Errors
/// If the last dimension of `x` isn't `in`, or a number of `x` is NaN or infinite.
pub fn quantized_linear(x: &Tensor, w: &QuantizedMatrix) -> Result<Tensor> {
    // task 19.8: Apply a linear layer whose weights are quantized
    todo!("day 19, task 8: Apply a linear layer whose weights are quantized")
}

// part 3: what it gains, and what it costs a text

/// Returns day 16's [`Precision`] for a model with quantized weights: the bytes per
/// weight, averaged over the weights that a pass reads, and 4 bytes per number in
/// the cache, which stays f32.
///
/// All matrices of the layers are of this kind. So is the head, unless it's tied to
/// the embedding table: a tied head is always Q8_0.
pub fn quantized_precision(config: &ModelConfig, kind: QuantType) -> Precision {
    // task 19.9: Compute the bytes per weight of a whole model
    todo!("day 19, task 9: Compute the bytes per weight of a whole model")
}

/// Returns the factor by which quantizing f32 weights can speed up a decoding step,
/// according to day 16's roofline: one row, after `past` cached positions.
pub fn predicted_speedup(
    config: &ModelConfig,
    past: usize,
    kind: QuantType,
    machine: &Machine,
) -> f64 {
    let pass = Pass::decode(1, past);
    let full = Precision { weight_bytes: 4.0, cache_bytes: 4.0 };
    let before = machine.predict_pass(config, &pass, &full);
    let after = machine.predict_pass(config, &pass, &quantized_precision(config, kind));
    before.seconds / after.seconds
}

/// Checks that a text of at least two tokens has one entry of log probabilities per
/// token.
///
/// # Errors
/// If it doesn't, or a token after the first is not in the vocabulary.
fn check_text(log_probs: &[Vec<f32>], tokens: &[u32]) -> Result<()> {
    let (positions, count) = (log_probs.len(), tokens.len());
    if positions != count || count < 2 {
        bail!("{positions} positions and {count} tokens: equal numbers are needed, at least 2")
    }
    for (entry, token) in log_probs.iter().zip(&tokens[1..]) {
        if entry.get(*token as usize).is_none() {
            bail!("token {token} is not in the vocabulary of {} tokens", entry.len())
        }
    }
    Ok(())
}

/// Checks that two models' log probabilities can be compared position by position.
///
/// # Errors
/// If there are no positions, or the numbers of positions or of tokens differ.
fn check_alike(reference: &[Vec<f32>], other: &[Vec<f32>]) -> Result<()> {
    let (positions, others) = (reference.len(), other.len());
    if reference.is_empty() || positions != others {
        bail!("{positions} and {others} positions: equal numbers are needed, at least 1")
    }
    for (p, q) in reference.iter().zip(other) {
        if p.len() != q.len() {
            bail!("vocabularies of {} and {} tokens cannot be compared", p.len(), q.len())
        }
    }
    Ok(())
}

/// Returns the perplexity of a text: the number k for which drawing each token after
/// the first uniformly from k tokens would give the whole text the same probability
/// as the model does.
///
/// `log_probs` has an entry per token of the text. Entry `t` holds the log
/// probabilities of all tokens of the vocabulary after the model has read tokens 0
/// to `t`.
///
/// # Errors
/// Those of `check_text`.
pub fn perplexity(log_probs: &[Vec<f32>], tokens: &[u32]) -> Result<f64> {
    // task 19.10: Compute the perplexity of a text
    todo!("day 19, task 10: Compute the perplexity of a text")
}

/// Returns the Kullback-Leibler divergence between the two models' distributions,
/// averaged over all positions, as llama.cpp's `--kl-divergence` does. Both are given
/// as logarithms, which can be -∞.
///
/// # Errors
/// Those of `check_alike`.
pub fn mean_kl(reference: &[Vec<f32>], other: &[Vec<f32>]) -> Result<f64> {
    // task 19.11: Compute the mean KL divergence of two models
    todo!("day 19, task 11: Compute the mean KL divergence of two models")
}

/// Returns the share of positions, 0 to 1, at which both models prefer the same
/// token. Ties go to the first token, as in day 7's `argmax`.
///
/// # Errors
/// Those of `check_alike`.
pub fn same_best(reference: &[Vec<f32>], other: &[Vec<f32>]) -> Result<f64> {
    check_alike(reference, other)?;
    let mut same = 0;
    for (p, q) in reference.iter().zip(other) {
        if argmax(p)? == argmax(q)? {
            same += 1;
        }
    }
    Ok(f64::from(same) / reference.len() as f64)
}

/// Returns the index of the first token at which two texts differ. If one text is
/// the beginning of the other, that's the length of the shorter one. None: the texts
/// are equal.
pub fn first_difference(a: &[u32], b: &[u32]) -> Option<usize> {
    let differs = a.iter().zip(b).position(|(a, b)| a != b);
    if differs.is_none() && a.len() != b.len() {
        return Some(a.len().min(b.len()));
    }
    differs
}

/// Returns the squared error of a block: the sum of the squared differences between
/// the numbers and their restored values.
pub fn squared_error(x: &[f32; BLOCK_SIZE], block: &BlockQ4_0) -> f32 {
    x.iter().zip(dequantize_block_q4_0(block)).map(|(x, restored)| (x - restored).powi(2)).sum()
}

/// Quantizes a block to Q4_0 with a smaller [`squared_error`] than
/// [`quantize_block_q4_0`]. The 18 bytes are read by the same rule, but the scale
/// and the integers are yours to choose.
///
/// On no block is the error larger than with `quantize_block_q4_0`. Over many blocks
/// of normally distributed numbers, it is at least 10% smaller in total.
///
/// # Errors
/// Same as [`quantize_block_q8_0`].
pub fn closer_block_q4_0(x: &[f32; BLOCK_SIZE]) -> Result<BlockQ4_0> {
    // task 19.12 (challenge): Fill the same 18 bytes with a smaller error
    todo!("day 19, task 12: Fill the same 18 bytes with a smaller error")
}

// part 4: after the end

/// A block of Q4_1 (llama.cpp's `block_q4_1`), 20 bytes. Each number has an integer
/// n from 0 to 15, packed as in [`BlockQ4_0`], and is `scale · n + min`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockQ4_1 {
    /// The scale (llama.cpp's `d`).
    pub scale: f16,
    /// The value of the integer 0 (llama.cpp's `m`).
    pub min: f16,
    /// Two 4-bit integers per byte (llama.cpp's `qs`).
    pub quants: [u8; BLOCK_SIZE / 2],
}

impl BlockQ4_1 {
    /// Reads a block from its 20 bytes: the scale, the minimum, and the integers.
    #[inline(always)]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut quants = [0; BLOCK_SIZE / 2];
        quants.copy_from_slice(&bytes[4..][..BLOCK_SIZE / 2]);
        Self {
            scale: f16::from_le_bytes([bytes[0], bytes[1]]),
            min: f16::from_le_bytes([bytes[2], bytes[3]]),
            quants,
        }
    }
}

/// Restores the numbers of a block of Q4_1: `scale · n + min`, in f32.
pub fn dequantize_block_q4_1(block: &BlockQ4_1) -> [f32; BLOCK_SIZE] {
    // task 19.13 (optional): Restore the numbers of a block that has a minimum
    todo!("day 19, task 13: Restore the numbers of a block that has a minimum")
}

/// Same as [`dot_q8_0`], for weights of Q4_1: only integers are added up in the loop
/// over the 32 numbers.
#[inline(always)]
pub fn dot_q4_1(w: &BlockQ4_1, x: &BlockQ8_0) -> f32 {
    // task 19.14 (optional): Multiply a block that has a minimum by a block of activations
    todo!("day 19, task 14: Multiply a block that has a minimum by a block of activations")
}

/// Keys or values of one layer in Q8_0: one list of blocks per row and head, row by
/// row. The blocks of a list are in the order of the positions.
type QuantizedHeads = Vec<Vec<BlockQ8_0>>;

/// A KV cache that stores keys and values in Q8_0: 34 bytes per 32 numbers, where
/// f32 takes 128. It returns them as f32.
#[derive(Debug, Clone)]
pub struct QuantizedCache {
    layers: Vec<(QuantizedHeads, QuantizedHeads)>, // keys and values
    shape: (usize, usize, usize),                  // rows, key/value heads, head dimension
    device: Device,
    len: usize,
}

impl QuantizedCache {
    /// Returns an empty cache for a model of `layers` layers.
    pub fn new(layers: usize, device: &Device) -> Self {
        let layers = vec![Default::default(); layers];
        Self { layers, shape: (0, 0, 0), device: device.clone(), len: 0 }
    }

    /// Returns the number of bytes in its blocks.
    pub fn bytes(&self) -> usize {
        let heads = self.layers.iter().flat_map(|(k, v)| k.iter().chain(v));
        heads.map(|blocks| blocks.len() * QuantType::Q8_0.bytes_per_block()).sum()
    }

    /// Returns the stored keys or values as f32, `(B, Hkv, positions, D)`.
    fn widened(&self, heads: &QuantizedHeads) -> Result<Tensor> {
        let (rows, num_heads, width) = self.shape;
        let blocks = heads.iter().flatten();
        let numbers: Vec<f32> = blocks.flat_map(dequantize_block_q8_0).collect();
        let positions = numbers.len() / (rows * num_heads * width).max(1);
        Tensor::from_vec(numbers, (rows, num_heads, positions, width), &self.device)
    }
}

/// Quantizes new keys or values, `(B, Hkv, T, D)`, and appends them to those in
/// `kept`. The T positions of row `b` and head `h` go to the end of list
/// `b · Hkv + h`, as D / 32 blocks each. If `kept` is empty, the lists are created
/// first.
///
/// # Errors
/// If D isn't a multiple of [`BLOCK_SIZE`], or `kept` has lists, but not B · Hkv of
/// them.
pub fn append_quantized(kept: &mut Vec<Vec<BlockQ8_0>>, new: &Tensor) -> Result<()> {
    // task 19.15 (optional): Append new keys or values to an 8-bit cache
    todo!("day 19, task 15: Append new keys or values to an 8-bit cache")
}

/// Returns how far a score `q · k / √D` can be off if the key is stored in Q8_0.
/// Each number of a block of `k` is off by at most its [`largest_error`].
///
/// # Errors
/// If the lengths differ, or aren't a multiple of [`BLOCK_SIZE`].
pub fn largest_score_error(q: &[f32], k: &[f32]) -> Result<f32> {
    // task 19.16 (optional): Bound the error of an attention score
    todo!("day 19, task 16: Bound the error of an attention score")
}

impl Cache for QuantizedCache {
    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<View> {
        let (rows, heads, new, width) = k.dims4()?;
        if layer >= self.layers.len() {
            bail!("layer {layer} of a cache for {} layers", self.layers.len())
        }
        if self.len > 0 && self.shape != (rows, heads, width) {
            bail!("keys {:?} don't continue rows, heads and width {:?}", k.dims(), self.shape)
        }
        self.shape = (rows, heads, width);
        let (keys, values) = &mut self.layers[layer];
        if self.len == 0 {
            // A pass that failed may have left some.
            keys.clear();
            values.clear();
        }
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
