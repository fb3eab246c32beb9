//! Activations as small integers, with one scale per 32 numbers. For four-bit weights they have
//! eight bits, as in GGUF's Q8_0. For eight-bit weights they have sixteen: with eight, rounding the
//! activations would degrade a text about as much as rounding the weights does.

use crate::instruction_set::InstructionSet;
use crate::quantized_blocks::{QuantType, BLOCK};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::unrolled::unrolled;
use half::f16;
use rayon::prelude::*;

/// Minimum number of values for which several threads share the work.
const SERIAL: usize = 1 << 16;

/// A block of 32 numbers in a row: `scale * q`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct XBlock {
    /// The integers, from -127 to 127.
    pub q: [i8; BLOCK],
    /// The scale, rounded to f16 as in a file. Infinite or NaN if one of the numbers is, which
    /// makes the products infinite or NaN, too.
    pub scale: f32,
    /// The sum of the integers, needed by weights whose integers are stored with an offset.
    pub sum: i32,
}

impl Quantized for XBlock {
    const ZERO: Self = Self { q: [0; BLOCK], scale: 0.0, sum: 0 };

    /// Quantizes like ggml's `quantize_row_q8_0`.
    #[inline(always)]
    fn set(&mut self, x: &[f32; BLOCK]) {
        let (scale, inverse) = scale(x, 127.0);
        let mut sum = 0;
        for i in 0..BLOCK {
            let q = (x[i] * inverse + ROUND).to_bits() as i8;
            self.q[i] = q;
            sum += i32::from(q);
        }
        self.sum = sum;
        self.scale = f16::from_f32(scale).to_f32();
    }
}

/// A block of 32 numbers in a row, with 16-bit integers: `scale * q`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct WideXBlock {
    /// The integers, from -[`WIDE`] to [`WIDE`]. In every four, the middle two are swapped, because
    /// a vector of weights is split into its even and its odd bytes.
    pub q: [i16; BLOCK],
    /// The scale, as in an [`XBlock`] but not rounded.
    pub scale: f32,
}

/// Splits contiguous rows of `x`, `(M, blocks)`, into `M` slices.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
pub fn rows<B, const M: usize>(x: &[B]) -> [&[B]; M] {
    let row_blocks = x.len() / M;
    let mut rows: [&[B]; M] = [&[]; M];
    unrolled!(m in M => { rows[m] = &x[m * row_blocks..][..row_blocks]; });
    rows
}

/// The largest 16-bit integer that can be split into two bytes from -127 to 127.
pub const WIDE: i16 = 127 * 256 + 127;

/// Returns the index of number `i` of 32 in a [`WideXBlock`].
#[inline(always)]
pub const fn place(i: usize) -> usize {
    match i % 4 {
        1 => i + 1,
        2 => i - 1,
        _ => i,
    }
}

impl Quantized for WideXBlock {
    const ZERO: Self = Self { q: [0; BLOCK], scale: 0.0 };

    #[inline(always)]
    fn set(&mut self, x: &[f32; BLOCK]) {
        let (scale, inverse) = scale(x, f32::from(WIDE));
        let integer = |x: f32| (x * inverse + ROUND).to_bits() as i16;
        for (x, q) in x.as_chunks::<4>().0.iter().zip(self.q.as_chunks_mut::<4>().0) {
            *q = [integer(x[0]), integer(x[2]), integer(x[1]), integer(x[3])];
        }
        self.scale = scale;
    }
}

/// A block of 32 quantized numbers.
trait Quantized: Copy + Send {
    const ZERO: Self;
    fn set(&mut self, x: &[f32; BLOCK]);
}

/// Returns the step size that divides the largest magnitude into `steps` steps, and its inverse.
#[inline(always)]
fn scale(x: &[f32; BLOCK], steps: f32) -> (f32, f32) {
    // Without the sign, the bits of an f32 grow with its magnitude, and infinity and NaN are the
    // largest of all. So the maximum also shows whether a number is infinite or NaN.
    let largest = x.iter().fold(0, |largest, x| (x.to_bits() & 0x7fff_ffff).max(largest));
    let scale = f32::from_bits(largest) / steps;
    (scale, if scale == 0.0 { 0.0 } else { 1.0 / scale })
}

/// Rows of activations, in row-major order, in each integer format that the weights need.
#[derive(Clone, Copy, Debug, Default)]
pub struct XRows<'a> {
    /// For four-bit weights.
    pub bytes: &'a [XBlock],
    /// For eight-bit weights.
    pub words: &'a [WideXBlock],
}

impl<'a> XRows<'a> {
    /// Returns `count` blocks, starting at block `first`.
    pub fn blocks(self, first: usize, count: usize) -> Self {
        let end = first + count;
        Self {
            bytes: self.bytes.get(first..end).unwrap_or_default(),
            words: self.words.get(first..end).unwrap_or_default(),
        }
    }
}

/// Rows of `inner` numbers as blocks, in row-major order.
#[derive(Default)]
pub struct QuantizedRows {
    bytes: Vec<XBlock>,
    words: Vec<WideXBlock>,
}

impl QuantizedRows {
    /// Quantizes the rows for weights of these types.
    pub fn new(set: InstructionSet, x: &[f32], inner: usize, kinds: &[QuantType]) -> Self {
        let mut rows = Self::default();
        if kinds.iter().any(|kind| *kind != QuantType::Q8_0) {
            rows.bytes = quantize_rows(set, x, inner);
        }
        if kinds.contains(&QuantType::Q8_0) {
            rows.words = quantize_rows(set, x, inner);
        }
        rows
    }

    /// Returns all blocks.
    pub fn all(&self) -> XRows<'_> {
        XRows { bytes: &self.bytes, words: &self.words }
    }
}

fn quantize_rows<B: Quantized>(set: InstructionSet, x: &[f32], inner: usize) -> Vec<B> {
    let mut blocks = vec![B::ZERO; x.len() / BLOCK];
    if x.len() < SERIAL {
        quantize_by(set, x, &mut blocks);
    } else {
        let rows = x.par_chunks(inner).zip(blocks.par_chunks_mut(inner / BLOCK));
        rows.for_each(|(x, blocks)| quantize_by(set, x, blocks));
    }
    blocks
}

fn quantize_by<B: Quantized>(set: InstructionSet, x: &[f32], blocks: &mut [B]) {
    #[cfg(target_arch = "x86_64")]
    if set != InstructionSet::Scalar {
        // SAFETY: only instruction sets that this machine has get here, and every x86 set other
        // than Scalar implies AVX2.
        unsafe { quantize_with_avx2(x, blocks) };
        return;
    }
    let _ = set;
    quantize(x, blocks);
}

/// [`quantize`], compiled for vectors of eight.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn quantize_with_avx2<B: Quantized>(x: &[f32], blocks: &mut [B]) {
    quantize(x, blocks);
}

#[inline(always)]
fn quantize<B: Quantized>(x: &[f32], blocks: &mut [B]) {
    for (x, block) in x.as_chunks::<BLOCK>().0.iter().zip(blocks) {
        block.set(x);
    }
}

/// 1.5 * 2^23. Adding it leaves no fraction bits, so the sum is rounded to the nearest integer,
/// with ties to even. The sum's lowest bits are then those of the result.
const ROUND: f32 = 12_582_912.0;
