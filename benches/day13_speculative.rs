//! Day 13: 64 new tokens without drafts, with free drafts that stand so often, and with real
//! drafters.

use benches::{cache, model, request, text, text_of, tokenizer};
use candecode::day10_kv_cache::Cached;
use candecode::day13_speculative::{
    decode_block, one_hot, ModelDrafter, NgramDrafter, SpeculativeDecoder,
};
use candecode::kit::draft::{Draft, Drafter};
use candecode::kit::{Model, ProcessorInput, Tokenizer};
use candle_core::Result;
use criterion::{criterion_group, Criterion, SamplingMode};
use std::time::Duration;

const PROMPT: &str = "Lily and her dog";
const NEW: usize = 64;

/// Knows the text, and spoils so many of 100 tokens that only `stands` of them are right.
struct Knows {
    text: Vec<u32>,
    stands: usize,
    vocab_size: usize,
}

impl Drafter for Knows {
    fn draft(&mut self, input: &ProcessorInput, n: usize, _: &[f32]) -> Result<Draft> {
        let right = |at: usize| at * 61 % 100 < self.stands; // 61 and 100 have no common divisor: every remainder comes
        let token = |at: usize| {
            if right(at) {
                self.text.get(at).copied().unwrap_or(1)
            } else {
                self.text.get(at).map_or(2, |id| (id + 1) % self.vocab_size as u32)
            }
        };
        let start = input.tokens.len();
        let tokens: Vec<u32> = (start..start + n).map(token).collect();
        let probs = tokens.iter().map(|id| one_hot(*id, self.vocab_size)).collect();
        Ok(Draft { tokens, probs })
    }
}

fn speculate(
    model: &dyn Model,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    drafter: Box<dyn Drafter + '_>,
    k: usize,
) -> Result<()> {
    let target = Cached::new(model, Box::new(cache(model)));
    let request = request(model, prompt, NEW);
    let mut decoder = SpeculativeDecoder::new(target, tokenizer, request, drafter, k)?;
    while decode_block(&mut decoder)?.last().is_some_and(|token| token.finish.is_none()) {}
    Ok(())
}

fn speculation(c: &mut Criterion) {
    let (target, small) =
        (model("story-3m").expect("story-3m"), model("story-230k").expect("story-230k"));
    let (tokenizer, vocab_size) = (tokenizer().expect("tokenizer"), target.config().vocab_size);
    let prompt = tokenizer.encode(PROMPT).expect("ids");
    let known = text(&*target, PROMPT, prompt.len() + NEW).expect("a text");
    let mut group = c.benchmark_group("day13_speculation");
    group.sampling_mode(SamplingMode::Flat);
    group
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(700));
    group.bench_function("plain", |b| {
        b.iter(|| text_of(&*target, &tokenizer, &prompt, NEW).expect("a text"));
    });
    for stands in [100, 80, 50, 0] {
        for k in 1..=8 {
            group.bench_function(format!("stands_{stands}_k{k}"), |b| {
                b.iter(|| {
                    let drafter = Box::new(Knows { text: known.clone(), stands, vocab_size });
                    speculate(&*target, &tokenizer, &prompt, drafter, k).expect("a text");
                });
            });
        }
    }
    for k in [2, 4] {
        group.bench_function(format!("model_k{k}"), |b| {
            b.iter(|| {
                let cached = Cached::new(&*small, Box::new(cache(&*small)));
                let drafter = Box::new(ModelDrafter {
                    cached,
                    processors: Vec::new(),
                    greedy: true,
                    vocab_size,
                });
                speculate(&*target, &tokenizer, &prompt, drafter, k).expect("a text");
            });
        });
    }
    group.bench_function("ngram_k4", |b| {
        b.iter(|| {
            let drafter = Box::new(NgramDrafter { n: 2, vocab_size });
            speculate(&*target, &tokenizer, &prompt, drafter, 4).expect("a text");
        });
    });
    group.finish();
}

criterion_group!(benches, speculation);
benches::benchmarks!(benches);
