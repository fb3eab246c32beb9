//! A product with weights: every output number is a dot product of a row of weights with a row of `x`, and each row of weights
//! is read from memory once for up to six rows of `x`.

use super::dots::{arrange, dots, lanes, Stored};
use super::memory::count;
use super::{floats, threads};
use candle_core::{
    bail, CpuStorage, CustomOp1, DType, Layout, Result, Shape, Storage, Tensor, WithDType, D,
};
use half::{bf16, f16};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;
use std::ops::Deref;

/// Rows of `x` that are gone through before the next rows of weights are fetched: they stay in the second cache.
const TILE: usize = 96;
/// Rows of weights at a time.
const ROWS: usize = 4;
/// Multiplications below which a second thread costs more than it saves.
const SERIAL: usize = 1 << 18;
/// Blocks of work for each thread: more than one, so that a thread whose core is taken leaves its share to the others.
const BLOCKS: usize = 4;

/// `x · wᵀ` for every `w` of the list: `x` is `(…, in)` of f32 and each `w` is `(out, in)`, contiguous, all of f32, bf16 or f16;
/// the results are `(rows of x, out)`, parts of one allocation, one behind the other.
///
/// # Errors
/// If a weight is of another width or type.
pub fn linear(x: &Tensor, weights: &[&Tensor]) -> Result<Vec<Tensor>> {
    let y = x.contiguous()?.apply_op1_no_bwd(&Linear(weights))?;
    let (rows, mut done) = (x.elem_count() / x.dim(D::Minus1)?.max(1), 0);
    let part = |w: &&Tensor| {
        let out = w.dim(0)?;
        done += rows * out;
        y.narrow(0, done - rows * out, rows * out)?.reshape((rows, out))
    };
    weights.iter().map(part).collect()
}

/// True for the weights that [`linear`] reads.
pub fn reads(w: &Tensor) -> bool {
    w.is_contiguous() && matches!(w.dtype(), DType::F32 | DType::BF16 | DType::F16)
}

struct Linear<'a>(&'a [&'a Tensor]);

impl CustomOp1 for Linear<'_> {
    fn name(&self) -> &'static str {
        "candecode-linear"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let inner = layout.dims().last().copied().unwrap_or(0);
        let rows = layout.shape().elem_count().checked_div(inner).unwrap_or(0);
        let x = &floats(storage, layout.start_offset())?[..rows * inner];
        if inner == 0 {
            bail!("linear: x is {:?}, which has no numbers", layout.shape())
        }
        for w in self.0 {
            if w.dim(1)? != inner || !reads(w) || w.dtype() != self.0[0].dtype() {
                bail!(
                    "linear: a weight {:?} of {:?} cannot be multiplied with {:?}",
                    w.shape(),
                    w.dtype(),
                    layout.shape()
                )
            }
        }
        self.0.iter().for_each(|w| count(w.elem_count() * w.dtype().size_in_bytes()));
        let held: Vec<_> = self.0.iter().map(|w| w.storage_and_layout()).collect();
        let y = match self.0.first().map(|w| w.dtype()) {
            Some(DType::F32) => product(&slices::<f32>(&held)?, x, inner),
            Some(DType::BF16) => product(&slices::<bf16>(&held)?, x, inner),
            Some(DType::F16) => product(&slices::<f16>(&held)?, x, inner),
            _ => bail!("linear: no weights"),
        };
        let len = y.len();
        Ok((CpuStorage::F32(y), Shape::from(len)))
    }
}

/// The numbers of tensors whose storage is held.
fn slices<'a, W: WithDType>(
    held: &'a [(impl Deref<Target = Storage>, &Layout)],
) -> Result<Vec<&'a [W]>> {
    let mut slices = vec![];
    for (storage, layout) in held {
        let Storage::Cpu(storage) = &**storage else { bail!("linear: a weight is not on the CPU") };
        let start = layout.start_offset();
        slices.push(&storage.as_slice()?[start..start + layout.shape().elem_count()]);
    }
    Ok(slices)
}

/// The outputs of a block of rows of weights: for each row of `x`, the columns of the result that are the block's.
struct Block<'a, W> {
    w: &'a [W],
    x: &'a [f32],
    inner: usize,
    out: Vec<&'a mut [f32]>,
}

/// All weights' products with all rows of `x`, `(rows, out)` one behind the other.
fn product<W: Stored>(weights: &[&[W]], x: &[f32], inner: usize) -> Vec<f32> {
    let rows = x.len() / inner.max(1);
    let width: usize = weights.iter().map(|w| w.len() / inner.max(1)).sum();
    let mut y = vec![0f32; rows * width];
    let arch = Arch::new();
    let mut ordered = Vec::new();
    if W::SPLIT && !weights.iter().all(|w| inner.is_multiple_of(2) && W::in_pairs(w)) {
        // No model has such rows: they are widened first.
        let wide = |w: &&[W]| w.iter().map(|w| w.single()).collect::<Vec<f32>>();
        let wide: Vec<Vec<f32>> = weights.iter().map(wide).collect();
        return product(&wide.iter().map(Vec::as_slice).collect::<Vec<_>>(), x, inner);
    }
    let x = match W::SPLIT {
        true => {
            let lanes = lanes();
            ordered.reserve(x.len());
            x.chunks(inner.max(1)).for_each(|row| arrange(row, lanes, &mut ordered));
            &ordered
        }
        false => x,
    };
    let serial = threads() == 1 || rows * width * inner < SERIAL;
    let size =
        if serial { width } else { width.div_ceil(threads() * BLOCKS).next_multiple_of(ROWS) };
    let mut blocks: Vec<Block<'_, W>> = vec![];
    let mut rest = y.as_mut_slice();
    for w in weights {
        let pieces = w.chunks((size * inner).max(1));
        let first = blocks.len();
        blocks.extend(pieces.map(|w| Block { w, x, inner, out: Vec::with_capacity(rows) }));
        let (y, behind) = rest.split_at_mut(rows * (w.len() / inner));
        rest = behind;
        for mut row in y.chunks_mut((w.len() / inner).max(1)) {
            for block in &mut blocks[first..] {
                let (columns, behind) = row.split_at_mut(block.w.len() / inner);
                block.out.push(columns);
                row = behind;
            }
        }
    }
    if serial {
        blocks.into_iter().for_each(|block| arch.dispatch(block));
    } else {
        blocks.into_par_iter().with_max_len(1).for_each(|block| arch.dispatch(block));
    }
    y
}

impl<W: Stored> WithSimd for Block<'_, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        // 16 registers hold 4 x 2 sums and what they are made of, 32 hold 4 x 6.
        let most = if S::F32_LANES >= 16 { 6 } else { 2 };
        let rows = self.out.len();
        for tile in (0..rows).step_by(TILE) {
            let end = rows.min(tile + TILE);
            for column in (0..self.w.len() / self.inner).step_by(ROWS) {
                let mut row = tile;
                while row < end {
                    row += match (end - row).min(most) {
                        6 => self.cell::<S, 6>(simd, column, row),
                        // 8 and 4 are cut in fours, which is faster than 6 and 2
                        5 => self.cell::<S, 5>(simd, column, row),
                        4 => self.cell::<S, 4>(simd, column, row),
                        3 => self.cell::<S, 3>(simd, column, row),
                        2 => self.cell::<S, 2>(simd, column, row),
                        _ => self.cell::<S, 1>(simd, column, row),
                    };
                }
            }
        }
    }
}

impl<W: Stored> Block<'_, W> {
    /// Up to `ROWS` columns of `M` rows of the result.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // as in `dots`
    fn cell<S: Simd, const M: usize>(&mut self, simd: S, column: usize, row: usize) -> usize {
        let inner = self.inner;
        let mut x: [&[f32]; M] = [&[]; M];
        for (m, x) in x.iter_mut().enumerate() {
            *x = &self.x[(row + m) * inner..][..inner];
        }
        let w = &self.w[column * inner..];
        if w.len() >= ROWS * inner {
            let w = [
                &w[..inner],
                &w[inner..][..inner],
                &w[2 * inner..][..inner],
                &w[3 * inner..][..inner],
            ];
            let sums = dots::<S, W, ROWS, M>(simd, w, x);
            for m in 0..M {
                let out = &mut self.out[row + m][column..][..ROWS];
                for r in 0..ROWS {
                    out[r] = sums[r][m];
                }
            }
        } else {
            for (r, w) in w.chunks_exact(inner).enumerate() {
                let sums = dots::<S, W, 1, M>(simd, [w], x);
                for m in 0..M {
                    self.out[row + m][column + r] = sums[0][m];
                }
            }
        }
        M
    }
}
