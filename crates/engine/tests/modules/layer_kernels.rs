//! Compares a layer's computations between the products with days 2 and 3, both in parts and in a
//! kernel, and the computations over the vocabulary with day 7.

use crate::common::RandomTensor as _;
use candecode::day01_attention::split_heads;
use candecode::day02_positions::{self, RotaryEmbedding};
use candecode::day03_norms_and_mlps::{rms_norm, silu};
use candecode::day07_greedy as day07;
use candecode_engine::kernels;
use candecode_engine::operations::{choose, greedy, plain, Kernels};
use candecode_testing::Random;
use candle_core::{Device, Result, Tensor};

/// Widths that are a multiple of the vector length, and widths that leave a remainder.
const WIDTHS: [usize; 6] = [1, 7, 16, 30, 65, 576];

fn flat(x: &Tensor) -> Result<Vec<f32>> {
    x.flatten_all()?.to_vec1()
}

/// Returns the largest difference between two tensors, relative to the first's number, or to 1 if
/// that is larger.
fn apart(a: &Tensor, b: &Tensor) -> Result<f32> {
    assert_eq!(a.dims(), b.dims());
    let distance = |(a, b): (f32, f32)| (a - b).abs() / a.abs().max(1.0);
    Ok(flat(a)?.into_iter().zip(flat(b)?).map(distance).fold(0.0, f32::max))
}

/// Returns a batch's heads, `(B, H, T, D)`, in the layout the product left them in, with their
/// cosines and sines.
fn heads(
    random: &mut Random,
    [b, h, t, d]: [usize; 4],
) -> Result<(Tensor, day02_positions::CosSin)> {
    let x = split_heads(&random.tensor(&[b, t, h * d])?, h)?;
    let positions: Vec<u32> = (0..b * t).map(|i| (i * 37 % 500) as u32).collect();
    let positions = Tensor::from_vec(positions, (b, t), &Device::Cpu)?;
    let rotary = RotaryEmbedding::new(d, 10_000.0, None, &Device::Cpu)?;
    Ok((x, rotary.cos_sin(&positions)?))
}

#[test]
fn computing_in_parts_equals_days_2_and_3_exactly() -> Result<()> {
    let mut random = Random::new(1);
    for (tokens, width) in [(300, 256), (37, 2000), (1, 90_000), (2, 4)] {
        let (x, y) = (random.tensor(&[2, tokens, width])?, random.tensor(&[2, tokens, width])?);
        let weight = random.tensor(&[width])?;
        let whole = rms_norm(&x, &weight, 1e-5)?;
        assert_eq!(flat(&plain().rms_norm(&x, &weight, 1e-5)?)?, flat(&whole)?);
        let whole = (silu(&x)? * &y)?;
        assert_eq!(flat(&plain().silu_and_mul(&x, &y)?)?, flat(&whole)?);
    }
    let (x, (cos, sin)) = heads(&mut random, [2, 6, 120, 64])?;
    let whole = day02_positions::rotate(&x, &cos, &sin)?;
    assert_eq!(flat(&plain().rotate(&x, &(cos, sin))?)?, flat(&whole)?);
    Ok(())
}

#[test]
fn the_kernels_equal_days_2_and_3() -> Result<()> {
    let mut random = Random::new(2);
    for width in WIDTHS {
        for tokens in [1, 5, 700] {
            let x = (random.tensor(&[2, tokens, width])? * 9.0)?;
            let (y, weight) = (random.tensor(&[2, tokens, width])?, random.tensor(&[width])?);
            // A few units in the last place: the sums run in a different order, and the kernel has
            // its own exponential.
            let (day, kernel) =
                (rms_norm(&x, &weight, 1e-5)?, kernels::rms_norm(&x, &weight, 1e-5)?);
            assert!(apart(&day, &kernel)? < 2e-6, "rms_norm, {tokens} of {width}");
            let (day, kernel) = ((silu(&x)? * &y)?, kernels::silu_and_mul(&x, &y)?);
            assert!(apart(&day, &kernel)? < 2e-6, "silu_and_mul, {tokens} of {width}");
        }
    }
    for shape in [[1, 1, 1, 2], [2, 3, 5, 6], [1, 9, 200, 64]] {
        let (x, (cos, sin)) = heads(&mut random, shape)?;
        let day = day02_positions::rotate(&x, &cos, &sin)?;
        assert_eq!(flat(&day)?, flat(&kernels::rotate(&x, &cos, &sin)?)?, "{shape:?}");
    }
    Ok(())
}

#[test]
fn layer_kernels_compute_each_row_independently() -> Result<()> {
    let mut random = Random::new(3);
    for width in WIDTHS {
        let (x, y) = (random.tensor(&[90, width])?, random.tensor(&[90, width])?);
        let weight = random.tensor(&[width])?;
        let (normed, gated) =
            (kernels::rms_norm(&x, &weight, 1e-5)?, kernels::silu_and_mul(&x, &y)?);
        for i in [0, 1, 44, 89] {
            let row = |x: &Tensor| x.narrow(0, i, 1);
            let alone = kernels::rms_norm(&row(&x)?, &weight, 1e-5)?;
            assert_eq!(flat(&alone)?, flat(&row(&normed)?)?, "row {i} of {width}");
            let alone = kernels::silu_and_mul(&row(&x)?, &row(&y)?)?;
            assert_eq!(flat(&alone)?, flat(&row(&gated)?)?, "row {i} of {width}");
        }
    }
    Ok(())
}

#[test]
fn layer_kernels_propagate_nan_and_infinity() -> Result<()> {
    let extremes = [f32::NAN, f32::INFINITY, -1e4, -88.0, -0.0, 0.0, 88.0, 1e4];
    let ones = Tensor::ones(8, candle_core::DType::F32, &Device::Cpu)?;
    let x = Tensor::new(&extremes, &Device::Cpu)?;
    let (gated, day) = (flat(&kernels::silu_and_mul(&x, &ones)?)?, flat(&silu(&x)?)?);
    for (i, (gated, day)) in gated.iter().zip(&day).enumerate() {
        let same = (gated.is_nan() && day.is_nan()) || gated == day || (gated - day).abs() < 1e-4;
        assert!(same, "{}: {gated}, not {day}", extremes[i]);
    }
    assert!(flat(&kernels::rms_norm(&x, &ones, 1e-5)?)?.iter().all(|y| y.is_nan()));
    Ok(())
}

#[test]
fn mismatched_shapes_are_refused() -> Result<()> {
    let x = Tensor::zeros((1, 4, 6), candle_core::DType::F32, &Device::Cpu)?;
    let narrow = x.narrow(2, 0, 4)?;
    assert!(kernels::rms_norm(&x, &Tensor::zeros_like(&narrow)?.flatten_all()?, 1e-5).is_err());
    assert!(kernels::silu_and_mul(&x, &narrow).is_err());
    let heads = x.reshape((1, 2, 2, 6))?;
    assert!(kernels::rotate(&heads, &x, &x).is_err());
    Ok(())
}

#[test]
fn the_kernels_equal_day_7() -> Result<()> {
    let mut random = Random::new(4);
    for vocab in [1, 2, 7, 16, 65, 300, 49_152] {
        for scale in [0.1, 3.0, 40.0] {
            let mut logits = flat(&(random.tensor(&[vocab])? * scale)?)?;
            if vocab > 7 {
                logits[vocab / 2] = f32::NEG_INFINITY; // a forbidden token
            }
            let input = format!("{vocab} logits of {scale}");
            assert_eq!(kernels::argmax(&logits), Some(day07::argmax(&logits)? as usize), "{input}");
            let kernel = kernels::log_softmax(&logits).expect(&input);
            for (kernel, day) in kernel.into_iter().zip(day07::log_softmax(&logits)?) {
                // A few units in the last place, as above.
                let near = (kernel - day).abs() <= 1e-6 * day.abs().max(1.0);
                assert!(near || kernel == day, "{input}: {kernel}, not {day}");
            }
        }
    }
    Ok(())
}

#[test]
fn argmax_returns_the_first_of_equal_logits() {
    for (vocab, places) in [(1000, [255, 256]), (1000, [3, 999]), (9, [7, 8])] {
        let mut logits = vec![-1.0; vocab];
        for place in places {
            logits[place] = 2.0;
        }
        assert_eq!(kernels::argmax(&logits), Some(places[0]));
    }
}

#[test]
fn kernels_fall_back_to_day_7_for_invalid_logits() {
    let (nan, infinity) = (f32::NAN, f32::INFINITY);
    for wrong in [nan, infinity] {
        for place in [0, 8, 16, 18] {
            let mut logits = vec![1.0; 19];
            logits[place] = wrong;
            assert_eq!(kernels::argmax(&logits), None, "{wrong} at {place}");
            assert_eq!(kernels::log_softmax(&logits), None, "{wrong} at {place}");
        }
    }
    for nothing in [vec![], vec![-infinity; 19]] {
        assert_eq!(kernels::argmax(&nothing), None);
        assert_eq!(kernels::log_softmax(&nothing), None);
    }
    let mut sampler = greedy(&choose(Some(Kernels::Fast), &Device::Cpu));
    let error = sampler(&[0.0, nan]).unwrap_err();
    assert!(error.to_string().contains("logit 1 is NaN"));
}
