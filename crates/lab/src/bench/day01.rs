//! Day 1: what attention knows about the next word, and its cost at story-3m's width, 192, with six
//! heads: the four projections, and everything between them.

use crate::probe::{Piece, Probe};
use crate::shared::{logits, random, tokenizer};
use crate::tally::Tally;
use crate::times::{shown, Times};
use anyhow::Result;
use candecode::day01_attention::{
    causal_mask, merge_heads, scaled_dot_product_attention, softmax, split_heads,
};
use candecode::kit::{Model, NoCache};
use candle_core::{DType, Device, Tensor};
use std::path::Path;

const HEADS: usize = 6;
const WIDTH: usize = 192;
const TOKENS: [usize; 3] = [64, 256, 1024];

const PROMPT: &str = "Tom had a red ball. One day, Tom lost the";

/// Returns the number of pairs of a token and a token it reads, among 16 tokens.
fn pairs(attention: impl Fn(&Tensor, &Tensor) -> candle_core::Result<Tensor>) -> Result<usize> {
    let x = random(&[1, 1, 16, 16])?;
    let each = Tensor::eye(16, DType::F32, &Device::Cpu)?.reshape((1, 1, 16, 16))?;
    let weights = attention(&x, &each)?.flatten_all()?.to_vec1::<f32>()?;
    Ok(weights.iter().filter(|weight| **weight > 0.0).count())
}

/// Returns the probability of " ball" after the prompt.
fn chance(model: &dyn Model) -> Result<f64> {
    let tokenizer = tokenizer()?;
    let ball = tokenizer.encode("the ball")?.last().copied().unwrap_or_default();
    let logits = logits(model, &tokenizer.encode(PROMPT)?, &mut NoCache)?;
    let probabilities = softmax(&Tensor::new(logits, &Device::Cpu)?, 0)?.to_vec1::<f32>()?;
    Ok(probabilities[ball as usize].into())
}

pub fn count(tally: &mut Tally) -> Result<()> {
    let attend =
        |x: &Tensor, v: &Tensor, mask: Option<&Tensor>| scaled_dot_product_attention(x, x, v, mask);
    let mask = causal_mask(16, 0, &Device::Cpu)?;
    let (all, past) = (pairs(|x, v| attend(x, v, None))?, pairs(|x, v| attend(x, v, Some(&mask)))?);
    tally.add("pairs of tokens that attention joins, of 16", all, past);
    let percent = |without| -> Result<String> {
        Ok(format!("{:.1} %", 100.0 * chance(&Probe::story(without)?.0)?))
    };
    let (average, yours) = (percent(Some(Piece::Scores))?, percent(None)?);
    tally.add("probability of \" ball\"; before: every token counts alike", average, yours);
    Ok(())
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_that_hides_too_little_joins_more_pairs() {
        let joined = |mask: &Tensor| {
            pairs(|x, v| scaled_dot_product_attention(x, x, v, Some(mask))).unwrap()
        };
        assert_eq!(joined(&causal_mask(16, 0, &Device::Cpu).unwrap()), 16 * 17 / 2);
        // One token too many is visible to each.
        let wrong = causal_mask(17, 0, &Device::Cpu).unwrap().narrow(2, 1, 16).unwrap();
        let wrong = wrong.narrow(3, 0, 16).unwrap().contiguous().unwrap();
        assert_eq!(joined(&wrong), 16 * 17 / 2 + 15);
    }
}
