//! The micro-kernel of all products with weights that aren't quantized: dot products of a few rows
//! of weights with a few rows of `x`.

use crate::prefetch::Ahead;
use crate::unrolled::unrolled;
use crate::vectors::many_registers;
use crate::weight_types::WeightType;
use pulp::{NullaryFnOnce, Simd};
use std::marker::PhantomData;
#[cfg(target_arch = "x86_64")]
use {pulp::bytemuck::cast, pulp::f32x16, pulp::x86::V4, std::any::Any, std::arch::x86_64::__m512};

/// Rows of weights at a time: `3 x 8` sums and their operands fill 32 registers, and `3 x 4` fill
/// 16.
pub const W_ROWS: usize = 3;

/// Maximum number of rows of `x` at a time, over all instruction sets.
pub const MAX_X_ROWS: usize = 8;

/// Multiplies vectors of numbers, and adds their products to sums in f32, one per lane.
pub trait MultiplyAdd: Copy {
    /// A stored weight.
    type Weight: Copy + Into<f32> + Send + Sync + 'static;
    /// A number of `x`.
    type Number: Copy + Into<f32> + Send + Sync + 'static;
    /// Some weights as they are stored.
    type Stored: Copy;
    /// Some numbers to multiply.
    type Vector: Copy;
    /// A vector of sums.
    type Sums: Copy + 'static;
    /// Numbers in a vector.
    const NUMBERS: usize;
    /// Maximum number of rows of `x` at a time, 4 or 8. It depends on the number of registers.
    const X_ROWS: usize;

    /// Splits a row of weights into vectors, without the remainder.
    fn stored(row: &[Self::Weight]) -> &[Self::Stored];
    /// Splits a row of `x` into vectors, without the remainder.
    fn vectors(row: &[Self::Number]) -> &[Self::Vector];
    /// Returns weights as numbers to multiply.
    fn widen(self, weights: Self::Stored) -> Self::Vector;
    /// Returns sums of nothing.
    fn zeros(self) -> Self::Sums;
    /// Returns `sums + w · x`, lane by lane.
    fn multiply_add(self, w: Self::Vector, x: Self::Vector, sums: Self::Sums) -> Self::Sums;
    /// Adds up the lanes of four vectors of sums.
    fn totals(self, sums: [Self::Sums; 4]) -> [f32; 4];
    /// Calls a function that is compiled for this instruction set.
    fn vectorize<F: NullaryFnOnce>(self, f: F) -> F::Output;
}

/// Products in f32, with weights of type `W`. If `W` splits pairs, so does `x`.
#[derive(Clone, Copy)]
pub struct F32s<S, W>(pub S, pub PhantomData<W>);

impl<S: Simd, W: WeightType> MultiplyAdd for F32s<S, W> {
    type Weight = W;
    type Number = f32;
    type Stored = W::Chunk<S>;
    type Vector = [S::f32s; 2];
    type Sums = S::f32s;
    const NUMBERS: usize = 2 * S::F32_LANES;
    const X_ROWS: usize = if many_registers(S::F32_LANES) { 8 } else { 4 };

    #[inline(always)]
    fn stored(row: &[W]) -> &[W::Chunk<S>] {
        W::chunks::<S>(row)
    }

    #[inline(always)]
    fn vectors(row: &[f32]) -> &[[S::f32s; 2]] {
        pulp::as_arrays::<2, _>(S::as_simd_f32s(row).0).0
    }

    #[inline(always)]
    fn widen(self, weights: W::Chunk<S>) -> [S::f32s; 2] {
        W::widen(self.0, weights)
    }

    #[inline(always)]
    fn zeros(self) -> S::f32s {
        self.0.splat_f32s(0.0)
    }

    #[inline(always)]
    fn multiply_add(self, w: [S::f32s; 2], x: [S::f32s; 2], sums: S::f32s) -> S::f32s {
        self.0.mul_add_e_f32s(w[1], x[1], self.0.mul_add_e_f32s(w[0], x[0], sums))
    }

    #[inline(always)]
    fn totals(self, sums: [S::f32s; 4]) -> [f32; 4] {
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = (&self.0 as &dyn Any).downcast_ref() {
            return totals_of_sixteen(*simd, cast(sums));
        }
        let [a, b, c, d] = sums;
        let total = |sums| self.0.reduce_sum_f32s(sums);
        [total(a), total(b), total(c), total(d)]
    }

    #[inline(always)]
    fn vectorize<F: NullaryFnOnce>(self, f: F) -> F::Output {
        self.0.vectorize(f)
    }
}

/// Adds up the sixteen lanes of each vector, in the order of pulp's `reduce_sum_f32s`. Four vectors
/// at once need a third of its instructions.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn totals_of_sixteen(simd: V4, sums: [f32x16; 4]) -> [f32; 4] {
    let avx = simd.avx512f;
    let [a, b, c, d]: [__m512; 4] = cast(sums);
    // Lanes 0 to 7 plus lanes 8 to 15, and so on: each vector's sums get half as long.
    let low = [avx._mm512_shuffle_f32x4::<0x44>(a, b), avx._mm512_shuffle_f32x4::<0x44>(c, d)];
    let high = [avx._mm512_shuffle_f32x4::<0xee>(a, b), avx._mm512_shuffle_f32x4::<0xee>(c, d)];
    let (ab, cd) = (avx._mm512_add_ps(low[0], high[0]), avx._mm512_add_ps(low[1], high[1]));
    let low = avx._mm512_shuffle_f32x4::<0x88>(ab, cd);
    let high = avx._mm512_shuffle_f32x4::<0xdd>(ab, cd);
    let four = avx._mm512_add_ps(low, high);
    let two = avx._mm512_add_ps(four, avx._mm512_shuffle_ps::<0x4e>(four, four));
    let one: f32x16 = cast(avx._mm512_add_ps(two, avx._mm512_shuffle_ps::<0xb1>(two, two)));
    [one.0, one.4, one.8, one.12]
}

/// Adds the products of parts of `R` rows of weights with parts of some rows of `x` to sums.
pub struct Tile<'a, D: MultiplyAdd, const R: usize> {
    pub dot: D,
    pub w: [&'a [D::Weight]; R],
    /// The rows of `x`: `inner` numbers from one to the next.
    pub x: &'a [D::Number],
    pub inner: usize,
    /// The sums: `sums[r * rows + m]` belongs to row `r` of the weights and row `m` of `x`.
    pub sums: &'a mut [D::Sums],
    /// True for the first part of the rows, which starts from zero.
    pub begins: bool,
    /// For the last part, the destination of the totals: `totals[m][r]`.
    pub totals: Option<&'a mut [[f32; 4]; MAX_X_ROWS]>,
    /// The memory to prefetch during the products, in one step for each vector of a row.
    pub ahead: Ahead,
}

impl<D: MultiplyAdd, const R: usize> Tile<'_, D, R> {
    /// The conditions are constants, so only the micro-kernels that can run are compiled.
    #[inline(always)]
    pub fn add(self) {
        match self.sums.len() / R {
            8 if const { D::X_ROWS == 8 && R > 1 } => self.add_rows::<8>(),
            7 if const { D::X_ROWS == 8 && R > 1 } => self.add_rows::<7>(),
            6 if const { D::X_ROWS == 8 && R > 1 } => self.add_rows::<6>(),
            5 if const { D::X_ROWS == 8 && R > 1 } => self.add_rows::<5>(),
            4 if const { R > 1 } => self.add_rows::<4>(),
            3 if const { R > 1 } => self.add_rows::<3>(),
            2 => self.add_rows::<2>(),
            _ => self.add_rows::<1>(),
        }
    }

    /// Calls a separate function.
    #[inline(always)]
    fn add_rows<const M: usize>(self) {
        self.dot.vectorize(MicroKernel::<D, R, M>(self));
    }
}

struct MicroKernel<'a, D: MultiplyAdd, const R: usize, const M: usize>(Tile<'a, D, R>);

impl<D: MultiplyAdd, const R: usize, const M: usize> NullaryFnOnce for MicroKernel<'_, D, R, M> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Tile { dot, w, x, inner, sums: all, begins, totals, ahead } = self.0;
        let steps = w[0].len() / D::NUMBERS;
        let mut rows: [&[D::Stored]; R] = [&[]; R];
        let mut xs: [&[D::Vector]; M] = [&[]; M];
        unrolled!(r in R => { rows[r] = &D::stored(w[r])[..steps]; });
        unrolled!(m in M => { xs[m] = &D::vectors(&x[m * inner..])[..steps]; });
        let all = &mut all[..R * M];

        let mut sums = [[dot.zeros(); M]; R];
        if !begins {
            unrolled!(r in R => {
                unrolled!(m in M => { sums[r][m] = all[r * M + m]; });
            });
        }
        for k in 0..steps {
            ahead.prefetch::<6>(k);
            let mut w = [dot.widen(rows[0][k]); R];
            unrolled!(r in R => { w[r] = dot.widen(rows[r][k]); });
            unrolled!(m in M => {
                let x = xs[m][k];
                unrolled!(r in R => {
                    sums[r][m] = dot.multiply_add(w[r], x, sums[r][m]);
                });
            });
        }
        if let Some(totals) = totals {
            unrolled!(m in M => {
                let (b, c, d) = const { (min(R - 1, 1), min(R - 1, 2), min(R - 1, 3)) };
                totals[m] = dot.totals([sums[0][m], sums[b][m], sums[c][m], sums[d][m]]);
            });
        } else {
            unrolled!(r in R => {
                unrolled!(m in M => { all[r * M + m] = sums[r][m]; });
            });
        }
    }
}

/// Returns the smaller of two numbers, in a constant.
const fn min(a: usize, b: usize) -> usize {
    if a < b {
        a
    } else {
        b
    }
}
