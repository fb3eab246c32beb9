//! Rows packed into panels, for products of many rows: a vector then holds one number of each of
//! its rows, and no sum is across a vector. (A dot product ends with a sum across a vector, which
//! costs as much as ten multiplications. A prompt is 1.7 times as fast without.)

use crate::unrolled::unrolled;
use crate::{lanes, many_registers};
use pulp::Simd;
use rayon::prelude::*;

/// Rows from which packing them pays.
pub const GEMM_MIN_ROWS: usize = 33;
/// Rows of weights that a group is multiplied with before its next vectors are read: of 16 registers
/// `6 x 2` hold sums, of 32 `6 x 4`.
pub const PANEL_W_ROWS: usize = 6;
/// Bytes of a group that are multiplied with many rows of weights before the rest of it is: half of
/// the first cache, which holds the weights, too.
const DEPTH_BYTES: usize = 16 << 10;
/// Numbers of a row that are multiplied before the loop goes on.
const STEPS: usize = 4;

/// Rows whose numbers are moved together: a cache line of each is read, and a cache line of all is
/// written.
const PACKED_TOGETHER: usize = 16;

/// Vectors side by side in a group.
#[inline]
const fn max_panels(lanes: usize) -> usize {
    if many_registers(lanes) {
        4
    } else {
        2
    }
}

/// Rows in groups. A group holds the first number of each of its rows, then the second of each, and
/// so on. Its rows are as many as fill whole vectors; the last ones are zeros if need be.
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
    /// The first row.
    pub first: usize,
    /// Rows in it, without the zeros.
    pub rows: usize,
    /// Vectors side by side.
    pub panels: usize,
}

impl Panels {
    /// Packs `rows` rows of `inner` numbers; if `split`, in the order of
    /// [`deinterleave`](crate::weight_types::deinterleave).
    pub fn new<'a>(
        rows: usize,
        inner: usize,
        split: bool,
        row: impl Fn(usize) -> &'a [f32] + Sync,
    ) -> Self {
        let lanes = lanes();
        let group = max_panels(lanes) * lanes;
        let mut data = vec![0f32; rows.next_multiple_of(lanes) * inner];
        data.par_chunks_mut(group * inner).enumerate().for_each(|(i, data)| {
            let step = data.len() / inner;
            let rows = step.min(rows - i * group);
            for begin in (0..inner).step_by(2 * lanes) {
                let end = inner.min(begin + 2 * lanes);
                let split = split && end - begin == 2 * lanes;
                for first in (0..rows).step_by(PACKED_TOGETHER) {
                    let together = PACKED_TOGETHER.min(rows - first);
                    let mut block = [&[][..]; PACKED_TOGETHER];
                    for at in 0..together {
                        block[at] = &row(i * group + first + at)[begin..end];
                    }
                    for k in 0..end - begin {
                        let place = if split { k / 2 + k % 2 * lanes } else { k };
                        let out = &mut data[(begin + place) * step + first..][..together];
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

    /// Rows of a whole group.
    #[inline]
    pub fn group_rows(&self) -> usize {
        max_panels(self.lanes) * self.lanes
    }

    /// How many groups there are.
    pub fn groups(&self) -> usize {
        self.rows.div_ceil(self.group_rows())
    }

    /// Group `at`.
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
    /// How many numbers of a row to multiply with before those behind them: so many that the
    /// group's stay in the first cache, and about as many each time.
    pub fn depth(&self, inner: usize) -> usize {
        let most = DEPTH_BYTES / size_of_val(&self.data[..self.data.len() / inner]);
        inner.div_ceil(inner.div_ceil(most.max(1)))
    }

    /// Adds the products of `R` rows with all rows of the group, as far as the numbers of `R` rows
    /// go, which begin at number `from`: to `sums[r * panels * lanes + row]`.
    #[inline(always)]
    pub fn add_products<S: Simd, const R: usize>(
        &self,
        simd: S,
        rows: [&[f32]; R],
        from: usize,
        sums: &mut [f32],
    ) {
        let sums = S::as_mut_simd_f32s(sums).0;
        match self.panels {
            4 if const { max_panels(S::F32_LANES) == 4 } => {
                self.add_products_with::<S, R, 4>(simd, rows, from, sums);
            }
            3 if const { max_panels(S::F32_LANES) == 4 } => {
                self.add_products_with::<S, R, 3>(simd, rows, from, sums);
            }
            2 => self.add_products_with::<S, R, 2>(simd, rows, from, sums),
            _ => self.add_products_with::<S, R, 1>(simd, rows, from, sums),
        }
    }

    #[inline(always)]
    #[allow(unconditional_panic)] // of the steps that `unrolled` drops
    fn add_products_with<S: Simd, const R: usize, const P: usize>(
        &self,
        simd: S,
        mut rows: [&[f32]; R],
        from: usize,
        all: &mut [S::f32s],
    ) {
        let steps = rows[0].len();
        let data = pulp::as_arrays::<P, _>(S::as_simd_f32s(self.data).0).0;
        let data = &data[from..][..steps];
        let (data, last) = pulp::as_arrays::<STEPS, _>(data);
        let mut some: [&[[f32; STEPS]]; R] = [&[]; R];
        unrolled!(r in R => { some[r] = &pulp::as_arrays::<STEPS, _>(rows[r]).0[..data.len()]; });
        let all = &mut pulp::as_arrays_mut::<P, _>(all).0[..R];
        let mut sums = [[simd.splat_f32s(0.0); P]; R];
        unrolled!(r in R => { sums[r] = all[r]; });
        for k in 0..data.len() {
            unrolled!(step in STEPS => {
                let b = &data[k][step];
                unrolled!(r in R => {
                    let a = simd.splat_f32s(some[r][k][step]);
                    unrolled!(p in P => { sums[r][p] = simd.mul_add_e_f32s(a, b[p], sums[r][p]); });
                });
            });
        }
        let done = steps - last.len();
        unrolled!(r in R => { rows[r] = &rows[r][done..]; });
        let sums = outer_products::<S, R, P>(simd, rows, sums, |k| last.get(k).copied());
        unrolled!(r in R => { all[r] = sums[r]; });
    }
}

/// `out[r] = Σ weights[r][j] · rows[j]`. The rows of `out` lie one behind the other. Row `j` is
/// `rows[j * stride..]`, as long as a row of `out`.
#[inline(always)]
pub fn weighted_sums<S: Simd, const R: usize>(
    simd: S,
    weights: [&[f32]; R],
    rows: &[f32],
    stride: usize,
    out: &mut [f32],
) {
    let (width, lanes) = (out.len() / R, S::F32_LANES);
    // All that is read, so that the bound is checked once.
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
                let none = [[simd.splat_f32s(0.0)]; R];
                let sums = outer_products::<S, R, 1>(simd, weights, none, part);
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

/// `P` vectors' worth of columns of [`weighted_sums`]. Gives how many columns that is.
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
    let none = [[simd.splat_f32s(0.0); P]; R];
    let sums = outer_products::<S, R, P>(simd, weights, none, part);
    for r in 0..R {
        let out = S::as_mut_simd_f32s(&mut out[r * width + column..][..some]).0;
        out[..P].copy_from_slice(&sums[r]);
    }
    some
}

/// The micro-kernel of many rows: `sums[r] + Σ_k a[r][k] · b(k)`, and `b` is there for every `k`.
///
/// Nothing in the loop may panic, even where it never would: the sums would be kept in memory for
/// the sake of the panic, and not in registers. So `b` is an `Option`, and a missing one ends the
/// loop.
#[inline(always)]
fn outer_products<S: Simd, const R: usize, const P: usize>(
    simd: S,
    a: [&[f32]; R],
    mut sums: [[S::f32s; P]; R],
    b: impl Fn(usize) -> Option<[S::f32s; P]>,
) -> [[S::f32s; P]; R] {
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
