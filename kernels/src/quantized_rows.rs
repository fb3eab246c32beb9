//! Activations as small integers: 32 numbers share a scale, as in GGUF's Q8_0.

use crate::instruction_set::InstructionSet;
use crate::quantized_kernel::BLOCK;
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
    /// The scale, rounded to f16 as in a file. Infinite or not a number if one of the numbers is: so
    /// will be the products.
    pub scale: f32,
    /// The sum of the integers. Weights whose integers are stored with an offset need it.
    pub sum: i32,
}

impl XBlock {
    const ZERO: Self = Self { q: [0; BLOCK], scale: 0.0, sum: 0 };
}

/// Rows of `inner` numbers as blocks, row after row (ggml `quantize_row_q8_0`).
pub fn quantize_rows(set: InstructionSet, x: &[f32], inner: usize) -> Vec<XBlock> {
    let mut blocks = vec![XBlock::ZERO; x.len() / BLOCK];
    if x.len() < SERIAL {
        quantize_by(set, x, &mut blocks);
    } else {
        let rows = x.par_chunks(inner).zip(blocks.par_chunks_mut(inner / BLOCK));
        rows.for_each(|(x, blocks)| quantize_by(set, x, blocks));
    }
    blocks
}

fn quantize_by(set: InstructionSet, x: &[f32], blocks: &mut [XBlock]) {
    #[cfg(target_arch = "x86_64")]
    if set != InstructionSet::Scalar {
        // SAFETY: of the other sets only those of this machine come here, and of x86's all have AVX2.
        unsafe { quantize_with_avx2(x, blocks) };
        return;
    }
    let _ = set;
    quantize(x, blocks);
}

/// [`quantize`], compiled for vectors of eight.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn quantize_with_avx2(x: &[f32], blocks: &mut [XBlock]) {
    quantize(x, blocks);
}

#[inline(always)]
fn quantize(x: &[f32], blocks: &mut [XBlock]) {
    for (x, block) in x.as_chunks::<BLOCK>().0.iter().zip(blocks) {
        // The bits of an f32 without its sign grow with it, and those of infinity and of what is not
        // a number are the largest: so the largest of all says if there is such a number.
        let largest = x.iter().fold(0, |largest, x| (x.to_bits() & 0x7fff_ffff).max(largest));
        let scale = f32::from_bits(largest) / 127.0;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let mut sum = 0;
        for i in 0..BLOCK {
            // Adding 1.5 * 2^23 leaves no bits behind the point: it rounds to the nearest integer, of
            // two equally near ones to the even one, whose lowest byte is now that of the sum's bits.
            let q = (x[i] * inverse + ROUND).to_bits() as i8;
            block.q[i] = q;
            sum += i32::from(q);
        }
        block.sum = sum;
        block.scale = f16::from_f32(scale).to_f32();
    }
}

/// 1.5 * 2^23.
const ROUND: f32 = 12_582_912.0;
