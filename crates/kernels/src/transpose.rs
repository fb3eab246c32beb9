//! Packs one row per vector lane side by side: the first number of each row, then the second of
//! each, and so on. Squares of numbers are transposed in registers.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::unrolled::unrolled;
use crate::vectors::max_panels;
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

/// Packs the first `S::F32_LANES` rows as panel `panel` of a group: number `k` of row `i` goes to
/// `out[(k * max_panels + panel) * lanes + i]`.
///
/// # Panics
/// If a row is shorter than the first, or `out` is too short.
#[inline(always)]
pub fn pack_rows<S: Simd>(simd: S, rows: &[&[f32]; MAX_LANES], panel: usize, out: &mut [f32]) {
    let step = const { max_panels(S::F32_LANES) * S::F32_LANES };
    for k in squares(simd, rows, panel, out)..rows[0].len() {
        let out = &mut out[k * step + panel * S::F32_LANES..][..S::F32_LANES];
        for i in 0..S::F32_LANES {
            out[i] = rows[i][k];
        }
    }
}

/// Packs as many numbers of each row as fill whole squares. Returns that number.
///
/// pulp has no shuffles for a generic vector type, so this looks up the type. It is known when the
/// function is compiled, and only one branch remains.
#[inline(always)]
fn squares<S: Simd>(simd: S, rows: &[&[f32]; MAX_LANES], panel: usize, out: &mut [f32]) -> usize {
    let simd: &dyn Any = &simd;
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = simd.downcast_ref() {
        return all_squares::<V4, 16, 4>(*simd, rows, panel, out);
    } else if let Some(simd) = simd.downcast_ref() {
        return all_squares::<V3, 8, 2>(*simd, rows, panel, out);
    }
    #[cfg(target_arch = "aarch64")]
    if let Some(simd) = simd.downcast_ref() {
        return all_squares::<Neon, 4, 4>(*simd, rows, panel, out);
    }
    let _ = (simd, rows, panel, out);
    0
}

/// A vector type of `N` lanes with a transpose, and `P` panels to a group.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
trait Transpose<const N: usize, const P: usize>: Simd {
    /// Returns a transposed square.
    fn transposed(self, square: [Self::f32s; N]) -> [Self::f32s; N];
}

/// Packs all whole squares of `N` rows by `N` numbers. Returns the number of packed numbers of each
/// row.
#[inline(always)]
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn all_squares<S: Transpose<N, P>, const N: usize, const P: usize>(
    simd: S,
    rows: &[&[f32]; MAX_LANES],
    panel: usize,
    out: &mut [f32],
) -> usize {
    let out = pulp::as_arrays_mut::<P, _>(S::as_mut_simd_f32s(out).0).0;
    let out = pulp::as_arrays_mut::<N, _>(out).0;
    let (whole, mut done) = (rows[0].len() / N, 0);
    while done + 4 <= whole {
        some_squares::<S, N, P, 4>(simd, rows, done, panel, out);
        done += 4;
    }
    while done < whole {
        some_squares::<S, N, P, 1>(simd, rows, done, panel, out);
        done += 1;
    }
    whole * N
}

/// Packs `C` squares, starting at square `first`.
///
/// Loads and stores of a square must not be able to panic, or the square would be kept in memory
/// instead of in registers. So all bounds are checked before the loop.
#[inline(always)]
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn some_squares<S: Transpose<N, P>, const N: usize, const P: usize, const C: usize>(
    simd: S,
    rows: &[&[f32]; MAX_LANES],
    first: usize,
    panel: usize,
    out: &mut [[[S::f32s; P]; N]],
) {
    let zeros: &[S::f32s; C] = &[simd.splat_f32s(0.0); C];
    let mut vectors = [zeros; N];
    unrolled!(i in N, at most 16 => {
        let row = &S::as_simd_f32s(rows[i]).0[first..][..C];
        vectors[i] = pulp::as_arrays::<C, _>(row).0.first().unwrap_or(zeros);
    });
    let out = &mut out[first..][..C];
    let panel = panel.min(P - 1);
    for at in 0..C {
        let mut square = [simd.splat_f32s(0.0); N];
        unrolled!(i in N, at most 16 => { square[i] = vectors[i][at]; });
        let columns = simd.transposed(square);
        unrolled!(k in N, at most 16 => { out[at][k][panel] = columns[k]; });
    }
}

#[cfg(target_arch = "x86_64")]
impl Transpose<16, 4> for V4 {
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
impl Transpose<8, 2> for V3 {
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
impl Transpose<4, 4> for Neon {
    /// With four lanes, deinterleaving is a transpose.
    #[inline(always)]
    fn transposed(self, square: [Self::f32s; 4]) -> [Self::f32s; 4] {
        self.deinterleave_shfl_f32s(square)
    }
}
