//! Day 4's checks: the attention block.

#[path = "../frame/mod.rs"]
mod frame;

#[cfg(not(feature = "mine"))]
use candecode::day04_attention_block;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day04_attention_block.rs"]
mod day04_attention_block;

use candecode::day02_positions::{CosSin, RotaryEmbedding};
use candecode::day03_norms_and_mlps::Projection;
use candecode::day04_attention_block::Attention;
use candecode::kit::{Cache, Logits, NoCache, Step, Weight};
use candle_core::{DType, Device, Error, Result, Tensor};
use frame::{
    close, device, ensure, equal, golden, golden_json, ops, refused, Keep, Likely, Outcome, Random,
};

// f32 sums of up to 48 products of numbers from 1 to 10, added in a different order than torch's:
// errors of a few 1e-6.
const TOLERANCE: f32 = 5e-5;

/// Small transformers modules with random weights.
const MODULES: [&str; 6] = ["llama", "llama_bias", "mha", "mqa", "qwen2", "qwen3"];

/// Queries, keys and values.
type Qkv = (Tensor, Tensor, Tensor);

/// The day 4 functions under test. A block is passed as the crate's struct, because its fields
/// aren't part of a task.
#[derive(Clone, Copy)]
pub struct Day {
    pub grouped: fn(&Tensor, &Tensor, &Tensor, Option<&Tensor>) -> Result<Tensor>,
    pub sliding_mask: fn(usize, usize, usize, &Device) -> Result<Tensor>,
    pub project: fn(&Attention, &Tensor, Option<&CosSin>) -> Result<Qkv>,
    pub forward: fn(&Attention, &Tensor, &Step, Option<&CosSin>, &mut dyn Cache) -> Result<Tensor>,
}

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        fn block(a: &candecode::day04_attention_block::Attention) -> code::Attention {
            code::Attention {
                layer_idx: a.layer_idx,
                num_heads: a.num_heads,
                num_kv_heads: a.num_kv_heads,
                q_proj: a.q_proj.clone(),
                k_proj: a.k_proj.clone(),
                v_proj: a.v_proj.clone(),
                o_proj: a.o_proj.clone(),
                qk_norm: a.qk_norm.clone(),
                norm_eps: a.norm_eps,
                ops: frame::own_ops::with_attention(&a.ops, code::grouped_attention),
            }
        }
        crate::Day {
            grouped: code::grouped_attention,
            sliding_mask: code::sliding_mask,
            project: |a, x, cos_sin| block(a).project(x, cos_sin),
            forward: |a, x, step, cos_sin, cache| block(a).forward(x, step, cos_sin, cache),
        }
    }};
}

frame::checks! {
    day04_attention_block:
    4.1: two_query_heads_share_a_kv_head, the_mask_applies_to_every_head_of_a_group,
        grouped_attention_equals_transformers, groups_may_have_any_size, uneven_groups_are_refused;
    4.2: projections_by_hand, projections_equal_transformers, nothing_is_rotated_without_angles;
    4.3: the_block_equals_transformers, the_block_and_its_attention_equal_transformers,
        the_block_appends_to_its_layer_of_the_cache, padding_changes_nothing;
    4.4: the_window_slides;
}

/// Returns the causal mask, written out so that this day's checks don't depend on another day's
/// code.
fn causal(new: usize, past: usize) -> Result<Tensor> {
    let mask = (past..past + new).flat_map(|i| (0..past + new).map(move |j| u8::from(j <= i)));
    Tensor::from_vec(mask.collect::<Vec<_>>(), (1, 1, new, past + new), &device()?)
}

/// Loads the transformers module of this name as a block, at index `layer_idx` of the stack.
fn block(name: &str, layer_idx: usize) -> Result<Attention> {
    let json = golden_json("day04")?;
    let text = |e: &str| Error::Msg(format!("day04.json, {name}: no {e}"));
    let count = |key: &str| json[name][key].as_u64().map(|n| n as usize).ok_or_else(|| text(key));
    let biases = json[name]["biases"].as_array().ok_or_else(|| text("biases"))?;
    let projection = |part: &str| -> Result<Projection> {
        let bias = format!("{part}.bias");
        let has_bias = biases.iter().any(|known| known.as_str() == Some(&bias));
        let bias = if has_bias { Some(golden("day04", &format!("{name}.{bias}"))?) } else { None };
        let weight = golden("day04", &format!("{name}.{part}.weight"))?;
        Ok(Projection { weight: Weight::new(weight)?, bias, ops: ops()? })
    };
    let norm = |part: &str| golden("day04", &format!("{name}.{part}.weight"));
    Ok(Attention {
        layer_idx,
        num_heads: count("heads")?,
        num_kv_heads: count("kv_heads")?,
        q_proj: projection("q_proj")?,
        k_proj: projection("k_proj")?,
        v_proj: projection("v_proj")?,
        o_proj: projection("o_proj")?,
        qk_norm: if name == "qwen3" { Some((norm("q_norm")?, norm("k_norm")?)) } else { None },
        norm_eps: 1e-6,
        ops: ops()?,
    })
}

/// Returns the positions of the goldens. Row 1 starts with two columns of padding.
fn golden_positions() -> Result<Tensor> {
    Tensor::new(&[[0u32, 1, 2, 3, 4], [0, 0, 0, 1, 2]], &device()?)
}

/// Returns the cosines and sines of positions, for the goldens' heads of 8 numbers.
fn angles(positions: &Tensor) -> Result<CosSin> {
    RotaryEmbedding::new(8, 10_000.0, None, positions.device())?.cos_sin(positions)
}

fn step(positions: Tensor, mask: Option<Tensor>) -> Result<Step> {
    Ok(Step { ids: positions.zeros_like()?, positions, mask, logits: Logits::All, chunks: None })
}

/// Computes attention one number at a time, in f64, as the reference for every implementation.
fn plain(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
    let (b, heads, t, d) = q.dims4()?;
    let (_, kv_heads, s, _) = k.dims4()?;
    let numbers = |x: &Tensor| x.flatten_all()?.to_vec1::<f32>();
    let (qs, ks, vs) = (numbers(q)?, numbers(k)?, numbers(v)?);
    let masks = match mask {
        Some(mask) => Some(mask.broadcast_as((b, 1, t, s))?.flatten_all()?.to_vec1::<u8>()?),
        None => None,
    };
    let mut out = Vec::with_capacity(b * heads * t * d);
    for at in 0..b * heads * t {
        let (row, head, i) = (at / t / heads, at / t % heads, at % t);
        let kv = (row * kv_heads + head / (heads / kv_heads)) * s;
        let weight = |j: usize| -> f64 {
            if masks.as_ref().is_some_and(|mask| mask[(row * t + i) * s + j] == 0) {
                return 0.0;
            }
            let dot = (0..d).map(|n| f64::from(qs[at * d + n]) * f64::from(ks[(kv + j) * d + n]));
            (dot.sum::<f64>() / (d as f64).sqrt()).exp()
        };
        let weights: Vec<f64> = (0..s).map(weight).collect();
        let sum: f64 = weights.iter().sum();
        for n in 0..d {
            let mixed = (0..s).map(|j| weights[j] * f64::from(vs[(kv + j) * d + n]));
            out.push((mixed.sum::<f64>() / sum) as f32);
        }
    }
    Tensor::from_vec(out, (b, heads, t, d), q.device())
}

fn two_query_heads_share_a_kv_head(day: &Day) -> Outcome {
    // Only one position is visible, so each head returns its value unchanged: heads 0 and 1 that of
    // KV head 0, heads 2 and 3 that of KV head 1.
    let q = Tensor::zeros((1, 4, 1, 2), DType::F32, &device()?)?;
    let k = Tensor::zeros((1, 2, 1, 2), DType::F32, &device()?)?;
    let v = Tensor::new(&[[[[10f32, 11.]], [[20., 21.]]]], &device()?)?;
    let want =
        Tensor::new(&[[[[10f32, 11.]], [[10., 11.]], [[20., 21.]], [[20., 21.]]]], &device()?)?;
    let got = (day.grouped)(&q, &k, &v, None);
    close("4 query heads, 2 key/value heads, 1 token; v is [10, 11] and [20, 21]", got, &want, 1e-6)
        .likely("query head h uses key/value head h / (H / Hkv)")
}

fn the_mask_applies_to_every_head_of_a_group(day: &Day) -> Outcome {
    // All scores are 0, so each token's result is the mean of the values it sees: 1, then (1 + 3) /
    // 2, then (1 + 3 + 5) / 3. There are more tokens than heads, so that the two row orders differ.
    let q = Tensor::zeros((1, 2, 3, 2), DType::F32, &device()?)?;
    let k = Tensor::zeros((1, 1, 3, 2), DType::F32, &device()?)?;
    let v = Tensor::new(&[[[[1f32, 1.], [3., 3.], [5., 5.]]]], &device()?)?;
    let head = [[1f32, 1.], [2., 2.], [3., 3.]];
    let want = Tensor::new(&[[head, head]], &device()?)?;
    let got = (day.grouped)(&q, &k, &v, Some(&causal(3, 0)?));
    close("2 query heads, 1 key/value head, 3 tokens, causal; v is 1, 3 and 5", got, &want, 1e-6)
        .likely(
            "each head of the group needs the same T rows of the mask, in the order of q's rows",
        )
}

fn grouped_attention_equals_transformers(day: &Day) -> Outcome {
    let mask = golden("day04", "mask")?;
    for name in MODULES {
        let part = |part: &str| golden("day04", &format!("{name}.{part}"));
        let got = (day.grouped)(&part("q")?, &part("k")?, &part("v")?, Some(&mask));
        let input = format!("transformers' {name}: its q, k, v, and a ragged mask");
        close(&input, got, &part("mixed")?, TOLERANCE)?;
    }
    Ok(())
}

fn groups_may_have_any_size(day: &Day) -> Outcome {
    let mut random = Random::new(41);
    for _ in 0..24 {
        let (b, kv, group) = (1 + random.below(2), 1 + random.below(3), 1 + random.below(4));
        let (t, past, d) = (1 + random.below(4), random.below(4), 2 * (1 + random.below(4)));
        let q = random.tensor(&[b, kv * group, t, d])?;
        let k = random.tensor(&[b, kv, past + t, d])?;
        let v = random.tensor(&[b, kv, past + t, d])?;
        let mask = if random.below(3) == 0 { None } else { Some(causal(t, past)?) };
        let want = plain(&q, &k, &v, mask.as_ref())?;
        let masked = if mask.is_some() { "causal" } else { "no mask" };
        let input = format!(
            "q {:?}, k and v {:?}, {masked}, against a loop over every number",
            q.dims(),
            k.dims()
        );
        close(&input, (day.grouped)(&q, &k, &v, mask.as_ref()), &want, TOLERANCE)?;
    }
    Ok(())
}

fn uneven_groups_are_refused(day: &Day) -> Outcome {
    let q = Tensor::zeros((1, 3, 1, 2), DType::F32, &device()?)?;
    let k = Tensor::zeros((1, 2, 1, 2), DType::F32, &device()?)?;
    refused("3 query heads, 2 key/value heads", (day.grouped)(&q, &k, &k, None), &[])?;
    let none = k.narrow(1, 0, 0)?;
    refused("3 query heads, no key/value head", (day.grouped)(&q, &none, &none, None), &[])
}

/// Returns a block of width 2 with one head of width 2. q, k and v are x itself, but v has a bias
/// of [1, 1].
fn plain_block() -> Result<Attention> {
    let identity = || -> Result<Projection> {
        let weight = Tensor::new(&[[1f32, 0.], [0., 1.]], &device()?)?;
        Ok(Projection { weight: Weight::new(weight)?, bias: None, ops: ops()? })
    };
    let mut v_proj = identity()?;
    v_proj.bias = Some(Tensor::new(&[1f32, 1.], &device()?)?);
    Ok(Attention {
        layer_idx: 0,
        num_heads: 1,
        num_kv_heads: 1,
        q_proj: identity()?,
        k_proj: identity()?,
        v_proj,
        o_proj: identity()?,
        qk_norm: None,
        norm_eps: 1e-6,
        ops: ops()?,
    })
}

fn projections_by_hand(day: &Day) -> Outcome {
    // One token, (3, 4), at position 0, which RoPE doesn't rotate.
    let x = Tensor::new(&[[[3f32, 4.]]], &device()?)?;
    let start = Tensor::new(&[[0u32]], &device()?)?;
    let start = RotaryEmbedding::new(2, 10_000.0, None, &device()?)?.cos_sin(&start)?;
    let vector = |a: f32, b: f32| Tensor::new(&[[[[a, b]]]], &device()?);
    let mut block = plain_block()?;
    let (q, k, v) = (day.project)(&block, &x, Some(&start))?;
    close("x = [3, 4], q_proj the identity: q", Ok(q), &vector(3.0, 4.0)?, 1e-5)?;
    close("x = [3, 4], k_proj the identity: k", Ok(k), &vector(3.0, 4.0)?, 1e-5)?;
    close("x = [3, 4], v_proj the identity, its bias [1, 1]: v", Ok(v), &vector(4.0, 5.0)?, 1e-5)?;
    // The root mean square of (3, 4) is √12.5 = 3.5355, so the normed token is (0.8485, 1.1314).
    let weight = |a: f32, b: f32| Tensor::new(&[a, b], &device()?);
    block.qk_norm = Some((weight(1.0, 1.0)?, weight(2.0, 10.0)?));
    let (q, k, v) = (day.project)(&block, &x, Some(&start))?;
    let says = "x = [3, 4] and a QK-norm with weights [1, 1] and [2, 10]";
    close(&format!("{says}: q"), Ok(q), &vector(0.848528, 1.131371)?, 1e-5)?;
    close(&format!("{says}: k"), Ok(k), &vector(1.697056, 11.31371)?, 1e-5)?;
    close(&format!("{says}: v"), Ok(v), &vector(4.0, 5.0)?, 1e-5)
}

fn projections_equal_transformers(day: &Day) -> Outcome {
    for name in MODULES {
        let part = |part: &str| golden("day04", &format!("{name}.{part}"));
        let cos_sin = angles(&golden_positions()?)?;
        let (q, k, v) = (day.project)(&block(name, 0)?, &part("x")?, Some(&cos_sin))?;
        let input =
            |of: &str| format!("transformers' {name}, positions 0 to 4 and 0 0 0 1 2: {of}");
        close(&input("v"), Ok(v), &part("v")?, TOLERANCE)?;
        close(&input("k"), Ok(k), &part("k")?, TOLERANCE)?;
        close(&input("q"), Ok(q), &part("q")?, TOLERANCE)?;
    }
    Ok(())
}

fn nothing_is_rotated_without_angles(day: &Day) -> Outcome {
    // RoPE doesn't rotate at position 0, so passing no angles must match the angles of position 0.
    let zero = Tensor::zeros((2, 5), DType::U32, &device()?)?;
    for name in ["llama", "qwen3"] {
        let (block, x) = (block(name, 0)?, golden("day04", &format!("{name}.x"))?);
        let (q, k, v) = (day.project)(&block, &x, Some(&angles(&zero)?))?;
        let got = (day.project)(&block, &x, None)?;
        let input = |of: &str| format!("transformers' {name}, cos_sin None: {of}");
        close(&input("q"), Ok(got.0), &q, TOLERANCE)?;
        close(&input("k"), Ok(got.1), &k, TOLERANCE)?;
        close(&input("v"), Ok(got.2), &v, TOLERANCE)?;
    }
    Ok(())
}

const AFTER_ATTENTION: &str = "if 4.1 and 4.2 pass, the fault is after the attention: \
    the heads are merged, then o_proj and its bias";

fn the_block_equals_transformers(day: &Day) -> Outcome {
    let mask = golden("day04", "mask")?;
    for name in MODULES {
        let part = |part: &str| golden("day04", &format!("{name}.{part}"));
        let step = step(golden_positions()?, Some(mask.clone()))?;
        let cos_sin = angles(&step.positions)?;
        let block = block(name, 0)?;
        let got = (day.forward)(&block, &part("x")?, &step, Some(&cos_sin), &mut NoCache);
        let input = format!("transformers' {name}, two rows, the second padded by 2");
        close(&input, got, &part("out")?, TOLERANCE).likely(AFTER_ATTENTION)?;
    }
    Ok(())
}

fn the_block_and_its_attention_equal_transformers(day: &Day) -> Outcome {
    // The block in pieces: passing the output of `project` through `grouped_attention` must produce
    // the heads that `forward` merges and projects.
    let mask = golden("day04", "mask")?;
    for name in MODULES {
        let part = |part: &str| golden("day04", &format!("{name}.{part}"));
        let block = block(name, 0)?;
        let cos_sin = angles(&golden_positions()?)?;
        let (q, k, v) = (day.project)(&block, &part("x")?, Some(&cos_sin))?;
        let heads = (day.grouped)(&q, &k, &v, Some(&mask));
        let input = format!("transformers' {name}: grouped_attention on the output of project");
        close(&input, heads, &part("mixed")?, TOLERANCE)
            .likely("if 4.2 passes, the fault is in task 4.1")?;
        let step = step(golden_positions()?, Some(mask.clone()))?;
        let got = (day.forward)(&block, &part("x")?, &step, Some(&cos_sin), &mut NoCache);
        let input = format!("transformers' {name}: the output of forward");
        close(&input, got, &part("out")?, TOLERANCE)?;
    }
    Ok(())
}

fn the_block_appends_to_its_layer_of_the_cache(day: &Day) -> Outcome {
    for name in ["llama", "qwen3"] {
        let block = block(name, 3)?;
        let x = golden("day04", &format!("{name}.x"))?.narrow(0, 0, 1)?;
        let positions = golden_positions()?.narrow(0, 0, 1)?;
        let all = step(positions.clone(), None)?;
        let cos_sin = angles(&positions)?;
        let want = (day.forward)(&block, &x, &all, Some(&cos_sin), &mut NoCache)?;
        let mut cache = Keep::default();
        let mut piece = |from: usize, len: usize| -> Result<Tensor> {
            let step = step(positions.narrow(1, from, len)?, None)?;
            let cos_sin = angles(&step.positions)?;
            (day.forward)(&block, &x.narrow(1, from, len)?, &step, Some(&cos_sin), &mut cache)
        };
        let got = Tensor::cat(&[piece(0, 3)?, piece(3, 1)?, piece(4, 1)?], 1);
        let input = format!("{name} is layer 3 of a stack; 3 tokens, then 1, then 1");
        equal(&format!("{input}: layers appended to"), Ok(cache.appended), &vec![3; 3])?;
        close(&format!("{input}, with a cache, against 5 at once"), got, &want, TOLERANCE)?;
    }
    Ok(())
}

/// Returns a mask for two rows of 5 tokens, the second padded by 2, written out. Each token attends
/// to itself and to the real tokens before it.
fn padded_mask() -> Result<Tensor> {
    let sees = |row: usize, i: usize, j: usize| j == i || (j < i && (row == 0 || j >= 2));
    let mask: Vec<u8> = (0..50).map(|n| u8::from(sees(n / 25, n / 5 % 5, n % 5))).collect();
    Tensor::from_vec(mask, (2, 1, 5, 5), &device()?)
}

fn padding_changes_nothing(day: &Day) -> Outcome {
    // Apply the block twice, as in a stack: the output of padding tokens in the first pass becomes
    // keys and values in the second.
    for name in ["llama", "mqa", "qwen3"] {
        let block = block(name, 0)?;
        let x = golden("day04", &format!("{name}.x"))?;
        let twice = |x: &Tensor, step: &Step| {
            let cos_sin = angles(&step.positions)?;
            let x = (day.forward)(&block, x, step, Some(&cos_sin), &mut NoCache)?;
            (day.forward)(&block, &x, step, Some(&cos_sin), &mut NoCache)
        };
        let ragged = step(golden_positions()?, Some(padded_mask()?))?;
        let got = twice(&x, &ragged)?;
        let finite = got.flatten_all()?.to_vec1::<f32>()?.iter().all(|x| x.is_finite());
        let input = format!("{name}: two rows, the second padded by 2, through the block twice");
        ensure(
            &input,
            finite,
            "the output contains NaN: some row of the mask allows nothing at all",
        )?;
        for (row, padding) in [(0, 0), (1, 2)] {
            let real = |x: &Tensor| x.narrow(0, row, 1)?.narrow(1, padding, 5 - padding);
            let alone =
                step(golden_positions()?.narrow(0, 0, 1)?.narrow(1, 0, 5 - padding)?, None)?;
            let want = twice(&real(&x)?, &alone)?;
            let input = format!("{input}: row {row}, against the same tokens alone");
            // Numbers reach a few hundred after two passes through random weights, and f32 has
            // seven digits.
            close(&input, real(&got), &want, 1e-3)?;
        }
    }
    Ok(())
}

fn the_window_slides(day: &Day) -> Outcome {
    let want =
        Tensor::new(&[[[[1u8, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]]], &device()?)?;
    close(
        "sliding_mask(window 2, 4 new, 0 past)",
        (day.sliding_mask)(2, 4, 0, &device()?),
        &want,
        0.0,
    )
    .likely("a window of 2 is the token itself and the one before it")?;
    for (past, new) in [(0, 5), (3, 2)] {
        let want = golden("day04", &format!("sliding.{past}.{new}"))?;
        let input =
            format!("sliding_mask(window 3, {new} new, {past} past), against that of transformers");
        close(&input, (day.sliding_mask)(3, new, past, &device()?), &want, 0.0)?;
    }
    refused("a window of 0", (day.sliding_mask)(0, 2, 0, &device()?), &[])
}
