//! Day 10: what the next token costs, after so many tokens, without a cache and with one.

use benches::{logits, model, text};
use candecode::engine::CacheKind;
use candecode::kit::{Cache, NoCache};
use criterion::{criterion_group, Criterion, SamplingMode};
use std::time::Duration;

/// Tokens in the text, the new one included.
const LENGTHS: [usize; 7] = [16, 64, 128, 192, 256, 384, 480];

fn next_token(c: &mut Criterion) {
    let model = model("story-3m").expect("story-3m");
    let ids = text(&*model, "Once upon a time", 480).expect("a text");
    let mut group = c.benchmark_group("day10_next_token");
    group.sampling_mode(SamplingMode::Flat);
    group
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    for len in LENGTHS {
        group.bench_function(format!("none_{len}"), |b| {
            b.iter(|| logits(&*model, &ids[..len], &mut NoCache).expect("logits"));
        });
        for (name, kind) in [("dynamic", CacheKind::Dynamic), ("static", CacheKind::Static(512))] {
            let mut cache = kind.new_cache(model.config().num_hidden_layers);
            logits(&*model, &ids[..len], &mut *cache).expect("prefill");
            group.bench_function(format!("{name}_{len}"), |b| {
                b.iter(|| {
                    cache.truncate(len - 1).expect("truncate");
                    logits(&*model, &ids[len - 1..len], &mut *cache).expect("logits")
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, next_token);
benches::benchmarks!(benches);
