//! Products of a tile with AVX-512 VNNI. A vector holds four bytes from each of sixteen rows.
//!
//! `vpdpbusd` multiplies unsigned bytes, such as Q4's, with signed ones, and adds four products
//! from each row to a 32-bit sum. Q8_0's bytes are widened to 16 bits by shifts, even and odd bytes
//! separately, and `vpdpwssd` does the same with two 16-bit products.

use crate::prefetch::Ahead;
use crate::quantized_blocks::{QuantType, TILE_ROWS};
use crate::quantized_rows::{rows, WideXBlock, XBlock, XRows};
use crate::unrolled::unrolled;
use pulp::bytemuck::cast;
use std::arch::x86_64::*;

/// Computes `sums[row of x][row of the tile]` for at most 8 contiguous rows of `x`.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub fn tile_products(
    kind: QuantType,
    tile: &[u8],
    ahead: Ahead,
    x: XRows<'_>,
    sums: &mut [[f32; TILE_ROWS]],
) {
    match sums.len() {
        8 => products::<8>(kind, tile, ahead, x, sums),
        7 => products::<7>(kind, tile, ahead, x, sums),
        6 => products::<6>(kind, tile, ahead, x, sums),
        5 => products::<5>(kind, tile, ahead, x, sums),
        4 => products::<4>(kind, tile, ahead, x, sums),
        3 => products::<3>(kind, tile, ahead, x, sums),
        2 => products::<2>(kind, tile, ahead, x, sums),
        _ => products::<1>(kind, tile, ahead, x, sums),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
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
    unrolled!(m in M => { sums[m] = all[m]; });
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn q8_0<const M: usize>(tile: &[u8], ahead: Ahead, x: [&[WideXBlock]; M]) -> [[f32; TILE_ROWS]; M] {
    let mut sums = [_mm512_setzero_ps(); M];
    let blocks = tile.as_chunks::<{ 16 * 34 }>().0;
    let blocks = &blocks[..blocks.len().min(x[0].len())];
    for (b, block) in blocks.iter().enumerate() {
        ahead.prefetch::<9>(b);
        let (scales, integers) = block.split_at(2 * TILE_ROWS);
        let mut products = [_mm512_setzero_si512(); M];
        for (k, w) in integers.as_chunks::<64>().0.iter().enumerate() {
            let w: __m512i = cast(*w);
            let even = _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(w));
            let odd = _mm512_srai_epi16::<8>(w);
            unrolled!(m in M => {
                products[m] = _mm512_dpwssd_epi32(products[m], even, two(&x[m][b], 2 * k));
                products[m] = _mm512_dpwssd_epi32(products[m], odd, two(&x[m][b], 2 * k + 1));
            });
        }
        let scales = widened(scales);
        unrolled!(m in M => {
            let scale = _mm512_mul_ps(scales, _mm512_set1_ps(x[m][b].scale));
            sums[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products[m]), scale, sums[m]);
        });
    }
    let mut all = [[0f32; TILE_ROWS]; M];
    unrolled!(m in M => { all[m] = cast(sums[m]); });
    all
}

/// Q4_0, or Q4_1 if a block of 16 rows has `BYTES = 320` bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn q4<const M: usize, const BYTES: usize>(
    tile: &[u8],
    ahead: Ahead,
    x: [&[XBlock]; M],
) -> [[f32; TILE_ROWS]; M] {
    let mut sums = [_mm512_setzero_ps(); M];
    let low_bits = _mm512_set1_epi8(15);
    let blocks = tile.as_chunks::<BYTES>().0;
    let blocks = &blocks[..blocks.len().min(x[0].len())];
    for (b, block) in blocks.iter().enumerate() {
        ahead.prefetch::<9>(b);
        let (scales, integers) = block.split_at(BYTES - 16 * TILE_ROWS);
        let mut products = [_mm512_setzero_si512(); M];
        for (k, w) in integers.as_chunks::<64>().0.iter().enumerate() {
            let w: __m512i = cast(*w);
            let low = _mm512_and_si512(w, low_bits);
            let high = _mm512_and_si512(_mm512_srli_epi32::<4>(w), low_bits);
            unrolled!(m in M => {
                products[m] = _mm512_dpbusd_epi32(products[m], low, four(&x[m][b], k));
                products[m] = _mm512_dpbusd_epi32(products[m], high, four(&x[m][b], k + 4));
            });
        }
        let (scales, smallest) = scales.split_at(2 * TILE_ROWS);
        let scales = widened(scales);
        unrolled!(m in M => {
            let x = &x[m][b];
            let mut product = products[m];
            if BYTES == 16 * 18 {
                product = _mm512_sub_epi32(product, _mm512_set1_epi32(8 * x.sum));
            }
            let scale = _mm512_mul_ps(scales, _mm512_set1_ps(x.scale));
            sums[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(product), scale, sums[m]);
        });
        if BYTES != 16 * 18 {
            let smallest = widened(smallest);
            unrolled!(m in M => {
                let x_sum = _mm512_set1_ps(x[m][b].scale * x[m][b].sum as f32);
                sums[m] = _mm512_fmadd_ps(smallest, x_sum, sums[m]);
            });
        }
    }
    let mut all = [[0f32; TILE_ROWS]; M];
    unrolled!(m in M => { all[m] = cast(sums[m]); });
    all
}

/// Returns integers `4 * k` to `4 * k + 3` of a block, repeated sixteen times.
#[inline]
#[target_feature(enable = "avx512f")]
fn four(x: &XBlock, k: usize) -> __m512i {
    let [a, b, c, d] = x.q.as_chunks::<4>().0[k];
    _mm512_set1_epi32(i32::from_le_bytes([a as u8, b as u8, c as u8, d as u8]))
}

/// Returns integers `2 * k` and `2 * k + 1` of a block in stored order, repeated sixteen times.
#[inline]
#[target_feature(enable = "avx512f")]
fn two(x: &WideXBlock, k: usize) -> __m512i {
    let [a, b] = x.q.as_chunks::<2>().0[k];
    _mm512_set1_epi32(i32::from(a) & 0xffff | i32::from(b) << 16)
}

/// Widens sixteen f16 numbers.
#[inline]
#[target_feature(enable = "avx512f")]
fn widened(numbers: &[u8]) -> __m512 {
    let (numbers, _) = numbers.as_chunks::<32>();
    _mm512_cvtph_ps(cast(numbers[0]))
}
