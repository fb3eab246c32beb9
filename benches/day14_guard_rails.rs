//! Day 14: 128 new tokens without a block list, and with lists of 1 and 10,000 words; and what a
//! list costs before the first token.

use benches::{cache, model, request, tokenizer};
use candecode::day10_kv_cache::{generate_cached, Cached};
use candecode::day14_guard_rails::block_rails;
use candecode::kit::LogitsProcessor;
use criterion::{criterion_group, BatchSize, Criterion, SamplingMode};
use std::rc::Rc;
use std::time::Duration;

/// Words of 6 to 10 letters that no story contains: each begins with two consonants that no English
/// word begins with.
fn words(n: usize) -> Vec<String> {
    let letter = |i: usize| char::from(b'a' + (i % 26) as u8);
    let word = |i: usize| {
        let rest = (0..4 + i % 5).map(|at| letter(i / 26usize.pow(at as u32 % 4) + at * i));
        ["xq", "zx", "qz"][i % 3].chars().chain(rest).collect()
    };
    (0..n).map(word).collect()
}

fn block_lists(c: &mut Criterion) {
    let (model, tokenizer) =
        (model("story-3m").expect("story-3m"), tokenizer().expect("tokenizer"));
    let prompt = tokenizer.encode("Once upon a time").expect("ids");
    let vocab_size = model.config().vocab_size;
    let mut group = c.benchmark_group("day14_block_list");
    group.sampling_mode(SamplingMode::Flat).sample_size(20);
    group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(5));
    for n in [0, 1, 10_000] {
        let words = words(n);
        let rails = |n: usize| match n {
            0 => vec![],
            _ => block_rails(&words, false, &[], &tokenizer, vocab_size).expect("rails"),
        };
        if n > 0 {
            group.bench_function(format!("build_{n}"), |b| b.iter(|| rails(n)));
        }
        // Rails are made anew for every text, outside of the time: a run begins without the answers of another.
        group.bench_function(format!("decode_{n}"), |b| {
            b.iter_batched(
                || rails(n),
                |rails| {
                    let mut request = request(&*model, &prompt, 128);
                    for rail in rails {
                        request.processors.push(Rc::new(rail) as Rc<dyn LogitsProcessor>);
                    }
                    let cached = Cached::new(&*model, Box::new(cache(&*model)));
                    let tokens = generate_cached(cached, &tokenizer, request);
                    tokens
                        .expect("a text")
                        .collect::<candle_core::Result<Vec<_>>>()
                        .expect("tokens")
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, block_lists);
benches::benchmarks!(benches);
