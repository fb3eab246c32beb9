//! Blocks of quantized weights: their formats and sizes, and how many rows a tile has.

/// Rows of weights in a tile.
pub const TILE_ROWS: usize = 16;
/// Numbers in a block.
pub const BLOCK: usize = 32;

/// The storage format of a block's numbers, as in GGUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantType {
    /// `d * q`, where `q` is a signed byte.
    Q8_0,
    /// `d * (q - 8)`, where `q` has four bits.
    Q4_0,
    /// `d * q + m`, where `q` has four bits.
    Q4_1,
}

impl QuantType {
    /// Returns the number of weights in a block.
    pub const fn block_size(self) -> usize {
        BLOCK
    }

    /// Returns the size of one row's block, in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Q8_0 => 34,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
        }
    }
}
