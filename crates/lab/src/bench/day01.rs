//! Day 1: attention at story-3m's width, 192, with six heads: the four projections, and everything
//! between them.

use crate::shared::random;
use crate::times::{shown, Times};
use anyhow::Result;
use candecode::day01_attention::{
    causal_mask, merge_heads, scaled_dot_product_attention, split_heads,
};
use candle_core::{Device, Tensor};
use std::path::Path;

const HEADS: usize = 6;
const WIDTH: usize = 192;
const TOKENS: [usize; 3] = [64, 256, 1024];

pub fn measure(times: &mut Times) -> Result<()> {
    let [q, k, v, o] = [(); 4].map(|()| random(&[WIDTH, WIDTH]));
    let [q, k, v, o] = [q?, k?, v?, o?];
    for tokens in TOKENS {
        let x = random(&[1, tokens, WIDTH])?;
        let mask = causal_mask(tokens, 0, &Device::Cpu)?;
        let heads = split_heads(&x, HEADS)?; // (1, 6, T, 32)
        times.measure(&format!("projections_{tokens}"), || {
            let project = |w: &Tensor| x.broadcast_matmul(&w.t()?);
            project(&q)?;
            project(&k)?;
            project(&v)?;
            project(&o)
        })?;
        times.measure(&format!("attention_{tokens}"), || {
            merge_heads(&scaled_dot_product_attention(&heads, &heads, &heads, Some(&mask))?)
        })?;
    }
    let heads = split_heads(&random(&[1, 256, WIDTH])?, HEADS)?;
    let keys = heads.t()?.contiguous()?;
    let scores = heads.matmul(&keys)?; // (1, 6, T, T)
    times.measure("both_products_256", || heads.matmul(&keys)?.matmul(&heads))?;
    times.measure("exp_256", || scores.exp())
}

pub fn report(times: &Times, _: &Path) -> Result<()> {
    println!("tokens  projections   attention   ratio  score matrix");
    for tokens in TOKENS {
        let projections = times.of(&format!("projections_{tokens}"))?;
        let attention = times.of(&format!("attention_{tokens}"))?;
        println!(
            "{tokens:6} {:>12} {:>11} {:7.1} {:10.1} MB",
            shown(projections),
            shown(attention),
            attention / projections,
            (HEADS * tokens * tokens * size_of::<f32>()) as f64 / 1e6
        );
    }
    let (products, exp) = (times.of("both_products_256")?, times.of("exp_256")?);
    println!("of 256 tokens: both matrix products {}, exp {}", shown(products), shown(exp));
    Ok(())
}
