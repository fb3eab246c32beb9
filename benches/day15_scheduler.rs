//! Day 15: 24 requests of very different lengths, in static batches and in one running batch.

use benches::serving::{fixed, mix, running};
use benches::{model, tokenizer};
use criterion::{criterion_group, Criterion, SamplingMode};
use std::time::Duration;

fn serving(c: &mut Criterion) {
    let (model, tokenizer) =
        (model("story-3m").expect("story-3m"), tokenizer().expect("tokenizer"));
    let mix = mix();
    let mut group = c.benchmark_group("day15_serving");
    group.sampling_mode(SamplingMode::Flat);
    group
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(5));
    group
        .bench_function("static", |b| b.iter(|| fixed(&*model, &tokenizer, &mix).expect("static")));
    group.bench_function("continuous", |b| {
        b.iter(|| running(&*model, &tokenizer, &mix).expect("continuous"))
    });
    group.finish();
}

criterion_group!(benches, serving);
benches::benchmarks!(benches);
