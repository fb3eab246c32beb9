//! Products with many rows of `x`, in blocks that stay in the caches.
//!
//! They are the same dot products as with few rows: each lane adds the same numbers in the same
//! order. So a row gets the same bits in any company. A long dot product is cut into parts; between
//! two parts its vector of sums waits in memory.

use crate::dot_products::{max_x_rows, DOT_W_ROWS};
use crate::prefetch::prefetch;
use crate::unrolled::unrolled;
use crate::weight_types::WeightType;
use pulp::Simd;
use std::ops::Range;

/// Rows of `x` from which blocks pay. Fewer wait for memory, whatever the order.
pub const BLOCKED_MIN_ROWS: usize = 33;
/// Rows of weights that all rows of `x` pass by.
pub const GROUP: usize = 2 * DOT_W_ROWS;
/// Numbers of a row that are multiplied before those behind them, at most: the first cache holds as
/// many of a group, and of the rows of `x` that are multiplied at once.
const DEPTH: usize = 640;
/// Bytes of the rows of `x` that take turns: less than half of the second cache.
const TOGETHER_BYTES: usize = 192 << 10;

/// Writes the products of all rows of weights with all rows of `x`: to `out[row][column]`, with a
/// column for each row of weights. Rows of both are `inner` numbers, one behind the other. Where `W`
/// splits pairs, `x` must be in the order of [`deinterleave`](crate::weight_types::deinterleave).
#[inline(always)]
pub fn blocked_products<S: Simd, W: WeightType>(
    simd: S,
    w: &[W],
    x: &[f32],
    inner: usize,
    out: &mut [&mut [f32]],
) {
    let (at_once, step) = (const { max_x_rows(S::F32_LANES, DOT_W_ROWS) }, 2 * S::F32_LANES);
    let whole = inner / step * step; // what is left over is added last, number by number
    let depth = evenly(whole, DEPTH).next_multiple_of(step).max(step);
    let together = (TOGETHER_BYTES / (size_of::<f32>() * inner)).max(at_once);
    let together = evenly(out.len(), together).next_multiple_of(at_once);

    let mut group = Group {
        numbers: vec![simd.splat_f32s(0.0); GROUP * depth / S::F32_LANES],
        sums: vec![simd.splat_f32s(0.0); GROUP * together],
        vectors: 0,
        w_rows: 0,
        x_rows: together,
    };
    for (x, out) in x.chunks(together * inner).zip(out.chunks_mut(together)) {
        let tiles = out.len().div_ceil(at_once) * whole.div_ceil(depth);
        for (at, w) in w.chunks(GROUP * inner).enumerate() {
            group.w_rows = w.len() / inner;
            // Meanwhile the next group is asked for, a share by each tile.
            let share = size_of_val(w).div_ceil(tiles.max(1));
            let mut ahead = size_of_val(w);
            for from in (0..whole).step_by(depth) {
                let to = whole.min(from + depth);
                group.widen(simd, w, inner, from..to);
                let mut row = 0;
                while row < out.len() {
                    for line in (0..share).step_by(64) {
                        prefetch(&w[0], ahead + line);
                    }
                    ahead += share;
                    let x = |m: usize| &x[(row + m) * inner..][from..to];
                    row += group.add_products(simd, out.len() - row, x, row);
                }
            }
            for (row, out) in out.iter_mut().enumerate() {
                for (r, out) in out[at * GROUP..][..group.w_rows].iter_mut().enumerate() {
                    let sum = &mut group.sums[r * together + row];
                    *out = simd.reduce_sum_f32s(*sum);
                    *sum = simd.splat_f32s(0.0); // for the next group
                    for k in whole..inner {
                        let w: f32 = w[r * inner + k].into();
                        *out += w * x[row * inner + k];
                    }
                }
            }
        }
    }
}

/// The length of equal parts of `all`, none of which is longer than `most`.
fn evenly(all: usize, most: usize) -> usize {
    all.div_ceil(all.div_ceil(most).max(1))
}

/// A part of some rows of weights, and the sums of all rows of `x` with them.
struct Group<S: Simd> {
    /// The numbers as f32, row after row.
    numbers: Vec<S::f32s>,
    /// Vectors of a row.
    vectors: usize,
    /// Rows of weights in it.
    w_rows: usize,
    /// `sums[r * x_rows + row]`: of row `r` of the group and row `row` of `x`. Each is a vector, whose
    /// numbers are added up in the end.
    sums: Vec<S::f32s>,
    /// Rows of `x` that there is room for.
    x_rows: usize,
}

impl<S: Simd> Group<S> {
    /// Takes the numbers in `range` of each row.
    #[inline(always)]
    fn widen<W: WeightType>(&mut self, simd: S, w: &[W], inner: usize, range: Range<usize>) {
        self.vectors = range.len() / S::F32_LANES;
        for (row, w) in w.chunks_exact(inner).enumerate() {
            let chunks = W::chunks::<S>(&w[range.clone()]);
            let numbers = &mut self.numbers[row * self.vectors..][..self.vectors];
            let numbers = &mut pulp::as_arrays_mut::<2, _>(numbers).0[..chunks.len()];
            for i in 0..chunks.len() {
                numbers[i] = W::widen(simd, chunks[i]);
            }
        }
    }

    /// Adds the products with a tile of rows of `x`: of so many as are left, from row `row` on.
    /// Gives how many it took.
    ///
    /// The conditions are constants, so that only the micro-kernels that can run are compiled.
    #[inline(always)]
    fn add_products<'a>(
        &mut self,
        simd: S,
        left: usize,
        x: impl Fn(usize) -> &'a [f32],
        row: usize,
    ) -> usize {
        match left.min(const { max_x_rows(S::F32_LANES, DOT_W_ROWS) }) {
            8 if const { max_x_rows(S::F32_LANES, DOT_W_ROWS) == 8 } => {
                self.tile::<8>(simd, x, row)
            }
            7 if const { max_x_rows(S::F32_LANES, DOT_W_ROWS) == 8 } => {
                self.tile::<7>(simd, x, row)
            }
            6 if const { max_x_rows(S::F32_LANES, DOT_W_ROWS) == 8 } => {
                self.tile::<6>(simd, x, row)
            }
            5 if const { max_x_rows(S::F32_LANES, DOT_W_ROWS) == 8 } => {
                self.tile::<5>(simd, x, row)
            }
            4 => self.tile::<4>(simd, x, row),
            3 => self.tile::<3>(simd, x, row),
            2 => self.tile::<2>(simd, x, row),
            _ => self.tile::<1>(simd, x, row),
        }
    }

    /// All rows of the group with `M` rows of `x`.
    #[inline(always)]
    fn tile<'a, const M: usize>(
        &mut self,
        simd: S,
        x: impl Fn(usize) -> &'a [f32],
        row: usize,
    ) -> usize {
        let mut rows: [&[S::f32s]; M] = [&[]; M];
        unrolled!(m in M => { rows[m] = S::as_simd_f32s(x(m)).0; });
        let mut r = 0;
        while r + DOT_W_ROWS <= self.w_rows {
            self.micro_kernel::<DOT_W_ROWS, M>(simd, rows, r, row);
            r += DOT_W_ROWS;
        }
        for r in r..self.w_rows {
            self.micro_kernel::<1, M>(simd, rows, r, row);
        }
        M
    }

    /// `R` rows of the group, from row `r` on, with `M` rows of `x`.
    #[inline(always)]
    fn micro_kernel<const R: usize, const M: usize>(
        &mut self,
        simd: S,
        rows: [&[S::f32s]; M],
        r: usize,
        row: usize,
    ) {
        let steps = self.vectors / 2;
        let mut w: [&[[S::f32s; 2]]; R] = [&[]; R];
        let mut x: [&[[S::f32s; 2]]; M] = [&[]; M];
        unrolled!(i in R => {
            let row = &self.numbers[(r + i) * self.vectors..][..self.vectors];
            w[i] = &pulp::as_arrays::<2, _>(row).0[..steps];
        });
        unrolled!(m in M => { x[m] = &pulp::as_arrays::<2, _>(rows[m]).0[..steps]; });

        let mut sums = [[simd.splat_f32s(0.0); M]; R];
        unrolled!(i in R => {
            let all = &self.sums[(r + i) * self.x_rows + row..][..M];
            unrolled!(m in M => { sums[i][m] = all[m]; });
        });
        for k in 0..steps {
            let mut wide = [[simd.splat_f32s(0.0); 2]; R];
            unrolled!(i in R => { wide[i] = w[i][k]; });
            unrolled!(m in M => {
                let x = x[m][k];
                unrolled!(i in R => {
                    sums[i][m] = simd.mul_add_e_f32s(wide[i][0], x[0], sums[i][m]);
                });
                unrolled!(i in R => {
                    sums[i][m] = simd.mul_add_e_f32s(wide[i][1], x[1], sums[i][m]);
                });
            });
        }
        unrolled!(i in R => {
            let all = &mut self.sums[(r + i) * self.x_rows + row..][..M];
            unrolled!(m in M => { all[m] = sums[i][m]; });
        });
    }
}
