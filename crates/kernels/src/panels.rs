//! Rows packed into panels. A vector then holds one number from each of its rows, so nothing is
//! summed across a vector. (A dot product ends with such a sum. With keys of 64 numbers it costs as
//! much as the multiplications.)
//!
//! A product with a packed row adds its numbers one by one, first to last. The result has the same
//! bits in every panel, whether the panels of all rows are kept or each one is packed just before
//! use.

use crate::instruction_set::arch;
use crate::rows::{Rows, AHEAD};
use crate::transpose::{pack_rows, MAX_LANES};
use crate::unrolled::unrolled;
use crate::vectors::{lanes, max_panels};
use pulp::{NullaryFnOnce, Simd, WithSimd};
use rayon::prelude::*;
use std::ops::Range;

/// Returns the number of rows in a full group, for vectors with this number of lanes.
#[inline]
pub const fn group_rows(lanes: usize) -> usize {
    max_panels(lanes) * lanes
}

/// Rows in groups. A group holds the first number of each of its rows, then the second of each, and
/// so on. It has room for [`group_rows`]; only the last group has fewer.
pub struct Panels {
    data: Vec<f32>,
    rows: usize,
    inner: usize,
    lanes: usize,
}

/// Some packed rows.
pub struct Group<'a> {
    /// Number `k` of row `row` is `data[k * group_rows + row]`.
    pub data: &'a [f32],
    /// Index of the first row.
    pub first: usize,
    /// Number of rows, without padding.
    pub rows: usize,
    /// Number of vectors side by side that hold the rows.
    pub panels: usize,
}

impl Panels {
    /// Packs the first `count` rows, of `inner` numbers each.
    pub fn new(rows: Rows<'_>, count: usize) -> Self {
        let inner = rows.width;
        let (arch, lanes) = (arch(), lanes());
        let group = group_rows(lanes);
        let mut data = vec![0f32; count.next_multiple_of(group) * inner];
        data.par_chunks_mut(group * inner).enumerate().for_each(|(i, out)| {
            let range = i * group..count.min((i + 1) * group);
            arch.dispatch(PackGroup { rows, range, out });
        });
        Self { data, rows: count, inner, lanes }
    }

    /// Returns group `at`.
    #[inline]
    pub fn group(&self, at: usize) -> Group<'_> {
        let first = at * group_rows(self.lanes);
        let rows = group_rows(self.lanes).min(self.rows - first);
        let panels = rows.div_ceil(self.lanes);
        let data = &self.data[first * self.inner..][..group_rows(self.lanes) * self.inner];
        Group { data, first, rows, panels }
    }
}

/// The arguments for packing a group of [`Panels`].
struct PackGroup<'a> {
    rows: Rows<'a>,
    range: Range<usize>,
    out: &'a mut [f32],
}

impl WithSimd for PackGroup<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        pack_group(simd, self.rows, self.range, self.out);
    }
}

/// Packs a range of rows, at most one group's worth, into `out`. If a row of `rows` doesn't exist,
/// `out` is NaN.
///
/// # Panics
/// If `out` is too short.
#[inline(always)]
pub fn pack_group<'o, S: Simd>(
    simd: S,
    rows: Rows<'_>,
    range: Range<usize>,
    out: &'o mut [f32],
) -> Group<'o> {
    let (first, count) = (range.start, range.len());
    // A separate function, because every micro-kernel calls it.
    simd.vectorize(Pack { simd, rows, range, out });
    let data = &out[..rows.width * group_rows(S::F32_LANES)];
    Group { data, first, rows: count, panels: count.div_ceil(S::F32_LANES) }
}

/// The arguments of [`pack_group`].
struct Pack<'a, 'o, S> {
    simd: S,
    rows: Rows<'a>,
    range: Range<usize>,
    out: &'o mut [f32],
}

impl<S: Simd> NullaryFnOnce for Pack<'_, '_, S> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let (stride, width) = (self.rows.stride, self.rows.width);
        let (mut runs, mut left) = (self.rows.from(self.range.start), self.range.len());
        for panel in 0..left.div_ceil(S::F32_LANES) {
            let mut block: [&[f32]; MAX_LANES] = [&[]; MAX_LANES];
            let count = left.min(S::F32_LANES);
            let next = self.range.start + panel * S::F32_LANES + AHEAD;
            self.rows.prefetch(next..next + S::F32_LANES);
            let mut at = 0;
            while at < count {
                let Some((run, rows)) = runs.next(count - at) else {
                    self.out.fill(f32::NAN);
                    return;
                };
                for (i, row) in block[at..at + rows].iter_mut().enumerate() {
                    *row = &run[i * stride..][..width];
                }
                at += rows;
            }
            // The last panel is padded with copies of its last row.
            let last = block[count - 1];
            block[count..].fill(last);
            pack_rows(self.simd, &block, panel, self.out);
            left -= count;
        }
    }
}

impl Group<'_> {
    /// Computes the products of `R` rows with all rows of the group, as
    /// `out[r * panels * lanes + row]`.
    #[inline(always)]
    pub fn products<S: Simd, const R: usize>(&self, simd: S, rows: [&[f32]; R], out: &mut [f32]) {
        let out = S::as_mut_simd_f32s(out).0;
        if const { max_panels(S::F32_LANES) == 4 } {
            match self.panels {
                4 => self.products_with::<S, R, 4, 4>(simd, rows, out),
                3 => self.products_with::<S, R, 3, 4>(simd, rows, out),
                2 => self.products_with::<S, R, 2, 4>(simd, rows, out),
                _ => self.products_with::<S, R, 1, 4>(simd, rows, out),
            }
        } else {
            match self.panels {
                2 => self.products_with::<S, R, 2, 2>(simd, rows, out),
                _ => self.products_with::<S, R, 1, 2>(simd, rows, out),
            }
        }
    }

    /// [`Self::products`] for `P` panels of at most `MAX`.
    #[inline(always)]
    fn products_with<S: Simd, const R: usize, const P: usize, const MAX: usize>(
        &self,
        simd: S,
        rows: [&[f32]; R],
        out: &mut [S::f32s],
    ) {
        let data = pulp::as_arrays::<MAX, _>(S::as_simd_f32s(self.data).0).0;
        let zeros = [[simd.splat_f32s(0.0); P]; R];
        let sums = outer_products::<S, R, P>(simd, zeros, rows, |k| {
            data.get(k).and_then(|panels| panels.first_chunk()).copied()
        });
        let out = &mut pulp::as_arrays_mut::<P, _>(out).0[..R];
        unrolled!(r in R => { out[r] = sums[r]; });
    }
}

/// Computes `out[r] = Σ weights[r][j] · rows[first + j]`, one row after another. The rows of `out`
/// are contiguous, and as long as `rows`' rows. If a row of `rows` doesn't exist, the output is
/// NaN. Meanwhile, prefetches the first `ahead` of every [`STRETCH`] rows that follow.
#[inline(always)]
pub fn weighted_sums<S: Simd, const R: usize>(
    simd: S,
    weights: [&[f32]; R],
    rows: Rows<'_>,
    first: usize,
    ahead: usize,
    out: &mut [f32],
) {
    let (width, lanes) = (out.len() / R, S::F32_LANES);
    let mut column = 0;
    while column < width {
        column += match (width - column) / lanes {
            0 => {
                let rest = width - column;
                let part = |run: &[f32], start: usize| {
                    let row = run.get(start + column..)?.get(..rest)?;
                    Some([simd.partial_load_f32s(row)])
                };
                let sums = sums_of_runs::<S, R, 1>(simd, weights, rows, first, ahead, part);
                for r in 0..R {
                    simd.partial_store_f32s(&mut out[r * width + column..][..rest], sums[r][0]);
                }
                rest
            }
            1 => columns::<S, R, 1>(simd, weights, rows, first, ahead, column, out),
            4.. if const { max_panels(S::F32_LANES) == 4 } => {
                columns::<S, R, 4>(simd, weights, rows, first, ahead, column, out)
            }
            _ => columns::<S, R, 2>(simd, weights, rows, first, ahead, column, out),
        };
    }
}

/// Computes `P` vectors' worth of columns of [`weighted_sums`]. Returns the number of columns.
#[inline(always)]
fn columns<S: Simd, const R: usize, const P: usize>(
    simd: S,
    weights: [&[f32]; R],
    rows: Rows<'_>,
    first: usize,
    ahead: usize,
    column: usize,
    out: &mut [f32],
) -> usize {
    let (width, some) = (out.len() / R, P * S::F32_LANES);
    let part = |run: &[f32], start: usize| {
        let row = run.get(start + column..)?.get(..some)?;
        pulp::as_arrays::<P, _>(S::as_simd_f32s(row).0).0.first().copied()
    };
    let sums = sums_of_runs::<S, R, P>(simd, weights, rows, first, ahead, part);
    // One by one: copying the sums as a whole would keep them in memory throughout.
    unrolled!(r in R => {
        let out = &mut S::as_mut_simd_f32s(&mut out[r * width + column..][..some]).0[..P];
        unrolled!(p in P => { out[p] = sums[r][p]; });
    });
    some
}

/// Number of rows read between two prefetches.
pub const STRETCH: usize = 8;

/// Returns `Σ weights[r][j] · part of rows[first + j]` for every `r`. `part` receives the numbers
/// of some rows and the start of one of them. It must return a value.
#[inline(always)]
fn sums_of_runs<S: Simd, const R: usize, const P: usize>(
    simd: S,
    weights: [&[f32]; R],
    rows: Rows<'_>,
    first: usize,
    ahead: usize,
    part: impl Fn(&[f32], usize) -> Option<[S::f32s; P]>,
) -> [[S::f32s; P]; R] {
    let mut sums = [[simd.splat_f32s(0.0); P]; R];
    let (mut runs, mut done) = (rows.from(first), 0);
    while let Some((run, count)) = runs.next((weights[0].len() - done).min(STRETCH)) {
        let next = first + done + AHEAD;
        rows.prefetch(next..next + ahead.min(count));
        let mut some: [&[f32]; R] = [&[]; R];
        unrolled!(r in R => {
            some[r] = weights[r].get(done..done + count).unwrap_or_default();
        });
        sums = outer_products::<S, R, P>(simd, sums, some, |k| part(run, k * rows.stride));
        done += count;
    }
    if done < weights[0].len() {
        sums = [[simd.splat_f32s(f32::NAN); P]; R];
    }
    sums
}

/// The micro-kernel for many rows: returns `sums[r] + Σ_k a[r][k] · b(k)` for every row `a[r]`. `b`
/// must return a value for every `k`.
///
/// The loop must not contain a panic, not even one that can't happen: because of it, the sums would
/// be kept in memory instead of in registers. So `b` returns an `Option`, and None ends the loop.
#[inline(always)]
fn outer_products<S: Simd, const R: usize, const P: usize>(
    simd: S,
    mut sums: [[S::f32s; P]; R],
    a: [&[f32]; R],
    b: impl Fn(usize) -> Option<[S::f32s; P]>,
) -> [[S::f32s; P]; R] {
    let (mut rows, mut steps) = (a, a[0].len());
    unrolled!(r in R => { steps = steps.min(a[r].len()); });
    unrolled!(r in R => { rows[r] = &a[r][..steps]; });
    for k in 0..steps {
        let Some(b) = b(k) else { break };
        unrolled!(r in R => {
            let a = simd.splat_f32s(rows[r][k]);
            unrolled!(p in P => { sums[r][p] = simd.mul_add_e_f32s(a, b[p], sums[r][p]); });
        });
    }
    sums
}
