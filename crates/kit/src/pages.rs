//! A paged cache (day 21): the location of each sequence's positions, and writing new
//! ones.

use candle_core::{bail, CpuStorage, InplaceOp2, Layout, Result, Tensor};

/// The location of some sequences' keys and values in a paged cache (vLLM's attention
/// metadata). The new tokens of all sequences form one line, one sequence after another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pages {
    /// The number of positions in a block.
    pub block_size: usize,
    /// The sequences, in the order of their new tokens.
    pub sequences: Vec<PagedSequence>,
}

impl Pages {
    /// Returns the number of new tokens in all sequences.
    pub fn num_new(&self) -> usize {
        self.sequences.iter().map(|sequence| sequence.new).sum()
    }
}

/// One sequence in a paged cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PagedSequence {
    /// The blocks of the sequence, in order: position `p` is in block
    /// `block_table[p / block_size]`, in slot `p % block_size` of that block.
    pub block_table: Vec<u32>,
    /// The number of positions held, including the new ones.
    pub len: usize,
    /// The number of new tokens. They are the last of the `len` positions, and each attends to
    /// itself and everything before it.
    pub new: usize,
}

/// Writes the keys or values of N new tokens, `(1, Hkv, N, D)`, into their slots of `pool`,
/// `(blocks, Hkv, block size, D)`, in place. Slot `s` is position `s % block_size` of block
/// `s / block_size` (vLLM `reshape_and_cache`).
///
/// # Errors
/// If the shapes or types don't match, the number of slots isn't the number of tokens, or a slot is
/// past the end of the pool.
pub fn write_slots(pool: &Tensor, new: &Tensor, slots: &[u32]) -> Result<()> {
    let (blocks, heads, block_size, width) = pool.dims4()?;
    if new.dims() != [1, heads, slots.len(), width] || new.dtype() != pool.dtype() {
        let (new, pool) = (new.shape(), pool.shape());
        bail!("{new:?} for {} slots doesn't fit the blocks {pool:?}", slots.len())
    }
    if let Some(slot) = slots.iter().find(|slot| **slot as usize >= blocks * block_size) {
        bail!("slot {slot} is past the pool of {blocks} blocks of {block_size}")
    }
    if pool.device().is_cpu() && pool.dtype() == candle_core::DType::F32 && pool.is_contiguous() {
        return pool.inplace_op2(&new.contiguous()?, &Scatter { slots, block_size });
    }
    for (token, slot) in slots.iter().enumerate() {
        let block = pool.narrow(0, *slot as usize / block_size, 1)?;
        let numbers = new.narrow(2, token, 1)?.contiguous()?;
        block.slice_set(&numbers, 2, *slot as usize % block_size)?;
    }
    Ok(())
}

/// [`write_slots`] for f32 on the CPU, where one operation per token would cost more than the copy
/// itself.
struct Scatter<'a> {
    slots: &'a [u32],
    block_size: usize,
}

impl InplaceOp2 for Scatter<'_> {
    fn name(&self) -> &'static str {
        "write-slots"
    }

    fn cpu_fwd(
        &self,
        pool: &mut CpuStorage,
        pool_layout: &Layout,
        new: &CpuStorage,
        new_layout: &Layout,
    ) -> Result<()> {
        let (CpuStorage::F32(pool), CpuStorage::F32(new)) = (pool, new) else {
            bail!("write_slots: keys and values must be f32")
        };
        let pool = &mut pool[pool_layout.start_offset()..];
        let new = &new[new_layout.start_offset()..];
        let (_, heads, tokens, width) = new_layout.shape().dims4()?;
        for (token, slot) in self.slots.iter().enumerate() {
            let (block, offset) =
                (*slot as usize / self.block_size, *slot as usize % self.block_size);
            for head in 0..heads {
                let to = ((block * heads + head) * self.block_size + offset) * width;
                let from = (head * tokens + token) * width;
                pool[to..to + width].copy_from_slice(&new[from..from + width]);
            }
        }
        Ok(())
    }
}

/// Parses a number of positions per block: a divisor of 64.
///
/// # Errors
/// If it isn't a divisor of 64.
pub fn parse_block_size(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(size) if size > 0 && 64 % size == 0 => Ok(size),
        _ => Err("a block holds 1, 2, 4, 8, 16, 32 or 64 positions".to_string()),
    }
}
