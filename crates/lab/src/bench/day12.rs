//! Day 12: passes with and without a batch; the time for 32 new tokens in every row, against the
//! number of rows. The rows have equal or very different lengths.

use crate::plot::{Axis, Plot};
use crate::shared::{batch_cache, counted, model, request, tokenizer};
use crate::tally::Tally;
use crate::times::Times;
use anyhow::Result;
use candecode::day12_batching::generate_batch;
use candecode::kit::Model;
use std::path::Path;

/// Numbers of rows in a batch.
const SIZES: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// Returns prompts of 9 tokens each, or of 1 to 17 (9 on average).
fn prompts(rows: usize, ragged: bool) -> Vec<Vec<u32>> {
    let len = |row: usize| if ragged { 1 + 16 * row / (rows - 1).max(1) } else { 9 };
    (0..rows).map(|row| (300..300 + len(row) as u32).collect()).collect()
}

/// Returns the passes, and the positions computed in them, that eight texts take, `rows` at a time.
fn cost(model: &dyn Model, rows: usize) -> Result<[usize; 2]> {
    let tokenizer = tokenizer()?;
    let (_, cost) = counted(model, |model| {
        for prompts in prompts(8, true).chunks(rows) {
            let requests = prompts.iter().map(|prompt| request(model, prompt, 32)).collect();
            let cache = Box::new(batch_cache(model));
            let tokens = generate_batch(model, &tokenizer, requests, cache)?;
            tokens.collect::<candle_core::Result<Vec<_>>>()?;
        }
        Ok(())
    })?;
    Ok(cost)
}

pub fn count(tally: &mut Tally) -> Result<()> {
    let model = model("story-3m")?;
    let (alone, together) = (cost(&*model, 1)?, cost(&*model, 8)?);
    tally.add("passes for 8 texts of 32 tokens", alone[0], together[0]);
    tally.add("positions computed in them, padding included", alone[1], together[1]);
    Ok(())
}

pub fn measure(times: &mut Times) -> Result<()> {
    let (model, tokenizer) = (model("story-3m")?, tokenizer()?);
    for rows in SIZES {
        for (name, ragged) in [("even", false), ("ragged", true)] {
            let prompts = prompts(rows, ragged);
            times.measure(&format!("{name}_{rows}"), || {
                let cache = Box::new(batch_cache(&*model));
                let requests = prompts.iter().map(|prompt| request(&*model, prompt, 32)).collect();
                let tokens = generate_batch(&*model, &tokenizer, requests, cache)?;
                tokens.collect::<candle_core::Result<Vec<_>>>()
            })?;
        }
    }
    Ok(())
}

pub fn report(times: &Times, folder: &Path) -> Result<()> {
    let unit = times.of("even_1")?;
    let gains = |kind| -> Result<Vec<(f64, f64)>> {
        let line = times.line(kind, &SIZES)?;
        Ok(line.into_iter().map(|(rows, time)| (rows, rows * unit / time)).collect())
    };
    let (even, ragged) = (gains("even")?, gains("ragged")?);
    println!("1 row: {:.0} tokens per second", 32.0 / unit);
    for ((rows, even), (_, ragged)) in even.iter().zip(&ragged) {
        println!("{rows:2} rows: {even:5.2} times the tokens per second, ragged {ragged:5.2}");
    }
    let ticks = SIZES.map(|rows| rows as f64);
    let mut plot = Plot::new(
        "Tokens per second over all rows against the number of rows, on logarithmic axes, with \
         the ideal line: more rows produce more tokens, but far fewer than the ideal.",
        Axis::log("rows in the batch", (1.0, 32.0), &ticks),
        Axis::log("tokens per second over all rows; 1 is a single row", (1.0, 32.0), &ticks),
    );
    plot.line("known", &[(1.0, 1.0), (32.0, 32.0)]);
    plot.words("right", (16.0, 16.0), (-14.0, 0.0), "ideal: proportional to rows");
    if let Some(unit) = times.beside("even_1") {
        let line = times.beside_line("even", &SIZES, 1.0);
        let gains = line.into_iter().map(|(rows, time)| (rows, rows * unit / time));
        plot.beside(&gains.collect::<Vec<_>>());
    }
    plot.series("kept", &even);
    plot.words("", even[1], (0.0, 16.0), &format!("2 rows: {:.1}", even[1].1));
    let last = even[SIZES.len() - 1];
    plot.words("right", last, (-4.0, -16.0), &format!("32 rows: {:.1}", last.1));
    plot.save(folder, "day12_throughput.svg")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaller_batches_take_more_passes() {
        let model = model("story-230k").unwrap();
        let passes = |rows| cost(&*model, rows).unwrap()[0];
        assert_eq!([8, 4, 1].map(passes), [32, 64, 256]);
    }
}
