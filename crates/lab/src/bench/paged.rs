//! Decoding from a paged cache, compared with one buffer per sequence: one layer of
//! attention in SmolLM2-135M's shape (9 query heads on 3 KV heads, 64 wide), for one sequence and
//! for 32.

use crate::shared::random;
use crate::times::Times;
use anyhow::Result;
use candecode::kit::{PagedSequence, Pages};
use candecode_engine::kernels;
use candle_core::Tensor;
use std::path::Path;

const HEADS: usize = 9;
const KV_HEADS: usize = 3;
const WIDTH: usize = 64;

/// Positions in a block.
const BLOCK: usize = 16;
/// Numbers of sequences.
const SEQUENCES: [usize; 2] = [1, 32];
/// Positions of each sequence.
const CONTEXTS: [usize; 3] = [256, 1024, 4096];

pub fn measure(times: &mut Times) -> Result<()> {
    for sequences in SEQUENCES {
        for all in CONTEXTS {
            let name = format!("{sequences}_{all}");
            let q = random(&[sequences, HEADS, 1, WIDTH])?;
            let buffers = [(); 2].map(|()| random(&[sequences, KV_HEADS, all, WIDTH]));
            let [k, v] = buffers;
            let (k, v) = (k?, v?);
            times.measure(&format!("buffer_{name}"), || kernels::attention(&q, &k, &v, None))?;
            let blocks = sequences * all / BLOCK;
            let pools = [(); 2].map(|()| random(&[blocks, KV_HEADS, BLOCK, WIDTH]));
            let [k_pool, v_pool] = pools;
            let (k_pool, v_pool) = (k_pool?, v_pool?);
            // Scatter each sequence's blocks over the pool. 7919 is prime.
            let mut scattered = (0..blocks).map(|i| (i * 7919 % blocks) as u32);
            let mut sequence = || PagedSequence {
                block_table: scattered.by_ref().take(all / BLOCK).collect(),
                len: all,
                new: 1,
            };
            let sequences = (0..sequences).map(|_| sequence()).collect();
            let pages = Pages { block_size: BLOCK, sequences };
            let line: Tensor = q.transpose(0, 2)?.contiguous()?.transpose(1, 2)?.contiguous()?;
            let line = line.reshape((1, HEADS, (), WIDTH))?;
            times.measure(&format!("blocks_{name}"), || {
                kernels::paged_attention(&line, &k_pool, &v_pool, &pages)
            })?;
        }
    }
    Ok(())
}

pub fn report(times: &Times, _: &Path) -> Result<()> {
    println!("one layer's attention for a new token per sequence, in µs: buffers, blocks");
    for sequences in SEQUENCES {
        for all in CONTEXTS {
            let micros = |kind| anyhow::Ok(1e6 * times.of(&format!("{kind}_{sequences}_{all}"))?);
            let (buffer, blocks) = (micros("buffer")?, micros("blocks")?);
            let ratio = buffer / blocks;
            println!(
                "{sequences:3} sequences of {all:5} positions: {buffer:8.0} {blocks:8.0}, speed \
                 {ratio:.2}"
            );
        }
    }
    Ok(())
}
