//! What day 1's checkers assert.

use super::checks::{close, equal, golden, refused, Likely, Outcome, Random};
use candle_core::{DType, Device, Result, Tensor};

// f32 products of up to 12 terms near 1: torch and candle sum in another order, a few units of 6e-8 each.
const TOLERANCE: f32 = 1e-5;

/// Day 1 as a bundle of functions.
#[derive(Clone, Copy)]
pub struct Day {
    pub softmax: fn(&Tensor, usize) -> Result<Tensor>,
    pub causal_mask: fn(usize, usize, &Device) -> Result<Tensor>,
    pub attention: fn(&Tensor, &Tensor, &Tensor, Option<&Tensor>) -> Result<Tensor>,
    pub split_heads: fn(&Tensor, usize) -> Result<Tensor>,
    pub merge_heads: fn(&Tensor) -> Result<Tensor>,
    pub multi_head: fn(&Tensor, &[Tensor; 4], usize, Option<&Tensor>) -> Result<Tensor>,
}

/// Fills the bundle from a module: the reader's, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        day::Day {
            softmax: code::softmax,
            causal_mask: code::causal_mask,
            attention: code::scaled_dot_product_attention,
            split_heads: code::split_heads,
            merge_heads: code::merge_heads,
            multi_head: |x, [q, k, v, o], heads, mask| {
                let w = code::MultiHeadWeights { q: q.clone(), k: k.clone(), v: v.clone(), o: o.clone() };
                code::multi_head_attention(x, &w, heads, mask)
            },
        }
    }};
}

pub fn softmax_by_hand(day: &Day) -> Outcome {
    // e^0 : e^ln 3 = 1 : 3
    let x = Tensor::new(&[[0f32, 3f32.ln()]], &Device::Cpu)?;
    let want = Tensor::new(&[[0.25f32, 0.75]], &Device::Cpu)?;
    close("softmax([[0, ln 3]], dim 1)", (day.softmax)(&x, 1), &want, TOLERANCE)
}

pub fn softmax_equals_torch(day: &Day) -> Outcome {
    let x = golden("day01", "s")?;
    for dim in [2, 1] {
        let input = format!("softmax of a (2, 3, 5) tensor along dimension {dim}");
        let want = golden("day01", &format!("softmax.{dim}"))?;
        close(&input, (day.softmax)(&x, dim), &want, TOLERANCE)?;
    }
    Ok(())
}

pub fn softmax_does_not_overflow(day: &Day) -> Outcome {
    let x = Tensor::new(&[[1000f32, 1000.0]], &Device::Cpu)?;
    let want = Tensor::new(&[[0.5f32, 0.5]], &Device::Cpu)?;
    close("softmax([[1000, 1000]], dim 1)", (day.softmax)(&x, 1), &want, TOLERANCE)
        .likely("exp(1000) is infinite in f32: subtract the maximum first")
}

pub fn the_mask_is_causal(day: &Day) -> Outcome {
    let want = Tensor::new(&[[[[1u8, 0, 0], [1, 1, 0], [1, 1, 1]]]], &Device::Cpu)?;
    close("causal_mask(3 new, 0 past)", (day.causal_mask)(3, 0, &Device::Cpu), &want, 0.0)?;
    let want = Tensor::new(&[[[[1u8, 1, 1, 0], [1, 1, 1, 1]]]], &Device::Cpu)?;
    close("causal_mask(2 new, 2 past)", (day.causal_mask)(2, 2, &Device::Cpu), &want, 0.0)?;
    let dtype = (day.causal_mask)(2, 2, &Device::Cpu).map(|mask| mask.dtype());
    equal("the type of the mask", dtype, &DType::U8)
}

pub fn attention_equals_torch(day: &Day) -> Outcome {
    let [q, k, v] = ["q", "k", "v"].map(|name| golden("day01", name));
    let got = (day.attention)(&q?, &k?, &v?, None);
    close(
        "q (2, 3, 4, 8), k and v (2, 3, 6, 8), no mask",
        got,
        &golden("day01", "sdpa")?,
        TOLERANCE,
    )
}

pub fn masked_attention_equals_torch(day: &Day) -> Outcome {
    let [q, k, v] = ["q", "k", "v"].map(|name| golden("day01", name));
    // Written out, so that a wrong causal_mask is not blamed on the attention.
    let rows: Vec<u8> = (0..4).flat_map(|i| (0..6).map(move |j| u8::from(j <= i + 2))).collect();
    let mask =
        Tensor::from_vec(rows, (1, 1, 4, 6), q.as_ref().map_or(&Device::Cpu, |q| q.device()))?;
    let got = (day.attention)(&q?, &k?, &v?, Some(&mask));
    close("4 new tokens after 2, causal mask", got, &golden("day01", "sdpa.causal")?, TOLERANCE)
        .likely(
        "1 in the mask means: may attend; where it is 0 the score becomes -inf before the softmax",
    )
}

pub fn heads_are_split(day: &Day) -> Outcome {
    // Token t holds 10 t + 0…3; head 0 has the first two numbers of each token, head 1 the last two.
    let x = Tensor::new(
        &[[[0f32, 1., 2., 3.], [10., 11., 12., 13.], [20., 21., 22., 23.]]],
        &Device::Cpu,
    )?;
    let want = Tensor::new(
        &[[[[0f32, 1.], [10., 11.], [20., 21.]], [[2., 3.], [12., 13.], [22., 23.]]]],
        &Device::Cpu,
    )?;
    close("3 tokens of width 4, 2 heads", (day.split_heads)(&x, 2), &want, 0.0).likely(
        "reshape to (B, T, heads, D) first, then transpose; a reshape alone mixes tokens and heads",
    )?;
    refused("a width of 4, 3 heads", (day.split_heads)(&x, 3), &[])
}

pub fn heads_are_merged(day: &Day) -> Outcome {
    let x = Tensor::new(
        &[[[[0f32, 1.], [10., 11.], [20., 21.]], [[2., 3.], [12., 13.], [22., 23.]]]],
        &Device::Cpu,
    )?;
    let want = Tensor::new(
        &[[[0f32, 1., 2., 3.], [10., 11., 12., 13.], [20., 21., 22., 23.]]],
        &Device::Cpu,
    )?;
    close("2 heads of 3 tokens, width 2", (day.merge_heads)(&x), &want, 0.0)
}

pub fn multi_head_equals_torch(day: &Day) -> Outcome {
    let x = golden("day01", "x")?;
    let w = golden("day01", "in_proj")?;
    let part = |i: usize| w.narrow(0, 12 * i, 12);
    let w = [part(0)?, part(1)?, part(2)?, golden("day01", "out_proj")?];
    let mask: Vec<u8> = (0..25).map(|at| u8::from(at % 5 <= at / 5)).collect();
    let mask = Tensor::from_vec(mask, (1, 1, 5, 5), x.device())?;
    let got = (day.multi_head)(&x, &w, 3, None);
    close("x (2, 5, 12), 3 heads", got, &golden("day01", "mha")?, TOLERANCE)?;
    let got = (day.multi_head)(&x, &w, 3, Some(&mask));
    close("x (2, 5, 12), 3 heads, causal", got, &golden("day01", "mha.causal")?, TOLERANCE)
}

pub fn the_future_changes_nothing(day: &Day) -> Outcome {
    let mut random = Random::new(7);
    let w = [(); 4].map(|()| random.tensor(&[8, 8]));
    let [q, k, v, o] = w;
    let w = [q?, k?, v?, o?];
    let x = random.tensor(&[1, 6, 8])?;
    let mask: Vec<u8> = (0..36).map(|at| u8::from(at % 6 <= at / 6)).collect();
    let mask = Tensor::from_vec(mask, (1, 1, 6, 6), x.device())?;
    let all = (day.multi_head)(&x, &w, 2, Some(&mask))?;
    let (start, mask) = (x.narrow(1, 0, 4)?, mask.narrow(2, 0, 4)?.narrow(3, 0, 4)?);
    let got = (day.multi_head)(&start, &w, 2, Some(&mask));
    close(
        "the first 4 tokens alone, against the first 4 of 6",
        got,
        &all.narrow(1, 0, 4)?,
        TOLERANCE,
    )
}
