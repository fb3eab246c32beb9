//! Day 4: grouped attention with stacked queries, and with a copy of the keys and values for every
//! query head.

use crate::shared::random;
use crate::times::{shown, Times};
use anyhow::Result;
use candecode::day01_attention::scaled_dot_product_attention;
use candecode::day04_attention_block::grouped_attention;
use candle_core::Tensor;
use std::path::Path;

/// Query heads, key heads, width, new tokens, and tokens to look at: story-3m, then Llama 3.1 8B.
const SHAPES: [(usize, usize, usize, usize, usize); 4] =
    [(6, 2, 32, 1, 256), (32, 8, 128, 1, 1024), (32, 8, 128, 1, 4096), (32, 8, 128, 64, 1024)];

pub fn measure(times: &mut Times) -> Result<()> {
    for (heads, kv_heads, width, new, seen) in SHAPES {
        let q = random(&[1, heads, new, width])?;
        let (k, v) = (random(&[1, kv_heads, seen, width])?, random(&[1, kv_heads, seen, width])?);
        let copied = |x: &Tensor| -> candle_core::Result<Tensor> {
            let shape = (1, kv_heads, heads / kv_heads, seen, width);
            x.unsqueeze(2)?.broadcast_as(shape)?.contiguous()?.reshape((1, heads, seen, width))
        };
        let name = format!("{heads}_{kv_heads}_{width}_{new}_{seen}");
        times.measure(&format!("{name}_stacked"), || grouped_attention(&q, &k, &v, None))?;
        times.measure(&format!("{name}_copied"), || {
            scaled_dot_product_attention(&q, &copied(&k)?, &copied(&v)?, None)
        })?;
    }
    Ok(())
}

pub fn report(times: &Times, _: &Path) -> Result<()> {
    println!("query / key heads × width   new  to look at      stacked       copied  ratio");
    for (heads, kv_heads, width, new, seen) in SHAPES {
        let name = format!("{heads}_{kv_heads}_{width}_{new}_{seen}");
        let stacked = times.of(&format!("{name}_stacked"))?;
        let copied = times.of(&format!("{name}_copied"))?;
        println!(
            "{:<24} {new:6} {seen:11} {:>12} {:>12} {:6.1}",
            format!("{heads} / {kv_heads} × {width}"),
            shown(stacked),
            shown(copied),
            copied / stacked
        );
    }
    Ok(())
}
