//! Day 13: passes with and without drafts; the time for 64 new tokens without drafts, with free
//! drafts at fixed acceptance rates, and with real drafters.

use crate::plot::{Axis, Plot};
use crate::shared::{cache, counted, model, request, text, text_of, tokenizer};
use crate::tally::Tally;
use crate::times::Times;
use anyhow::Result;
use candecode::day07_greedy::argmax;
use candecode::day10_kv_cache::Cached;
use candecode::day13_speculative::{
    decode_block, one_hot, ModelDrafter, NgramDrafter, SpeculativeDecoder,
};
use candecode::kit::draft::{Draft, Drafter};
use candecode::kit::{Model, ProcessorInput, Request};
use std::path::Path;

const PROMPT: &str = "Lily and her dog";
const NEW: usize = 64;

/// Chances in 100 that a token of the free drafts is correct.
const RATES: [u64; 4] = [100, 80, 50, 0];

/// Drafts from the known text. Each token is correct with a chance of `right` in 100, independently
/// of the others, as in the chapter's formula.
struct Knows {
    text: Vec<u32>,
    right: u64,
    vocab_size: usize,
}

/// Returns a place's random number (splitmix64), the same in every run.
fn hash(at: u64) -> u64 {
    // With this seed, a text of 64 tokens is close to the formula's mean
    let mut z = (38_000 + at).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Drafter for Knows {
    fn draft(&mut self, input: &ProcessorInput, n: usize, _: &[f32]) -> candle_core::Result<Draft> {
        let token = |at: usize| {
            let known = self.text.get(at).copied().unwrap_or(1);
            if hash(at as u64) % 100 < self.right {
                known
            } else {
                (known + 1) % self.vocab_size as u32
            }
        };
        let start = input.tokens.len();
        let tokens: Vec<u32> = (start..start + n).map(token).collect();
        let probs = tokens.iter().map(|id| one_hot(*id, self.vocab_size)).collect();
        Ok(Draft { tokens, probs })
    }
}

/// Returns the passes of the target over a text that is drafted four tokens at a time.
fn passes(target: &dyn Model, drafter: Box<dyn Drafter + '_>) -> Result<usize> {
    let tokenizer = tokenizer()?;
    let prompt = tokenizer.encode(PROMPT)?;
    let (_, [passes, _]) = counted(target, |target| {
        let cached = Cached::new(target, Box::new(cache(target)));
        let request = request(target, &prompt, NEW);
        let mut decoder = SpeculativeDecoder::new(cached, &tokenizer, request, drafter, 4)?;
        while decode_block(&mut decoder)?.last().is_some_and(|token| token.finish.is_none()) {}
        Ok(())
    })?;
    Ok(passes)
}

pub fn count(tally: &mut Tally) -> Result<()> {
    let (target, small) = (model("story-3m")?, model("story-230k")?);
    let (tokenizer, vocab_size) = (tokenizer()?, target.config().vocab_size);
    let prompt = tokenizer.encode(PROMPT)?;
    let (_, [before, _]) =
        counted(&*target, |target| text_of(target, &tokenizer, request(target, &prompt, NEW)))?;
    let ngrams = Box::new(NgramDrafter { n: 2, vocab_size });
    tally.add("passes for 64 tokens, drafts by n-grams", before, passes(&*target, ngrams)?);
    let cached = Cached::new(&*small, Box::new(cache(&*small)));
    let model = ModelDrafter { cached, processors: Vec::new(), greedy: true, vocab_size };
    let after = passes(&*target, Box::new(model))?;
    tally.add("passes for 64 tokens, drafts by story-230k", before, after);
    Ok(())
}

pub fn measure(times: &mut Times) -> Result<()> {
    let (target, small) = (model("story-3m")?, model("story-230k")?);
    let (tokenizer, vocab_size) = (tokenizer()?, target.config().vocab_size);
    let prompt = tokenizer.encode(PROMPT)?;
    let known = text(&*target, PROMPT, prompt.len() + NEW)?;
    let speculate = |drafter: Box<dyn Drafter + '_>, k: usize| -> Result<()> {
        let cached = Cached::new(&*target, Box::new(cache(&*target)));
        let request = request(&*target, &prompt, NEW);
        let mut decoder = SpeculativeDecoder::new(cached, &tokenizer, request, drafter, k)?;
        while decode_block(&mut decoder)?.last().is_some_and(|token| token.finish.is_none()) {}
        Ok(())
    };
    times.measure("plain", || text_of(&*target, &tokenizer, request(&*target, &prompt, NEW)))?;
    for right in RATES {
        for k in 1..=8 {
            times.measure(&format!("{right}_k_{k}"), || {
                speculate(Box::new(Knows { text: known.clone(), right, vocab_size }), k)
            })?;
        }
    }
    for k in [2, 4] {
        times.measure(&format!("model_k_{k}"), || {
            let cached = Cached::new(&*small, Box::new(cache(&*small)));
            let processors = Vec::new();
            speculate(Box::new(ModelDrafter { cached, processors, greedy: true, vocab_size }), k)
        })?;
    }
    times.measure("ngram_k_4", || speculate(Box::new(NgramDrafter { n: 2, vocab_size }), 4))
}

/// Prints how many tokens a pass of the target writes, and how many drafted tokens are accepted.
fn table() -> Result<()> {
    const PROMPTS: [&str; 3] = [PROMPT, "Once upon a time", "One day, Tom found a big"];
    const DRAFTED: [usize; 4] = [1, 2, 4, 8];
    let (target, small, tokenizer) = (model("story-3m")?, model("story-230k")?, tokenizer()?);
    let row = |name: &str, cells: [String; 4]| {
        let cells = cells.map(|cell| format!("{cell:<12}")).concat();
        println!("{name:<26}{}", cells.trim_end());
    };
    row("tokens per pass, K =", DRAFTED.map(|k| k.to_string()));
    for prompt in PROMPTS {
        let ids = tokenizer.encode(prompt)?;
        let mut cells = DRAFTED.map(|_| String::new());
        for (cell, k) in cells.iter_mut().zip(DRAFTED) {
            let cached = Cached::new(&*small, Box::new(cache(&*small)));
            let (processors, vocab_size) = (Vec::new(), target.config().vocab_size);
            let drafter = Box::new(ModelDrafter { cached, processors, greedy: true, vocab_size });
            let cached = Cached::new(&*target, Box::new(cache(&*target)));
            let request = Request::new(target.config(), &ids, NEW, argmax);
            let mut decoder = SpeculativeDecoder::new(cached, &tokenizer, request, drafter, k)?;
            while decoder.sequence.finish.is_none() {
                decode_block(&mut decoder)?;
            }
            let counts = &decoder.counts;
            let per_pass = counts.written as f64 / counts.passes as f64;
            let accepted = 100.0 * counts.accepted as f64 / counts.drafted as f64;
            *cell = format!("{per_pass:.2} ({accepted:.0}%)");
        }
        row(prompt, cells);
    }
    Ok(())
}

pub fn report(times: &Times, folder: &Path) -> Result<()> {
    table()?;
    let plain = times.of("plain")?;
    let mut plot = Plot::new(
        "Speedup of speculative decoding over plain decoding against the number of drafted \
         tokens, for drafters whose tokens are accepted always, 80 % of the time, 50 % of the \
         time, or never, and the ideal, K plus 1.",
        Axis::linear(
            "K: tokens drafted before each pass",
            (1.0, 10.0), // leaves room for the labels next to the lines
            &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
        ),
        Axis::linear(
            "speedup over decoding without drafts; drafts cost nothing here",
            (0.0, 5.0),
            &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
        ),
    );
    plot.line("known", &[(1.0, 1.0), (10.0, 1.0)]);
    plot.line("known", &[(1.0, 2.0), (4.0, 5.0)]);
    plot.words("left", (3.6, 4.6), (20.0, 8.0), "ideal: K + 1");
    if let Some(plain) = times.beside("plain") {
        for rate in RATES {
            let line = times.beside_line(&format!("{rate}_k"), &[1, 2, 3, 4, 5, 6, 7, 8], 1.0);
            plot.beside(&line.iter().map(|(k, time)| (*k, plain / time)).collect::<Vec<_>>());
        }
    }
    for rate in RATES {
        let line = times.line(&format!("{rate}_k"), &[1, 2, 3, 4, 5, 6, 7, 8])?;
        let points: Vec<(f64, f64)> = line.iter().map(|(k, time)| (*k, plain / time)).collect();
        let shown: Vec<String> = points.iter().map(|(_, y)| format!("{y:.2}")).collect();
        println!("{rate:3} % accepted, K = 1 to 8: {}", shown.join(" "));
        plot.series(if points[3].1 >= 1.0 { "kept" } else { "dropped" }, &points);
        let down = if rate == 50 { -2.0 } else { 6.0 }; // the two lowest lines are close together
        let words = format!("{rate} % accepted: {:.1}", points[7].1);
        plot.words("left", points[7], (10.0, down), &words);
    }
    for (name, row) in [
        ("model_k_2", "drafts by story-230k, K = 2"),
        ("model_k_4", "drafts by story-230k, K = 4"),
        ("ngram_k_4", "drafts by the lookup, K = 4"),
    ] {
        println!("{row}: {:.2} times as fast", plain / times.of(name)?);
    }
    plot.save(folder, "day13_speedup.svg")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drafts_that_are_wrong_save_no_pass() {
        let target = model("story-230k").unwrap();
        let vocab_size = target.config().vocab_size;
        let prompt = tokenizer().unwrap().encode(PROMPT).unwrap();
        let text = text(&*target, PROMPT, prompt.len() + NEW).unwrap();
        let knows = |right| Box::new(Knows { text: text.clone(), right, vocab_size });
        let [right, half, wrong] = [100, 50, 0].map(|n| passes(&*target, knows(n)).unwrap());
        assert!(
            right == 13 && right < half && half < wrong && wrong == NEW,
            "{right} {half} {wrong}"
        );
    }
}
