//! The parts: a product at a real model's shapes, in bytes of weights a second, and attention
//! against the context.

use candecode::kernels::{self, bandwidth};
use candle_core::{DType, Device, Tensor};
use criterion::{criterion_group, criterion_main, Criterion, SamplingMode, Throughput};
use std::time::Duration;

fn group<'a>(
    c: &'a mut Criterion,
    name: &str,
) -> criterion::BenchmarkGroup<'a, criterion::measurement::WallTime> {
    let mut group = c.benchmark_group(name);
    group.sampling_mode(SamplingMode::Flat);
    group
        .sample_size(20)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400));
    group
}

fn random(shape: &[usize]) -> Tensor {
    Tensor::randn(0f32, 1.0, shape, &Device::Cpu).expect("numbers")
}

/// SmolLM2-135M's: Q, K and V; gate and up; down; the head, which fits no cache. Beside them, the
/// roof.
fn linears(c: &mut Criterion) {
    candecode::kernels::set_threads();
    println!("memory reads {:.1} GB/s", bandwidth(5) / 1e9);
    let mut group = group(c, "parts_linear");
    for (name, inner, out) in
        [("qkv", 576, 960), ("gate_up", 576, 3072), ("down", 1536, 576), ("head", 576, 49152)]
    {
        for dtype in [DType::F32, DType::BF16] {
            let w = random(&[out, inner]).to_dtype(dtype).expect("weights");
            group.throughput(Throughput::Bytes((inner * out * dtype.size_in_bytes()) as u64));
            for rows in [1, 4, 8] {
                let x = random(&[rows, inner]);
                group.bench_function(format!("{name}_{}_{rows}", dtype.as_str()), |b| {
                    b.iter(|| kernels::linear(&x, &[&w]).expect("a product"));
                });
            }
        }
    }
    group.finish();
    println!("memory reads {:.1} GB/s", bandwidth(5) / 1e9);
}

/// One new token, 9 heads on 3, against the tokens in the cache.
fn attentions(c: &mut Criterion) {
    let mut group = group(c, "parts_attention");
    let q = random(&[1, 9, 1, 64]);
    for context in [64, 256, 1024, 4096] {
        let (k, v) = (random(&[1, 3, context, 64]), random(&[1, 3, context, 64]));
        group.throughput(Throughput::Bytes(2 * 3 * context as u64 * 64 * 4));
        group.bench_function(context.to_string(), |b| {
            b.iter(|| kernels::attention(&q, &k, &v, None).expect("attention"));
        });
    }
    group.finish();
}

criterion_group!(benches, linears, attentions);
criterion_main!(benches);
