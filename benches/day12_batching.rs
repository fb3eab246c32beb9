//! Day 12: 32 new tokens for every row, against the number of rows; rows of one length, and of many.

use benches::{cache, model, options, tokenizer};
use candecode::day12_batching::generate_batch;
use criterion::{criterion_group, criterion_main, Criterion, SamplingMode};
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
                    let cache = Box::new(cache(&*model));
                    let tokens =
                        generate_batch(&*model, &tokenizer, &prompts, options(&*model, 32), cache);
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

criterion_group!(benches, batches);
criterion_main!(benches);
