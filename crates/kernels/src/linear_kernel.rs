//! Products with weights: `x · wᵀ`. Each row of weights is read from memory once.

use crate::bandwidth::count;
use crate::blocked_products::{blocked_products, BLOCKED_MIN_ROWS, GROUP};
use crate::dot_products::{dot_products, max_x_rows, DOT_W_ROWS, GEMV_ROWS};
use crate::instruction_set::arch;
use crate::shared_columns::shared_columns;
use crate::weight_types::{Deinterleave, WeightType};
use half::{bf16, f16};
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

/// Rows of 16-bit weights at a time for one or two rows of `x`. Each addition to a sum waits about
/// four cycles for the one before, so the sums of a single row would be slower than memory.
const PAIR: usize = 2;
/// Maximum number of rows of `x` for which weights are taken in pairs. More rows have enough sums.
const PAIR_X_ROWS: usize = 2;

/// Weight matrices of one type that share an input. Each is `(out, in)`, in row-major order.
pub enum WeightSlices<'a> {
    /// f32.
    F32(Vec<&'a [f32]>),
    /// bf16, widened in registers.
    Bf16(Vec<&'a [bf16]>),
    /// f16, widened in registers.
    F16(Vec<&'a [f16]>),
}

/// Computes `x · wᵀ` for every matrix. `x` and each matrix are rows of `inner` numbers. Returns
/// `(rows of x, out)` in row-major order, one matrix after another.
///
/// # Panics
/// If `inner` is 0.
pub fn linear(x: &[f32], inner: usize, weights: &WeightSlices<'_>) -> Vec<f32> {
    match weights {
        WeightSlices::F32(weights) => products(weights, x, inner),
        WeightSlices::Bf16(weights) => products(weights, x, inner),
        WeightSlices::F16(weights) => products(weights, x, inner),
    }
}

/// A block of rows of weights, and the destination of its products: for each row of `x`, this
/// block's columns of the result.
struct Block<'a, W> {
    w: &'a [W],
    x: &'a [f32],
    inner: usize,
    out: Vec<&'a mut [f32]>,
}

/// [`linear`] for weights of one type.
fn products<W: WeightType>(weights: &[&[W]], x: &[f32], inner: usize) -> Vec<f32> {
    count(weights.iter().map(|w| size_of_val(*w)).sum());
    if W::SPLIT && !weights.iter().all(|w| inner.is_multiple_of(2) && W::pairs_are_aligned(w)) {
        // No model has rows like these, so speed doesn't matter: widen them first.
        let widened = |w: &&[W]| w.iter().map(|w| (*w).into()).collect::<Vec<f32>>();
        let widened: Vec<Vec<f32>> = weights.iter().map(widened).collect();
        return multiply(&widened.iter().map(Vec::as_slice).collect::<Vec<_>>(), x, inner);
    }
    multiply(weights, x, inner)
}

fn multiply<W: WeightType>(weights: &[&[W]], x: &[f32], inner: usize) -> Vec<f32> {
    let (arch, rows) = (arch(), x.len() / inner);
    let mut deinterleaved = Vec::new();
    let x = if W::SPLIT {
        deinterleaved.resize(x.len(), 0.0);
        let part = |(out, row): (&mut [f32], &[f32])| arch.dispatch(Deinterleave { row, out });
        // For a few rows, starting other threads takes longer than the work itself.
        if rows < BLOCKED_MIN_ROWS {
            deinterleaved.chunks_mut(inner).zip(x.chunks(inner)).for_each(part);
        } else {
            deinterleaved.par_chunks_mut(inner).zip(x.par_chunks(inner)).for_each(part);
        }
        &deinterleaved
    } else {
        x
    };

    let outs: Vec<usize> = weights.iter().map(|w| w.len() / inner).collect();
    shared_columns(rows, &outs, inner, GROUP, |matrix, first, out| {
        let w = &weights[matrix][first * inner..][..out[0].len() * inner];
        arch.dispatch(Block { w, x, inner, out });
    })
}

impl<W: WeightType> WithSimd for Block<'_, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        if self.out.len() >= BLOCKED_MIN_ROWS {
            blocked_products(simd, self.w, self.x, self.inner, &mut self.out);
        } else {
            self.gemv(simd);
        }
    }
}

impl<W: WeightType> Block<'_, W> {
    /// Computes the products with all rows of `x`, when there are only a few.
    #[inline(always)]
    fn gemv<S: Simd>(&mut self, simd: S) {
        let (rows, columns) = (self.out.len(), self.w.len() / self.inner);
        let mut column = 0;
        while column < columns {
            column +=
                if const { S::F32_LANES > 1 } && rows > GEMV_ROWS && columns - column >= DOT_W_ROWS
                {
                    self.tile::<S, DOT_W_ROWS>(simd, column)
                } else if const { W::SPLIT } && rows <= PAIR_X_ROWS && columns - column >= PAIR {
                    match rows {
                        1 => self.micro_kernel::<S, PAIR, 1>(simd, column, 0),
                        _ => self.micro_kernel::<S, PAIR, PAIR_X_ROWS>(simd, column, 0),
                    };
                    PAIR
                } else {
                    self.tile::<S, 1>(simd, column)
                };
        }
    }

    /// Computes `R` columns of the result for all rows of `x`.
    ///
    /// The conditions are constants, so only the micro-kernels that can run are compiled.
    #[inline(always)]
    fn tile<S: Simd, const R: usize>(&mut self, simd: S, column: usize) -> usize {
        let most = const { max_x_rows(S::F32_LANES, R) };
        let mut row = 0;
        while row < self.out.len() {
            row += match (self.out.len() - row).min(most) {
                8 if const { max_x_rows(S::F32_LANES, R) == 8 } => {
                    self.micro_kernel::<S, R, 8>(simd, column, row)
                }
                7 if const { max_x_rows(S::F32_LANES, R) == 8 } => {
                    self.micro_kernel::<S, R, 7>(simd, column, row)
                }
                6 if const { max_x_rows(S::F32_LANES, R) == 8 } => {
                    self.micro_kernel::<S, R, 6>(simd, column, row)
                }
                5 if const { max_x_rows(S::F32_LANES, R) == 8 } => {
                    self.micro_kernel::<S, R, 5>(simd, column, row)
                }
                4 => self.micro_kernel::<S, R, 4>(simd, column, row),
                3 => self.micro_kernel::<S, R, 3>(simd, column, row),
                2 => self.micro_kernel::<S, R, 2>(simd, column, row),
                _ => self.micro_kernel::<S, R, 1>(simd, column, row),
            };
        }
        R
    }

    /// Computes `R` columns of `M` rows of the result.
    #[inline(always)]
    fn micro_kernel<S: Simd, const R: usize, const M: usize>(
        &mut self,
        simd: S,
        column: usize,
        row: usize,
    ) -> usize {
        let inner = self.inner;
        let (mut w, mut rows): ([&[W]; R], [&[f32]; M]) = ([&[]; R], [&[]; M]);
        for r in 0..R {
            w[r] = &self.w[(column + r) * inner..][..inner];
        }
        for m in 0..M {
            rows[m] = &self.x[(row + m) * inner..][..inner];
        }
        let sums = dot_products::<S, W, R, M>(simd, w, rows);
        for m in 0..M {
            let out = &mut self.out[row + m][column..][..R];
            for r in 0..R {
                out[r] = sums[r][m];
            }
        }
        M
    }
}
