//! Activations as small integers: 32 numbers share a scale. Beside weights of four bits they have
//! eight, as in GGUF's Q8_0. Beside weights of eight bits they have sixteen: with eight, their own
//! rounding would cost a text about as much as that of the weights.

use crate::instruction_set::InstructionSet;
use crate::quantized_kernel::{BlockType, BLOCK};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::unrolled::unrolled;
use half::f16;
use rayon::prelude::*;

/// Numbers from which on several threads quantise them.
const SERIAL: usize = 1 << 16;

/// 32 numbers of a row: `scale * q`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct XBlock {
    /// The integers, from -127 to 127.
    pub q: [i8; BLOCK],
    /// The scale, rounded to f16 as in a file. Infinite or not a number if one of the numbers is:
    /// so will be the products.
    pub scale: f32,
    /// The sum of the integers. WeightSlices whose integers are stored with an offset need it.
    pub sum: i32,
}

impl Quantized for XBlock {
    const ZERO: Self = Self { q: [0; BLOCK], scale: 0.0, sum: 0 };

    /// ggml `quantize_row_q8_0`.
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

/// 32 numbers of a row, with integers of 16 bits: `scale * q`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct WideXBlock {
    /// The integers, from -[`WIDE`] to [`WIDE`]. Of each four the two in the middle have changed
    /// places: a vector of weights is taken apart into its even and its odd bytes.
    pub q: [i16; BLOCK],
    /// The scale, as in an [`XBlock`], but not rounded.
    pub scale: f32,
}

/// `M` rows of `x` that lie one behind the other, `(M, blocks)`, each by itself.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
pub fn rows<B, const M: usize>(x: &[B]) -> [&[B]; M] {
    let row_blocks = x.len() / M;
    let mut rows: [&[B]; M] = [&[]; M];
    unrolled!(m in M => { rows[m] = &x[m * row_blocks..][..row_blocks]; });
    rows
}

/// The largest integer of 16 bits whose two bytes are both numbers from -127 to 127.
pub const WIDE: i16 = 127 * 256 + 127;

/// Where number `i` of 32 is in a [`WideXBlock`].
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

/// A block that is made of 32 numbers.
trait Quantized: Copy + Send {
    const ZERO: Self;
    fn set(&mut self, x: &[f32; BLOCK]);
}

/// The step if the largest of some numbers is so many steps, and its inverse.
#[inline(always)]
fn scale(x: &[f32; BLOCK], steps: f32) -> (f32, f32) {
    // The bits of an f32 without its sign grow with it, and those of infinity and of what is not
    // a number are the largest: so the largest of all says if there is such a number.
    let largest = x.iter().fold(0, |largest, x| (x.to_bits() & 0x7fff_ffff).max(largest));
    let scale = f32::from_bits(largest) / steps;
    (scale, if scale == 0.0 { 0.0 } else { 1.0 / scale })
}

/// Rows of activations, row after row, in the integers that some weights need.
#[derive(Clone, Copy, Debug, Default)]
pub struct XRows<'a> {
    /// For weights of four bits.
    pub bytes: &'a [XBlock],
    /// For weights of eight bits.
    pub words: &'a [WideXBlock],
}

impl<'a> XRows<'a> {
    /// So many blocks from the block `first` on.
    pub fn blocks(self, first: usize, count: usize) -> Self {
        let end = first + count;
        Self {
            bytes: self.bytes.get(first..end).unwrap_or_default(),
            words: self.words.get(first..end).unwrap_or_default(),
        }
    }
}

/// Rows of `inner` numbers as blocks, row after row.
#[derive(Default)]
pub struct QuantizedRows {
    bytes: Vec<XBlock>,
    words: Vec<WideXBlock>,
}

impl QuantizedRows {
    /// Quantises them for weights of these types.
    pub fn new(set: InstructionSet, x: &[f32], inner: usize, kinds: &[BlockType]) -> Self {
        let mut rows = Self::default();
        if kinds.iter().any(|kind| *kind != BlockType::Q8_0) {
            rows.bytes = quantize_rows(set, x, inner);
        }
        if kinds.contains(&BlockType::Q8_0) {
            rows.words = quantize_rows(set, x, inner);
        }
        rows
    }

    /// All of them.
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
        // SAFETY: of the other sets only those of this machine come here, and of x86's all have
        // AVX2.
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

/// 1.5 * 2^23. Adding it leaves no bits behind the point: it rounds to the nearest integer, of two
/// equally near ones to the even one, whose lowest bits are now those of the sum.
const ROUND: f32 = 12_582_912.0;
