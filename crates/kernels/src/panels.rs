//! Rows packed into panels, used for keys that many queries need. A vector then holds one number
//! from each of its rows, so nothing is summed across a vector. (A dot product ends with such a
//! sum. With keys of 64 numbers it costs as much as the multiplications.)

use crate::unrolled::unrolled;
use crate::{lanes, many_registers};
use pulp::Simd;
use rayon::prelude::*;

/// Number of queries from which packing their keys pays off.
pub const PACKED_MIN_ROWS: usize = 33;
/// Number of rows to pack together: this reads a cache line from each row, and writes a cache line
/// with numbers from all of them.
const PACKED_TOGETHER: usize = 16;

/// Number of vectors side by side in a group.
#[inline]
const fn max_panels(lanes: usize) -> usize {
    if many_registers(lanes) {
        4
    } else {
        2
    }
}

/// Rows in groups. A group holds the first number of each of its rows, then the second of each, and
/// so on. Its number of rows is rounded up to whole vectors and padded with zeros.
pub struct Panels {
    data: Vec<f32>,
    rows: usize,
    inner: usize,
    lanes: usize,
}

/// Some rows of [`Panels`].
pub struct Group<'a> {
    /// Number `k` of row `row` is `data[k * panels * lanes + row]`.
    pub data: &'a [f32],
    /// Index of the first row.
    pub first: usize,
    /// Number of rows, without padding.
    pub rows: usize,
    /// Number of vectors side by side.
    pub panels: usize,
}

impl Panels {
    /// Packs `rows` rows of `inner` numbers.
    pub fn new<'a>(rows: usize, inner: usize, row: impl Fn(usize) -> &'a [f32] + Sync) -> Self {
        let lanes = lanes();
        let group = max_panels(lanes) * lanes;
        let mut data = vec![0f32; rows.next_multiple_of(lanes) * inner];
        data.par_chunks_mut(group * inner).enumerate().for_each(|(i, data)| {
            let step = data.len() / inner;
            let rows = step.min(rows - i * group);
            for begin in (0..inner).step_by(2 * lanes) {
                let end = inner.min(begin + 2 * lanes);
                for first in (0..rows).step_by(PACKED_TOGETHER) {
                    let together = PACKED_TOGETHER.min(rows - first);
                    let mut block = [&[][..]; PACKED_TOGETHER];
                    for at in 0..together {
                        block[at] = &row(i * group + first + at)[begin..end];
                    }
                    for k in 0..end - begin {
                        let out = &mut data[(begin + k) * step + first..][..together];
                        // The usual number is a constant, so that the loop is unrolled.
                        if together == PACKED_TOGETHER {
                            for at in 0..PACKED_TOGETHER {
                                out[at] = block[at][k];
                            }
                        } else {
                            for at in 0..together {
                                out[at] = block[at][k];
                            }
                        }
                    }
                }
            }
        });
        Self { data, rows, inner, lanes }
    }

    /// Returns the number of rows in a full group.
    #[inline]
    pub fn group_rows(&self) -> usize {
        max_panels(self.lanes) * self.lanes
    }

    /// Returns the number of groups.
    pub fn groups(&self) -> usize {
        self.rows.div_ceil(self.group_rows())
    }

    /// Returns group `at`.
    #[inline]
    pub fn group(&self, at: usize) -> Group<'_> {
        let first = at * self.group_rows();
        let rows = self.group_rows().min(self.rows - first);
        let panels = rows.div_ceil(self.lanes);
        let data = &self.data[first * self.inner..][..panels * self.lanes * self.inner];
        Group { data, first, rows, panels }
    }
}

impl Group<'_> {
    /// Computes the products of `R` rows with all rows of the group, as
    /// `out[r * panels * lanes + row]`.
    #[inline(always)]
    pub fn products<S: Simd, const R: usize>(&self, simd: S, rows: [&[f32]; R], out: &mut [f32]) {
        let out = S::as_mut_simd_f32s(out).0;
        match self.panels {
            4 if const { max_panels(S::F32_LANES) == 4 } => {
                self.products_with::<S, R, 4>(simd, rows, out);
            }
            3 if const { max_panels(S::F32_LANES) == 4 } => {
                self.products_with::<S, R, 3>(simd, rows, out);
            }
            2 => self.products_with::<S, R, 2>(simd, rows, out),
            _ => self.products_with::<S, R, 1>(simd, rows, out),
        }
    }

    #[inline(always)]
    fn products_with<S: Simd, const R: usize, const P: usize>(
        &self,
        simd: S,
        rows: [&[f32]; R],
        out: &mut [S::f32s],
    ) {
        let data = pulp::as_arrays::<P, _>(S::as_simd_f32s(self.data).0).0;
        let sums = outer_products::<S, R, P>(simd, rows, |k| data.get(k).copied());
        let out = &mut pulp::as_arrays_mut::<P, _>(out).0[..R];
        unrolled!(r in R => { out[r] = sums[r]; });
    }
}

/// Computes `out[r] = Σ weights[r][j] · rows[j]`. The rows of `out` are contiguous. Row `j` starts
/// at `rows[j * stride..]` and is as long as a row of `out`.
#[inline(always)]
pub fn weighted_sums<S: Simd, const R: usize>(
    simd: S,
    weights: [&[f32]; R],
    rows: &[f32],
    stride: usize,
    out: &mut [f32],
) {
    let (width, lanes) = (out.len() / R, S::F32_LANES);
    // Exactly the range that is read, so that bounds are checked once.
    let rows = &rows[..weights[0].len().saturating_sub(1) * stride + width];
    let mut column = 0;
    while column < width {
        let place = (rows, stride, column);
        column += match (width - column) / lanes {
            0 => {
                let rest = width - column;
                let part = |k: usize| {
                    let row = rows.get(k * stride + column..)?.get(..rest)?;
                    Some([simd.partial_load_f32s(row)])
                };
                let sums = outer_products::<S, R, 1>(simd, weights, part);
                for r in 0..R {
                    simd.partial_store_f32s(&mut out[r * width + column..][..rest], sums[r][0]);
                }
                rest
            }
            1 => columns::<S, R, 1>(simd, weights, place, out),
            4.. if const { max_panels(S::F32_LANES) == 4 } => {
                columns::<S, R, 4>(simd, weights, place, out)
            }
            _ => columns::<S, R, 2>(simd, weights, place, out),
        };
    }
}

/// Computes `P` vectors' worth of columns of [`weighted_sums`]. Returns the number of columns.
#[inline(always)]
fn columns<S: Simd, const R: usize, const P: usize>(
    simd: S,
    weights: [&[f32]; R],
    (rows, stride, column): (&[f32], usize, usize),
    out: &mut [f32],
) -> usize {
    let (width, some) = (out.len() / R, P * S::F32_LANES);
    let part = |k: usize| {
        let row = rows.get(k * stride + column..)?.get(..some)?;
        pulp::as_arrays::<P, _>(S::as_simd_f32s(row).0).0.first().copied()
    };
    let sums = outer_products::<S, R, P>(simd, weights, part);
    // One by one: copying the sums as a whole would keep them in memory all along.
    unrolled!(r in R => {
        let out = &mut S::as_mut_simd_f32s(&mut out[r * width + column..][..some]).0[..P];
        unrolled!(p in P => { out[p] = sums[r][p]; });
    });
    some
}

/// The micro-kernel of many rows: returns `Σ_k a[r][k] · b(k)` for every row `a[r]`. `b` must
/// return a value for every `k`.
///
/// The loop must not contain a panic, not even one that can't happen: the sums would be kept in
/// memory for the panic's sake instead of in registers. That is why `b` returns an `Option`, and
/// None ends the loop.
#[inline(always)]
fn outer_products<S: Simd, const R: usize, const P: usize>(
    simd: S,
    a: [&[f32]; R],
    b: impl Fn(usize) -> Option<[S::f32s; P]>,
) -> [[S::f32s; P]; R] {
    let mut sums = [[simd.splat_f32s(0.0); P]; R];
    let (mut rows, steps) = (a, a[0].len());
    for r in 0..R {
        rows[r] = &rows[r][..steps];
    }
    for k in 0..steps {
        let Some(b) = b(k) else { break };
        unrolled!(r in R => {
            let a = simd.splat_f32s(rows[r][k]);
            unrolled!(p in P => { sums[r][p] = simd.mul_add_e_f32s(a, b[p], sums[r][p]); });
        });
    }
    sums
}
