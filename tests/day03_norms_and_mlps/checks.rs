//! Day 3's checks: norms and MLPs.

#[path = "../frame/mod.rs"]
mod frame;

#[cfg(not(feature = "mine"))]
use candecode::day03_norms_and_mlps;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day03_norms_and_mlps.rs"]
mod day03_norms_and_mlps;

use candecode::kit::Weight;
use candle_core::{DType, Result, Tensor};
use frame::{close, device, equal, golden, refused, Failure, Kind, Likely, Outcome, Random};

// In f32, torch and candle add up to 32 terms in different orders, and their tanh, erf and exp
// differ in the last bit. That amounts to a few units of 6e-8 times the largest number here, about
// 6.
const TOLERANCE: f32 = 1e-5;

/// A weight matrix and a bias.
pub type Linear = (Tensor, Option<Tensor>);

/// A hidden unit: its row, its bias and its column.
pub type Unit = ([f32; 5], f32, [f32; 5]);

/// The day 3 functions under test.
#[derive(Clone, Copy)]
pub struct Day {
    pub layer_norm: fn(&Tensor, &Tensor, &Tensor, f64) -> Result<Tensor>,
    pub rms_norm: fn(&Tensor, &Tensor, f64) -> Result<Tensor>,
    pub gelu_tanh: fn(&Tensor) -> Result<Tensor>,
    pub gelu_exact: fn(&Tensor) -> Result<Tensor>,
    pub silu: fn(&Tensor) -> Result<Tensor>,
    pub swiglu: fn(&Tensor, &[Linear; 3]) -> Result<Tensor>,
    pub gelu_mlp: fn(&Tensor, &[Linear; 2]) -> Result<Tensor>,
    pub red_ball: fn() -> Unit,
}

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        fn projection(linear: &crate::Linear) -> candle_core::Result<code::Projection> {
            let ops = frame::own_ops::with_silu(code::silu);
            Ok(code::Projection { weight: crate::weight(linear)?, bias: linear.1.clone(), ops })
        }
        crate::Day {
            layer_norm: code::layer_norm,
            rms_norm: code::rms_norm,
            gelu_tanh: code::gelu_tanh,
            gelu_exact: code::gelu_exact,
            silu: code::silu,
            swiglu: |x, [gate, up, down]| {
                code::swiglu(x, &projection(gate)?, &projection(up)?, &projection(down)?)
            },
            gelu_mlp: |x, [fc, out]| code::gelu_mlp(x, &projection(fc)?, &projection(out)?),
            red_ball: || {
                let unit = code::red_ball();
                (unit.row, unit.bias, unit.column)
            },
        }
    }};
}

frame::checks! {
    day03_norms_and_mlps:
    3.1: layer_norm_by_hand, layer_norm_equals_torch, layer_norm_in_bf16_has_the_bits_of_torch,
        layer_norm_works_on_any_shape;
    3.2: rms_norm_by_hand, rms_norm_equals_llama, rms_norm_is_computed_in_f32,
        rms_norm_in_bf16_has_the_bits_of_llama, rms_norm_works_on_any_shape;
    3.3: gelu_tanh_equals_gpt2, gelu_tanh_in_bf16_is_near_gpt2;
    3.4: gelu_exact_equals_torch, gelu_exact_in_bf16_has_the_bits_of_torch;
    3.5: silu_by_hand, silu_equals_torch, silu_in_bf16_has_the_bits_of_torch;
    3.6: swiglu_by_hand, swiglu_equals_llama, swiglu_in_bf16_has_the_bits_of_llama;
    3.7: gelu_mlp_equals_gpt2;
    3.8: the_unit_fires_for_a_red_ball_alone, the_unit_does_not_read_its_own_answer;
}

fn weight((matrix, _): &Linear) -> Result<Weight> {
    Weight::new(matrix.clone())
}

fn vector(numbers: &[f32]) -> Result<Tensor> {
    Tensor::new(numbers, &device()?)
}

/// Applies a norm to a vector and compares the result with numbers computed by hand.
fn by_hand(
    input: &str,
    norm: impl Fn(&Tensor) -> Result<Tensor>,
    x: &[f32],
    want: &[f32],
    tolerance: f32,
) -> Outcome {
    close(input, norm(&vector(x)?), &vector(want)?, tolerance)
}

fn layer_norm_by_hand(day: &Day) -> Outcome {
    let norm = |weight: [f32; 2], bias: [f32; 2], eps: f64| {
        move |x: &Tensor| (day.layer_norm)(x, &vector(&weight)?, &vector(&bias)?, eps)
    };
    let plain = |eps| norm([1., 1.], [0., 0.], eps);
    // mean 4, variance ((-3)² + 3²) / 2 = 9
    by_hand("layer_norm([1, 7]), eps 0", plain(0.0), &[1., 7.], &[-1., 1.], TOLERANCE)?;
    let input = "layer_norm([1, 7]), weight [2, 1], bias [0, 0.5], eps 0";
    by_hand(input, norm([2., 1.], [0., 0.5], 0.0), &[1., 7.], &[-2., 1.5], TOLERANCE)?;
    // variance 1e-6; 1e-6 + 3e-6 = 4e-6, with root 0.002. 0.5 ± 0.001 is only exact to 6e-8, which
    // is 3e-5 of the answer.
    let input = "layer_norm([0.499, 0.501]), eps 3e-6";
    by_hand(input, plain(3e-6), &[0.499, 0.501], &[-0.5, 0.5], 1e-4)?;
    by_hand("layer_norm([7, 7]), eps 1e-5", plain(1e-5), &[7., 7.], &[0., 0.], TOLERANCE).likely(
        "a vector of equal numbers has variance 0: eps keeps the division from being 0 / 0",
    )?;
    // 4095² and 4097² have a mean of 2^24 + 1, which f32 can't represent.
    let input = "layer_norm([4095, 4097]), eps 1e-5";
    by_hand(input, plain(1e-5), &[4095., 4097.], &[-1., 1.], 1e-4).likely(
        "subtract the mean first, then square: large squares leave no digits for their difference",
    )
}

fn layer_norm_equals_torch(day: &Day) -> Outcome {
    let (x, w, b) = (golden("day03", "x")?, golden("day03", "weight")?, golden("day03", "bias")?);
    let got = (day.layer_norm)(&x, &w, &b, 1e-5);
    close("x (2, 3, 32), eps 1e-5", got, &golden("day03", "layer_norm")?, TOLERANCE)?;
    let got = (day.layer_norm)(&x, &w.narrow(0, 0, 31)?, &b, 1e-5);
    refused("a width of 32, a weight of 31", got, &[])
}

fn rms_norm_by_hand(day: &Day) -> Outcome {
    let norm =
        |weight: [f32; 2], eps: f64| move |x: &Tensor| (day.rms_norm)(x, &vector(&weight)?, eps);
    // (1² + 7²) / 2 = 25, with root 5
    by_hand("rms_norm([1, 7]), eps 0", norm([1., 1.], 0.0), &[1., 7.], &[0.2, 1.4], TOLERANCE)?;
    let input = "rms_norm([1, 7]), weight [10, 5], eps 0";
    by_hand(input, norm([10., 5.], 0.0), &[1., 7.], &[2., 7.], TOLERANCE)?;
    // mean square 1e-6; 1e-6 + 3e-6 = 4e-6, with root 0.002
    let input = "rms_norm([0.001, -0.001]), eps 3e-6";
    by_hand(input, norm([1., 1.], 3e-6), &[0.001, -0.001], &[0.5, -0.5], TOLERANCE)?;
    by_hand("rms_norm([0, 0]), eps 1e-6", norm([1., 1.], 1e-6), &[0., 0.], &[0., 0.], TOLERANCE)
        .likely_if_not_finite("eps keeps the division from being 0 / 0, which is NaN")
}

fn rms_norm_equals_llama(day: &Day) -> Outcome {
    let (x, w) = (golden("day03", "x")?, golden("day03", "weight")?);
    let got = (day.rms_norm)(&x, &w, 1e-5);
    close("x (2, 3, 32), eps 1e-5", got, &golden("day03", "rms_norm")?, TOLERANCE)?;
    refused("a width of 32, a weight of 31", (day.rms_norm)(&x, &w.narrow(0, 0, 31)?, 1e-5), &[])
}

/// If computed in the dtype of x, the first result would be 0 and the second twice as large as it
/// should be.
fn rms_norm_is_computed_in_f32(day: &Day) -> Outcome {
    for (dtype, number, why) in [
        (DType::F16, 300.0, "300² is beyond 65504, the largest f16"),
        (DType::BF16, 1.0, "a sum of ones in bf16 stops at 256, because 257 needs nine bits"),
    ] {
        let ones = Tensor::ones(1024, DType::F32, &device()?)?;
        let signs: Vec<f32> = (0..1024).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
        let signs = vector(&signs)?;
        let (x, w) = ((&signs * number)?.to_dtype(dtype)?, ones.to_dtype(dtype)?);
        let got = (day.rms_norm)(&x, &w, 1e-6);
        let input =
            format!("rms_norm of 1024 numbers, alternating {number} and -{number}, in {dtype:?}");
        let found = close(&input, got, &signs, 0.0);
        found.likely(&format!("{why}: convert to f32 before you square and sum"))?;
    }
    Ok(())
}

/// Returns the rank of a bf16 number: adjacent numbers differ by 1, and -0 counts as 0.
fn place(x: f32) -> i64 {
    let bits = i64::from(x.to_bits() >> 16);
    if x.is_sign_negative() {
        0x8000 - bits
    } else {
        bits
    }
}

/// Checks that the result is bf16 and matches the bits of `want`.
///
/// Two correct programs agree this closely even though their f32 sums, exp and erf differ: each
/// rounds to bf16 once, and the oracle skipped inputs where the exact result is so close to the
/// midpoint of two bf16 numbers that f32 noise could cross it. On Metal and CUDA, with fast math
/// and different products, an adjacent number is accepted.
fn bits(input: &str, got: Result<Tensor>, want: &Tensor) -> Outcome {
    let got = got?;
    equal(&format!("{input}: the type of the result"), Ok(got.dtype()), &DType::BF16)?;
    equal(&format!("{input}: the shape"), Ok(got.dims().to_vec()), &want.dims().to_vec())?;
    let flat = |t: &Tensor| t.flatten_all()?.to_dtype(DType::F32)?.to_vec1::<f32>();
    let allowed = if got.device().is_cpu() { 0 } else { 1 };
    let (g, w) = (flat(&got)?, flat(want)?);
    let apart: Vec<i64> = g.iter().zip(&w).map(|(g, w)| (place(*g) - place(*w)).abs()).collect();
    let Some(at) = apart.iter().position(|apart| *apart > allowed) else { return Ok(()) };
    let steps = if apart[at] == 1 { "1 step".into() } else { format!("{} steps", apart[at]) };
    let different = apart.iter().filter(|apart| **apart > allowed).count();
    let lines = vec![
        format!("input  {input}"),
        format!("{different} of {} numbers differ, the first at {at}", g.len()),
        format!("got    {}", g[at]),
        format!("want   {}   ({} away in bf16)", w[at], steps),
    ];
    let got: Vec<String> = g.iter().map(f32::to_string).collect();
    Err(Failure::new(Kind::Wrong { got: got.join(" ") }, lines))
}

fn layer_norm_in_bf16_has_the_bits_of_torch(day: &Day) -> Outcome {
    let x = golden("day03", "bf16.layer_norm.x")?;
    let [w, b] = ["weight", "bias"].map(|name| golden("day03", name)?.to_dtype(DType::BF16));
    let got = (day.layer_norm)(&x, &w?, &b?, 1e-5);
    bits("layer_norm of x (6, 32) in bf16", got, &golden("day03", "bf16.layer_norm")?)
        .likely("convert x, weight and bias to f32, and round the result once, at the end")
}

fn rms_norm_in_bf16_has_the_bits_of_llama(day: &Day) -> Outcome {
    // The root mean square is 5. 3/5 is 0.6015625 in bf16, and 1.5 times that is 0.90234375. But
    // 1.5 · 3/5 = 0.9 rounds to 0.8984375.
    let x = vector(&[3., 3., 1., 9.])?.to_dtype(DType::BF16)?;
    let w = vector(&[1.5; 4])?.to_dtype(DType::BF16)?;
    let want = vector(&[0.90234375, 0.90234375, 0.30078125, 2.6875])?;
    bits("rms_norm([3, 3, 1, 9]) in bf16, weight 1.5, eps 0", (day.rms_norm)(&x, &w, 0.0), &want)
        .likely("divide in f32, round to the type of x, and only then multiply by the weight")?;
    let x = golden("day03", "bf16.rms_norm.x")?;
    let w = golden("day03", "weight")?.to_dtype(DType::BF16)?;
    let got = (day.rms_norm)(&x, &w, 1e-5);
    bits("rms_norm of x (6, 32) in bf16", got, &golden("day03", "bf16.rms_norm")?)
        .likely("divide in f32, round to the type of x, and only then multiply by the weight")
}

/// Applies a rule, written as a loop in f64, to each row of width C.
fn rows(x: &Tensor, rule: impl Fn(&[f64]) -> Vec<f64>) -> Result<Tensor> {
    let width = x.dim(candle_core::D::Minus1)?;
    let numbers: Vec<f64> = x.to_dtype(DType::F64)?.flatten_all()?.to_vec1()?;
    let done: Vec<f32> =
        numbers.chunks(width).flat_map(&rule).map(|number| number as f32).collect();
    Tensor::from_vec(done, x.dims(), x.device())
}

/// Runs the check on shapes from (C) to (B, H, T, D). The last have heads before tokens, as in day
/// 4's QK-norm, and aren't contiguous.
fn any_shape(check: impl Fn(&str, &Tensor, &Tensor, &Tensor) -> Outcome) -> Outcome {
    let mut random = Random::new(3);
    for round in 0..24 {
        let dims: Vec<usize> = (0..1 + round % 4).map(|_| 1 + random.below(6)).collect();
        let width = dims[dims.len() - 1] + 1; // 2 to 7
        let mut shape = dims.clone();
        shape[dims.len() - 1] = width;
        let x = random.tensor(&shape)?;
        let x = if shape.len() == 4 { x.transpose(1, 2)? } else { x };
        let (weight, bias) = (random.tensor(&[width])?, random.tensor(&[width])?);
        check(&format!("random x {:?}, eps 0.01", x.dims()), &x, &weight, &bias)?;
    }
    Ok(())
}

fn layer_norm_works_on_any_shape(day: &Day) -> Outcome {
    any_shape(|input, x, weight, bias| {
        let (w, b) = (weight.to_vec1::<f32>()?, bias.to_vec1::<f32>()?);
        let want = rows(x, |row| {
            let n = row.len() as f64;
            let mean = row.iter().sum::<f64>() / n;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
            let scale = (variance + 0.01).sqrt();
            let each = row.iter().enumerate();
            each.map(|(i, x)| (x - mean) / scale * f64::from(w[i]) + f64::from(b[i])).collect()
        })?;
        close(input, (day.layer_norm)(x, weight, bias, 0.01), &want, TOLERANCE)
    })
    .likely("compute the mean and variance over the last dimension, for every vector of x")
}

fn rms_norm_works_on_any_shape(day: &Day) -> Outcome {
    any_shape(|input, x, weight, _| {
        let w = weight.to_vec1::<f32>()?;
        let want = rows(x, |row| {
            let mean_square = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
            let scale = (mean_square + 0.01).sqrt();
            row.iter().enumerate().map(|(i, x)| x / scale * f64::from(w[i])).collect()
        })?;
        close(input, (day.rms_norm)(x, weight, 0.01), &want, TOLERANCE)
    })
    .likely("compute the mean square over the last dimension, for every vector of x")
}

type Activation = fn(&Tensor) -> Result<Tensor>;

/// Compares f with torch on [-6, 6] and far outside it, and checks that f(x) - f(-x) = x, which
/// holds for all three activations.
fn activation(f: Activation, name: &str, golden_name: &str) -> Outcome {
    let (x, want) = (golden("day03", "a")?, golden("day03", golden_name)?);
    close(&format!("{name} of 97 numbers from -6 to 6"), f(&x), &want, TOLERANCE)?;
    let far = vector(&[-1000., 1000., 0.])?;
    let input = format!("{name}([-1000, 1000, 0])");
    close(&input, f(&far), &vector(&[0., 1000., 0.])?, TOLERANCE).likely_if_not_finite(
        "e^1000 is infinite in f32, and infinity / infinity is NaN; 1 / infinity is 0",
    )?;
    let x = Random::new(33).tensor(&[3, 4, 5])?.transpose(0, 2)?;
    let difference = (f(&x)? - f(&x.neg()?)?)?;
    close(&format!("{name}(x) - {name}(-x) is x, for x (5, 4, 3)"), Ok(difference), &x, TOLERANCE)
}

fn gelu_tanh_equals_gpt2(day: &Day) -> Outcome {
    activation(day.gelu_tanh, "gelu_tanh", "gelu_new")
}

fn gelu_exact_equals_torch(day: &Day) -> Outcome {
    activation(day.gelu_exact, "gelu_exact", "gelu")
}

fn silu_by_hand(day: &Day) -> Outcome {
    // sigmoid(ln 3) = 1 / (1 + 1/3) = 3/4, and sigmoid(-ln 3) = 1/4
    let ln3 = 3f32.ln();
    let want = vector(&[0., 0.75 * ln3, -0.25 * ln3])?;
    close("silu([0, ln 3, -ln 3])", (day.silu)(&vector(&[0., ln3, -ln3])?), &want, TOLERANCE)
}

fn silu_equals_torch(day: &Day) -> Outcome {
    activation(day.silu, "silu", "silu")
}

/// HF's `NewGELUActivation` is composed of torch operations, each of which rounds, so it is up to
/// 1.7 units of x / 256 away from the rounded exact value (measured by the oracle). Rounding once
/// and rounding at every step both pass this check.
fn gelu_tanh_in_bf16_is_near_gpt2(day: &Day) -> Outcome {
    let (x, want) = (golden("day03", "bf16.a")?, golden("day03", "bf16.gelu_new")?);
    let got = (day.gelu_tanh)(&x)?;
    equal("gelu_tanh in bf16: the type of the result", Ok(got.dtype()), &DType::BF16)?;
    let unit = (x.to_dtype(DType::F32)?.abs()? / 256.0)?;
    let in_units = |t: &Tensor| t.to_dtype(DType::F32)? / &unit;
    let input = "gelu_tanh of 96 numbers in bf16, in units of x / 256";
    close(input, in_units(&got), &in_units(&want)?, 2.5)
}

fn gelu_exact_in_bf16_has_the_bits_of_torch(day: &Day) -> Outcome {
    let (x, want) = (golden("day03", "bf16.a")?, golden("day03", "bf16.gelu")?);
    bits("gelu_exact of 96 numbers in bf16", (day.gelu_exact)(&x), &want)
        .likely("convert to f32 first and round once, at the end: in bf16, every step rounds")
}

fn silu_in_bf16_has_the_bits_of_torch(day: &Day) -> Outcome {
    let (x, want) = (golden("day03", "bf16.a")?, golden("day03", "bf16.silu")?);
    bits("silu of 96 numbers in bf16", (day.silu)(&x), &want)
        .likely("convert to f32 first and round once, at the end: in bf16, every step rounds")
}

fn swiglu_by_hand(day: &Day) -> Outcome {
    let ln3 = 3f32.ln();
    let device = device()?;
    let x = Tensor::new(&[[[1f32, 2.]]], &device)?;
    // gate(x) = [ln 3, 0], silu of it [¾ ln 3, 0]
    let gate = Tensor::new(&[[ln3, 0.], [0., 0.]], &device)?;
    // up(x) = [4, 3]
    let up = Tensor::new(&[[0f32, 2.], [1., 1.]], &device)?;
    // down([3 ln 3, 0]) = [3 ln 3, 6 ln 3]
    let down = Tensor::new(&[[1f32, 5.], [2., 1.]], &device)?;
    let want = Tensor::new(&[[[3. * ln3, 6. * ln3]]], &device)?;
    let got = (day.swiglu)(&x, &[(gate, None), (up, None), (down, None)]);
    close("x [1, 2], gate(x) = [ln 3, 0], up(x) = [4, 3]", got, &want, TOLERANCE)
}

/// Loads a weight from the oracle, with or without its bias, in this dtype.
fn linear(name: &str, dtype: DType, bias: bool) -> Result<Linear> {
    let bias = if bias { Some(golden("day03", &format!("{name}.bias"))?) } else { None };
    let bias = bias.map(|bias| bias.to_dtype(dtype)).transpose()?;
    Ok((golden("day03", name)?.to_dtype(dtype)?, bias))
}

fn llama(dtype: DType, bias: bool) -> Result<[Linear; 3]> {
    Ok([linear("gate", dtype, bias)?, linear("up", dtype, bias)?, linear("down", dtype, bias)?])
}

fn swiglu_equals_llama(day: &Day) -> Outcome {
    let x = golden("day03", "m")?;
    let got = (day.swiglu)(&x, &llama(DType::F32, false)?);
    let input = "x (2, 3, 8), intermediate size 12, no biases";
    close(input, got, &golden("day03", "llama_mlp.no_bias")?, TOLERANCE)?;
    let got = (day.swiglu)(&x, &llama(DType::F32, true)?);
    close(
        "x (2, 3, 8), intermediate size 12, with biases",
        got,
        &golden("day03", "llama_mlp")?,
        TOLERANCE,
    )
}

fn swiglu_in_bf16_has_the_bits_of_llama(day: &Day) -> Outcome {
    let (x, want) = (golden("day03", "bf16.m")?, golden("day03", "bf16.llama_mlp")?);
    bits(
        "x (2, 3, 8) in bf16, intermediate size 12",
        (day.swiglu)(&x, &llama(DType::BF16, false)?),
        &want,
    )
}

fn gelu_mlp_equals_gpt2(day: &Day) -> Outcome {
    let x = golden("day03", "m")?;
    let layers = |bias| -> Result<[Linear; 2]> {
        Ok([linear("fc", DType::F32, bias)?, linear("projection", DType::F32, bias)?])
    };
    let got = (day.gelu_mlp)(&x, &layers(true)?);
    close("x (2, 3, 8), 12 inside", got, &golden("day03", "gpt2_mlp")?, TOLERANCE)
}

/// Compares what a GPT-2 MLP with this unit adds to a vector with an answer of `want`.
fn adds((row, bias, column): Unit, words: &str, x: [f32; 5], want: f32) -> Outcome {
    let sum: f64 = row.iter().zip(x).map(|(w, x)| f64::from(w * x)).sum();
    let sum = sum + f64::from(bias);
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (sum + 0.044715 * sum.powi(3));
    let gelu = sum / 2.0 * (1.0 + inner.tanh());
    let added = column.map(|w| (f64::from(w) * gelu) as f32);
    let input = format!("red, green, ball, hat, answer: {x:?} ({words})");
    close(&input, vector(&added), &vector(&[0., 0., 0., 0., want])?, 0.01)
}

fn the_unit_fires_for_a_red_ball_alone(day: &Day) -> Outcome {
    let unit = (day.red_ball)();
    adds(unit, "red ball", [1., 0., 1., 0., 0.], 1.)?;
    adds(unit, "red", [1., 0., 0., 0., 0.], 0.)?;
    adds(unit, "ball", [0., 0., 1., 0., 0.], 0.)?;
    adds(unit, "red hat", [1., 0., 0., 1., 0.], 0.)?;
    adds(unit, "green ball", [0., 1., 1., 0., 0.], 0.)?;
    adds(unit, "green hat", [0., 1., 0., 1., 0.], 0.)?;
    adds(unit, "green", [0., 1., 0., 0., 0.], 0.)?;
    adds(unit, "hat", [0., 0., 0., 1., 0.], 0.)?;
    adds(unit, "nothing", [0., 0., 0., 0., 0.], 0.)
}

fn the_unit_does_not_read_its_own_answer(day: &Day) -> Outcome {
    let unit = (day.red_ball)();
    adds(unit, "red ball, noticed before", [1., 0., 1., 0., 1.], 1.)?;
    adds(unit, "red hat", [1., 0., 0., 1., 1.], 0.)?;
    adds(unit, "nothing", [0., 0., 0., 0., -1.], 0.)
}
