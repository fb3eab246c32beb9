//! Matrices of quantised weights, in the blocks of GGUF: 32 numbers of a row become small integers
//! and a scale that they share (ggml's `block_q8_0`, `block_q4_0` and `block_q4_1`).

use candle_core::quantized::{ggml_file::qtensor_from_ggml, GgmlDType};
use candle_core::{bail, Device, Result, Tensor};
use std::borrow::Cow;

/// Numbers in a block. They lie in one row, side by side.
pub const BLOCK_SIZE: usize = 32;

/// How the numbers of a block are stored. Scales are f16, little endian, and come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum QuantType {
    /// A scale `d` and 32 signed bytes `q`: a number is `d * q`.
    #[cfg_attr(feature = "cli", value(name = "q8_0"))]
    Q8_0,
    /// A scale `d` and 16 bytes of two numbers `q` from 0 to 15 each: a number is `d * (q - 8)`. Byte
    /// `i` has number `i` in its lower four bits and number `i + 16` in its upper four.
    #[cfg_attr(feature = "cli", value(name = "q4_0"))]
    Q4_0,
    /// A scale `d`, a smallest number `m`, and 16 bytes as those of Q4_0: a number is `d * q + m`.
    #[cfg_attr(feature = "cli", value(skip))]
    Q4_1,
}

impl QuantType {
    /// Numbers in a block: [`BLOCK_SIZE`], for all of them.
    pub fn block_size(self) -> usize {
        BLOCK_SIZE
    }

    /// Bytes of a block: 34 for Q8_0, 18 for Q4_0, 20 for Q4_1.
    pub fn bytes_per_block(self) -> usize {
        self.scale_bytes() + self.integer_bytes()
    }

    /// Bytes of a block before its integers.
    fn scale_bytes(self) -> usize {
        match self {
            Self::Q8_0 | Self::Q4_0 => 2,
            Self::Q4_1 => 4,
        }
    }

    /// Bytes of a block's integers.
    fn integer_bytes(self) -> usize {
        match self {
            Self::Q8_0 => 32,
            Self::Q4_0 | Self::Q4_1 => 16,
        }
    }

    /// What candle calls it.
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

/// A matrix `(out, in)` of quantised weights.
#[derive(Clone)]
pub struct QuantizedMatrix {
    kind: QuantType,
    out: usize,
    inner: usize,
    blocks: Vec<u8>,
}

impl QuantizedMatrix {
    /// The matrix whose rows lie one behind the other in `blocks`, each `inner / 32` blocks long, as
    /// in a GGUF file.
    ///
    /// # Errors
    /// If a row is not a whole number of blocks, there are more or fewer bytes than the shape asks
    /// for, or a scale is infinite or not a number.
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
            // Of an infinite or undefined f16, all five bits of the exponent are set.
            if scales.map(|s| s[1] & 0x7c).any(|exponent| exponent == 0x7c) {
                let row = at / (inner / BLOCK_SIZE);
                bail!("a scale in row {row} is infinite or not a number: the weights are damaged")
            }
        }
        Ok(Self { kind, out, inner, blocks })
    }

    /// How its numbers are stored.
    pub fn kind(&self) -> QuantType {
        self.kind
    }

    /// `(out, in)`.
    pub fn shape(&self) -> (usize, usize) {
        (self.out, self.inner)
    }

    /// The blocks of row `i`, as in a GGUF file.
    ///
    /// # Panics
    /// If there is no row `i`.
    pub fn row(&self, i: usize) -> Cow<'_, [u8]> {
        let length = self.inner / BLOCK_SIZE * self.kind.bytes_per_block();
        Cow::Borrowed(&self.blocks[i * length..][..length])
    }

    /// Bytes that it takes in memory.
    pub fn bytes(&self) -> usize {
        self.blocks.len()
    }

    /// The numbers that the blocks stand for: f32, `(out, in)`, on the CPU.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn widened(&self) -> Result<Tensor> {
        self.widened_rows(0..self.out)
    }

    /// Some rows of [`widened`](Self::widened), in the order given: `(rows, in)`.
    ///
    /// # Errors
    /// If there is no such row.
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
