//! Quantized weight matrices in GGUF's block formats: 32 consecutive values of a row become small
//! integers with a shared scale (ggml's `block_q8_0`, `block_q4_0` and `block_q4_1`).

use crate::ModelConfig;
use candle_core::quantized::{ggml_file::qtensor_from_ggml, GgmlDType};
use candle_core::{bail, Device, Result, Tensor};
use rayon::prelude::*;
use std::borrow::Cow;
use std::ops::Range;

/// Values per block, all from one row.
pub const BLOCK_SIZE: usize = 32;

/// Rows per tile, as the kernels read them.
const TILE_ROWS: usize = 16;
/// Number of a row's bytes that are kept together in a tile.
const TOGETHER: usize = 4;

/// How the numbers of a block are stored. Scales are f16, little endian, and come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantType {
    /// A scale `d` and 32 signed bytes `q`: a number is `d * q`.
    Q8_0,
    /// A scale `d` and 16 bytes of two numbers `q` from 0 to 15 each: a number is `d * (q - 8)`.
    /// Byte `i` has number `i` in its lower four bits and number `i + 16` in its upper four.
    Q4_0,
    /// A scale `d`, a minimum `m`, and 16 bytes like those of Q4_0: a number is `d * q + m`.
    Q4_1,
}

impl QuantType {
    /// Returns the values per block: [`BLOCK_SIZE`] for every type.
    pub fn block_size(self) -> usize {
        BLOCK_SIZE
    }

    /// Returns the bytes per block: 34 for Q8_0, 18 for Q4_0, 20 for Q4_1.
    pub fn bytes_per_block(self) -> usize {
        self.scale_bytes() + self.integer_bytes()
    }

    /// Returns the bytes in a block before its integers.
    fn scale_bytes(self) -> usize {
        match self {
            Self::Q8_0 | Self::Q4_0 => 2,
            Self::Q4_1 => 4,
        }
    }

    /// Returns the bytes of a block's integers.
    fn integer_bytes(self) -> usize {
        match self {
            Self::Q8_0 => 32,
            Self::Q4_0 | Self::Q4_1 => 16,
        }
    }

    /// Returns the weight bytes of a whole model with matrices of this type. An output head that is
    /// also the embedding table is at least Q8_0: it is read for every token, and no later layer
    /// can correct its errors.
    pub fn model_bytes(self, config: &ModelConfig) -> f64 {
        let bytes = |kind: Self, numbers: usize| {
            numbers as f64 * kind.bytes_per_block() as f64 / BLOCK_SIZE as f64
        };
        let tied = config.tie_word_embeddings;
        let head = if tied { config.vocab_size * config.hidden_size } else { 0 };
        bytes(self, config.size() - head) + bytes(self.of_a_tied_head(), head)
    }

    /// Returns the type for an output head that is also the embedding table, in a model of this
    /// type.
    pub fn of_a_tied_head(self) -> Self {
        match self {
            Self::Q4_0 => Self::Q8_0,
            other => other,
        }
    }

    /// Returns candle's name for this type.
    pub fn ggml(self) -> GgmlDType {
        match self {
            Self::Q8_0 => GgmlDType::Q8_0,
            Self::Q4_0 => GgmlDType::Q4_0,
            Self::Q4_1 => GgmlDType::Q4_1,
        }
    }
}

impl std::fmt::Display for QuantType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Q8_0 => "Q8_0",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
        })
    }
}

/// A quantized weight matrix `(out, in)`.
#[derive(Clone)]
pub struct QuantizedMatrix {
    kind: QuantType,
    out: usize,
    inner: usize,
    blocks: Blocks,
}

/// All blocks of a matrix.
#[derive(Clone)]
enum Blocks {
    /// Row after row, as in a file.
    Rows(Vec<u8>),
    /// In tiles, as the kernels read them. See [`QuantizedMatrix::tiled`].
    Tiles(Vec<u8>),
}

impl QuantizedMatrix {
    /// Wraps a matrix whose rows are stored consecutively in `blocks`, `inner / 32` blocks each, as
    /// in a GGUF file.
    ///
    /// # Errors
    /// If a row is not a whole number of blocks, if the number of bytes doesn't match the shape, or
    /// if a scale is infinite or NaN.
    pub fn new(kind: QuantType, out: usize, inner: usize, blocks: Vec<u8>) -> Result<Self> {
        if inner == 0 || !inner.is_multiple_of(BLOCK_SIZE) {
            bail!("a row of {inner} numbers cannot be {kind}: its blocks hold {BLOCK_SIZE} each")
        }
        let wanted = out * (inner / BLOCK_SIZE) * kind.bytes_per_block();
        if blocks.len() != wanted {
            bail!("a {kind} matrix ({out}, {inner}) has {wanted} bytes, not {}", blocks.len())
        }
        for (at, block) in blocks.chunks(kind.bytes_per_block()).enumerate() {
            let scales = block[..kind.scale_bytes()].chunks_exact(2);
            // An f16 is infinite or NaN if all five exponent bits are set.
            if scales.map(|s| s[1] & 0x7c).any(|exponent| exponent == 0x7c) {
                let row = at / (inner / BLOCK_SIZE);
                bail!("a scale in row {row} is infinite or not a number: the weights are damaged")
            }
        }
        Ok(Self { kind, out, inner, blocks: Blocks::Rows(blocks) })
    }

    /// Returns the storage format of the values.
    pub fn kind(&self) -> QuantType {
        self.kind
    }

    /// Returns `(out, in)`.
    pub fn shape(&self) -> (usize, usize) {
        (self.out, self.inner)
    }

    /// Returns the matrix rearranged into the layout that the kernels read. Sixteen rows form a
    /// *tile*, and the last tile is padded with zeros. A tile holds the first block of each of its
    /// rows, then the second block of each, and so on. Each group of blocks starts with the scales,
    /// row after row, followed by four bytes of integers from each row, then the next four from
    /// each, and so on. A vector register therefore holds bytes from several rows, and no sum has
    /// to run across a register.
    pub fn tiled(self) -> Self {
        let Blocks::Rows(rows) = &self.blocks else { return self };
        let (tile, row) = (TILE_ROWS * self.row_bytes(), self.row_bytes());
        let mut tiles = vec![0; self.out.div_ceil(TILE_ROWS) * tile];
        let pairs = tiles.par_chunks_mut(tile).zip(rows.par_chunks(tile));
        pairs.for_each(|(tile, rows)| {
            for (at, row) in rows.chunks(row).enumerate() {
                for (from, to) in self.places(at) {
                    tile[to].copy_from_slice(&row[from]);
                }
            }
        });
        Self { blocks: Blocks::Tiles(tiles), ..self }
    }

    /// Returns the tiles, if the matrix is [tiled](Self::tiled).
    pub fn tiles(&self) -> Option<&[u8]> {
        match &self.blocks {
            Blocks::Rows(_) => None,
            Blocks::Tiles(tiles) => Some(tiles),
        }
    }

    /// Returns pairs of byte ranges, in a row and in its tile, for row `at` of the tile.
    fn places(&self, at: usize) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        let kind = self.kind;
        (0..self.inner / BLOCK_SIZE).flat_map(move |block| {
            let from = block * kind.bytes_per_block();
            let to = TILE_ROWS * from;
            let scales = (0..kind.scale_bytes()).step_by(2).map(move |scale| {
                let to = to + TILE_ROWS * scale + at * 2;
                (from + scale..from + scale + 2, to..to + 2)
            });
            let integers = (0..kind.integer_bytes()).step_by(TOGETHER).map(move |some| {
                let some = kind.scale_bytes() + some;
                let to = to + TILE_ROWS * some + at * TOGETHER;
                (from + some..from + some + TOGETHER, to..to + TOGETHER)
            });
            scales.chain(integers)
        })
    }

    /// Returns the bytes in a row.
    fn row_bytes(&self) -> usize {
        self.inner / BLOCK_SIZE * self.kind.bytes_per_block()
    }

    /// Returns the blocks of row `i`, as in a GGUF file. For a [tiled](Self::tiled) matrix, they
    /// are gathered into a new vector.
    ///
    /// # Panics
    /// If row `i` doesn't exist.
    pub fn row(&self, i: usize) -> Cow<'_, [u8]> {
        assert!(i < self.out, "row {i} of a matrix of {}", self.out);
        let length = self.row_bytes();
        match &self.blocks {
            Blocks::Rows(rows) => Cow::Borrowed(&rows[i * length..][..length]),
            Blocks::Tiles(tiles) => {
                let tile = &tiles[i / TILE_ROWS * TILE_ROWS * length..][..TILE_ROWS * length];
                let mut row = vec![0; length];
                for (to, from) in self.places(i % TILE_ROWS) {
                    row[to].copy_from_slice(&tile[from]);
                }
                Cow::Owned(row)
            }
        }
    }

    /// Returns the matrix's size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        match &self.blocks {
            Blocks::Rows(bytes) | Blocks::Tiles(bytes) => bytes.len(),
        }
    }

    /// Returns the dequantized values: f32, `(out, in)`, on the CPU.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn widened(&self) -> Result<Tensor> {
        self.widened_rows(0..self.out)
    }

    /// Returns some rows of [`widened`](Self::widened), in the order given: `(rows, in)`.
    ///
    /// # Errors
    /// If a row doesn't exist.
    pub fn widened_rows(&self, rows: impl IntoIterator<Item = usize>) -> Result<Tensor> {
        let (mut blocks, mut count) = (Vec::new(), 0);
        for row in rows {
            if row >= self.out {
                bail!("there is no row {row} in a matrix of {}", self.out)
            }
            blocks.extend_from_slice(&self.row(row));
            count += 1;
        }
        let shape = vec![count, self.inner];
        qtensor_from_ggml(self.kind.ggml(), &blocks, shape, &Device::Cpu)?.dequantize(&Device::Cpu)
    }
}

impl std::fmt::Debug for QuantizedMatrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "QuantizedMatrix({}, {} x {})", self.kind, self.out, self.inner)
    }
}
