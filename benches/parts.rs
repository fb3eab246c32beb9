//! The parts: a product at a real model's shapes, in bytes of weights a second, attention against
//! the context, and the functions of days 3 and 4 with plain tensor operations.

use candecode::day01_attention::scaled_dot_product_attention;
use candecode::day03_norms_and_mlps::{
    gelu_exact, gelu_tanh, layer_norm, rms_norm, silu, swiglu, Projection,
};
use candecode::day04_attention_block::grouped_attention;
use candecode::kernels::{self, bandwidth};
use candecode::kit::Weight;
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

/// Day 3's functions for 256 tokens of story-3m's width, 192, and with 512 numbers inside the MLP.
fn norms_and_mlps(c: &mut Criterion) {
    let mut group = group(c, "parts_day3");
    let (x, inside) = (random(&[1, 256, 192]), random(&[1, 256, 512]));
    let (weight, bias) = (random(&[192]), random(&[192]));
    let projection = |out: usize, inner: usize| Projection {
        weight: Weight::new(random(&[out, inner])).expect("a matrix"),
        bias: None,
    };
    let [gate, up, down] = [projection(512, 192), projection(512, 192), projection(192, 512)];
    group.bench_function("rms_norm", |b| {
        b.iter(|| rms_norm(&x, &weight, 1e-6).expect("a norm"));
    });
    group.bench_function("layer_norm", |b| {
        b.iter(|| layer_norm(&x, &weight, &bias, 1e-5).expect("a norm"));
    });
    group.bench_function("silu", |b| b.iter(|| silu(&inside).expect("an activation")));
    group.bench_function("gelu_exact", |b| b.iter(|| gelu_exact(&inside).expect("an activation")));
    group.bench_function("gelu_tanh", |b| b.iter(|| gelu_tanh(&inside).expect("an activation")));
    group.bench_function("swiglu", |b| {
        b.iter(|| swiglu(&x, &gate, &up, &down).expect("an MLP"));
    });
    group.finish();
}

/// Day 4's grouped attention, and the same with each key/value head copied for its group first.
fn groups(c: &mut Criterion) {
    let mut group = group(c, "parts_day4");
    for (heads, kv_heads, width, new, seen) in
        [(6, 2, 32, 1, 256), (32, 8, 128, 1, 1024), (32, 8, 128, 1, 4096), (32, 8, 128, 64, 1024)]
    {
        let q = random(&[1, heads, new, width]);
        let (k, v) = (random(&[1, kv_heads, seen, width]), random(&[1, kv_heads, seen, width]));
        let copied = |x: &Tensor| -> candle_core::Result<Tensor> {
            let shape = (1, kv_heads, heads / kv_heads, seen, width);
            x.unsqueeze(2)?.broadcast_as(shape)?.contiguous()?.reshape((1, heads, seen, width))
        };
        let name = format!("{heads}_{kv_heads}_{width}_{new}_{seen}");
        group.bench_function(format!("{name}_view"), |b| {
            b.iter(|| grouped_attention(&q, &k, &v, None).expect("attention"));
        });
        group.bench_function(format!("{name}_copied"), |b| {
            b.iter(|| {
                let (k, v) = (copied(&k).expect("keys"), copied(&v).expect("values"));
                scaled_dot_product_attention(&q, &k, &v, None).expect("attention")
            });
        });
    }
    group.finish();
}

criterion_group!(benches, linears, attentions, norms_and_mlps, groups);
criterion_main!(benches);
