//! Day 12: 32 new tokens for every row, against the number of rows; rows of one length, and of
//! many.

use benches::{batch_cache, model, request, tokenizer};
use candecode::day12_batching::generate_batch;
use candecode::engine::operations::{self, Kernels};
use candecode::kit::Weight;
use candle_core::{Device, Tensor};
use criterion::{criterion_group, Criterion, SamplingMode};
use std::time::Duration;

/// Prompts of 9 tokens, or of 1 to 17, 9 on average.
fn prompts(rows: usize, ragged: bool) -> Vec<Vec<u32>> {
    let len = |row: usize| if ragged { 1 + 16 * row / (rows - 1).max(1) } else { 9 };
    (0..rows).map(|row| (300..300 + len(row) as u32).collect()).collect()
}

fn batches(c: &mut Criterion) {
    let (model, tokenizer) =
        (model("story-3m").expect("story-3m"), tokenizer().expect("tokenizer"));
    let mut group = c.benchmark_group("day12_batch");
    group.sampling_mode(SamplingMode::Flat);
    group
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2));
    for rows in [1, 2, 4, 8, 16, 32] {
        for (name, ragged) in [("even", false), ("ragged", true)] {
            let prompts = prompts(rows, ragged);
            group.bench_function(format!("{name}_{rows}"), |b| {
                b.iter(|| {
                    let cache = Box::new(batch_cache(&*model));
                    let requests = prompts.iter().map(|prompt| request(&*model, prompt, 32));
                    let tokens = generate_batch(&*model, &tokenizer, requests.collect(), cache);
                    tokens
                        .expect("a batch")
                        .collect::<candle_core::Result<Vec<_>>>()
                        .expect("tokens")
                });
            });
        }
    }
    group.finish();
}

/// One product, from 576 to 1536 as in SmolLM2-135M's MLP: by candle's operations and by the kit's
/// kernel.
fn products(c: &mut Criterion) {
    let (inner, out) = (576, 1536);
    let random = |rows| Tensor::randn(0f32, 1.0, (rows, inner), &Device::Cpu).expect("numbers");
    let weight = Weight::new(random(out)).expect("a matrix");
    let mut group = c.benchmark_group("day12_product");
    group.sampling_mode(SamplingMode::Flat);
    group
        .sample_size(20)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500));
    for rows in [1, 2, 4, 8, 32] {
        let x = random(rows);
        for kernels in [Kernels::Plain, Kernels::Fast] {
            let ops = operations::choose(Some(kernels), &Device::Cpu);
            group.bench_function(format!("{kernels}_{rows}"), |b| {
                b.iter(|| ops.linear(&x, &[&weight]).expect("a product"));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, batches, products);
benches::benchmarks!(benches);
