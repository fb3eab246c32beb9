//! Day 1's checks: attention.

#[path = "../frame/mod.rs"]
mod frame;

#[cfg(not(feature = "mine"))]
use candecode::day01_attention;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day01_attention.rs"]
mod day01_attention;

use candle_core::{DType, Device, IndexOp, Result, Tensor};
use frame::{close, device, equal, golden, refused, refused_calmly, Likely, Outcome, Random};

// f32 sums of up to 12 products near 1: torch and candle add in different orders, which changes
// them by a few units of 6e-8.
const TOLERANCE: f32 = 1e-5;

/// The day 1 functions under test.
#[derive(Clone, Copy)]
pub struct Day {
    pub softmax: fn(&Tensor, usize) -> Result<Tensor>,
    pub causal_mask: fn(usize, usize, &Device) -> Result<Tensor>,
    pub attention: fn(&Tensor, &Tensor, &Tensor, Option<&Tensor>) -> Result<Tensor>,
    pub split_heads: fn(&Tensor, usize) -> Result<Tensor>,
    pub merge_heads: fn(&Tensor) -> Result<Tensor>,
    pub sinks: fn(&Tensor, &Tensor, &Tensor, Option<&Tensor>, &Tensor) -> Result<Tensor>,
}

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        crate::Day {
            softmax: code::softmax,
            causal_mask: code::causal_mask,
            attention: code::scaled_dot_product_attention,
            split_heads: code::split_heads,
            merge_heads: code::merge_heads,
            sinks: code::attention_with_sinks,
        }
    }};
}

frame::checks! {
    day01_attention:
    1.1: softmax_by_hand, softmax_equals_torch, softmax_does_not_overflow, softmax_sums_in_f32;
    1.2: the_mask_is_causal;
    1.3: attention_by_hand, attention_equals_torch, masked_attention_equals_torch,
        a_trained_head_equals_transformers, views_are_taken, each_row_has_its_own_mask,
        attention_works_in_bf16, hidden_keys_get_no_weight;
    1.4: heads_are_split, any_heads_are_split;
    1.5: heads_are_merged, any_heads_are_merged, heads_equal_torchs_multihead_attention;
    1.6: a_sink_takes_its_share, a_query_with_no_visible_key_returns_zeros,
        large_scores_and_sinks_do_not_overflow, sinks_equal_the_formula;
}

fn softmax_by_hand(day: &Day) -> Outcome {
    // e^0 : e^ln 3 = 1 : 3
    let x = Tensor::new(&[[0f32, 3f32.ln()]], &device()?)?;
    let want = Tensor::new(&[[0.25f32, 0.75]], &device()?)?;
    close("softmax([[0, ln 3]], dim 1)", (day.softmax)(&x, 1), &want, TOLERANCE)?;
    let (x, want) = (x.squeeze(0)?, want.squeeze(0)?);
    close("softmax([0, ln 3], dim 0)", (day.softmax)(&x, 0), &want, TOLERANCE)?;
    let x = Tensor::new(&[[f32::NEG_INFINITY, 0.0]], &device()?)?;
    let want = Tensor::new(&[[0f32, 1.0]], &device()?)?;
    close("softmax([[-inf, 0]], dim 1)", (day.softmax)(&x, 1), &want, 0.0)
}

fn softmax_equals_torch(day: &Day) -> Outcome {
    let x = golden("day01", "s")?;
    for dim in [2, 1] {
        let input = format!("softmax of a (2, 3, 5) tensor along dimension {dim}");
        let want = golden("day01", &format!("softmax.{dim}"))?;
        close(&input, (day.softmax)(&x, dim), &want, TOLERANCE)?;
    }
    Ok(())
}

fn softmax_does_not_overflow(day: &Day) -> Outcome {
    let x = Tensor::new(&[[1000f32, 1000.0]], &device()?)?;
    let want = Tensor::new(&[[0.5f32, 0.5]], &device()?)?;
    close("softmax([[1000, 1000]], dim 1)", (day.softmax)(&x, 1), &want, TOLERANCE)
        .likely_if_not_finite("exp(1000) is infinite in f32: subtract the maximum first")?;
    let x = Tensor::new(&[[1000f32, 1000.0, 1000.0, 0.0]], &device()?)?;
    let third = 1f32 / 3.0;
    let want = Tensor::new(&[[third, third, third, 0.0]], &device()?)?;
    close("softmax([[1000, 1000, 1000, 0]], dim 1)", (day.softmax)(&x, 1), &want, TOLERANCE)
        .likely_if_not_finite("exp(1000) is infinite in f32: subtract the maximum first")?;
    let x = Tensor::new(&[[1000f32, 1000.0], [0.0, 0.0]], &device()?)?;
    let want = Tensor::new(&[[0.5f32, 0.5], [0.5, 0.5]], &device()?)?;
    close("softmax([[1000, 1000], [0, 0]], dim 1)", (day.softmax)(&x, 1), &want, TOLERANCE)
        .likely("each slice along dim needs its own maximum")
}

/// In bf16, candle's sum rounds after every term, and 256 + 1 rounds to 256.
fn softmax_sums_in_f32(day: &Day) -> Outcome {
    let x = Tensor::zeros((2, 1024), DType::BF16, &device()?)?;
    let input = "softmax of (2, 1024) zeros in bf16, dim 1";
    let got = (day.softmax)(&x, 1);
    equal(&format!("{input}: the type of the result"), got.map(|t| t.dtype()), &DType::BF16)?;
    let want = (Tensor::ones((2, 1024), DType::F32, &device()?)? / 1024.0)?;
    // 1/1024 is a power of two: exact in every type.
    close(input, (day.softmax)(&x, 1), &want, 0.0).likely(
        "a sum of ones in bf16 stops at 256: convert to f32 before summing, and back at the end",
    )
}

/// Returns the causal mask, written out: row i, column j.
fn allowed(new: usize, past: usize) -> Vec<u8> {
    let row = |i: usize| (0..past + new).map(move |j| u8::from(j <= i + past));
    (0..new).flat_map(row).collect()
}

fn the_mask_is_causal(day: &Day) -> Outcome {
    let device = device()?;
    let want = Tensor::new(&[[[[1u8, 0, 0], [1, 1, 0], [1, 1, 1]]]], &device)?;
    close("causal_mask(3 new, 0 past)", (day.causal_mask)(3, 0, &device), &want, 0.0)?;
    let want = Tensor::new(&[[[[1u8, 1, 1, 0], [1, 1, 1, 1]]]], &device)?;
    close("causal_mask(2 new, 2 past)", (day.causal_mask)(2, 2, &device), &want, 0.0)?;
    let dtype = (day.causal_mask)(2, 2, &device).map(|mask| mask.dtype());
    equal("the type of the mask", dtype, &DType::U8)?;
    for (new, past) in [(1, 0), (1, 4), (4, 1), (7, 0), (5, 6)] {
        let want = Tensor::from_vec(allowed(new, past), (1, 1, new, past + new), &device)?;
        let input = format!("causal_mask({new} new, {past} past)");
        close(&input, (day.causal_mask)(new, past, &device), &want, 0.0)?;
    }
    Ok(())
}

/// Heads as `split_heads` returns them, and keys and values as a cache returns them: views with a
/// memory order that differs from their shape.
fn views_are_taken(day: &Day) -> Outcome {
    let [q, k, v] = ["q", "k", "v"].map(|name| golden("day01", name));
    let strided = |x: Result<Tensor>| x?.transpose(1, 2)?.contiguous()?.transpose(1, 2);
    let got = (day.attention)(&strided(q)?, &strided(k)?, &strided(v)?, None);
    let input = "q, k and v as transposed views, (B, T, H, D) in memory, no mask";
    close(input, got, &golden("day01", "sdpa")?, TOLERANCE)
        .likely_for_any_failure("matmul can't read these strides; contiguous() makes a copy it can")
}

fn attention_by_hand(day: &Day) -> Outcome {
    // The scores are 0, 2 ln 3 and 0. Divided by √4 they are 0, ln 3 and 0, so the weights are 1/5,
    // 3/5 and 1/5. There are two identical heads and three keys, so that neither √H nor the root
    // of the number of keys is √D or 1.
    let q = [[2f32 * 3f32.ln(), 0., 0., 0.]];
    let k = [[0f32, 1., 0., 0.], [1., 0., 0., 0.], [0., 0., 1., 0.]];
    let v = [[5f32, 0., 0., 5.], [0., 5., 5., 0.], [0., 0., 5., 5.]];
    let (q, k) = (Tensor::new(&[[q, q]], &device()?)?, Tensor::new(&[[k, k]], &device()?)?);
    let v = Tensor::new(&[[v, v]], &device()?)?;
    let want = Tensor::new(&[[[[1f32, 3., 4., 2.]], [[1., 3., 4., 2.]]]], &device()?)?;
    let input = "two identical heads: q [2 ln 3, 0, 0, 0]; k [0, 1, 0, 0], [1, 0, 0, 0] and \
        [0, 0, 1, 0]; v [5, 0, 0, 5], [0, 5, 5, 0] and [0, 0, 5, 5]";
    close(input, (day.attention)(&q, &k, &v, None), &want, TOLERANCE)
}

fn attention_equals_torch(day: &Day) -> Outcome {
    let [q, k, v] = ["q", "k", "v"].map(|name| golden("day01", name));
    let got = (day.attention)(&q?, &k?, &v?, None);
    close(
        "q (2, 3, 4, 8), k and v (2, 3, 6, 8), no mask",
        got,
        &golden("day01", "sdpa")?,
        TOLERANCE,
    )
}

fn masked_attention_equals_torch(day: &Day) -> Outcome {
    let [q, k, v] = ["q", "k", "v"].map(|name| golden("day01", name));
    // Written out, so that a wrong causal_mask isn't blamed on the attention.
    let mask = Tensor::from_vec(allowed(4, 2), (1, 1, 4, 6), &device()?)?;
    let got = (day.attention)(&q?, &k?, &v?, Some(&mask));
    let want = golden("day01", "sdpa.causal")?;
    let found = close("4 new tokens after 2, causal mask", got, &want, TOLERANCE);
    if found.is_err() && attention_equals_torch(day).is_err() {
        return found; // the mask isn't the cause
    }
    found.likely(
        "1 in the mask means \"may attend\"; where it is 0, the score must be -inf before the \
         softmax",
    )
}

/// Queries, keys and values from one head of story-3m on a real text (the chapter's first figure).
fn a_trained_head_equals_transformers(day: &Day) -> Outcome {
    // Two copies of the head, so that H isn't 1.
    let twice = |name: &str| golden("day01", name).and_then(|head| head.repeat((1, 2, 1, 1)));
    let [q, k, v] = ["head.q", "head.k", "head.v"].map(twice);
    let mask = Tensor::from_vec(allowed(12, 0), (1, 1, 12, 12), &device()?)?;
    let got = (day.attention)(&q?, &k?, &v?, Some(&mask));
    let input =
        "layer 1, head 4 of story-3m, duplicated, on \"Tom had a red ball. One day, Tom lost the\"";
    close(input, got, &twice("head.out")?, TOLERANCE)
}

/// In a batch, prompts of different lengths need different masks.
fn each_row_has_its_own_mask(day: &Day) -> Outcome {
    let mut random = Random::new(13);
    let [q, k, v] = [(); 3].map(|()| random.tensor(&[3, 2, 4, 8]));
    let (q, k, v) = (q?, k?, v?);
    let rows: Vec<u8> = (0..3 * 16)
        .map(|at| (at / 16, at / 4 % 4, at % 4))
        .map(|(row, i, j)| u8::from(j == i || (row <= j && j < i)))
        .collect();
    let mask = Tensor::from_vec(rows, (3, 1, 4, 4), &device()?)?;
    let got = (day.attention)(&q, &k, &v, Some(&mask))?;
    for row in 0..3 {
        let one = |t: &Tensor| t.narrow(0, row, 1);
        let alone = (day.attention)(&one(&q)?, &one(&k)?, &one(&v)?, Some(&one(&mask)?))?;
        let input =
            format!("row {row} of a batch of 3 with a mask (3, 1, 4, 4), against the row alone");
        close(&input, one(&got), &alone, TOLERANCE)?;
    }
    Ok(())
}

/// On Metal and CUDA, activations can be bf16. Rounding scores of up to 5 to 1/512 of their size
/// changes a weight by 1%, and a result, with values of up to 3, by a few times that, hence 0.05.
/// A forgotten step changes results by 1.
fn attention_works_in_bf16(day: &Day) -> Outcome {
    let [q, k, v] = ["q", "k", "v"].map(|name| golden("day01", name)?.to_dtype(DType::BF16));
    let mask = Tensor::from_vec(allowed(4, 2), (1, 1, 4, 6), &device()?)?;
    let got = (day.attention)(&q?, &k?, &v?, Some(&mask))?;
    let input = "4 new tokens after 2, causal mask, in bf16";
    equal(&format!("{input}: the type of the result"), Ok(got.dtype()), &DType::BF16)?;
    close(input, Ok(got), &golden("day01", "sdpa.causal")?, 0.05)
}

/// With a visible key that scores very low and a hidden key that scores very high, the weights are
/// 1 and 0.
fn hidden_keys_get_no_weight(day: &Day) -> Outcome {
    let q = Tensor::new(&[[[[20_000f32, 0., 0., 0.]]]], &device()?)?;
    let k = Tensor::new(&[[[[-1f32, 0., 0., 0.], [1., 0., 0., 0.]]]], &device()?)?;
    let v = Tensor::new(&[[[[1f32, 2., 3., 4.], [5., 6., 7., 8.]]]], &device()?)?;
    let mask = Tensor::new(&[[[[1u8, 0]]]], &device()?)?;
    let got = (day.attention)(&q, &k, &v, Some(&mask));
    let input = "scores -10000 and 10000, mask [1, 0], v [1, 2, 3, 4] and [5, 6, 7, 8]";
    close(input, got, &v.narrow(2, 0, 1)?, TOLERANCE)
        .likely("a hidden key must get a weight of exactly 0, so its score must be -inf")
}

fn heads_are_split(day: &Day) -> Outcome {
    // Token t holds 10 t + 0…3. Head 0 has the first two numbers of each token, and head 1 has the
    // last two.
    let x = Tensor::new(
        &[[[0f32, 1., 2., 3.], [10., 11., 12., 13.], [20., 21., 22., 23.]]],
        &device()?,
    )?;
    let want = Tensor::new(
        &[[[[0f32, 1.], [10., 11.], [20., 21.]], [[2., 3.], [12., 13.], [22., 23.]]]],
        &device()?,
    )?;
    close("3 tokens of width 4, 2 heads", (day.split_heads)(&x, 2), &want, 0.0)
        .likely("a head is one slice of every token: compare with the figure in the chapter")?;
    refused("a width of 4, 3 heads", (day.split_heads)(&x, 3), &[])?;
    refused_calmly("a width of 4, 0 heads", || (day.split_heads)(&x, 0))
}

fn heads_are_merged(day: &Day) -> Outcome {
    let x = Tensor::new(
        &[[[[0f32, 1.], [10., 11.], [20., 21.]], [[2., 3.], [12., 13.], [22., 23.]]]],
        &device()?,
    )?;
    let want = Tensor::new(
        &[[[0f32, 1., 2., 3.], [10., 11., 12., 13.], [20., 21., 22., 23.]]],
        &device()?,
    )?;
    close("2 heads of 3 tokens, width 2", (day.merge_heads)(&x), &want, 0.0)
}

/// Runs the check on random shapes, with numbers that identify their position: number (b, h, t, d)
/// of one tensor is (b, t, h · D + d) of the other.
fn heads_and_tokens(check: impl Fn(&str, &Tensor, &Tensor) -> Outcome) -> Outcome {
    let mut random = Random::new(15);
    for _ in 0..20 {
        let [b, h, t, d] = [3, 4, 5, 6].map(|most| 1 + random.below(most));
        let wide: Vec<f32> = (0..b * t * h * d).map(|at| at as f32).collect();
        let mut heads = vec![0f32; wide.len()];
        for (at, slot) in heads.iter_mut().enumerate() {
            let (row, head, token, place) =
                (at / (h * t * d), at / (t * d) % h, at / d % t, at % d);
            *slot = wide[((row * t + token) * h + head) * d + place];
        }
        let wide = Tensor::from_vec(wide, (b, t, h * d), &device()?)?;
        let heads = Tensor::from_vec(heads, (b, h, t, d), &device()?)?;
        check(&format!("rows: {b}, tokens: {t}, heads: {h}, width of a head: {d}"), &wide, &heads)?;
    }
    Ok(())
}

fn any_heads_are_split(day: &Day) -> Outcome {
    heads_and_tokens(|input, wide, heads| {
        close(input, (day.split_heads)(wide, heads.dim(1)?), heads, 0.0)
    })
}

fn any_heads_are_merged(day: &Day) -> Outcome {
    heads_and_tokens(|input, wide, heads| close(input, (day.merge_heads)(heads), wide, 0.0))
}

/// Projections around 1.3 to 1.5, as in torch's `nn.MultiheadAttention` without biases.
fn heads_equal_torchs_multihead_attention(day: &Day) -> Outcome {
    let x = golden("day01", "x")?;
    let w = golden("day01", "in_proj")?;
    let project = |x: &Tensor, w: &Tensor| x.contiguous()?.broadcast_matmul(&w.t()?);
    let heads = |i: usize| (day.split_heads)(&project(&x, &w.narrow(0, 12 * i, 12)?)?, 3);
    let mask = Tensor::from_vec(allowed(5, 0), (1, 1, 5, 5), x.device())?;
    for (name, want, mask) in [("", "mha", None), (", causal", "mha.causal", Some(&mask))] {
        let mixed = (day.attention)(&heads(0)?, &heads(1)?, &heads(2)?, mask)?;
        let merged = (day.merge_heads)(&mixed)?;
        let got = project(&merged, &golden("day01", "out_proj")?);
        close(&format!("x (2, 5, 12), 3 heads{name}"), got, &golden("day01", want)?, TOLERANCE)
            .likely(
                "this runs 1.4, 1.3 and 1.5 in a row: fix any of them that fails on its own first",
            )?;
    }
    Ok(())
}

// 1.6

/// The keys and values of `attention_by_hand`: after scaling, the scores are 0, ln 3 and 0. With a
/// sink of ln 5 the exponentials are 1, 3, 1 and 5, so the weights are 1/10, 3/10 and 1/10. A sink
/// of -inf takes nothing.
fn a_sink_takes_its_share(day: &Day) -> Outcome {
    let q = [[2f32 * 3f32.ln(), 0., 0., 0.]];
    let k = [[0f32, 1., 0., 0.], [1., 0., 0., 0.], [0., 0., 1., 0.]];
    let v = [[5f32, 0., 0., 5.], [0., 5., 5., 0.], [0., 0., 5., 5.]];
    let (q, k) = (Tensor::new(&[[q, q]], &device()?)?, Tensor::new(&[[k, k]], &device()?)?);
    let v = Tensor::new(&[[v, v]], &device()?)?;
    let sinks = Tensor::new(&[5f32.ln(), f32::NEG_INFINITY], &device()?)?;
    let want = Tensor::new(&[[[[0.5f32, 1.5, 2., 1.]], [[1., 3., 4., 2.]]]], &device()?)?;
    let input = "task 1.3's case by hand, sinks [ln 5, -inf]";
    close(input, (day.sinks)(&q, &k, &v, None, &sinks), &want, TOLERANCE)
}

/// With no visible key, all of the weight goes to the sink. Plain attention would give NaN.
fn a_query_with_no_visible_key_returns_zeros(day: &Day) -> Outcome {
    let mut random = Random::new(16);
    let [q, k, v] = [(); 3].map(|()| random.tensor(&[1, 2, 1, 4]));
    let (sinks, mask) =
        (Tensor::new(&[0.5f32, -3.0], &device()?)?, Tensor::new(&[[[[0u8]]]], &device()?)?);
    let got = (day.sinks)(&q?, &k?, &v?, Some(&mask), &sinks);
    let want = Tensor::zeros((1, 2, 1, 4), DType::F32, &device()?)?;
    close("one key, hidden by the mask; sinks [0.5, -3]", got, &want, 0.0)
}

/// One key with a score of 1000. A sink of 1000 takes half, and a sink of -1000 takes nothing.
fn large_scores_and_sinks_do_not_overflow(day: &Day) -> Outcome {
    let q = Tensor::new(&[[[[2000f32, 0., 0., 0.]], [[2000., 0., 0., 0.]]]], &device()?)?;
    let k = Tensor::new(&[[[[1f32, 0., 0., 0.]], [[1., 0., 0., 0.]]]], &device()?)?;
    let v = Tensor::new(&[[[[2f32, 4., 6., 8.]], [[2., 4., 6., 8.]]]], &device()?)?;
    let sinks = Tensor::new(&[1000f32, -1000.0], &device()?)?;
    let want = Tensor::new(&[[[[1f32, 2., 3., 4.]], [[2., 4., 6., 8.]]]], &device()?)?;
    let input = "one key, score 1000 in both heads, sinks [1000, -1000]";
    close(input, (day.sinks)(&q, &k, &v, None, &sinks), &want, TOLERANCE)
        .likely("exp(1000) is infinite: subtract the largest of the scores and the sink first")
}

/// Computes the formula with plain numbers in f64, on random shapes and masks.
fn sinks_equal_the_formula(day: &Day) -> Outcome {
    let mut random = Random::new(18);
    for _ in 0..10 {
        let [b, h, new, past, d] = [3, 4, 4, 5, 7].map(|most| 1 + random.below(most));
        let q = random.tensor(&[b, h, new, d])?;
        let [k, v] = [(); 2].map(|()| random.tensor(&[b, h, past + new, d]));
        let (k, v, sinks) = (k?, v?, random.tensor(&[h])?);
        let mut want = Vec::new();
        for at in 0..b * h * new {
            let (row, head, i) = (at / (h * new), at / new % h, at % new);
            let list = |t: &Tensor, j| t.i((row, head, j))?.to_vec1::<f32>();
            let query = list(&q, i)?;
            let mut total = f64::from(sinks.i(head)?.to_scalar::<f32>()?).exp();
            let mut mix = vec![0f64; d];
            for j in 0..=past + i {
                let products = query.iter().zip(list(&k, j)?).map(|(q, k)| f64::from(q * k));
                let weight = (products.sum::<f64>() / (d as f64).sqrt()).exp();
                total += weight;
                mix.iter_mut().zip(list(&v, j)?).for_each(|(m, v)| *m += weight * f64::from(v));
            }
            want.extend(mix.iter().map(|m| (m / total) as f32));
        }
        let want = Tensor::from_vec(want, (b, h, new, d), &device()?)?;
        let mask = Tensor::from_vec(allowed(new, past), (1, 1, new, past + new), &device()?)?;
        let got = (day.sinks)(&q, &k, &v, Some(&mask), &sinks);
        let input = format!(
            "{b} rows, {h} heads of width {d}, {new} new tokens after {past}, causal, random sinks"
        );
        close(&input, got, &want, TOLERANCE)?;
    }
    let [q, k, v] = [(); 3].map(|()| random.tensor(&[2, 2, 2, 8]));
    let (q, k, v, sinks) = (q?, k?, v?, random.tensor(&[2])?);
    let mask = Tensor::new(&[[[[1u8, 0], [1, 1]]], [[[1, 0], [0, 1]]]], &device()?)?;
    let got = (day.sinks)(&q, &k, &v, Some(&mask), &sinks)?;
    for row in 0..2 {
        let one = |t: &Tensor| t.narrow(0, row, 1);
        let alone = (day.sinks)(&one(&q)?, &one(&k)?, &one(&v)?, Some(&one(&mask)?), &sinks)?;
        let input = format!("row {row} of a batch of 2 with a mask (2, 1, 2, 2), against it alone");
        close(&input, one(&got), &alone, TOLERANCE)?;
    }
    Ok(())
}
