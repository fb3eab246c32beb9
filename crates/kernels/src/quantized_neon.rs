//! Products of a tile with NEON and `sdot`, which adds four products of signed bytes to each of
//! four 32-bit sums. A vector holds four bytes from each of four rows. For eight-bit weights,
//! activations have sixteen bits, and their two bytes are multiplied separately.

use crate::quantized_blocks::{QuantType, BLOCK, TILE_ROWS};
use crate::quantized_rows::{place, rows, WideXBlock, XBlock, XRows};
use crate::unrolled::unrolled;
use half::f16;
use std::arch::aarch64::*;

/// Number of vectors for the rows of a tile.
const VECTORS: usize = TILE_ROWS / 4;

/// Computes `sums[row of x][row of the tile]` for at most 4 contiguous rows of `x`.
#[target_feature(enable = "neon,dotprod")]
pub fn tile_products(kind: QuantType, tile: &[u8], x: XRows<'_>, sums: &mut [[f32; TILE_ROWS]]) {
    match sums.len() {
        4 => products::<4>(kind, tile, x, sums),
        3 => products::<3>(kind, tile, x, sums),
        2 => products::<2>(kind, tile, x, sums),
        _ => products::<1>(kind, tile, x, sums),
    }
}

#[target_feature(enable = "neon,dotprod")]
fn products<const M: usize>(
    kind: QuantType,
    tile: &[u8],
    x: XRows<'_>,
    sums: &mut [[f32; TILE_ROWS]],
) {
    let all = if kind == QuantType::Q8_0 {
        q8_0::<M>(tile, rows(x.words))
    } else {
        q4::<M>(kind, tile, rows(x.bytes))
    };
    unrolled!(m in M => {
        for v in 0..VECTORS {
            let place = &mut sums[m].as_chunks_mut::<4>().0[v];
            // SAFETY: four numbers are written, and `place` has room for four.
            unsafe { vst1q_f32(place.as_mut_ptr(), all[m][v]) };
        }
    });
}

#[target_feature(enable = "neon,dotprod")]
fn q8_0<const M: usize>(tile: &[u8], x: [&[WideXBlock]; M]) -> [[float32x4_t; VECTORS]; M] {
    let mut all = [[vdupq_n_f32(0.0); VECTORS]; M];
    for (b, block) in tile.as_chunks::<{ 16 * 34 }>().0.iter().take(x[0].len()).enumerate() {
        let (scales, integers) = block.split_at(2 * TILE_ROWS);
        let scales = widened(scales);
        let mut halves = [[[0; BLOCK]; 2]; M];
        unrolled!(m in M => { halves[m] = bytes_of(&x[m][b]); });
        for v in 0..VECTORS {
            let mut high = [vdupq_n_s32(0); M];
            let mut low = [vdupq_n_s32(0); M];
            for (k, w) in integers.as_chunks::<{ 4 * TILE_ROWS }>().0.iter().enumerate() {
                let w = vreinterpretq_s8_u8(bytes(&w.as_chunks::<16>().0[v]));
                unrolled!(m in M => {
                    high[m] = sdot(high[m], w, four(&halves[m][0], k));
                    low[m] = sdot(low[m], w, four(&halves[m][1], k));
                });
            }
            unrolled!(m in M => {
                let product = vaddq_s32(vshlq_n_s32::<8>(high[m]), low[m]);
                let scale = vmulq_f32(scales[v], vdupq_n_f32(x[m][b].scale));
                all[m][v] = vfmaq_f32(all[m][v], vcvtq_f32_s32(product), scale);
            });
        }
    }
    all
}

/// Splits 32 integers into upper and lower bytes, both signed: `256 * upper + lower`.
#[inline]
fn bytes_of(x: &WideXBlock) -> [[i8; BLOCK]; 2] {
    let mut halves = [[0; BLOCK]; 2];
    for i in 0..BLOCK {
        let q = x.q[place(i)];
        let low = q as i8;
        halves[0][i] = (q.wrapping_sub(i16::from(low)) >> 8) as i8;
        halves[1][i] = low;
    }
    halves
}

/// Q4_0 or Q4_1.
#[target_feature(enable = "neon,dotprod")]
fn q4<const M: usize>(
    kind: QuantType,
    tile: &[u8],
    x: [&[XBlock]; M],
) -> [[float32x4_t; VECTORS]; M] {
    let mut all = [[vdupq_n_f32(0.0); VECTORS]; M];
    for (b, block) in tile.chunks_exact(TILE_ROWS * kind.bytes()).take(x[0].len()).enumerate() {
        let (scales, integers) = block.split_at(block.len() - BLOCK / 2 * TILE_ROWS);
        let (scales, smallest) = scales.split_at(2 * TILE_ROWS);
        let mut products = [[vdupq_n_s32(0); VECTORS]; M];
        for (k, w) in integers.as_chunks::<{ 4 * TILE_ROWS }>().0.iter().enumerate() {
            let (w, _) = w.as_chunks::<16>();
            for v in 0..VECTORS {
                let w = bytes(&w[v]);
                let low = vreinterpretq_s8_u8(vandq_u8(w, vdupq_n_u8(15)));
                let high = vreinterpretq_s8_u8(vshrq_n_u8::<4>(w));
                unrolled!(m in M => {
                    let x = [four(&x[m][b].q, k), four(&x[m][b].q, k + BLOCK / 8)];
                    products[m][v] = sdot(products[m][v], low, x[0]);
                    products[m][v] = sdot(products[m][v], high, x[1]);
                });
            }
        }
        let scales = widened(scales);
        unrolled!(m in M => {
            let x = &x[m][b];
            for v in 0..VECTORS {
                let mut product = products[m][v];
                if kind == QuantType::Q4_0 {
                    product = vsubq_s32(product, vdupq_n_s32(8 * x.sum));
                }
                let scale = vmulq_f32(scales[v], vdupq_n_f32(x.scale));
                all[m][v] = vfmaq_f32(all[m][v], vcvtq_f32_s32(product), scale);
            }
        });
        if kind == QuantType::Q4_1 {
            let smallest = widened(smallest);
            unrolled!(m in M => {
                let x_sum = vdupq_n_f32(x[m][b].scale * x[m][b].sum as f32);
                for v in 0..VECTORS {
                    all[m][v] = vfmaq_f32(all[m][v], smallest[v], x_sum);
                }
            });
        }
    }
    all
}

/// Adds four products to each of four sums. The instruction's intrinsic, `vdotq_s32`, isn't in
/// stable Rust yet.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot(mut sums: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: the instruction reads three registers and writes only the first of them, and every
    // caller has the feature that it requires.
    unsafe {
        std::arch::asm!(
            "sdot {sums:v}.4s, {a:v}.16b, {b:v}.16b",
            sums = inout(vreg) sums,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}

/// Returns integers `4 * k` to `4 * k + 3` of a block, repeated four times.
#[inline]
#[target_feature(enable = "neon")]
fn four(x: &[i8; BLOCK], k: usize) -> int8x16_t {
    let [a, b, c, d] = x.as_chunks::<4>().0[k];
    let word = i32::from_le_bytes([a as u8, b as u8, c as u8, d as u8]);
    vreinterpretq_s8_s32(vdupq_n_s32(word))
}

#[inline]
#[target_feature(enable = "neon")]
fn bytes(bytes: &[u8; 16]) -> uint8x16_t {
    // SAFETY: exactly the 16 bytes of `bytes` are read, and the instruction requires no alignment.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

/// Widens sixteen f16 numbers.
#[inline]
#[target_feature(enable = "neon")]
fn widened(numbers: &[u8]) -> [float32x4_t; VECTORS] {
    let mut wide = [0f32; TILE_ROWS];
    for (wide, bytes) in wide.iter_mut().zip(numbers.as_chunks::<2>().0) {
        *wide = f16::from_le_bytes(*bytes).to_f32();
    }
    let mut all = [vdupq_n_f32(0.0); VECTORS];
    for v in 0..VECTORS {
        // SAFETY: four numbers are read, and each quarter of `wide` has four.
        all[v] = unsafe { vld1q_f32(wide.as_chunks::<4>().0[v].as_ptr()) };
    }
    all
}
