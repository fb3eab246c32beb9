//! What day 12's chapter measures. Not checks: they take a minute and depend on the machine.

use super::checks::{plot::Plot, tokenizer};
use super::day::{load, options, Day};
use candecode::day10_kv_cache::KvCache;
use candecode::kit::{CacheKind, Model};
use candle_core::Result;
use std::time::Instant;

const SIZES: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// Seconds that `rows` texts of 9 tokens take for 32 new ones each; `ragged`: with lengths from 1 to 17.
fn seconds(day: &Day, model: &dyn Model, rows: usize, ragged: bool) -> Result<f64> {
    let tokenizer = tokenizer()?;
    let len = |row: usize| if ragged { 1 + 16 * row / (rows - 1).max(1) } else { 9 };
    let prompts: Vec<Vec<u32>> =
        (0..rows).map(|row| (300..300 + len(row) as u32).collect()).collect();
    let mut options = options(model, 32, 64);
    options.eos_token_ids.clear();
    let cache = Box::new(KvCache::new(CacheKind::Dynamic, model.config().num_hidden_layers));
    let start = Instant::now();
    (day.generate)(model, &tokenizer, &prompts, options, cache)?;
    Ok(start.elapsed().as_secs_f64())
}

/// Tokens a second against the number of rows, best of many; draws it.
pub fn throughput(day: &Day) -> Result<()> {
    let model = load("story-3m")?;
    let mut best = [[f64::MAX; 2]; SIZES.len()];
    for _ in 0..16 {
        for (rows, best) in SIZES.iter().zip(&mut best) {
            for (best, ragged) in best.iter_mut().zip([false, true]) {
                *best = best.min(seconds(day, &*model, *rows, ragged)?);
            }
        }
    }
    let unit = best[0][0];
    let gain = |which: usize| -> Vec<(f64, f64)> {
        let point = |(i, rows): (usize, &usize)| {
            ((*rows as f64).log2(), *rows as f64 * unit / best[i][which])
        };
        SIZES.iter().enumerate().map(point).collect()
    };
    let (even, ragged) = (gain(0), gain(1));
    for i in 0..SIZES.len() {
        println!(
            "{:2} rows: {:5.2} times the tokens a second, ragged {:5.2}",
            SIZES[i], even[i].1, ragged[i].1
        );
    }
    let label = "Tokens a second over all rows, against the number of rows, beside the ideal line: two rows are slower than one, then it grows, far below the ideal.";
    let mut plot = Plot::new(label, (0.0, 5.0), (0.0, 8.0), false);
    for (i, rows) in SIZES.iter().enumerate() {
        plot.tick_x(i as f64, &rows.to_string());
    }
    for at in [0, 2, 4, 6, 8] {
        plot.tick_y(f64::from(at), &at.to_string());
    }
    plot.axes("rows in the batch", "tokens a second over all rows; 1 is a single row");
    let ideal: Vec<(f64, f64)> =
        (0..=30).map(|i| f64::from(i) / 10.0).map(|x| (x, x.exp2())).collect();
    plot.line("known", &ideal);
    plot.words("left", (3.0, 8.0), (10.0, 6.0), "ideal: as many as rows");
    plot.line("kept", &even);
    plot.dots("kept", &even);
    plot.words("", even[1], (0.0, 16.0), &format!("2 rows: {:.1}", even[1].1));
    let last = even[SIZES.len() - 1];
    plot.words("right", last, (-4.0, -16.0), &format!("32 rows: {:.1}", last.1));
    plot.save("day12_throughput.svg")
}
