//! Day 17: products at the sizes of SmolLM2-135M's matrices, by a simple loop, with several running
//! sums, over threads, by the kit's own kernel, and by candle.

use benches::kernel_sizes::{Size, SIZES, VECTORS};
use candecode::day17_kernel::{self, vectorised, Stored};
use candecode::kernels;
use candle_core::{DType, Device, Tensor};
use criterion::measurement::WallTime;
use criterion::{criterion_group, BenchmarkGroup, Criterion, SamplingMode};
use half::bf16;
use std::hint::black_box;
use std::time::Duration;

/// A dot product as one writes it first: one running sum.
fn simple_dot<W: Stored>(row: &[W], x: &[f32]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in row.iter().zip(x) {
        sum += w.widen() * x;
    }
    sum
}

fn random(shape: (usize, usize)) -> Tensor {
    Tensor::randn(0f32, 1.0, shape, &Device::Cpu).expect("numbers")
}

/// One vector, one thread: the simple loop, and several running sums.
fn one_thread<W: Stored>(
    group: &mut BenchmarkGroup<WallTime>,
    name: &str,
    w: &[W],
    x: &[f32],
    size: &Size,
) {
    let mut y = vec![0.0; size.out];
    group.bench_function(format!("{name}_loop_1"), |b| {
        b.iter(|| {
            for (row, y) in black_box(w).chunks_exact(size.inner).zip(&mut y) {
                *y = simple_dot(row, x);
            }
        });
    });
    group.bench_function(format!("{name}_sums_1"), |b| {
        b.iter(|| vectorised(black_box(w), x, size.inner, &mut y));
    });
}

fn products(c: &mut Criterion) {
    let mut group = c.benchmark_group("day17_product");
    group.sampling_mode(SamplingMode::Flat);
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(50))
        .measurement_time(Duration::from_millis(250));
    for size in SIZES {
        let wide = random((size.out, size.inner));
        for dtype in [DType::F32, DType::BF16] {
            let name = format!("{}_{}", size.name, dtype.as_str());
            let w = wide.to_dtype(dtype).expect("weights");
            let flat = w.flatten_all().expect("weights");
            let x = random((1, size.inner));
            let row = x.flatten_all().and_then(|x| x.to_vec1()).expect("a vector");
            match dtype {
                DType::F32 => {
                    let w: Vec<f32> = flat.to_vec1().expect("weights");
                    one_thread(&mut group, &name, &w, &row, &size);
                    group.bench_function(format!("{name}_candle_1"), |b| {
                        b.iter(|| x.matmul(&wide.t().expect("a matrix")).expect("a product"));
                    });
                }
                _ => {
                    let w: Vec<bf16> = flat.to_vec1().expect("weights");
                    one_thread(&mut group, &name, &w, &row, &size);
                }
            }
            for vectors in VECTORS {
                let x = random((vectors, size.inner));
                group.bench_function(format!("{name}_threads_{vectors}"), |b| {
                    b.iter(|| day17_kernel::linear(&x, &w).expect("a product"));
                });
                group.bench_function(format!("{name}_kit_{vectors}"), |b| {
                    b.iter(|| kernels::linear(&x, &[&w]).expect("a product"));
                });
            }
        }
    }
    group.finish();
}

criterion_group!(benches, products);
benches::benchmarks!(benches);
