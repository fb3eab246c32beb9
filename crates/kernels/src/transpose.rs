//! Packs rows side by side, as many as a vector has lanes: the first number of each row, then the
//! second of each, and so on. Squares of numbers are transposed in registers.

use crate::unrolled::unrolled;
#[cfg(target_arch = "aarch64")]
use pulp::aarch64::Neon;
use pulp::Simd;
use std::any::Any;
#[cfg(target_arch = "x86_64")]
use {
    pulp::bytemuck::cast,
    pulp::x86::{V3, V4},
    pulp::{f32x16, f32x8},
    std::arch::x86_64::{__m256, __m512},
};

/// Maximum number of rows packed side by side: the lanes of the longest vector.
pub const MAX_LANES: usize = 16;

/// Packs the first `S::F32_LANES` rows. Number `k` of row `i` goes to `out[k * step + i]`.
///
/// # Panics
/// If a row is shorter than the first, or `out` is too short.
#[inline(always)]
pub fn pack_rows<S: Simd>(simd: S, rows: &[&[f32]; MAX_LANES], out: &mut [f32], step: usize) {
    let done = squares(simd, rows, out, step);
    for k in done..rows[0].len() {
        let out = &mut out[k * step..][..S::F32_LANES];
        for i in 0..S::F32_LANES {
            out[i] = rows[i][k];
        }
    }
}

/// Packs as many numbers of each row as fill whole squares. Returns how many that was.
///
/// pulp has no shuffles for a generic vector type, so this looks up the type. It is known when the
/// function is compiled, and only one branch remains.
#[inline(always)]
fn squares<S: Simd>(simd: S, rows: &[&[f32]; MAX_LANES], out: &mut [f32], step: usize) -> usize {
    let simd: &dyn Any = &simd;
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = simd.downcast_ref() {
        return pack_squares::<V4, 16>(*simd, rows, out, step);
    } else if let Some(simd) = simd.downcast_ref() {
        return pack_squares::<V3, 8>(*simd, rows, out, step);
    }
    #[cfg(target_arch = "aarch64")]
    if let Some(simd) = simd.downcast_ref() {
        return pack_squares::<Neon, 4>(*simd, rows, out, step);
    }
    let _ = (simd, rows, out, step);
    0
}

/// A vector type of `N` lanes with a transpose.
trait Transpose<const N: usize>: Simd {
    /// Returns a transposed square.
    fn transposed(self, square: [Self::f32s; N]) -> [Self::f32s; N];
}

/// Packs whole squares of `N` rows by `N` numbers. Returns the number of packed numbers of each row.
///
/// Neither loads nor stores can panic: then the square would be kept in memory, not in registers.
#[inline(always)]
fn pack_squares<S: Transpose<N>, const N: usize>(
    simd: S,
    rows: &[&[f32]; MAX_LANES],
    out: &mut [f32],
    step: usize,
) -> usize {
    let mut vectors: [&[S::f32s]; N] = [&[]; N];
    unrolled!(i in N, at most 16 => { vectors[i] = S::as_simd_f32s(rows[i]).0; });
    let (out, panels) = (S::as_mut_simd_f32s(out).0, step / N);
    let mut done = 0;
    while let Some(square) = loaded::<S, N>(&vectors, done) {
        let columns = simd.transposed(square);
        let out = out.get_mut(done * N * panels..).unwrap_or_default();
        unrolled!(k in N, at most 16 => {
            if let Some(out) = out.get_mut(k * panels) {
                *out = columns[k];
            }
        });
        done += 1;
    }
    done * N
}

/// Returns vector `at` of each row, if they all have one.
#[inline(always)]
fn loaded<S: Simd, const N: usize>(rows: &[&[S::f32s]; N], at: usize) -> Option<[S::f32s; N]> {
    let mut square = [*rows[0].get(at)?; N];
    unrolled!(i in N, at most 16 => { square[i] = *rows[i].get(at)?; });
    Some(square)
}

#[cfg(target_arch = "x86_64")]
impl Transpose<16> for V4 {
    #[inline(always)]
    fn transposed(self, square: [f32x16; 16]) -> [f32x16; 16] {
        let mut rows: [__m512; 16] = [cast(square[0]); 16];
        unrolled!(i in 16, at most 16 => { rows[i] = cast(square[i]); });
        let avx = self.avx512f;
        // `quads[i][m]`: in block `j` of four lanes, number `4 j + m` of rows `4 i` to `4 i + 3`.
        let mut quads = [[rows[0]; 4]; 4];
        unrolled!(i in 4 => {
            let (a, b, c, d) = (rows[4 * i], rows[4 * i + 1], rows[4 * i + 2], rows[4 * i + 3]);
            let ab = [avx._mm512_unpacklo_ps(a, b), avx._mm512_unpackhi_ps(a, b)];
            let cd = [avx._mm512_unpacklo_ps(c, d), avx._mm512_unpackhi_ps(c, d)];
            quads[i] = [
                avx._mm512_shuffle_ps::<0x44>(ab[0], cd[0]),
                avx._mm512_shuffle_ps::<0xee>(ab[0], cd[0]),
                avx._mm512_shuffle_ps::<0x44>(ab[1], cd[1]),
                avx._mm512_shuffle_ps::<0xee>(ab[1], cd[1]),
            ];
        });
        let mut columns = square;
        unrolled!(m in 4 => {
            let (a, b, c, d) = (quads[0][m], quads[1][m], quads[2][m], quads[3][m]);
            let ab_low = avx._mm512_shuffle_f32x4::<0x44>(a, b);
            let cd_low = avx._mm512_shuffle_f32x4::<0x44>(c, d);
            let ab_high = avx._mm512_shuffle_f32x4::<0xee>(a, b);
            let cd_high = avx._mm512_shuffle_f32x4::<0xee>(c, d);
            columns[m] = cast(avx._mm512_shuffle_f32x4::<0x88>(ab_low, cd_low));
            columns[4 + m] = cast(avx._mm512_shuffle_f32x4::<0xdd>(ab_low, cd_low));
            columns[8 + m] = cast(avx._mm512_shuffle_f32x4::<0x88>(ab_high, cd_high));
            columns[12 + m] = cast(avx._mm512_shuffle_f32x4::<0xdd>(ab_high, cd_high));
        });
        columns
    }
}

#[cfg(target_arch = "x86_64")]
impl Transpose<8> for V3 {
    #[inline(always)]
    fn transposed(self, square: [f32x8; 8]) -> [f32x8; 8] {
        let mut rows: [__m256; 8] = [cast(square[0]); 8];
        unrolled!(i in 8 => { rows[i] = cast(square[i]); });
        let avx = self.avx;
        // `quads[i][m]`: in half `j` of the lanes, number `4 j + m` of rows `4 i` to `4 i + 3`.
        let mut quads = [[rows[0]; 4]; 2];
        unrolled!(i in 2 => {
            let (a, b, c, d) = (rows[4 * i], rows[4 * i + 1], rows[4 * i + 2], rows[4 * i + 3]);
            let ab = [avx._mm256_unpacklo_ps(a, b), avx._mm256_unpackhi_ps(a, b)];
            let cd = [avx._mm256_unpacklo_ps(c, d), avx._mm256_unpackhi_ps(c, d)];
            quads[i] = [
                avx._mm256_shuffle_ps::<0x44>(ab[0], cd[0]),
                avx._mm256_shuffle_ps::<0xee>(ab[0], cd[0]),
                avx._mm256_shuffle_ps::<0x44>(ab[1], cd[1]),
                avx._mm256_shuffle_ps::<0xee>(ab[1], cd[1]),
            ];
        });
        let mut columns = square;
        unrolled!(m in 4 => {
            let (a, b) = (quads[0][m], quads[1][m]);
            columns[m] = cast(avx._mm256_permute2f128_ps::<0x20>(a, b));
            columns[4 + m] = cast(avx._mm256_permute2f128_ps::<0x31>(a, b));
        });
        columns
    }
}

#[cfg(target_arch = "aarch64")]
impl Transpose<4> for Neon {
    /// With four lanes, deinterleaving is a transpose.
    #[inline(always)]
    fn transposed(self, square: [Self::f32s; 4]) -> [Self::f32s; 4] {
        self.deinterleave_shfl_f32s(square)
    }
}
