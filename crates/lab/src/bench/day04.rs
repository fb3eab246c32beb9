//! Day 4: the bytes that a token leaves in the cache; the time of grouped attention with stacked
//! queries, and with a copy of the keys and values for every query head.

use crate::shared::{plain_story, random};
use crate::tally::Tally;
use crate::times::{shown, Times};
use anyhow::Result;
use candecode::day01_attention::scaled_dot_product_attention;
use candecode::day04_attention_block::grouped_attention;
use candecode::kit::{Cache, Model, NoCache, Step, View};
use candle_core::Tensor;
use std::path::Path;

/// Query heads, key heads, width, new tokens, and tokens to look at: story-3m, then Llama 3.1 8B.
const SHAPES: [(usize, usize, usize, usize, usize); 4] =
    [(6, 2, 32, 1, 256), (32, 8, 128, 1, 1024), (32, 8, 128, 1, 4096), (32, 8, 128, 64, 1024)];

/// A cache that counts the bytes it is given.
struct Weighed(usize);

impl Cache for Weighed {
    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> candle_core::Result<View> {
        for part in [k, v] {
            self.0 += part.elem_count() * part.dtype().size_in_bytes();
        }
        NoCache.append(layer, k, v)
    }

    fn len(&self) -> usize {
        0
    }

    fn truncate(&mut self, len: usize) -> candle_core::Result<()> {
        NoCache.truncate(len)
    }
}

/// Returns the bytes that a model hands to the cache for one token.
fn cached_bytes(model: &dyn Model) -> Result<usize> {
    let mut cache = Weighed(0);
    model.forward(&Step::new(model, &[428], 0)?, &mut cache)?;
    Ok(cache.0)
}

pub fn count(tally: &mut Tally) -> Result<()> {
    let model = plain_story()?;
    let config = model.config();
    // Before, each query head has keys and values of its own.
    let own = config.num_hidden_layers * 2 * config.num_attention_heads * config.head_dim;
    let (own, shared) = (own * size_of::<f32>(), cached_bytes(&model)?);
    tally.add("bytes in the cache for each token", own, shared);
    Ok(())
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_their_own_cost_more_cache() {
        let kv = random(&[1, 2, 1, 32]).unwrap();
        let mut cache = Weighed(0);
        cache.append(0, &kv, &kv).unwrap();
        let shared = cache.0;
        let each = kv.repeat((1, 3, 1, 1)).unwrap();
        cache.append(0, &each, &each).unwrap();
        assert_eq!([shared, cache.0], [512, 512 + 1536]);
    }
}
