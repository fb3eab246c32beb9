//! Compares the kernels with the plain operations over random shapes, odd sizes, strides, masks and
//! all types. Rows must not depend on the rest of their batch.

use crate::common::{device, RandomTensor as _};
use candecode::day01_attention::causal_mask;
use candecode::day04_attention_block::grouped_attention;
use candecode::day12_batching::ragged_mask;
use candecode_engine::kernels;
use candecode_testing::Random;
use candle_core::{DType, Tensor};

/// Sums of up to 300 products of numbers below 1, in a different order. 1e-4 is ten times the
/// largest difference observed.
const BOUND: f32 = 1e-4;

fn apart(a: &Tensor, b: &Tensor) -> f32 {
    assert_eq!(a.dims(), b.dims());
    (a - b).unwrap().abs().unwrap().flatten_all().unwrap().max(0).unwrap().to_scalar().unwrap()
}

/// Returns a tensor that starts inside its storage, at an odd offset.
fn inside(random: &mut Random, rows: usize, width: usize, dtype: DType) -> Tensor {
    let more = random.tensor(&[rows * width + 3]).unwrap().to_dtype(dtype).unwrap();
    more.narrow(0, 3, rows * width).unwrap().reshape((rows, width)).unwrap()
}

/// Returns a product with weights of any type in plain code. With bf16 weights, `x` is rounded,
/// too.
fn plain_product(x: &Tensor, w: &Tensor) -> Tensor {
    let x = match w.dtype() {
        DType::BF16 => x.to_dtype(DType::BF16).unwrap().to_dtype(DType::F32).unwrap(),
        _ => x.clone(),
    };
    x.matmul(&w.to_dtype(DType::F32).unwrap().t().unwrap()).unwrap()
}

/// Multiplies by a single weight.
fn alone(x: &Tensor, w: &Tensor) -> Tensor {
    kernels::linear(x, &[w]).unwrap().remove(0)
}

#[test]
fn linear_equals_the_plain_product_for_any_shape_and_type() {
    let mut random = Random::new(1);
    for round in 0..150 {
        let dtype = [DType::F32, DType::BF16, DType::F16][round % 3];
        let rows = 1 + random.below([8, 30, 200][round / 3 % 3]);
        let inner = 1 + random.below(300);
        let x = inside(&mut random, rows, inner, DType::F32);
        let weights: Vec<Tensor> = (0..1 + random.below(3))
            .map(|_| {
                let out = 1 + random.below(90);
                inside(&mut random, out, inner, dtype)
            })
            .collect();
        let fast = kernels::linear(&x, &weights.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(fast.len(), weights.len());
        for (fast, w) in fast.iter().zip(&weights) {
            let what = format!("round {round}: {rows} rows of {inner}, {dtype:?}");
            assert!(apart(fast, &plain_product(&x, w)) < BOUND, "{what}");
        }
    }
}

#[test]
fn linear_handles_nan_and_infinity_like_the_plain_product() {
    let mut random = Random::new(9);
    for (i, bad) in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].into_iter().enumerate() {
        for (rows, inner, out) in [(1, 65, 1), (3, 31, 5), (9, 64, 2), (33, 97, 7)] {
            for dtype in [DType::F32, DType::BF16, DType::F16] {
                let with_bad = |of: &Tensor, at: usize| {
                    let mut numbers = of.flatten_all().unwrap().to_vec1::<f32>().unwrap();
                    numbers[at] = bad;
                    Tensor::from_vec(numbers, of.shape(), of.device()).unwrap()
                };
                let (x, w) = (random.tensor(&[rows, inner]), random.tensor(&[out, inner]));
                let x = with_bad(&x.unwrap(), (rows - 1) * inner + inner / 2);
                let w = with_bad(&w.unwrap(), (out - 1) * inner + inner - 1 - i);
                let w = w.to_dtype(dtype).unwrap();
                let flat = |y: Tensor| y.flatten_all().unwrap().to_vec1::<f32>().unwrap();
                let (fast, plain) = (flat(alone(&x, &w)), flat(plain_product(&x, &w)));
                for (fast, plain) in fast.iter().zip(&plain) {
                    let same =
                        (fast - plain).abs() < BOUND || fast.to_string() == plain.to_string();
                    assert!(same, "{fast} and {plain}: {bad} in {rows} x {inner}, {dtype:?}");
                }
            }
        }
    }
}

#[test]
fn a_tiled_product_of_many_rows_equals_matmul() {
    let mut random = Random::new(2);
    let (x, w) = (random.tensor(&[203, 260]).unwrap(), random.tensor(&[77, 260]).unwrap());
    let fast = alone(&x, &w);
    assert!(apart(&fast, &x.matmul(&w.t().unwrap()).unwrap()) < BOUND);
}

#[test]
fn every_f16_value_is_widened_correctly() {
    // All finite f16 values, including subnormals. Each is multiplied by 1 and must come out
    // unchanged.
    let all: Vec<half::f16> =
        (0..=u16::MAX).map(half::f16::from_bits).filter(|h| h.is_finite()).collect();
    let width = 64; // whole chunks, so that the vector code runs and not the remainder loop
    for (i, chunk) in all.chunks_exact(width).enumerate() {
        let w = Tensor::from_slice(chunk, (1, width), &device().unwrap()).unwrap();
        let ones = Tensor::eye(width, DType::F32, &device().unwrap()).unwrap();
        let expected: Vec<f32> = chunk.iter().map(|h| h.to_f32()).collect();
        for rows in [width, 16, 1] {
            // many rows are packed together, a few are not
            let got: Vec<f32> = (0..width)
                .step_by(rows)
                .flat_map(|at| {
                    let part = alone(&ones.narrow(0, at, rows).unwrap(), &w);
                    part.flatten_all().unwrap().to_vec1::<f32>().unwrap()
                })
                .collect();
            assert_eq!(got, expected, "chunk {i}, {rows} rows");
        }
    }
    for bad in [half::f16::INFINITY, half::f16::NEG_INFINITY, half::f16::NAN] {
        let w = Tensor::from_slice(&vec![bad; width], (1, width), &device().unwrap()).unwrap();
        let ones = Tensor::ones((1, width), DType::F32, &device().unwrap()).unwrap();
        let got: Vec<f32> = alone(&ones, &w).flatten_all().unwrap().to_vec1().unwrap();
        assert_eq!(got[0].to_string(), bad.to_f32().to_string());
    }
}

#[test]
fn linear_gives_a_row_the_same_bits_alone_and_in_a_batch() {
    let mut random = Random::new(3);
    // With one part and several, with sizes that don't fill a vector, and with few rows and many.
    // Many rows are processed in blocks that fit the caches.
    for (rows, inner, out) in [(32, 192, 512), (47, 201, 131), (260, 1536, 40), (70, 2050, 17)] {
        let x = random.tensor(&[rows, inner]).unwrap();
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let w = random.tensor(&[out, inner]).unwrap().to_dtype(dtype).unwrap();
            let all: Vec<Vec<f32>> = alone(&x, &w).to_vec2().unwrap();
            for (row, expected) in all.iter().enumerate() {
                let single = alone(&x.narrow(0, row, 1).unwrap(), &w);
                let single: Vec<f32> = single.flatten_all().unwrap().to_vec1().unwrap();
                assert_eq!(&single, expected, "row {row} of {rows} x {inner}, {dtype:?}");
            }
        }
    }
}

#[test]
fn linear_gives_the_same_bits_in_batches_of_1_to_33() {
    let mut random = Random::new(31);
    for (inner, out) in [(192, 100), (577, 13), (1536, 30)] {
        let x = random.tensor(&[33, inner]).unwrap();
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let w = random.tensor(&[out, inner]).unwrap().to_dtype(dtype).unwrap();
            let all: Vec<Vec<f32>> = alone(&x, &w).to_vec2().unwrap();
            for rows in 1..33 {
                let some = alone(&x.narrow(0, 33 - rows, rows).unwrap(), &w);
                let some: Vec<Vec<f32>> = some.to_vec2().unwrap();
                assert_eq!(some, all[33 - rows..], "{rows} rows of {inner}, {dtype:?}");
            }
        }
    }
}

/// Returns keys or values as a static cache stores them: `len` columns of a larger buffer.
fn cached(random: &mut Random, rows: usize, heads: usize, len: usize, width: usize) -> Tensor {
    let room = 1 + random.below(9);
    let buffer = random.tensor(&[rows, heads, len + room, width]).unwrap();
    buffer.narrow(2, 0, len).unwrap()
}

#[test]
fn attention_equals_grouped_attention_over_strided_caches() {
    let mut random = Random::new(4);
    for round in 0..80 {
        let (rows, kv_heads, group) =
            (1 + random.below(3), 1 + random.below(3), 1 + random.below(4));
        let (new, width) = (1 + random.below(40), 1 + random.below(100));
        let len = new + random.below(50);
        let q = random.tensor(&[rows, kv_heads * group, new, width]).unwrap();
        let k = cached(&mut random, rows, kv_heads, len, width);
        let v = cached(&mut random, rows, kv_heads, len, width);
        let (mask, given) = match round % 2 {
            0 => (causal_mask(new, len - new, &device().unwrap()).unwrap(), false),
            _ => {
                let padding: Vec<usize> = (0..rows).map(|_| random.below(len)).collect();
                (ragged_mask(&padding, new, len - new, &device().unwrap()).unwrap(), true)
            }
        };
        let fast = kernels::attention(&q, &k, &v, given.then_some(&mask)).unwrap();
        let (k, v) = (k.contiguous().unwrap(), v.contiguous().unwrap());
        let plain = grouped_attention(&q, &k, &v, Some(&mask)).unwrap();
        assert!(
            apart(&fast, &plain) < BOUND,
            "round {round}: {rows} rows, {kv_heads} x {group} heads, {new} of {len}, width {width}"
        );
    }
}

#[test]
fn a_padded_rows_attention_is_bit_identical_to_unpadded() {
    let mut random = Random::new(8);
    for (round, new) in [1, 1, 1, 1, 2, 7, 31, 34, 50, 70].into_iter().enumerate() {
        let (rows, kv_heads, group) =
            (1 + random.below(32), 1 + random.below(2), 1 + random.below(4));
        let width = [32, 64, 33][random.below(3)];
        let past = if new > 1 { 0 } else { random.below(150) };
        let len = past + new;
        let q = random.tensor(&[rows, kv_heads * group, new, width]).unwrap();
        let k = cached(&mut random, rows, kv_heads, len, width);
        let v = cached(&mut random, rows, kv_heads, len, width);
        let padding: Vec<usize> = (0..rows).map(|_| random.below(len)).collect();
        let mask = ragged_mask(&padding, new, past, &device().unwrap()).unwrap();
        let together = kernels::attention(&q, &k, &v, Some(&mask)).unwrap();
        for (row, padding) in padding.iter().enumerate() {
            let own = new.min(len - padding);
            let part = |x: &Tensor, len: usize| {
                let x = x.narrow(0, row, 1).unwrap();
                x.narrow(2, x.dim(2).unwrap() - len, len).unwrap()
            };
            let (k, v) = (part(&k, len - padding), part(&v, len - padding));
            let single = kernels::attention(&part(&q, own), &k, &v, None).unwrap();
            let flat = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            assert_eq!(
                flat(&part(&together, own)),
                flat(&single),
                "round {round}: row {row} of {rows}, {padding} of {len} columns are padding"
            );
        }
    }
}

#[test]
fn large_and_widely_spread_scores_do_not_overflow() {
    let cpu = device().unwrap();
    let q = Tensor::new(&[[[[1e4f32, 0.0]]]], &cpu).unwrap();
    let k = Tensor::new(&[[[[1f32, 0.0], [-1.0, 0.0], [1.0, 0.0]]]], &cpu).unwrap();
    let v = Tensor::new(&[[[[1f32, 5.0], [1e9, 1e9], [3.0, 7.0]]]], &cpu).unwrap();
    let got: Vec<f32> =
        kernels::attention(&q, &k, &v, None).unwrap().flatten_all().unwrap().to_vec1().unwrap();
    assert_eq!(got, [2.0, 6.0], "two keys share all of it, and the far one gets exactly nothing");
}

#[test]
fn nan_propagates_through_attention_and_linear() {
    for len in [3, 40] {
        let mut random = Random::new(5);
        let shape = [1, 1, len, 32];
        let (q, k) = (random.tensor(&[1, 1, 1, 32]).unwrap(), random.tensor(&shape).unwrap());
        let mut numbers = vec![0.5f32; len * 32];
        numbers[(len - 2) * 32] = f32::NAN;
        let bad = Tensor::from_vec(numbers, &shape, &device().unwrap()).unwrap();
        let by_key: Vec<f32> = kernels::attention(&q, &bad, &k, None)
            .unwrap()
            .flatten_all()
            .unwrap()
            .to_vec1()
            .unwrap();
        assert!(by_key.iter().all(|n| n.is_nan()), "{len} columns");
        let by_value: Vec<f32> = kernels::attention(&q, &k, &bad, None)
            .unwrap()
            .flatten_all()
            .unwrap()
            .to_vec1()
            .unwrap();
        assert!(by_value[0].is_nan(), "{len} columns");
        let ones = Tensor::ones((4, 32), DType::F32, &device().unwrap()).unwrap();
        let sums = kernels::linear(&bad.reshape((len, 32)).unwrap(), &[&ones]).unwrap();
        assert!(sums[0].to_vec2::<f32>().unwrap()[len - 2].iter().all(|n| n.is_nan()));
    }
}

#[test]
fn mismatched_shapes_are_refused() {
    let mut random = Random::new(6);
    let mut tensor = |shape: &[usize]| random.tensor(shape).unwrap();
    let text = kernels::linear(&tensor(&[2, 5]), &[&tensor(&[3, 4])]).unwrap_err().to_string();
    assert!(text.contains("[3, 4]") && text.contains("[2, 5]"), "{text}");
    let q = tensor(&[1, 3, 2, 8]);
    let (k, v) = (tensor(&[1, 2, 2, 8]), tensor(&[1, 2, 2, 8]));
    let text = kernels::attention(&q, &k, &v, None).unwrap_err().to_string();
    assert!(text.contains("3 query heads cannot share 2"), "{text}");
    let k = tensor(&[1, 3, 1, 8]);
    assert!(kernels::attention(&q, &k, &k, None).is_err(), "fewer keys than queries");
}

#[test]
fn an_infinite_score_gives_nan_as_on_the_plain_path() {
    for len in [3, 40] {
        let shape = [1, 1, len, 32];
        let q = Tensor::full(1e20f32, &[1, 1, 1, 32], &device().unwrap()).unwrap();
        let mut numbers = vec![0f32; len * 32];
        numbers[32..64].fill(1e20);
        let k = Tensor::from_vec(numbers, &shape, &device().unwrap()).unwrap();
        let v = Random::new(7).tensor(&shape).unwrap();
        let fast = kernels::attention(&q, &k, &v, None).unwrap();
        let plain = grouped_attention(&q, &k, &v, None).unwrap();
        for (path, result) in [("plain", plain), ("fast", fast)] {
            let result: Vec<f32> = result.flatten_all().unwrap().to_vec1().unwrap();
            assert!(result.iter().all(|n| n.is_nan()), "{path}, {len} keys: {result:?}");
        }
    }
}
