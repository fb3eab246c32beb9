//! Writing keys and values into a cache made of blocks.

use candle_core::{bail, CpuStorage, DType, InplaceOp2, Layout, Result, Tensor};

/// Writes the keys or values of new tokens into a pool of blocks, in place (vLLM
/// `reshape_and_cache`).
///
/// `pool` is `(blocks, Hkv, block size, D)` and `new` is `(1, Hkv, N, D)`. Token `i` goes to slot
/// `slots[i]`: slots are numbered through all blocks, so slot `s` is number `s % block size` of
/// block `s / block size`. If two tokens name the same slot, the later one stays.
///
/// Other tensors that share the pool's storage change with it.
///
/// # Errors
/// If the shapes or types don't match, a slot doesn't exist, or, except for f32 on the CPU, the pool
/// isn't contiguous. Nothing has been written then.
pub fn write_slots(pool: &Tensor, new: &Tensor, slots: &[u32]) -> Result<()> {
    let (blocks, heads, block_size, width) = pool.dims4()?;
    if new.dims() != [1, heads, slots.len(), width] || new.dtype() != pool.dtype() {
        bail!(
            "write_slots: {} slots of {:?} ({:?}) cannot take tokens of {:?} ({:?})",
            slots.len(),
            pool.dims(),
            pool.dtype(),
            new.dims(),
            new.dtype()
        )
    }
    if let Some(slot) = slots.iter().find(|slot| **slot as usize >= blocks * block_size) {
        bail!("write_slots: slot {slot} is past {blocks} blocks of {block_size} positions")
    }
    if slots.is_empty() {
        return Ok(());
    }
    if pool.device().is_cpu() && pool.dtype() == DType::F32 {
        return pool.inplace_op2(&new.contiguous()?, &WriteSlots { slots });
    }
    for (token, slot) in slots.iter().enumerate() {
        let token = new.narrow(2, token, 1)?.contiguous()?;
        let slot = *slot as usize;
        pool.narrow(0, slot / block_size, 1)?.slice_set(&token, 2, slot % block_size)?;
    }
    Ok(())
}

/// The operation on the CPU, in f32. Shapes and slots have been checked.
struct WriteSlots<'a> {
    slots: &'a [u32],
}

impl InplaceOp2 for WriteSlots<'_> {
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
        let (_, heads, block_size, width) = pool_layout.shape().dims4()?;
        let [block_stride, head_stride, position_stride, 1] = *pool_layout.stride() else {
            bail!("write_slots: the {width} numbers of a position must be contiguous")
        };
        let (CpuStorage::F32(pool), CpuStorage::F32(new)) = (pool, new) else {
            bail!("write_slots: the pool and the new tokens must be f32")
        };
        let (pool, new) =
            (&mut pool[pool_layout.start_offset()..], &new[new_layout.start_offset()..]);
        for head in 0..heads {
            for (token, slot) in self.slots.iter().enumerate() {
                let (block, slot) = (*slot as usize / block_size, *slot as usize % block_size);
                let at = block * block_stride + head * head_stride + slot * position_stride;
                let row = &new[(head * self.slots.len() + token) * width..][..width];
                pool[at..][..width].copy_from_slice(row);
            }
        }
        Ok(())
    }
}
