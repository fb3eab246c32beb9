//! Products with weights: `x · wᵀ`. Each row of weights is read from memory once.
//!
//! Rows of weights are taken in groups, and a long row in parts, so that the micro-kernel's inputs
//! stay in the caches. Meanwhile the next group is prefetched. The vector of sums of a dot product
//! is kept in memory between two parts. Every lane adds the same numbers in the same order, no
//! matter how many rows there are, so a row gets the same bits in any batch.

use crate::bandwidth::count;
#[cfg(target_arch = "x86_64")]
use crate::bf16_avx512::Bf16s;
#[cfg(target_arch = "x86_64")]
use crate::f16_x86::F16s;
use crate::instruction_set::arch;
use crate::micro_kernel::{F32s, MultiplyAdd, Tile, W_ROWS};
use crate::prefetch::{Ahead, AHEAD};
use crate::shared_columns::shared_columns;
use crate::weight_types::WeightType;
use half::{bf16, f16};
#[cfg(target_arch = "x86_64")]
use pulp::Arch;
use pulp::{Scalar, Simd, WithSimd};
use rayon::prelude::*;
use std::marker::PhantomData;
use std::ops::Range;

/// Number of rows of weights in a group: a multiple of [`W_ROWS`].
const GROUP: usize = 2 * W_ROWS;
/// Maximum number of rows of `x` for which f32 weights are read row after row, in memory order.
/// Memory is the bottleneck there, and it delivers a tenth more than for three rows in parallel.
const STREAMED_ROWS: usize = 2;
/// Maximum size of a part of a row, in bytes. The L1 cache holds that part of the rows that are
/// multiplied at once.
const PART_BYTES: usize = 2560;
/// Size, in bytes, of the rows of `x` that are multiplied with a group in turn. They stay in the L2
/// cache, and the more rows there are, the less often the same weights are widened.
const TOGETHER_BYTES: usize = 320 << 10;

/// Number of tiles of `x` up to which each of them prefetches all of the next group. Some requests
/// are lost while the processor is busy with others, so repeating them saves 5 %. More tiles divide
/// the group among themselves.
const REPEATED_TILES: usize = 3;

/// Numbers of `x` up to which one thread arranges them.
const ARRANGED_ALONE: usize = 1 << 15;

/// Weight matrices of one type that share an input. Each is `(out, in)`, in row-major order.
pub enum WeightSlices<'a> {
    /// f32.
    F32(Vec<&'a [f32]>),
    /// bf16. `x` is rounded to bf16, too, and the sums are f32.
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
    let bytes: usize = match weights {
        WeightSlices::F32(weights) => weights.iter().map(|w| size_of_val(*w)).sum(),
        WeightSlices::Bf16(weights) => weights.iter().map(|w| size_of_val(*w)).sum(),
        WeightSlices::F16(weights) => weights.iter().map(|w| size_of_val(*w)).sum(),
    };
    count(bytes);
    match weights {
        WeightSlices::F32(weights) => in_f32(weights, x, inner),
        WeightSlices::F16(weights) => {
            #[cfg(target_arch = "x86_64")]
            match arch() {
                Arch::V4(simd) => {
                    let dot = F16s::avx512(simd);
                    return products(weights, x, inner, |block| block.multiply(dot));
                }
                Arch::V3(simd) => {
                    if let Some(dot) = F16s::avx2(simd) {
                        return products(weights, x, inner, |block| block.multiply(dot));
                    }
                }
                _ => {}
            }
            split_in_f32(weights, x, inner, |x| x)
        }
        WeightSlices::Bf16(weights) => {
            #[cfg(target_arch = "x86_64")]
            if let Some(dot) = Bf16s::here() {
                let x = arranged(x, inner, false, |x| bf16::from_bits(rounded(x)));
                return products(weights, &x, inner, |block| block.multiply(dot));
            }
            split_in_f32(weights, x, inner, |x| f32::from_bits(u32::from(rounded(x)) << 16))
        }
    }
}

/// Computes products in f32.
fn in_f32<W: WeightType>(weights: &[&[W]], x: &[f32], inner: usize) -> Vec<f32> {
    if const { W::PLAIN } {
        return products(weights, x, inner, |block| Scalar.vectorize(block));
    }
    let arch = arch();
    products(weights, x, inner, |block| arch.dispatch(block))
}

/// Computes products of `number(x)` with 16-bit weights in f32.
fn split_in_f32<W: WeightType>(
    weights: &[&[W]],
    x: &[f32],
    inner: usize,
    number: impl Fn(f32) -> f32 + Copy + Send + Sync,
) -> Vec<f32> {
    if weights.iter().all(|w| inner.is_multiple_of(2) && W::pairs_are_aligned(w)) {
        return in_f32(weights, &arranged(x, inner, !W::PLAIN, number), inner);
    }
    // No model has rows like these, so speed doesn't matter: widen them first.
    let widened = |w: &&[W]| w.iter().map(|w| (*w).into()).collect::<Vec<f32>>();
    let widened: Vec<Vec<f32>> = weights.iter().map(widened).collect();
    let widened: Vec<&[f32]> = widened.iter().map(Vec::as_slice).collect();
    in_f32(&widened, &arranged(x, inner, false, number), inner)
}

/// Computes products with weights of one type. `multiply` computes a block of them.
fn products<W: Sync, N: Sync>(
    weights: &[&[W]],
    x: &[N],
    inner: usize,
    multiply: impl Fn(Block<'_, W, N>) + Sync,
) -> Vec<f32> {
    let outs: Vec<usize> = weights.iter().map(|w| w.len() / inner).collect();
    shared_columns(x.len() / inner, &outs, inner, GROUP, |matrix, first, out| {
        let w = &weights[matrix][first * inner..][..out[0].len() * inner];
        multiply(Block { w, x, inner, out });
    })
}

/// Rounds a number to bf16, to the nearest, with ties to even. Returns its bits.
#[inline(always)]
fn rounded(x: f32) -> u16 {
    let bits = x.to_bits();
    let nearest = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    // A NaN must not become an infinity, or overflow.
    (if x.is_nan() { bits >> 16 | 0x40 } else { nearest }) as u16
}

/// Returns `number(x)` for every number of some rows. If `split` is true, they are in the order in
/// which [`WeightType::widen`] returns pairs.
fn arranged<N: Copy + Default + Send>(
    x: &[f32],
    inner: usize,
    split: bool,
    number: impl Fn(f32) -> N + Copy + Send + Sync,
) -> Vec<N> {
    let (arch, mut out) = (arch(), vec![N::default(); x.len()]);
    let row = |(x, out): (&[f32], &mut [N])| arch.dispatch(Arrange { x, out, split, number });
    // For a few rows, starting other threads takes longer than the work itself.
    if x.len() < ARRANGED_ALONE {
        x.chunks(inner).zip(out.chunks_mut(inner)).for_each(row);
    } else {
        x.par_chunks(inner).zip(out.par_chunks_mut(inner)).for_each(row);
    }
    out
}

/// Writes a row of `x` to `out`. Split, every two vectors' worth of numbers become the even ones
/// and then the odd ones. The remainder stays in order.
struct Arrange<'a, N, F> {
    x: &'a [f32],
    out: &'a mut [N],
    split: bool,
    number: F,
}

impl<N, F: Fn(f32) -> N> WithSimd for Arrange<'_, N, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let both = 2 * S::F32_LANES;
        let whole = if self.split { self.x.len() / both * both } else { 0 };
        let (x, rest) = self.x.split_at(whole);
        let (out, out_rest) = self.out.split_at_mut(whole);
        for (out, pairs) in out.chunks_exact_mut(both).zip(x.chunks_exact(both)) {
            let (even, odd) = out.split_at_mut(S::F32_LANES);
            for i in 0..S::F32_LANES {
                even[i] = (self.number)(pairs[2 * i]);
                odd[i] = (self.number)(pairs[2 * i + 1]);
            }
        }
        for i in 0..out_rest.len() {
            out_rest[i] = (self.number)(rest[i]);
        }
    }
}

/// A block of rows of weights, and the destination of its products: for each row of `x`, this
/// block's columns of the result, which are zero on entry.
struct Block<'a, W, N> {
    w: &'a [W],
    x: &'a [N],
    inner: usize,
    out: Vec<&'a mut [f32]>,
}

impl<W: WeightType> WithSimd for Block<'_, W, f32> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        self.multiply(F32s(simd, PhantomData));
    }
}

impl<W, N> Block<'_, W, N> {
    /// Computes the products, group by group.
    fn multiply<D: MultiplyAdd<Weight = W, Number = N>>(mut self, dot: D) {
        let inner = self.inner;
        let whole = inner / D::NUMBERS * D::NUMBERS; // the remainder is added last
        let streamed = size_of::<W>() == size_of::<f32>() && self.out.len() <= STREAMED_ROWS;
        let most = if streamed { whole } else { PART_BYTES / size_of::<N>() };
        let depth = evenly(whole, most.max(1)).next_multiple_of(D::NUMBERS);
        let together = (TOGETHER_BYTES / (size_of::<N>() * inner)).max(D::X_ROWS);
        let together = evenly(self.out.len(), together).next_multiple_of(D::X_ROWS);
        let mut sums = vec![dot.zeros(); GROUP * together];
        for (x, out) in self.x.chunks(together * inner).zip(self.out.chunks_mut(together)) {
            let tile = evenly(out.len(), D::X_ROWS);
            // Meanwhile, prefetch the next group, a share of it per micro-kernel.
            let tiles = out.len().div_ceil(tile);
            let repeated = tiles <= REPEATED_TILES;
            let kernels = if streamed { GROUP } else { GROUP / W_ROWS };
            let shares = kernels * if repeated { 1 } else { tiles };
            let share = size_of::<W>() * GROUP * depth / shares;
            for (at, w) in self.w.chunks(GROUP * inner).enumerate() {
                let (sums, ahead) = (&mut sums[..], size_of_val(w));
                let (column, w_rows) =
                    (at * GROUP, out[0].len().min(at * GROUP + GROUP) - at * GROUP);
                let mut group = Group {
                    dot,
                    w,
                    w_rows,
                    x,
                    inner,
                    whole,
                    tile,
                    sums,
                    out,
                    column,
                    share,
                    repeated,
                    ahead,
                };
                for from in (0..whole).step_by(depth.max(1)) {
                    let part = from..whole.min(from + depth);
                    if streamed {
                        group.add_part::<1>(part);
                    } else {
                        group.add_part::<W_ROWS>(part);
                    }
                }
                if whole < inner {
                    group.add_left_over();
                }
            }
        }
    }
}

/// A group of rows of weights, and the rows of `x` that they are multiplied with.
struct Group<'a, 'o, D: MultiplyAdd> {
    dot: D,
    w: &'a [D::Weight],
    w_rows: usize,
    x: &'a [D::Number],
    inner: usize,
    /// Length of a row without the remainder.
    whole: usize,
    /// Number of rows of `x` that a micro-kernel takes.
    tile: usize,
    /// Sums between two parts: [`GROUP`] for each row of `x`.
    sums: &'a mut [D::Sums],
    out: &'a mut [&'o mut [f32]],
    /// The group's first column in `out`.
    column: usize,
    /// Number of bytes to prefetch per micro-kernel.
    share: usize,
    /// True if every tile of `x` prefetches the same memory.
    repeated: bool,
    /// Distance, in bytes, from the group to what to prefetch next.
    ahead: usize,
}

impl<D: MultiplyAdd> Group<'_, '_, D> {
    /// Adds the products of a part of each row, `R` rows at a time. After the last part, writes the
    /// results.
    fn add_part<const R: usize>(&mut self, part: Range<usize>) {
        let Self { dot, w, w_rows, x, inner, tile, share, .. } = *self;
        let (begins, ends) = (part.start == 0, part.end == self.whole);
        let mut distance = self.ahead;
        for first in (0..self.out.len()).step_by(tile) {
            if self.repeated {
                distance = self.ahead;
            }
            let out = &mut self.out[first..];
            let count = tile.min(out.len());
            for r in (0..w_rows).step_by(R) {
                // A micro-kernel with fewer rows repeats the last one.
                let row = |r: usize| &w[r.min(w_rows - 1) * inner..][part.clone()];
                let mut w: [&[D::Weight]; R] = [&[]; R];
                for i in 0..R {
                    w[i] = row(r + i);
                }
                let steps = part.len() / D::NUMBERS;
                let ahead = if R == 1 {
                    Ahead::new(w[0], AHEAD, share, steps)
                } else {
                    Ahead::new(self.w, distance, share, steps)
                };
                distance += share;
                Tile {
                    dot,
                    w,
                    x: &x[first * inner + part.start..],
                    inner,
                    sums: &mut self.sums[first * GROUP + r * count..][..R * count],
                    begins,
                    ends,
                    out: &mut out[..count],
                    columns: self.column + r..self.column + w_rows.min(r + R),
                    ahead,
                }
                .add();
            }
        }
        self.ahead = distance;
    }

    /// Adds the products of each row's remainder to the results.
    fn add_left_over(&mut self) {
        for (x, out) in self.x.chunks_exact(self.inner).zip(&mut *self.out) {
            for (w, out) in self.w.chunks_exact(self.inner).zip(&mut out[self.column..]) {
                for (w, x) in w[self.whole..].iter().zip(&x[self.whole..]) {
                    let (w, x): (f32, f32) = ((*w).into(), (*x).into());
                    *out += w * x;
                }
            }
        }
    }
}

/// Returns the length of equal parts of `all`, none of them longer than `most`.
fn evenly(all: usize, most: usize) -> usize {
    all.div_ceil(all.div_ceil(most).max(1))
}
