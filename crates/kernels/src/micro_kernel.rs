//! The micro-kernel of all products with weights that aren't quantized: dot products of a few rows
//! of weights with a few rows of `x`.

use crate::prefetch::Ahead;
use crate::unrolled::unrolled;
use crate::vectors::many_registers;
use crate::weight_types::WeightType;
use pulp::{NullaryFnOnce, Simd};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{compiler_fence, Ordering};
#[cfg(target_arch = "x86_64")]
use {pulp::bytemuck::cast, pulp::f32x16, pulp::x86::V4, std::any::Any, std::arch::x86_64::__m512};

/// Rows of weights at a time.
pub const W_ROWS: usize = 3;

/// Returns the maximum number of rows of `x` at a time: `3 x 8` sums and their operands fill 32
/// registers, and `3 x 4` fill 16.
const fn x_rows(lanes: usize) -> usize {
    if many_registers(lanes) {
        8
    } else {
        4
    }
}

/// Multiplies vectors of numbers, and adds their products to sums in f32, one per lane.
pub trait MultiplyAdd: Copy {
    /// A stored weight.
    type Weight: Copy + Into<f32> + Send + Sync + 'static;
    /// A number of `x`.
    type Number: Copy + Into<f32> + Send + Sync + 'static;
    /// The weights of a step as they are stored.
    type Stored: Copy;
    /// The numbers of `x` of a step.
    type Numbers: Copy;
    /// A vector of numbers to multiply.
    type Vector: Copy;
    /// A vector of sums.
    type Sums: Copy + 'static;
    /// Numbers in a step.
    const NUMBERS: usize;
    /// Vectors in a step, 1 or 2.
    const VECTORS: usize;
    /// Maximum number of rows of `x` at a time: see [`x_rows`].
    const X_ROWS: usize;

    /// Splits a row of weights into steps, without the remainder.
    fn stored(row: &[Self::Weight]) -> &[Self::Stored];
    /// Splits a row of `x` into steps, without the remainder.
    fn numbers(row: &[Self::Number]) -> &[Self::Numbers];
    /// Returns a vector of a step's weights.
    fn widen(self, weights: Self::Stored, vector: usize) -> Self::Vector;
    /// Returns a vector of a step's numbers of `x`.
    fn vector(numbers: Self::Numbers, vector: usize) -> Self::Vector;
    /// Returns sums of nothing.
    fn zeros(self) -> Self::Sums;
    /// Returns `sums + w · x`, lane by lane.
    fn multiply_add(self, w: Self::Vector, x: Self::Vector, sums: Self::Sums) -> Self::Sums;
    /// Adds up the lanes of four vectors of sums.
    fn totals(self, sums: [Self::Sums; 4]) -> [f32; 4];
    /// Calls a function that is compiled for this instruction set.
    fn vectorize<F: NullaryFnOnce>(self, f: F) -> F::Output;
}

/// Widens weights to vectors of f32, the type in which their products are then computed.
pub trait Widen: Copy {
    /// The instruction set.
    type Simd: Simd;
    /// A stored weight.
    type Weight: Copy + Into<f32> + Send + Sync + 'static;
    /// Two vectors' worth of weights as they are stored.
    type Stored: Copy;

    /// Returns the instruction set.
    fn simd(self) -> Self::Simd;
    /// Splits a row of weights into steps, without the remainder.
    fn stored(row: &[Self::Weight]) -> &[Self::Stored];
    /// Widens vector 0 or 1 of a step's weights.
    fn widen(self, weights: Self::Stored, vector: usize) -> Lanes<Self>;
    /// Calls a function that is compiled for this instruction set.
    #[inline(always)]
    fn vectorize<F: NullaryFnOnce>(self, f: F) -> F::Output {
        self.simd().vectorize(f)
    }
}

/// A vector of f32.
type Lanes<W> = <<W as Widen>::Simd as Simd>::f32s;

impl<W: Widen> MultiplyAdd for W {
    type Weight = W::Weight;
    type Number = f32;
    type Stored = W::Stored;
    type Numbers = [Lanes<W>; 2];
    type Vector = Lanes<W>;
    type Sums = Lanes<W>;
    const NUMBERS: usize = 2 * W::Simd::F32_LANES;
    const VECTORS: usize = 2;
    const X_ROWS: usize = x_rows(W::Simd::F32_LANES);

    #[inline(always)]
    fn stored(row: &[W::Weight]) -> &[W::Stored] {
        <W as Widen>::stored(row)
    }

    #[inline(always)]
    fn numbers(row: &[f32]) -> &[[Lanes<W>; 2]] {
        pulp::as_arrays::<2, _>(W::Simd::as_simd_f32s(row).0).0
    }

    #[inline(always)]
    fn widen(self, weights: W::Stored, vector: usize) -> Lanes<W> {
        Widen::widen(self, weights, vector)
    }

    #[inline(always)]
    fn vector(numbers: [Lanes<W>; 2], vector: usize) -> Lanes<W> {
        numbers[vector]
    }

    #[inline(always)]
    fn zeros(self) -> Lanes<W> {
        self.simd().splat_f32s(0.0)
    }

    #[inline(always)]
    fn multiply_add(self, w: Lanes<W>, x: Lanes<W>, sums: Lanes<W>) -> Lanes<W> {
        self.simd().mul_add_e_f32s(w, x, sums)
    }

    #[inline(always)]
    fn totals(self, sums: [Lanes<W>; 4]) -> [f32; 4] {
        totals(self.simd(), sums)
    }

    #[inline(always)]
    fn vectorize<F: NullaryFnOnce>(self, f: F) -> F::Output {
        Widen::vectorize(self, f)
    }
}

/// Widens weights of type `W` with instructions that every set has. If `W` splits pairs, so does
/// `x`.
#[derive(Clone, Copy)]
pub struct F32s<S, W>(pub S, pub PhantomData<W>);

impl<S: Simd, W: WeightType> Widen for F32s<S, W> {
    type Simd = S;
    type Weight = W;
    type Stored = W::Chunk<S>;

    #[inline(always)]
    fn simd(self) -> S {
        self.0
    }

    #[inline(always)]
    fn stored(row: &[W]) -> &[W::Chunk<S>] {
        W::chunks::<S>(row)
    }

    #[inline(always)]
    fn widen(self, weights: W::Chunk<S>, vector: usize) -> S::f32s {
        W::widen(self.0, weights, vector)
    }
}

/// Adds up the lanes of each vector.
#[inline(always)]
fn totals<S: Simd>(simd: S, sums: [S::f32s; 4]) -> [f32; 4] {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = (&simd as &dyn Any).downcast_ref() {
        return totals_of_sixteen(*simd, cast(sums));
    }
    let [a, b, c, d] = sums;
    let total = |sums| simd.reduce_sum_f32s(sums);
    [total(a), total(b), total(c), total(d)]
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
pub struct Tile<'a, 'o, D: MultiplyAdd, const R: usize> {
    pub dot: D,
    pub w: [&'a [D::Weight]; R],
    /// The rows of `x`: `inner` numbers from one to the next.
    pub x: &'a [D::Number],
    pub inner: usize,
    /// The sums: `sums[m * R + r]` belongs to row `r` of the weights and row `m` of `x`.
    pub sums: &'a mut [D::Sums],
    /// True for the first part of the rows, which starts from zero.
    pub begins: bool,
    /// True for the last part, whose totals go to `out`.
    pub ends: bool,
    /// For each row of `x`, the results, and the columns among them to write.
    pub out: &'a mut [&'o mut [f32]],
    pub columns: Range<usize>,
    /// The memory to prefetch during the products.
    pub ahead: Ahead,
}

impl<D: MultiplyAdd, const R: usize> Tile<'_, '_, D, R> {
    /// The conditions are constants, so only the micro-kernels that can run are compiled.
    #[inline(always)]
    pub fn add(self) {
        match self.out.len() {
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

struct MicroKernel<'a, 'o, D: MultiplyAdd, const R: usize, const M: usize>(Tile<'a, 'o, D, R>);

impl<D: MultiplyAdd, const R: usize, const M: usize> NullaryFnOnce
    for MicroKernel<'_, '_, D, R, M>
{
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Tile { dot, w, x, inner, sums: all, begins, ends, out, columns, ahead } = self.0;
        let steps = w[0].len() / D::NUMBERS;
        let mut rows: [&[D::Stored]; R] = [&[]; R];
        let mut xs: [&[D::Numbers]; M] = [&[]; M];
        unrolled!(r in R => { rows[r] = &D::stored(w[r])[..steps]; });
        unrolled!(m in M => { xs[m] = &D::numbers(&x[m * inner..])[..steps]; });

        let mut sums = [[dot.zeros(); R]; M];
        if !begins {
            let all = &all[..M * R];
            unrolled!(m in M => {
                unrolled!(r in R => { sums[m][r] = all[m * R + r]; });
            });
        }
        for k in 0..steps {
            ahead.prefetch::<6>(k);
            // One vector after another: both of all rows wouldn't fit in the registers, and the
            // next addition to a sum is far from the one whose result it needs.
            unrolled!(v in D::VECTORS => {
                if const { D::X_ROWS == 4 } {
                    // The compiler would load the second vectors early, and the sums, which fill
                    // the registers, would go to memory.
                    compiler_fence(Ordering::SeqCst);
                }
                let mut w = [dot.widen(rows[0][k], v); R];
                unrolled!(r in R => { w[r] = dot.widen(rows[r][k], v); });
                unrolled!(m in M => {
                    let x = D::vector(xs[m][k], v);
                    unrolled!(r in R => { sums[m][r] = dot.multiply_add(w[r], x, sums[m][r]); });
                });
            });
        }
        if ends {
            let out = &mut out[..M];
            unrolled!(m in M => {
                let (b, c, d) = const { (min(R - 1, 1), min(R - 1, 2), min(R - 1, 3)) };
                let totals = dot.totals([sums[m][0], sums[m][b], sums[m][c], sums[m][d]]);
                // Without a loop, which would become a call of `memcpy`.
                let out = &mut out[m][columns.clone()];
                unrolled!(r in R => {
                    if let (Some(out), Some(total)) = (out.get_mut(r), totals.get(r)) {
                        *out = *total;
                    }
                });
            });
        } else {
            let all = &mut all[..M * R];
            unrolled!(m in M => {
                unrolled!(r in R => { all[m * R + r] = sums[m][r]; });
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
