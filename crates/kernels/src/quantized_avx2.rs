//! Products of a tile with AVX2. A vector holds four bytes from each of eight rows.
//!
//! The only byte product, `vpmaddubsw`, multiplies unsigned with signed bytes and adds pairs of
//! products in 16 bits. Q4's integers are unsigned, and eight such sums, of at most `2 * 15 * 127`
//! each, add up within 16 bits. Q8_0's are widened to 16 bits by shifts, even bytes and odd bytes
//! separately; `vpmaddwd` then multiplies them with 16-bit activations and adds pairs of products
//! in 32 bits. Byte products would take just as many instructions, because the signs would first
//! have to move to the activations.

use crate::prefetch::Ahead;
use crate::quantized_blocks::{QuantType, TILE_ROWS};
use crate::quantized_rows::{rows, WideXBlock, XBlock, XRows};
use crate::unrolled::unrolled;
use pulp::bytemuck::cast;
use std::arch::x86_64::*;
use std::hint::black_box;

/// Computes `sums[row of x][row of the tile]` for at most 4 contiguous rows of `x`.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn tile_products(
    kind: QuantType,
    tile: &[u8],
    ahead: Ahead,
    x: XRows<'_>,
    sums: &mut [[f32; TILE_ROWS]],
) {
    match sums.len() {
        4 => products::<4>(kind, tile, ahead, x, sums),
        3 => products::<3>(kind, tile, ahead, x, sums),
        2 => products::<2>(kind, tile, ahead, x, sums),
        _ => products::<1>(kind, tile, ahead, x, sums),
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn products<const M: usize>(
    kind: QuantType,
    tile: &[u8],
    ahead: Ahead,
    x: XRows<'_>,
    sums: &mut [[f32; TILE_ROWS]],
) {
    let all = match kind {
        QuantType::Q8_0 => q8_0::<M>(tile, ahead, rows(x.words)),
        QuantType::Q4_0 => q4::<M, { 16 * 18 }>(tile, ahead, rows(x.bytes)),
        QuantType::Q4_1 => q4::<M, { 16 * 20 }>(tile, ahead, rows(x.bytes)),
    };
    unrolled!(m in M => { sums[m] = cast(all[m]); });
}

#[target_feature(enable = "avx2,fma,f16c")]
fn q8_0<const M: usize>(tile: &[u8], ahead: Ahead, x: [&[WideXBlock]; M]) -> [[__m256; 2]; M] {
    let mut sums = [[_mm256_setzero_ps(); 2]; M];
    let blocks = tile.as_chunks::<{ 16 * 34 }>().0;
    let blocks = &blocks[..blocks.len().min(x[0].len())];
    for (b, block) in blocks.iter().enumerate() {
        ahead.prefetch::<9>(b);
        let (scales, integers) = block.split_at(2 * TILE_ROWS);
        let mut products = [[_mm256_setzero_si256(); 2]; M];
        for (k, w) in integers.as_chunks::<64>().0.iter().enumerate() {
            let w: [__m256i; 2] = cast(*w);
            let mut even = w;
            let mut odd = w;
            for half in 0..2 {
                even[half] = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(w[half]));
                odd[half] = _mm256_srai_epi16::<8>(w[half]);
            }
            unrolled!(m in M => {
                let x = [two(&x[m][b], 2 * k), two(&x[m][b], 2 * k + 1)];
                for half in 0..2 {
                    let pairs = _mm256_madd_epi16(even[half], x[0]);
                    products[m][half] = _mm256_add_epi32(products[m][half], pairs);
                    let pairs = _mm256_madd_epi16(odd[half], x[1]);
                    products[m][half] = _mm256_add_epi32(products[m][half], pairs);
                }
            });
        }
        let scales = widened(scales);
        unrolled!(m in M => {
            let x_scale = _mm256_set1_ps(x[m][b].scale);
            for half in 0..2 {
                let scale = _mm256_mul_ps(scales[half], x_scale);
                let product = _mm256_cvtepi32_ps(products[m][half]);
                sums[m][half] = _mm256_fmadd_ps(product, scale, sums[m][half]);
            }
        });
    }
    sums
}

/// Q4_0, or Q4_1 if a block of 16 rows has `BYTES = 320` bytes.
#[target_feature(enable = "avx2,fma,f16c")]
fn q4<const M: usize, const BYTES: usize>(
    tile: &[u8],
    ahead: Ahead,
    x: [&[XBlock]; M],
) -> [[__m256; 2]; M] {
    let mut sums = [[_mm256_setzero_ps(); 2]; M];
    let ones = _mm256_set1_epi16(1);
    let low_bits = _mm256_set1_epi8(15);
    let blocks = tile.as_chunks::<BYTES>().0;
    let blocks = &blocks[..blocks.len().min(x[0].len())];
    for (b, block) in blocks.iter().enumerate() {
        ahead.prefetch::<9>(b);
        let (scales, integers) = block.split_at(BYTES - 16 * TILE_ROWS);
        let mut pairs = [[_mm256_setzero_si256(); 2]; M];
        let chunks = integers.as_chunks::<64>().0;
        // There are four chunks. If the compiler knew that, it would unroll the loop, start with
        // all products at once, and keep their sums in memory.
        for k in 0..black_box(chunks.len()).min(chunks.len()) {
            let w: [__m256i; 2] = cast(chunks[k]);
            let shifted = [_mm256_srli_epi16::<4>(w[0]), _mm256_srli_epi16::<4>(w[1])];
            let mut low = w;
            let mut high = shifted;
            for half in 0..2 {
                low[half] = _mm256_and_si256(w[half], low_bits);
                high[half] = _mm256_and_si256(shifted[half], low_bits);
            }
            unrolled!(m in M => {
                let x = [four(&x[m][b], k), four(&x[m][b], k + 4)];
                for half in 0..2 {
                    let products = _mm256_maddubs_epi16(low[half], x[0]);
                    pairs[m][half] = _mm256_add_epi16(pairs[m][half], products);
                    let products = _mm256_maddubs_epi16(high[half], x[1]);
                    pairs[m][half] = _mm256_add_epi16(pairs[m][half], products);
                }
            });
        }
        let (scales, smallest) = scales.split_at(2 * TILE_ROWS);
        let scales = widened(scales);
        unrolled!(m in M => {
            let x = &x[m][b];
            let x_scale = _mm256_set1_ps(x.scale);
            for half in 0..2 {
                let mut product = _mm256_madd_epi16(pairs[m][half], ones);
                if BYTES == 16 * 18 {
                    product = _mm256_sub_epi32(product, _mm256_set1_epi32(8 * x.sum));
                }
                let scale = _mm256_mul_ps(scales[half], x_scale);
                let product = _mm256_cvtepi32_ps(product);
                sums[m][half] = _mm256_fmadd_ps(product, scale, sums[m][half]);
            }
        });
        if BYTES != 16 * 18 {
            let smallest = widened(smallest);
            unrolled!(m in M => {
                let x_sum = _mm256_set1_ps(x[m][b].scale * x[m][b].sum as f32);
                for half in 0..2 {
                    sums[m][half] = _mm256_fmadd_ps(smallest[half], x_sum, sums[m][half]);
                }
            });
        }
    }
    sums
}

/// Returns integers `4 * k` to `4 * k + 3` of a block, repeated eight times.
#[inline]
#[target_feature(enable = "avx2")]
fn four(x: &XBlock, k: usize) -> __m256i {
    let [a, b, c, d] = x.q.as_chunks::<4>().0[k];
    _mm256_set1_epi32(i32::from_le_bytes([a as u8, b as u8, c as u8, d as u8]))
}

/// Returns integers `2 * k` and `2 * k + 1` of a block in stored order, repeated eight times.
#[inline]
#[target_feature(enable = "avx2")]
fn two(x: &WideXBlock, k: usize) -> __m256i {
    let [a, b] = x.q.as_chunks::<2>().0[k];
    _mm256_set1_epi32(i32::from(a) & 0xffff | i32::from(b) << 16)
}

/// Widens sixteen f16 numbers.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn widened(numbers: &[u8]) -> [__m256; 2] {
    let (numbers, _) = numbers.as_chunks::<16>();
    [_mm256_cvtph_ps(cast(numbers[0])), _mm256_cvtph_ps(cast(numbers[1]))]
}
