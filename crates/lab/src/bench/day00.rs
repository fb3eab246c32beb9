//! Day 0: how many positions the head computes, and what it costs to look 256 tokens up in
//! story-3m's table, and to multiply with the table instead.

use crate::shared::{plain_story, random};
use crate::tally::Tally;
use crate::times::{shown, Times};
use anyhow::Result;
use candecode::day00_warm_up::{embed, last_position};
use candle_core::{DType, Device, Tensor};
use std::path::Path;

const TOKENS: usize = 256;
const WIDTH: usize = 192;

/// Returns the number of positions that `last` keeps, of [`TOKENS`].
fn kept(last: impl Fn(&Tensor) -> candle_core::Result<Tensor>) -> Result<usize> {
    Ok(last(&random(&[1, TOKENS, WIDTH])?)?.elem_count() / WIDTH)
}

pub fn count(tally: &mut Tally) -> Result<()> {
    tally.add("positions that the head scores, of 256", TOKENS, kept(last_position)?);
    Ok(())
}

pub fn measure(times: &mut Times) -> Result<()> {
    let table = &plain_story()?.embed_tokens.tensor()?; // (2048, 192)
    let ids = Tensor::arange(0u32, TOKENS as u32, &Device::Cpu)?.unsqueeze(0)?;
    times.measure("look_up", || embed(table, &ids))?;
    let one_hot = Tensor::eye(2048, DType::F32, &Device::Cpu)?.narrow(0, 0, TOKENS)?;
    times.measure("product", || one_hot.matmul(table))
}

pub fn report(times: &Times, _: &Path) -> Result<()> {
    let (look_up, product) = (times.of("look_up")?, times.of("product")?);
    println!("{TOKENS} tokens looked up in the table: {}", shown(look_up));
    println!("as a matrix product: {}, {:.0} times as long", shown(product), product / look_up);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_every_position_counts_more() {
        assert_eq!(kept(last_position).unwrap(), 1);
        assert_eq!(kept(|x| Ok(x.clone())).unwrap(), TOKENS);
    }
}
