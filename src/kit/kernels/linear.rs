//! A product with weights: every output number is a dot product of a row of weights with a row of `x`, and each row of weights
//! is read from memory once.

use super::awake::keep_awake;
use super::dots::{dots, lanes};
use super::memory::count;
use super::panels::{self, Panels};
use super::stored::{arrange, Stored};
use super::{floats, threads};
use candle_core::{
    bail, CpuStorage, CustomOp1, DType, Layout, Result, Shape, Storage, Tensor, WithDType, D,
};
use half::{bf16, f16};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;
use std::ops::{Deref, Range};

/// Groups of rows of `x` that are gone through before the next rows of weights are fetched: they stay in the second cache.
const TILE: usize = 2;
/// Rows of `x` for which rows of weights are read one after another, as they lie: memory sets the pace.
const FIRST: usize = 4;
/// Rows of weights at a time for more rows of `x`: `3 x 8` sums and what they are made of fill 32 registers.
const ROWS: usize = 3;
/// Rows of `x` at a time then.
const MOST: usize = 8;
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

/// The rows of `x`: as they are, or many of them side by side.
enum X<'a> {
    Rows(&'a [f32]),
    Panels(Panels),
}

/// The outputs of a block of rows of weights: for each row of `x`, the columns of the result that are the block's.
struct Block<'a, W> {
    w: &'a [W],
    x: &'a X<'a>,
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
        let wide = |w: &&[W]| w.iter().map(|w| (*w).into()).collect::<Vec<f32>>();
        let wide: Vec<Vec<f32>> = weights.iter().map(wide).collect();
        return product(&wide.iter().map(Vec::as_slice).collect::<Vec<_>>(), x, inner);
    }
    let x = match (rows >= panels::MANY, W::SPLIT) {
        (true, split) => {
            X::Panels(Panels::new(rows, inner, split, |row| &x[row * inner..][..inner]))
        }
        (_, true) => {
            let lanes = lanes();
            ordered.reserve(x.len());
            x.chunks(inner).for_each(|row| arrange(row, lanes, &mut ordered));
            X::Rows(&ordered)
        }
        (_, false) => X::Rows(x),
    };
    let serial = threads() == 1 || rows * width * inner < SERIAL;
    let size = if serial {
        width
    } else {
        width.div_ceil(threads() * BLOCKS).next_multiple_of(ROWS * panels::ROWS)
    };
    let mut blocks: Vec<Block<'_, W>> = vec![];
    let mut rest = y.as_mut_slice();
    for w in weights {
        let pieces = w.chunks((size * inner).max(1));
        let first = blocks.len();
        blocks.extend(pieces.map(|w| Block { w, x: &x, inner, out: Vec::with_capacity(rows) }));
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
        keep_awake();
        blocks.into_par_iter().with_max_len(1).for_each(|block| arch.dispatch(block));
    }
    y
}

impl<W: Stored> WithSimd for Block<'_, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match self.x {
            X::Rows(x) => self.few(simd, x),
            X::Panels(x) => self.many(simd, x),
        }
    }
}

impl<W: Stored> Block<'_, W> {
    #[inline(always)]
    fn few<S: Simd>(mut self, simd: S, x: &[f32]) {
        let (rows, columns) = (self.out.len(), self.w.len() / self.inner);
        // AVX2 has 16 registers.
        let most = if S::F32_LANES == 8 { MOST / 2 } else { MOST };
        let mut column = 0;
        while column < columns {
            column += if rows > FIRST && columns - column >= ROWS {
                self.cells::<S, ROWS>(simd, x, column, most)
            } else {
                self.cells::<S, 1>(simd, x, column, FIRST)
            };
        }
    }

    /// `R` columns of the result, up to `most` rows at a time.
    #[inline(always)]
    fn cells<S: Simd, const R: usize>(
        &mut self,
        simd: S,
        x: &[f32],
        column: usize,
        most: usize,
    ) -> usize {
        let mut row = 0;
        while row < self.out.len() {
            row += match (self.out.len() - row).min(most) {
                8 if R > 1 => self.cell::<S, R, 8>(simd, x, column, row),
                7 if R > 1 => self.cell::<S, R, 7>(simd, x, column, row),
                6 if R > 1 => self.cell::<S, R, 6>(simd, x, column, row),
                5 if R > 1 => self.cell::<S, R, 5>(simd, x, column, row),
                4 => self.cell::<S, R, 4>(simd, x, column, row),
                3 => self.cell::<S, R, 3>(simd, x, column, row),
                2 => self.cell::<S, R, 2>(simd, x, column, row),
                _ => self.cell::<S, R, 1>(simd, x, column, row),
            };
        }
        R
    }

    /// `R` columns of `M` rows of the result.
    #[inline(always)]
    fn cell<S: Simd, const R: usize, const M: usize>(
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
        let sums = dots::<S, W, R, M>(simd, w, rows);
        for m in 0..M {
            let out = &mut self.out[row + m][column..][..R];
            for r in 0..R {
                out[r] = sums[r][m];
            }
        }
        M
    }

    #[inline(always)]
    fn many<S: Simd>(mut self, simd: S, x: &Panels) {
        let columns = self.w.len() / self.inner;
        let mut room = Room::default();
        room.sums.resize(panels::ROWS * x.most(), 0.0);
        for tile in (0..x.groups()).step_by(TILE) {
            let tile = tile..x.groups().min(tile + TILE);
            let mut column = 0;
            while column < columns {
                column += match columns - column {
                    0..panels::ROWS => {
                        self.panels::<S, 1>(simd, x, column, tile.clone(), &mut room)
                    }
                    _ => {
                        self.panels::<S, { panels::ROWS }>(simd, x, column, tile.clone(), &mut room)
                    }
                };
            }
        }
    }

    /// `R` columns of the rows of a tile.
    #[inline(always)]
    fn panels<S: Simd, const R: usize>(
        &mut self,
        simd: S,
        x: &Panels,
        column: usize,
        tile: Range<usize>,
        room: &mut Room,
    ) -> usize {
        let inner = self.inner;
        let mut w: [&[f32]; R] = [&[]; R];
        for (r, room) in room.wide.iter_mut().take(R).enumerate() {
            w[r] = W::wide(simd, &self.w[(column + r) * inner..][..inner], room);
        }
        for group in tile.map(|at| x.group(at)) {
            group.products(simd, w, &mut room.sums);
            let step = group.panels * S::F32_LANES;
            for row in 0..group.rows {
                let out = &mut self.out[group.first + row][column..][..R];
                for r in 0..R {
                    out[r] = room.sums[r * step + row];
                }
            }
        }
        R
    }
}

/// Where rows of weights are widened, and sums wait to be put in their places.
#[derive(Default)]
struct Room {
    wide: [Vec<f32>; panels::ROWS],
    sums: Vec<f32>,
}
