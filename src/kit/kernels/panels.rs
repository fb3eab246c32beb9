//! Products of many rows: rows are laid side by side, so that a vector holds one number of each, and no sum is across a vector.

use super::dots::{lanes, unrolled};
use pulp::Simd;
use rayon::prelude::*;

/// Rows from which laying them side by side pays.
pub const MANY: usize = 33;
/// Rows of the other side that a vector of these is multiplied with before the next is read.
pub const ROWS: usize = 4;

/// Rows whose numbers are moved together: a cache line of each is read, and a cache line of all is written.
const BLOCK: usize = 16;

/// Vectors that lie side by side: of 32 registers `4 x 4` hold sums, of 16 half as many.
#[inline]
fn most(lanes: usize) -> usize {
    if lanes == 8 {
        2
    } else {
        4
    }
}

/// Rows in groups. A group holds the first number of each of its rows, then the second of each, and so on; its rows are as many as
/// fill vectors, the last ones zeros if need be.
pub struct Panels {
    numbers: Vec<f32>,
    rows: usize,
    inner: usize,
    lanes: usize,
}

/// Some rows of [`Panels`].
pub struct Group<'a> {
    /// Number `k` of row `row` is `numbers[k * panels * lanes + row]`.
    pub numbers: &'a [f32],
    /// The first row.
    pub first: usize,
    /// Rows in it, without the zeros.
    pub rows: usize,
    /// Vectors side by side.
    pub panels: usize,
}

impl Panels {
    /// Lays `rows` rows of `inner` numbers side by side; with `split`, in the order that `stored::arrange` makes.
    pub fn new<'a>(
        rows: usize,
        inner: usize,
        split: bool,
        row: impl Fn(usize) -> &'a [f32] + Sync,
    ) -> Self {
        let lanes = lanes();
        let group = most(lanes) * lanes;
        let mut numbers = vec![0f32; rows.next_multiple_of(lanes) * inner];
        numbers.par_chunks_mut(group * inner).enumerate().for_each(|(i, numbers)| {
            let step = numbers.len() / inner;
            let rows = step.min(rows - i * group);
            for begin in (0..inner).step_by(2 * lanes) {
                let end = inner.min(begin + 2 * lanes);
                let split = split && end - begin == 2 * lanes;
                for first in (0..rows).step_by(BLOCK) {
                    let many = BLOCK.min(rows - first);
                    let mut block = [&[][..]; BLOCK];
                    for at in 0..many {
                        block[at] = &row(i * group + first + at)[begin..end];
                    }
                    for k in 0..end - begin {
                        let place = if split { k / 2 + k % 2 * lanes } else { k };
                        let out = &mut numbers[(begin + place) * step + first..][..many];
                        // the usual number as a constant: it is unrolled
                        if many == BLOCK {
                            for at in 0..BLOCK {
                                out[at] = block[at][k];
                            }
                        } else {
                            for at in 0..many {
                                out[at] = block[at][k];
                            }
                        }
                    }
                }
            }
        });
        Self { numbers, rows, inner, lanes }
    }

    /// Rows of a whole group.
    #[inline]
    pub fn most(&self) -> usize {
        most(self.lanes) * self.lanes
    }

    /// Groups of rows.
    pub fn groups(&self) -> usize {
        self.rows.div_ceil(self.most())
    }

    /// One of them.
    #[inline]
    pub fn group(&self, at: usize) -> Group<'_> {
        let first = at * self.most();
        let rows = self.most().min(self.rows - first);
        let panels = rows.div_ceil(self.lanes);
        let numbers = &self.numbers[first * self.inner..][..panels * self.lanes * self.inner];
        Group { numbers, first, rows, panels }
    }
}

impl Group<'_> {
    /// The products of `R` rows with all of these rows: `out[r * panels * lanes + row]`.
    #[inline(always)]
    pub fn products<S: Simd, const R: usize>(&self, simd: S, rows: [&[f32]; R], out: &mut [f32]) {
        let out = S::as_mut_simd_f32s(out).0;
        match self.panels {
            4 => self.vectors::<S, R, 4>(simd, rows, out),
            3 => self.vectors::<S, R, 3>(simd, rows, out),
            2 => self.vectors::<S, R, 2>(simd, rows, out),
            _ => self.vectors::<S, R, 1>(simd, rows, out),
        }
    }

    #[inline(always)]
    fn vectors<S: Simd, const R: usize, const P: usize>(
        &self,
        simd: S,
        rows: [&[f32]; R],
        out: &mut [S::f32s],
    ) {
        let numbers = &pulp::as_arrays::<P, _>(S::as_simd_f32s(self.numbers).0).0[..rows[0].len()];
        let sums = outer::<S, R, P>(simd, rows, |k| numbers.get(k).copied());
        for r in 0..R {
            for p in 0..P {
                out[r * P + p] = sums[r][p];
            }
        }
    }
}

/// `out[r] = Σ weights[r][j] · rows[j]`, the rows of `out` one behind the other; row `j` is `rows[j * stride..]`, as long as one.
#[inline(always)]
pub fn weighted_sums<S: Simd, const R: usize>(
    simd: S,
    weights: [&[f32]; R],
    rows: &[f32],
    stride: usize,
    out: &mut [f32],
) {
    let (width, lanes) = (out.len() / R, S::F32_LANES);
    let rows = &rows[..weights[0].len().saturating_sub(1) * stride + width]; // all that is read, looked at once
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
                let sums = outer::<S, R, 1>(simd, weights, part);
                for r in 0..R {
                    simd.partial_store_f32s(&mut out[r * width + column..][..rest], sums[r][0]);
                }
                rest
            }
            1 => columns::<S, R, 1>(simd, weights, place, out),
            2 | 3 => columns::<S, R, 2>(simd, weights, place, out),
            _ if most(lanes) == 2 => columns::<S, R, 2>(simd, weights, place, out),
            _ => columns::<S, R, 4>(simd, weights, place, out),
        };
    }
}

/// `P` vectors' worth of columns of [`weighted_sums`]; how many columns that is.
#[inline(always)]
fn columns<S: Simd, const R: usize, const P: usize>(
    simd: S,
    weights: [&[f32]; R],
    (rows, stride, column): (&[f32], usize, usize),
    out: &mut [f32],
) -> usize {
    let (width, many) = (out.len() / R, P * S::F32_LANES);
    let part = |k: usize| {
        let row = rows.get(k * stride + column..)?.get(..many)?;
        pulp::as_arrays::<P, _>(S::as_simd_f32s(row).0).0.first().copied()
    };
    let sums = outer::<S, R, P>(simd, weights, part);
    for r in 0..R {
        let out = S::as_mut_simd_f32s(&mut out[r * width + column..][..many]).0;
        out[..P].copy_from_slice(&sums[r]);
    }
    many
}

/// `sums[r] = Σ_k a[r][k] · b(k)`, which there is for every `k`. Nothing in the loop can panic: the sums would be kept in memory for
/// it, and not in registers.
#[inline(always)]
fn outer<S: Simd, const R: usize, const P: usize>(
    simd: S,
    a: [&[f32]; R],
    b: impl Fn(usize) -> Option<[S::f32s; P]>,
) -> [[S::f32s; P]; R] {
    let (mut rows, steps) = (a, a[0].len());
    for r in 0..R {
        rows[r] = &rows[r][..steps];
    }
    let mut sums = [[simd.splat_f32s(0.0); P]; R];
    for k in 0..steps {
        let Some(b) = b(k) else { break };
        unrolled!(r in R => {
            let a = simd.splat_f32s(rows[r][k]);
            unrolled!(p in P => { sums[r][p] = simd.mul_add_e_f32s(a, b[p], sums[r][p]); });
        });
    }
    sums
}
