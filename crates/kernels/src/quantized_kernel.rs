//! Products with quantized weights: activations are quantized to small integers, too, and integers
//! are multiplied with integers. (`quantized_rows.rs` explains the bit widths.)
//!
//! Sixteen rows of weights are interleaved in a *tile*, so that a vector holds some bytes of each
//! row and nothing is summed across a vector. Every sum has a fixed order, regardless of the
//! instruction set and the number of rows of `x`: block by block, each one exact as an integer,
//! then scaled and added as f32. So a row gets bit for bit the same result in a batch of any size
//! as on its own.

use crate::bandwidth::{best_rate, count};
use crate::instruction_set::{instruction_set, InstructionSet};
use crate::prefetch::{Ahead, AHEAD};
use crate::quantized_blocks::{QuantType, BLOCK, TILE_ROWS};
use crate::quantized_rows::{QuantizedRows, XRows};
use crate::quantized_scalar;
use crate::shared_columns::shared_columns;
use std::hint::black_box;

/// Rows of `x` to multiply with a tile before the next tile is fetched. They stay in the L2 cache.
const X_ROWS: usize = 24;

/// Maximum number of rows of `x` for which memory is the bottleneck, and what follows soon is
/// prefetched. With more, it's the next tile.
const STREAMED_ROWS: usize = 2;

/// A matrix `(out, in)` in tiles of [`TILE_ROWS`] rows, with the last one padded with zeros.
///
/// A tile is `in / 32` contiguous blocks. A block starts with the f16 scales of the tile's rows
/// (for Q4_1, followed by their minimums, also f16). Then come the integers: four bytes of the
/// first row, four of the second and so on, then the next four of the first. Within a row they are
/// in GGUF's order.
#[derive(Clone, Copy, Debug)]
pub struct TiledWeights<'a> {
    /// The storage format.
    pub kind: QuantType,
    /// Number of rows, without padding.
    pub out: usize,
    /// All tiles.
    pub tiles: &'a [u8],
}

/// Computes `x · wᵀ` for every matrix. `x` and each matrix are rows of `inner` numbers, a multiple
/// of 32. Returns `(rows of x, out)` in row-major order, one matrix after another.
///
/// # Panics
/// If `inner` is 0 or not a multiple of 32, or a matrix has the wrong number of bytes.
pub fn quantized_linear(x: &[f32], inner: usize, weights: &[TiledWeights<'_>]) -> Vec<f32> {
    quantized_linear_by(instruction_set(), x, inner, weights)
}

/// Like [`quantized_linear`], with an explicit instruction set. One that this machine lacks counts
/// as [`InstructionSet::Scalar`].
///
/// # Panics
/// Same as [`quantized_linear`].
pub fn quantized_linear_by(
    set: InstructionSet,
    x: &[f32],
    inner: usize,
    weights: &[TiledWeights<'_>],
) -> Vec<f32> {
    assert!(inner > 0 && inner.is_multiple_of(BLOCK), "rows of {inner} numbers");
    for w in weights {
        let bytes = w.out.next_multiple_of(TILE_ROWS) * inner / BLOCK * w.kind.bytes();
        assert_eq!(w.tiles.len(), bytes, "bytes of a {:?} matrix of {} rows", w.kind, w.out);
    }
    count(weights.iter().map(|w| w.tiles.len()).sum());
    let set = if set.is_here() { set } else { InstructionSet::Scalar };
    let rows = x.len() / inner;
    let kinds: Vec<QuantType> = weights.iter().map(|w| w.kind).collect();
    let x = QuantizedRows::new(set, x, inner, &kinds);
    let x = x.all();
    let outs: Vec<usize> = weights.iter().map(|w| w.out).collect();
    shared_columns(rows, &outs, inner, TILE_ROWS, |matrix, first, out| {
        let TiledWeights { kind, tiles, .. } = weights[matrix];
        let row_blocks = inner / BLOCK;
        let tile = TILE_ROWS * row_blocks * kind.bytes();
        let tiles = &tiles[first / TILE_ROWS * tile..][..out[0].len().div_ceil(TILE_ROWS) * tile];
        Block { kind, tiles, tile, x, row_blocks, out }.multiply(set);
    })
}

/// Returns the integer operations per second that all threads do together, the best of `tries`:
/// products of Q4_0, the fastest format, with a tile and rows that stay in the L1 cache. A product
/// and the addition of its result count as two operations, as in
/// [`peak_operations`](crate::peak_operations). This rate limits prefill with quantized weights.
pub fn peak_integer_operations(tries: usize) -> f64 {
    let (set, kind) = (instruction_set(), QuantType::Q4_0);
    let (blocks, rows) = (16, max_rows(set, kind));
    let tile = vec![0; blocks * TILE_ROWS * kind.bytes()];
    let x = vec![0f32; rows * blocks * BLOCK];
    let x = QuantizedRows::new(set, &x, blocks * BLOCK, &[kind]);
    best_rate(tries, || {
        let threads = rayon::broadcast(|_| {
            let mut sums = [[0f32; TILE_ROWS]; MAX_ROWS];
            for _ in 0..PEAK_STEPS {
                let nothing = Ahead::new(&tile, 0, 0, blocks);
                tile_products(set, kind, black_box(&tile), nothing, x.all(), &mut sums[..rows]);
            }
            black_box(sums);
        });
        2 * threads.len() * PEAK_STEPS * blocks * BLOCK * TILE_ROWS * rows
    })
}

/// Tile products in each try of [`peak_integer_operations`], which takes about a millisecond.
const PEAK_STEPS: usize = 4096;

/// Some tiles, and the destination of their products: for each row of `x`, these tiles' columns of
/// the result.
struct Block<'a> {
    kind: QuantType,
    tiles: &'a [u8],
    /// Size of a tile, in bytes.
    tile: usize,
    x: XRows<'a>,
    /// Number of blocks in a row of `x`.
    row_blocks: usize,
    out: Vec<&'a mut [f32]>,
}

impl Block<'_> {
    fn multiply(mut self, set: InstructionSet) {
        let rows = self.out.len();
        let most = max_rows(set, self.kind);
        let mut sums = [[0f32; TILE_ROWS]; MAX_ROWS];
        for first in (0..rows).step_by(X_ROWS) {
            let end = rows.min(first + X_ROWS);
            for (at, tile) in self.tiles.chunks_exact(self.tile).enumerate() {
                // Meanwhile, prefetch the next tile, a share of it per micro-kernel.
                let share = self.tile / (end - first).div_ceil(most);
                let near = end - first <= STREAMED_ROWS;
                let (mut row, mut distance) = (first, if near { AHEAD } else { self.tile });
                while row < end {
                    let together = most.min(end - row);
                    let ahead = Ahead::new(tile, distance, share, self.row_blocks);
                    distance += share;
                    let x = self.x.blocks(row * self.row_blocks, together * self.row_blocks);
                    let sums = &mut sums[..together];
                    tile_products(set, self.kind, tile, ahead, x, sums);
                    for (sums, out) in sums.iter().zip(&mut self.out[row..]) {
                        let out = &mut out[at * TILE_ROWS..];
                        let columns = out.len().min(TILE_ROWS);
                        out[..columns].copy_from_slice(&sums[..columns]);
                    }
                    row += together;
                }
            }
        }
    }
}

/// Maximum number of rows of `x` at a time, over all instruction sets.
pub(crate) const MAX_ROWS: usize = 8;

/// Returns the maximum number of rows of `x` that a tile is multiplied with at a time. It depends
/// on the number of registers.
const fn max_rows(set: InstructionSet, kind: QuantType) -> usize {
    match (set, kind) {
        (InstructionSet::Avx512Vnni, _) => MAX_ROWS,
        (InstructionSet::Avx2, QuantType::Q4_0 | QuantType::Q4_1) => 3,
        _ => 4,
    }
}

/// Computes the products of a tile's rows with some contiguous rows of `x`, as
/// `sums[row of x][row of the tile]`.
fn tile_products(
    set: InstructionSet,
    kind: QuantType,
    tile: &[u8],
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(unused_variables, reason = "only x86 prefetches")
    )]
    ahead: Ahead,
    x: XRows<'_>,
    sums: &mut [[f32; TILE_ROWS]],
) {
    match set {
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => {
            // SAFETY: `set` has passed `is_here`, so this machine has AVX2, FMA and F16C, which is
            // all that the function requires.
            unsafe { crate::quantized_avx2::tile_products(kind, tile, ahead, x, sums) }
        }
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512Vnni => {
            // SAFETY: `set` has passed `is_here`, so this machine has AVX-512 F, BW and VNNI, which
            // is all that the function requires.
            unsafe { crate::quantized_avx512::tile_products(kind, tile, ahead, x, sums) }
        }
        #[cfg(target_arch = "aarch64")]
        InstructionSet::Neon => {
            // SAFETY: `set` has passed `is_here`, so this machine has the dot products that the
            // function requires. All 64-bit Arm processors have NEON.
            unsafe { crate::quantized_neon::tile_products(kind, tile, x, sums) }
        }
        _ => quantized_scalar::tile_products(kind, tile, x, sums),
    }
}
