//! Day 18: attention of one layer of SmolLM2-135M's shape, 9 heads on 3, 64 wide, against the
//! context: a new token that looks back, and a whole prompt. By plain tensor operations (day 4), in
//! tiles (day 18), and by the kit's kernel.

use candecode::day01_attention::causal_mask;
use candecode::day04_attention_block::grouped_attention;
use candecode::day18_flash_attention::tiled_attention;
use candecode::kernels;
use candle_core::{Device, Tensor};
use criterion::{criterion_group, BatchSize, Criterion, SamplingMode};
use std::time::Duration;

const HEADS: usize = 9;
const KV_HEADS: usize = 3;
const WIDTH: usize = 64;

/// Columns that a new token looks back at.
const CONTEXTS: [usize; 5] = [64, 256, 1024, 4096, 8192];
/// Tokens of a prompt.
const PROMPTS: [usize; 4] = [64, 256, 1024, 2048];

fn random(heads: usize, len: usize) -> Tensor {
    Tensor::randn(0f32, 1.0, (1, heads, len, WIDTH), &Device::Cpu).expect("numbers")
}

fn decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("day18_decode");
    group.sampling_mode(SamplingMode::Flat);
    group
        .sample_size(20)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500));
    for all in CONTEXTS {
        let (q, k, v) = (random(HEADS, 1), random(KV_HEADS, all), random(KV_HEADS, all));
        group.bench_function(format!("plain_{all}"), |b| {
            b.iter(|| grouped_attention(&q, &k, &v, None).expect("attention"));
        });
        group.bench_function(format!("tiled_{all}"), |b| {
            b.iter(|| tiled_attention(&q, &k, &v, None).expect("attention"));
        });
        group.bench_function(format!("kit_{all}"), |b| {
            b.iter(|| kernels::attention(&q, &k, &v, None).expect("attention"));
        });
    }
    group.finish();
}

fn prefill(c: &mut Criterion) {
    let mut group = c.benchmark_group("day18_prefill");
    group.sampling_mode(SamplingMode::Flat);
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500));
    for new in PROMPTS {
        let (q, k, v) = (random(HEADS, new), random(KV_HEADS, new), random(KV_HEADS, new));
        // As `ops.attend` does it: the mask is made for every layer.
        let mask = || causal_mask(new, 0, &Device::Cpu).expect("a mask");
        group.bench_function(format!("plain_{new}"), |b| {
            b.iter_batched(
                mask,
                |mask| grouped_attention(&q, &k, &v, Some(&mask)).expect("attention"),
                BatchSize::PerIteration,
            );
        });
        group.bench_function(format!("tiled_{new}"), |b| {
            b.iter(|| tiled_attention(&q, &k, &v, None).expect("attention"));
        });
        group.bench_function(format!("kit_{new}"), |b| {
            b.iter(|| kernels::attention(&q, &k, &v, None).expect("attention"));
        });
    }
    group.finish();
}

criterion_group!(benches, decode, prefill);
benches::benchmarks!(benches);
