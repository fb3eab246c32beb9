//! Products with many rows of `x`, in blocks that stay in the caches.
//!
//! The dot products are the same as with few rows: each lane adds the same numbers in the same
//! order, so a row gets the same bits in any batch. A long dot product is split into parts, and its
//! vector of sums is kept in memory between them.

use crate::dot_products::{max_x_rows, DOT_W_ROWS};
use crate::prefetch::prefetch;
use crate::unrolled::unrolled;
use crate::weight_types::WeightType;
use pulp::Simd;
use std::ops::Range;

/// Minimum number of rows of `x` for which blocks pay off. With fewer rows, memory is the limit,
/// whatever the order.
pub const BLOCKED_MIN_ROWS: usize = 28;
/// Number of rows of weights in a group. The rows of `x` are multiplied with one group, then with
/// the next.
pub const GROUP: usize = 2 * DOT_W_ROWS;
/// Maximum length of a part of a row. The L1 cache holds that part of a group and of the rows of
/// `x` that are multiplied at once.
const DEPTH: usize = 640;
/// Size, in bytes, of the rows of `x` that are multiplied with a group in turn. They stay in the L2
/// cache, and the more rows there are, the less often the same weights are widened.
const TOGETHER_BYTES: usize = 320 << 10;

/// Writes the products of all rows of weights with all rows of `x` to `out[row][column]`, with one
/// column per row of weights. Rows of both are contiguous and `inner` numbers long. `out` must be
/// zero on entry. If `W` splits pairs, `x` must be in the order of
/// [`Deinterleave`](crate::weight_types::Deinterleave).
#[inline(always)]
pub fn blocked_products<S: Simd, W: WeightType>(
    simd: S,
    w: &[W],
    x: &[f32],
    inner: usize,
    out: &mut [&mut [f32]],
) {
    let (at_once, step) = (const { max_x_rows(S::F32_LANES, DOT_W_ROWS) }, 2 * S::F32_LANES);
    let whole = inner / step * step; // the remainder is added last, number by number
    let depth = evenly(whole, DEPTH).next_multiple_of(step).max(step);
    let together = (TOGETHER_BYTES / (size_of::<f32>() * inner)).max(at_once);
    let together = evenly(out.len(), together).next_multiple_of(at_once);

    let mut widened = vec![simd.splat_f32s(0.0); GROUP * depth / S::F32_LANES];
    let mut waiting = vec![simd.splat_f32s(0.0); GROUP * together];
    for (x, out) in x.chunks(together * inner).zip(out.chunks_mut(together)) {
        let tiles = out.len().div_ceil(at_once) * whole.div_ceil(depth);
        for (at, w) in w.chunks(GROUP * inner).enumerate() {
            let w_rows = w.len() / inner;
            // Meanwhile, prefetch the next group, a share of it per tile.
            let share = size_of_val(w).div_ceil(tiles.max(1));
            let mut ahead = size_of_val(w);
            for from in (0..whole).step_by(depth) {
                let to = whole.min(from + depth);
                let mut group = Group::<S> {
                    w: wide_rows(simd, w, inner, from..to, &mut widened),
                    w_rows,
                    waiting: &mut waiting,
                    x_rows: together,
                    begins: from == 0,
                    ends: to == whole,
                };
                let mut row = 0;
                while row < out.len() {
                    prefetch(w, ahead, share);
                    ahead += share;
                    let x = |m: usize| &x[(row + m) * inner..][from..to];
                    row += group.tile(simd, x, row, &mut out[row..], at * GROUP);
                }
            }
            if whole < inner {
                add_left_over(w, x, inner, whole, out, at * GROUP);
            }
        }
    }
}

/// Adds the products of each row's remainder, from `whole` on, to `out[row][column..]`.
#[inline(always)]
fn add_left_over<W: WeightType>(
    w: &[W],
    x: &[f32],
    inner: usize,
    whole: usize,
    out: &mut [&mut [f32]],
    column: usize,
) {
    for (x, out) in x.chunks_exact(inner).zip(out) {
        for (w, out) in w.chunks_exact(inner).zip(&mut out[column..]) {
            for k in whole..inner {
                let w: f32 = w[k].into();
                *out += w * x[k];
            }
        }
    }
}

/// Returns the length of equal parts of `all`, none of them longer than `most`.
fn evenly(all: usize, most: usize) -> usize {
    all.div_ceil(all.div_ceil(most).max(1))
}

/// Returns the numbers in `range` of each row of a group, as pairs of f32 vectors: in place, or in
/// `widened`.
#[inline(always)]
fn wide_rows<'a, S: Simd, W: WeightType>(
    simd: S,
    w: &'a [W],
    inner: usize,
    range: Range<usize>,
    widened: &'a mut [S::f32s],
) -> [&'a [[S::f32s; 2]]; GROUP] {
    let mut rows: [&[[S::f32s; 2]]; GROUP] = [&[]; GROUP];
    if let Some(w) = W::as_f32s(w) {
        for (row, w) in rows.iter_mut().zip(w.chunks_exact(inner)) {
            *row = f32::chunks::<S>(&w[range.clone()]);
        }
        return rows;
    }
    let vectors = range.len() / S::F32_LANES;
    for (wide, w) in widened.chunks_exact_mut(vectors).zip(w.chunks_exact(inner)) {
        let chunks = W::chunks::<S>(&w[range.clone()]);
        let wide = &mut pulp::as_arrays_mut::<2, _>(wide).0[..chunks.len()];
        for i in 0..chunks.len() {
            wide[i] = W::widen(simd, chunks[i]);
        }
    }
    for (row, wide) in rows.iter_mut().zip(widened.chunks_exact(vectors)) {
        *row = pulp::as_arrays::<2, _>(wide).0;
    }
    rows
}

/// A part of some rows of weights, and their sums with all rows of `x`.
struct Group<'a, S: Simd> {
    /// The weights as f32.
    w: [&'a [[S::f32s; 2]]; GROUP],
    /// Number of rows of weights.
    w_rows: usize,
    /// Sums between two parts. `waiting[r * x_rows + row]` belongs to row `r` of the group and row
    /// `row` of `x`. Each is a vector, whose lanes are added up at the end.
    waiting: &'a mut [S::f32s],
    /// Number of rows of `x` that `waiting` has room for.
    x_rows: usize,
    /// True for the first part of the rows, which starts from zero.
    begins: bool,
    /// True for the last part.
    ends: bool,
}

impl<S: Simd> Group<'_, S> {
    /// Adds the products with a tile of rows of `x`, starting at row `row`. The tile has as many
    /// rows as a micro-kernel takes, or as are left in `out`. After the last part the sums go to
    /// `out[m][column..]`. Returns the number of rows in the tile.
    ///
    /// The conditions are constants, so only the micro-kernels that can run are compiled.
    #[inline(always)]
    fn tile<'x>(
        &mut self,
        simd: S,
        x: impl Fn(usize) -> &'x [f32],
        row: usize,
        out: &mut [&mut [f32]],
        column: usize,
    ) -> usize {
        match out.len().min(const { max_x_rows(S::F32_LANES, DOT_W_ROWS) }) {
            8 if const { max_x_rows(S::F32_LANES, DOT_W_ROWS) == 8 } => {
                self.tile_of::<8>(simd, x, row, out, column)
            }
            7 if const { max_x_rows(S::F32_LANES, DOT_W_ROWS) == 8 } => {
                self.tile_of::<7>(simd, x, row, out, column)
            }
            6 if const { max_x_rows(S::F32_LANES, DOT_W_ROWS) == 8 } => {
                self.tile_of::<6>(simd, x, row, out, column)
            }
            5 if const { max_x_rows(S::F32_LANES, DOT_W_ROWS) == 8 } => {
                self.tile_of::<5>(simd, x, row, out, column)
            }
            4 => self.tile_of::<4>(simd, x, row, out, column),
            3 => self.tile_of::<3>(simd, x, row, out, column),
            2 => self.tile_of::<2>(simd, x, row, out, column),
            _ => self.tile_of::<1>(simd, x, row, out, column),
        }
    }

    /// Multiplies all rows of the group with `M` rows of `x`.
    #[inline(always)]
    fn tile_of<'x, const M: usize>(
        &mut self,
        simd: S,
        x: impl Fn(usize) -> &'x [f32],
        row: usize,
        out: &mut [&mut [f32]],
        column: usize,
    ) -> usize {
        let mut rows: [&[[S::f32s; 2]]; M] = [&[]; M];
        unrolled!(m in M => { rows[m] = f32::chunks::<S>(x(m)); });
        let mut r = 0;
        while r + DOT_W_ROWS <= self.w_rows {
            self.micro_kernel::<DOT_W_ROWS, M>(simd, rows, r, row, out, column + r);
            r += DOT_W_ROWS;
        }
        for r in r..self.w_rows {
            self.micro_kernel::<1, M>(simd, rows, r, row, out, column + r);
        }
        M
    }

    /// Multiplies `R` rows of the group, starting at row `r`, with `M` rows of `x`.
    #[inline(always)]
    fn micro_kernel<const R: usize, const M: usize>(
        &mut self,
        simd: S,
        x: [&[[S::f32s; 2]]; M],
        r: usize,
        row: usize,
        out: &mut [&mut [f32]],
        column: usize,
    ) {
        let steps = self.w[r].len();
        let (mut w, mut rows): ([&[[S::f32s; 2]]; R], _) = ([&[]; R], x);
        unrolled!(i in R => { w[i] = &self.w[r + i][..steps]; });
        unrolled!(m in M => { rows[m] = &x[m][..steps]; });

        let mut sums = [[simd.splat_f32s(0.0); M]; R];
        if !self.begins {
            unrolled!(i in R => {
                let waiting = &self.waiting[(r + i) * self.x_rows + row..][..M];
                unrolled!(m in M => { sums[i][m] = waiting[m]; });
            });
        }
        for k in 0..steps {
            let mut wide = [[simd.splat_f32s(0.0); 2]; R];
            unrolled!(i in R => { wide[i] = w[i][k]; });
            unrolled!(m in M => {
                let x = rows[m][k];
                unrolled!(i in R => {
                    sums[i][m] = simd.mul_add_e_f32s(wide[i][0], x[0], sums[i][m]);
                });
                unrolled!(i in R => {
                    sums[i][m] = simd.mul_add_e_f32s(wide[i][1], x[1], sums[i][m]);
                });
            });
        }
        if self.ends {
            unrolled!(m in M => {
                let out = &mut out[m][column..][..R];
                unrolled!(i in R => { out[i] = simd.reduce_sum_f32s(sums[i][m]); });
            });
        } else {
            unrolled!(i in R => {
                let waiting = &mut self.waiting[(r + i) * self.x_rows + row..][..M];
                unrolled!(m in M => { waiting[m] = sums[i][m]; });
            });
        }
    }
}
