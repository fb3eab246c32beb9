//! Products with weights: `x · wᵀ`. Each row of weights is read from memory once.

use crate::bandwidth::count;
use crate::dot_products::dot_products;
use crate::keep_awake::keep_awake;
use crate::panels::{Group, Panels, GEMM_MIN_ROWS, PANEL_W_ROWS};
use crate::weight_types::{deinterleave, WeightType};
use crate::{lanes, many_registers, threads};
use half::{bf16, f16};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;
use std::ops::Range;

/// Rows of `x` for which rows of weights are read one after another, as they lie: memory sets the
/// pace.
const GEMV_ROWS: usize = 4;
/// Rows of weights at a time for more rows of `x`: `3 x 8` sums and what they are made of fill 32
/// registers.
const DOT_W_ROWS: usize = 3;
/// Rows of `x` at a time then.
const MAX_X_ROWS: usize = 8;
/// Bytes of weights, as f32, that all rows of `x` are multiplied with before the next are fetched:
/// half of the second cache. Weights of 16 bits are widened then, each once.
const TOGETHER_BYTES: usize = 256 << 10;
/// Multiplications below which a second thread costs more than it saves.
const SERIAL: usize = 1 << 18;
/// Blocks of work for each thread. They are more than one, so that a thread whose core is taken
/// leaves its blocks to the others.
const BLOCKS_PER_THREAD: usize = 4;

/// Weight matrices of one type that share an input. Each is `(out, in)`, row after row.
pub enum Weights<'a> {
    /// f32.
    F32(Vec<&'a [f32]>),
    /// bf16, widened in registers.
    Bf16(Vec<&'a [bf16]>),
    /// f16, widened in registers.
    F16(Vec<&'a [f16]>),
}

/// `x · wᵀ` for every matrix: `x` is rows of `inner` numbers, and so is each matrix. The results
/// are `(rows of x, out)`, row after row and one matrix behind the other.
///
/// # Panics
/// If `inner` is 0.
pub fn linear(x: &[f32], inner: usize, weights: &Weights<'_>) -> Vec<f32> {
    match weights {
        Weights::F32(weights) => products(weights, x, inner),
        Weights::Bf16(weights) => products(weights, x, inner),
        Weights::F16(weights) => products(weights, x, inner),
    }
}

/// The rows of `x`: as they are, or packed where they are many.
enum X<'a> {
    Rows(&'a [f32]),
    Panels(Panels),
}

/// A block of rows of weights, and where its products go: for each row of `x`, the columns of the
/// result that are the block's.
struct Block<'a, W> {
    w: &'a [W],
    x: &'a X<'a>,
    inner: usize,
    out: Vec<&'a mut [f32]>,
}

/// [`linear`] for weights of one type.
fn products<W: WeightType>(weights: &[&[W]], x: &[f32], inner: usize) -> Vec<f32> {
    count(weights.iter().map(|w| size_of_val(*w)).sum());
    if W::SPLIT && !weights.iter().all(|w| inner.is_multiple_of(2) && W::pairs_are_aligned(w)) {
        // No model has such rows, so they need not be fast: they are widened first.
        let widened = |w: &&[W]| w.iter().map(|w| (*w).into()).collect::<Vec<f32>>();
        let widened: Vec<Vec<f32>> = weights.iter().map(widened).collect();
        return multiply(&widened.iter().map(Vec::as_slice).collect::<Vec<_>>(), x, inner);
    }
    multiply(weights, x, inner)
}

fn multiply<W: WeightType>(weights: &[&[W]], x: &[f32], inner: usize) -> Vec<f32> {
    let rows = x.len() / inner;
    let mut deinterleaved = Vec::new();
    let x = if rows >= GEMM_MIN_ROWS {
        X::Panels(Panels::new(rows, inner, W::SPLIT, |row| &x[row * inner..][..inner]))
    } else if W::SPLIT {
        let lanes = lanes();
        deinterleaved.reserve(x.len());
        for row in x.chunks(inner) {
            deinterleave(row, lanes, &mut deinterleaved);
        }
        X::Rows(&deinterleaved)
    } else {
        X::Rows(x)
    };

    let columns: usize = weights.iter().map(|w| w.len() / inner).sum();
    let mut y = vec![0f32; rows * columns];
    let arch = Arch::new();
    if threads() == 1 || rows * columns * inner < SERIAL {
        for block in blocks(weights, &x, inner, columns, rows, &mut y) {
            arch.dispatch(block);
        }
    } else {
        let size = columns.div_ceil(threads() * BLOCKS_PER_THREAD);
        let size = size.next_multiple_of(DOT_W_ROWS * PANEL_W_ROWS);
        let blocks = blocks(weights, &x, inner, size, rows, &mut y);
        keep_awake();
        blocks.into_par_iter().with_max_len(1).for_each(|block| arch.dispatch(block));
    }
    y
}

/// Cuts the matrices into blocks of `size` rows, and the result into what each of them computes.
fn blocks<'a, W>(
    weights: &[&'a [W]],
    x: &'a X<'a>,
    inner: usize,
    size: usize,
    rows: usize,
    y: &'a mut [f32],
) -> Vec<Block<'a, W>> {
    let mut blocks: Vec<Block<'a, W>> = vec![];
    let mut rest = y;
    for w in weights {
        let first = blocks.len();
        for w in w.chunks((size * inner).max(1)) {
            blocks.push(Block { w, x, inner, out: Vec::with_capacity(rows) });
        }
        let out = w.len() / inner;
        let (y, behind) = rest.split_at_mut(rows * out);
        rest = behind;
        for mut row in y.chunks_mut(out.max(1)) {
            for block in &mut blocks[first..] {
                let (columns, behind) = row.split_at_mut(block.w.len() / inner);
                block.out.push(columns);
                row = behind;
            }
        }
    }
    blocks
}

impl<W: WeightType> WithSimd for Block<'_, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match self.x {
            X::Rows(x) => self.gemv(simd, x),
            X::Panels(x) => self.gemm(simd, x),
        }
    }
}

impl<W: WeightType> Block<'_, W> {
    /// All rows of `x`, which are few.
    #[inline(always)]
    fn gemv<S: Simd>(mut self, simd: S, x: &[f32]) {
        let (rows, columns) = (self.out.len(), self.w.len() / self.inner);
        let mut column = 0;
        while column < columns {
            column +=
                if const { S::F32_LANES > 1 } && rows > GEMV_ROWS && columns - column >= DOT_W_ROWS
                {
                    self.tile::<S, DOT_W_ROWS>(simd, x, column)
                } else {
                    self.tile::<S, 1>(simd, x, column)
                };
        }
    }

    /// `R` columns of the result, for all rows of `x`.
    ///
    /// The conditions are constants, so that only the micro-kernels that can run are compiled.
    #[inline(always)]
    fn tile<S: Simd, const R: usize>(&mut self, simd: S, x: &[f32], column: usize) -> usize {
        let most = const { max_x_rows(S::F32_LANES, R) };
        let mut row = 0;
        while row < self.out.len() {
            row += match (self.out.len() - row).min(most) {
                8 if const { max_x_rows(S::F32_LANES, R) == 8 } => {
                    self.micro_kernel::<S, R, 8>(simd, x, column, row)
                }
                7 if const { max_x_rows(S::F32_LANES, R) == 8 } => {
                    self.micro_kernel::<S, R, 7>(simd, x, column, row)
                }
                6 if const { max_x_rows(S::F32_LANES, R) == 8 } => {
                    self.micro_kernel::<S, R, 6>(simd, x, column, row)
                }
                5 if const { max_x_rows(S::F32_LANES, R) == 8 } => {
                    self.micro_kernel::<S, R, 5>(simd, x, column, row)
                }
                4 => self.micro_kernel::<S, R, 4>(simd, x, column, row),
                3 => self.micro_kernel::<S, R, 3>(simd, x, column, row),
                2 => self.micro_kernel::<S, R, 2>(simd, x, column, row),
                _ => self.micro_kernel::<S, R, 1>(simd, x, column, row),
            };
        }
        R
    }

    /// `R` columns of `M` rows of the result.
    #[inline(always)]
    fn micro_kernel<S: Simd, const R: usize, const M: usize>(
        &mut self,
        simd: S,
        x: &[f32],
        column: usize,
        row: usize,
    ) -> usize {
        let inner = self.inner;
        let (mut w, mut rows): ([&[W]; R], [&[f32]; M]) = ([&[]; R], [&[]; M]);
        for r in 0..R {
            w[r] = &self.w[(column + r) * inner..][..inner];
        }
        for m in 0..M {
            rows[m] = &x[(row + m) * inner..][..inner];
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

    /// All rows of `x`, which are many and packed.
    #[inline(always)]
    fn gemm<S: Simd>(mut self, simd: S, x: &Panels) {
        let (inner, columns) = (self.inner, self.w.len() / self.inner);
        let together = TOGETHER_BYTES / (size_of::<f32>() * inner);
        let together = together.next_multiple_of(PANEL_W_ROWS).max(PANEL_W_ROWS);
        let mut sums = vec![0.0; together.min(columns) * x.group_rows()];
        let mut room = Vec::new();
        for begin in (0..columns).step_by(together) {
            let count = together.min(columns - begin);
            let w = &self.w[begin * inner..][..count * inner];
            let w = W::widen_rows(simd, w, inner, &mut room);
            for group in (0..x.groups()).map(|at| x.group(at)) {
                let step = group.panels * S::F32_LANES;
                let sums = &mut sums[..count * step];
                sums.fill(0.0);
                let depth = group.depth(inner);
                for from in (0..inner).step_by(depth) {
                    add_products(simd, w, inner, &group, from..inner.min(from + depth), sums);
                }
                for row in 0..group.rows {
                    let out = &mut self.out[group.first + row][begin..][..count];
                    for (out, sums) in out.iter_mut().zip(sums.chunks_exact(step)) {
                        *out = sums[row];
                    }
                }
            }
        }
    }
}

/// Adds the products of rows of weights, as far as they are in `range`, with a group of rows of `x`.
#[inline(always)]
fn add_products<S: Simd>(
    simd: S,
    w: &[f32],
    inner: usize,
    group: &Group<'_>,
    range: Range<usize>,
    sums: &mut [f32],
) {
    let step = group.panels * S::F32_LANES;
    let (w, from) = (|row: usize| &w[row * inner..][range.clone()], range.start);
    let count = sums.len() / step;
    let mut row = 0;
    while row + PANEL_W_ROWS <= count {
        let mut rows: [&[f32]; PANEL_W_ROWS] = [&[]; PANEL_W_ROWS];
        for r in 0..PANEL_W_ROWS {
            rows[r] = w(row + r);
        }
        group.add_products(simd, rows, from, &mut sums[row * step..][..PANEL_W_ROWS * step]);
        row += PANEL_W_ROWS;
    }
    for row in row..count {
        group.add_products(simd, [w(row)], from, &mut sums[row * step..][..step]);
    }
}

/// The most rows of `x` that a micro-kernel multiplies with `w_rows` rows of weights.
const fn max_x_rows(lanes: usize, w_rows: usize) -> usize {
    if w_rows == DOT_W_ROWS && many_registers(lanes) {
        MAX_X_ROWS
    } else {
        GEMV_ROWS
    }
}
