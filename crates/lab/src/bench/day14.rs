//! Day 14: the time for 128 new tokens without a block list and with lists of 1 and 10,000 words,
//! and the time to build the lists' automata.

use crate::shared::{model, request, text_of, tokenizer};
use crate::times::Times;
use anyhow::Result;
use candecode::day14_guard_rails::block_rails;
use candecode::kit::LogitsProcessor;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

/// Returns words of 6 to 10 letters that no story contains: each starts with a pair of consonants
/// that starts no English word.
fn words(n: usize) -> Vec<String> {
    let letter = |i: usize| char::from(b'a' + (i % 26) as u8);
    let word = |i: usize| {
        let rest = (0..4 + i % 5).map(|at| letter(i / 26usize.pow(at as u32 % 4) + at * i));
        ["xq", "zx", "qz"][i % 3].chars().chain(rest).collect()
    };
    (0..n).map(word).collect()
}

pub fn measure(times: &mut Times) -> Result<()> {
    let (model, tokenizer) = (model("story-3m")?, tokenizer()?);
    let prompt = tokenizer.encode("Once upon a time")?;
    let vocab_size = model.config().vocab_size;
    for n in [0, 1, 10_000] {
        let words = words(n);
        let rails = || match n {
            0 => Ok(vec![]),
            _ => block_rails(&words, false, &[], &tokenizer, vocab_size),
        };
        if n > 0 {
            times.measure(&format!("build_{n}"), rails)?;
        }
        times.samples(&format!("decode_{n}"), || {
            // Each text gets fresh rails, built before the clock starts, so that none benefits from
            // results cached for another text.
            let mut request = request(&*model, &prompt, 128);
            for rail in rails()? {
                request.processors.push(Rc::new(rail) as Rc<dyn LogitsProcessor>);
            }
            let begun = Instant::now();
            text_of(&*model, &tokenizer, request)?;
            Ok(begun.elapsed().as_secs_f64())
        })?;
    }
    Ok(())
}

pub fn report(times: &Times, _: &Path) -> Result<()> {
    let plain = times.of("decode_0")?;
    for n in [1, 10_000] {
        let more = 100.0 * (times.of(&format!("decode_{n}"))? / plain - 1.0);
        let build = times.of(&format!("build_{n}"))?;
        println!("{n:5} words: {more:+.1} % time per token; {build:.2} s to build");
    }
    Ok(())
}
