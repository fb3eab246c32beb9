//! Day 14: how many answers are as asked for; the time for 128 new tokens without a block list and
//! with lists of 1 and 10,000 words, and the time to build the lists' automata.

use crate::shared::{model, request, text_of, tokenizer};
use crate::tally::Tally;
use crate::times::Times;
use anyhow::Result;
use candecode::day08_sampling::chacha_sampler;
use candecode::day14_guard_rails::{allow_rail, block_rails};
use candecode::kit::{LogitsProcessor, Model};
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

const QUESTION: &str = "Lily lost her ball. Is Lily happy? Answer yes or no:";

/// Returns how many of 100 sampled answers, of at most three tokens, are `yes` or `no`.
fn as_asked(model: &dyn Model, rail: Option<Rc<dyn LogitsProcessor>>) -> Result<usize> {
    let tokenizer = tokenizer()?;
    let prompt = tokenizer.encode(QUESTION)?;
    let mut good = 0;
    for seed in 0..100 {
        let mut request = request(model, &prompt, 3);
        request.eos_token_ids = model.config().eos_token_ids.clone();
        request.processors.extend(rail.clone());
        request.sampler = chacha_sampler(seed, 0);
        let answer = text_of(model, &tokenizer, request)?;
        good += usize::from([" yes", " no"].contains(&tokenizer.decode(&answer)?.as_str()));
    }
    Ok(good)
}

pub fn count(tally: &mut Tally) -> Result<()> {
    let model = model("story-3m")?;
    let rail = allow_rail(" (yes|no)", &tokenizer()?, model.config().vocab_size)?;
    let (free, bound) = (as_asked(&*model, None)?, as_asked(&*model, Some(Rc::new(rail)))?);
    tally.add("answers of 100 that are yes or no", free, bound);
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rail_that_allows_more_gets_fewer_answers_right() {
        let model = model("story-3m").unwrap();
        let answers = |regex: &str| {
            let rail = allow_rail(regex, &tokenizer().unwrap(), model.config().vocab_size);
            as_asked(&*model, Some(Rc::new(rail.unwrap()))).unwrap()
        };
        assert_eq!(answers(" (yes|no)"), 100);
        assert!(answers(" (yes|no|[a-z]+)") < 50);
    }
}
