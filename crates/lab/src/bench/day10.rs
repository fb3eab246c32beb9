//! Day 10: the positions computed without a cache and with one; the cost of the next token with and
//! without a cache, and how far a sliding cache's results are from those of its window.

use crate::plot::{Axis, Plot};
use crate::shared::{counted, if_written, logits, model, plain_story, request, text, tokenizer};
use crate::tally::Tally;
use crate::times::Times;
use anyhow::Result;
use candecode::day07_greedy::generate;
use candecode::day10_kv_cache::{generate_cached, Cached, SlidingCache};
use candecode::kit::{Cache, Logits, Model, NoCache, Step};
use candecode_engine::CacheConfig;
use std::path::Path;

/// Text lengths in tokens, including the new one.
const LENGTHS: [usize; 7] = [16, 64, 128, 192, 256, 384, 480];

/// Returns the positions computed for 64 new tokens, with a kind of cache or with none.
fn positions(model: &dyn Model, kind: Option<CacheConfig>) -> Result<usize> {
    let tokenizer = tokenizer()?;
    let prompt = tokenizer.encode("Lily and her dog")?;
    let (_, [_, positions]) = counted(model, |model| {
        let request = request(model, &prompt, 64);
        let tokens = match kind {
            None => generate(model, &tokenizer, request)?,
            Some(kind) => {
                let cache = kind.new_cache(model.config().num_hidden_layers)?;
                generate_cached(Cached::new(model, cache), &tokenizer, request)?
            }
        };
        Ok(tokens.collect::<candle_core::Result<Vec<_>>>()?)
    })?;
    Ok(positions)
}

pub fn count(tally: &mut Tally) -> Result<()> {
    let model = model("story-3m")?;
    let before = positions(&*model, None)?;
    for (name, kind) in [("growing", CacheConfig::Dynamic), ("static", CacheConfig::Static(512))] {
        let name = format!("positions computed for 64 tokens, {name} cache");
        if let Some(after) = if_written(|| positions(&*model, Some(kind)))? {
            tally.add(&name, before, after);
        }
    }
    Ok(())
}

pub fn measure(times: &mut Times) -> Result<()> {
    let model = model("story-3m")?;
    let ids = text(&*model, "Once upon a time", 480)?;
    for len in LENGTHS {
        times.measure(&format!("none_{len}"), || logits(&*model, &ids[..len], &mut NoCache))?;
        for (name, kind) in
            [("dynamic", CacheConfig::Dynamic), ("static", CacheConfig::Static(512))]
        {
            if_written(|| {
                let mut cache = kind.new_cache(model.config().num_hidden_layers)?;
                logits(&*model, &ids[..len], &mut *cache)?;
                times.measure(&format!("{name}_{len}"), || {
                    cache.truncate(len - 1)?;
                    logits(&*model, &ids[len - 1..len], &mut *cache)
                })
            })?;
        }
    }
    Ok(())
}

pub fn report(times: &Times, folder: &Path) -> Result<()> {
    let unit = times.of("dynamic_16")?;
    let line = |kind| -> Result<Vec<(f64, f64)>> {
        Ok(times.line(kind, &LENGTHS)?.into_iter().map(|(x, y)| (x, y / unit)).collect())
    };
    let (none, dynamic) = (line("none")?, line("dynamic")?);
    let fixed = line("static").ok(); // its tasks are optional
    println!("next token; 1 is a growing cache at 16 tokens, {:.2} ms", unit * 1e3);
    for (i, len) in LENGTHS.iter().enumerate() {
        let [none, dynamic] = [&none, &dynamic].map(|line| line[i].1);
        let fixed = fixed.as_ref().map(|line| format!(", static {:5.2}", line[i].1));
        let fixed = fixed.unwrap_or_default();
        println!("{len:4} tokens: none {none:6.1}, dynamic {dynamic:5.2}{fixed}");
    }
    let lengths = [16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
    let mut plot = Plot::new(
        "Time of the next token against the length of the text, on logarithmic axes. Without a \
         cache, it grows with every token. With a cache, it stays almost flat, close to the ideal \
         line at 1.",
        Axis::log("tokens in the text", (16.0, 512.0), &lengths),
        Axis::log(
            "time of the next token; 1 is the step with a cache after 16 tokens",
            (0.5, 1000.0),
            &[1.0, 10.0, 100.0, 1000.0],
        ),
    );
    plot.line("known", &[(16.0, 1.0), (480.0, 1.0)]);
    plot.series("dropped", &none);
    plot.beside(&times.beside_line("dynamic", &LENGTHS, unit));
    plot.series("kept", &dynamic);
    let (last, with) = (none[LENGTHS.len() - 1], dynamic[LENGTHS.len() - 1]);
    plot.words("right", last, (-12.0, 0.0), &format!("no cache: {:.0} times", last.1));
    let words = format!("cache: {:.1} times (gray: the ideal, 1)", with.1);
    plot.words("right", with, (0.0, -16.0), &words);
    plot.save(folder, "day10_cost.svg")?;
    if_written(|| cliff(folder)).map(drop)
}

/// Compares a sliding cache with the same window recomputed from scratch, token by token, and plots
/// the difference.
fn cliff(folder: &Path) -> Result<()> {
    const WINDOW: usize = 64;
    // With plain operations. Until the cache slides, the results differ only by rounding.
    let model = plain_story()?;
    let prompt = tokenizer()?.encode("Lily and her dog")?.len();
    let ids = text(&model, "Lily and her dog", 128)?;
    let mut sliding = SlidingCache::new(model.config().num_hidden_layers, WINDOW);
    let (mut held, mut points) = (0, Vec::new());
    for end in prompt..=ids.len() {
        let step = Step::sliding(&model, &ids[held..end], held)?.with_logits(Logits::Last(1));
        let got = model.forward(&step, &mut sliding)?.flatten_all()?.to_vec1::<f32>()?;
        held = end;
        let scratch = logits(&model, &ids[end.saturating_sub(WINDOW)..end], &mut NoCache)?;
        let apart = got.iter().zip(&scratch).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        points.push((end as f64, f64::from(apart)));
    }
    let (before, after) = points.split_at(WINDOW - prompt + 1);
    let most = |points: &[(f64, f64)]| points.iter().map(|(_, y)| *y).fold(0.0, f64::max);
    let (first, rounding) = (after[0], most(before));
    println!(
        "largest difference in a logit: {rounding:.1e} before the cache slides, {:.2} at the first \
         token after, {:.2} later",
        first.1,
        most(after)
    );
    let mut plot = Plot::new(
        "Largest difference between the logits of a sliding cache and those of the same window \
         computed from scratch: about a millionth up to 64 tokens, and about one half from the \
         65th on.",
        Axis::linear(
            "tokens in the text; the window is 64",
            (0.0, 130.0),
            &[0.0, 32.0, 64.0, 96.0, 128.0],
        ),
        Axis::log(
            "largest difference in a logit, sliding cache against the last 64 tokens computed \
             from scratch",
            (1e-7, 10.0),
            &[1e-6, 1e-4, 1e-2, 1.0],
        )
        .with_labels(&["10⁻⁶", "10⁻⁴", "10⁻²", "1"]),
    );
    plot.upright(64.5);
    plot.dots("kept", before);
    plot.dots("dropped", after);
    let words = format!("first token after a slide: {:.2}", first.1);
    plot.words("left", (first.0, 1e-3), (14.0, 0.0), &words);
    plot.words("right", (60.0, 3e-5), (0.0, 0.0), "before any slide: rounding");
    plot.save(folder, "day10_cliff.svg")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_that_forgets_computes_as_much_as_none() {
        let model = model("story-230k").unwrap();
        let before = positions(&*model, None).unwrap();
        let after = positions(&*model, Some(CacheConfig::Dynamic)).unwrap();
        let (_, [_, forgets]) = counted(&*model, |model| {
            let tokenizer = tokenizer()?;
            let prompt = tokenizer.encode("Lily and her dog")?;
            let cached = Cached::new(model, Box::new(NoCache));
            let tokens = generate_cached(cached, &tokenizer, request(model, &prompt, 64))?;
            Ok(tokens.collect::<candle_core::Result<Vec<_>>>()?)
        })
        .unwrap();
        assert!(before == forgets && after < before / 20, "{before} {forgets} {after}");
    }
}
