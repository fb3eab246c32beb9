//! Products with quantised weights: activations become small integers as well, and integers are
//! multiplied with integers. (`quantized_rows.rs` says how small.)
//!
//! Sixteen rows of weights stand side by side in a *tile*, so that a vector holds some bytes of
//! each, and no sum is across a vector. Every sum has one order, whatever the instruction set and
//! the number of rows of `x`: block after block, each one exact as an integer, then scaled and
//! added as f32. So a row in a batch, of any size, gets bit for bit what it gets alone.

use crate::bandwidth::{best_rate, count};
use crate::instruction_set::{instruction_set, InstructionSet};
use crate::quantized_rows::{QuantizedRows, XRows};
use crate::quantized_scalar;
use crate::shared_columns::shared_columns;
use std::hint::black_box;

/// Rows of weights in a tile.
pub const TILE_ROWS: usize = 16;
/// Numbers in a block.
pub const BLOCK: usize = 32;
/// Rows of `x` that are multiplied with a tile before the next one is fetched: they stay in the
/// second cache.
const X_ROWS: usize = 24;

/// How the numbers of a block are stored, as in GGUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockType {
    /// `d * q`, `q` a signed byte.
    Q8_0,
    /// `d * (q - 8)`, `q` of four bits.
    Q4_0,
    /// `d * q + m`, `q` of four bits.
    Q4_1,
}

impl BlockType {
    /// Numbers in a block.
    pub const fn block_size(self) -> usize {
        BLOCK
    }

    /// Bytes of a block of one row.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Q8_0 => 34,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
        }
    }
}

/// A matrix `(out, in)` in tiles of [`TILE_ROWS`] rows, the last one filled up with zeros.
///
/// A tile is `in / 32` blocks, one behind the other. A block has the f16 scales of the tile's rows
/// (for Q4_1 then their smallest numbers, f16 too), and the integers: four bytes of the first row,
/// four of the second and so on, then the next four of the first. In a row they are in GGUF's
/// order.
#[derive(Clone, Copy, Debug)]
pub struct TiledWeights<'a> {
    /// How its numbers are stored.
    pub kind: BlockType,
    /// Rows, without the zeros.
    pub out: usize,
    /// All tiles.
    pub tiles: &'a [u8],
}

/// `x · wᵀ` for every matrix: `x` is rows of `inner` numbers, a multiple of 32, and so is each
/// matrix. The results are `(rows of x, out)`, row after row and one matrix behind the other.
///
/// # Panics
/// If `inner` is 0 or no multiple of 32, or a matrix is not as long as it says.
pub fn quantized_linear(x: &[f32], inner: usize, weights: &[TiledWeights<'_>]) -> Vec<f32> {
    quantized_linear_by(instruction_set(), x, inner, weights)
}

/// [`quantized_linear`] with an instruction set of the caller's choice; one that this machine lacks
/// counts as [`InstructionSet::Scalar`].
///
/// # Panics
/// As [`quantized_linear`].
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
    let kinds: Vec<BlockType> = weights.iter().map(|w| w.kind).collect();
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

/// Operations on small integers that all threads together do in a second, the best of `tries`:
/// products of Q4_0, the fastest of all, with a tile and rows that stay in the first cache. A
/// product and the addition of its result are two, as in
/// [`peak_operations`](crate::peak_operations), and this is the roof over a prefill with quantised
/// weights.
pub fn peak_integer_operations(tries: usize) -> f64 {
    let (set, kind) = (instruction_set(), BlockType::Q4_0);
    let (blocks, rows) = (16, max_rows(set, kind));
    let tile = vec![0; blocks * TILE_ROWS * kind.bytes()];
    let x = vec![0f32; rows * blocks * BLOCK];
    let x = QuantizedRows::new(set, &x, blocks * BLOCK, &[kind]);
    best_rate(tries, || {
        let threads = rayon::broadcast(|_| {
            let mut sums = [[0f32; TILE_ROWS]; MAX_ROWS];
            for _ in 0..PEAK_STEPS {
                tile_products(set, kind, black_box(&tile), x.all(), &mut sums[..rows]);
            }
            black_box(sums);
        });
        2 * threads.len() * PEAK_STEPS * blocks * BLOCK * TILE_ROWS * rows
    })
}

/// Products of a tile in one try of [`peak_integer_operations`]: about a millisecond.
const PEAK_STEPS: usize = 4096;

/// Some tiles, and where their products go: for each row of `x`, the columns of the result that are
/// the tiles'.
struct Block<'a> {
    kind: BlockType,
    tiles: &'a [u8],
    /// Bytes of a tile.
    tile: usize,
    x: XRows<'a>,
    /// Blocks of a row of `x`.
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
                let mut row = first;
                while row < end {
                    let together = most.min(end - row);
                    let x = self.x.blocks(row * self.row_blocks, together * self.row_blocks);
                    let sums = &mut sums[..together];
                    tile_products(set, self.kind, tile, x, sums);
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

/// The most rows of `x` that any instruction set takes at a time.
pub(crate) const MAX_ROWS: usize = 8;

/// The most rows of `x` that a tile is multiplied with at a time: as many as there are registers
/// for.
const fn max_rows(set: InstructionSet, kind: BlockType) -> usize {
    match (set, kind) {
        (InstructionSet::Avx512Vnni, _) => MAX_ROWS,
        (InstructionSet::Avx2, BlockType::Q4_0 | BlockType::Q4_1) => 3,
        _ => 4,
    }
}

/// The products of a tile's rows with some rows of `x`, which lie one behind the other:
/// `sums[row of x][row of the tile]`.
fn tile_products(
    set: InstructionSet,
    kind: BlockType,
    tile: &[u8],
    x: XRows<'_>,
    sums: &mut [[f32; TILE_ROWS]],
) {
    match set {
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => {
            // SAFETY: `quantized_linear_by` has seen that this machine has AVX2, FMA and F16C, and
            // that is all that the function asks for.
            unsafe { crate::quantized_avx2::tile_products(kind, tile, x, sums) }
        }
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512Vnni => {
            // SAFETY: `quantized_linear_by` has seen that this machine has AVX-512 F, BW and VNNI,
            // and that is all that the function asks for.
            unsafe { crate::quantized_avx512::tile_products(kind, tile, x, sums) }
        }
        #[cfg(target_arch = "aarch64")]
        InstructionSet::Neon => {
            // SAFETY: `quantized_linear_by` has seen that this machine has the dot products that
            // the function asks for; all 64-bit Arm processors have NEON.
            unsafe { crate::quantized_neon::tile_products(kind, tile, x, sums) }
        }
        _ => quantized_scalar::tile_products(kind, tile, x, sums),
    }
}
