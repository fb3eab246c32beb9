//! Day 15: 24 requests of very different lengths, in static batches and in one continuous batch.

use crate::plot;
use crate::shared::{batch_cache, mix, model, scheduler, tokenizer};
use crate::tally::Tally;
use crate::times::Times;
use anyhow::Result;
use candecode::day12_batching::generate_batch;
use candecode::kit::{Cache, Model, ModelConfig, Step, Tokenizer};
use candle_core::{Device, Tensor};
use std::cell::RefCell;
use std::fmt::Write as _;
use std::path::Path;

/// Maximum number of rows in a batch.
const SIZE: usize = 8;

/// Serves the mix in static batches, each run until all of its requests have finished.
fn fixed(model: &dyn Model, tokenizer: &Tokenizer) -> Result<()> {
    let mut queue = mix(model).into_iter();
    while !queue.as_slice().is_empty() {
        let requests = queue.by_ref().take(SIZE).collect();
        let cache = Box::new(batch_cache(model));
        let tokens = generate_batch(model, tokenizer, requests, cache)?;
        tokens.collect::<candle_core::Result<Vec<_>>>()?;
    }
    Ok(())
}

/// Serves the mix in one continuous batch: the next request is submitted as soon as a row is free.
fn running(model: &dyn Model, tokenizer: &Tokenizer) -> Result<()> {
    let mut scheduler = scheduler(model, tokenizer, usize::MAX);
    let mut queue = mix(model).into_iter();
    loop {
        while scheduler.running.len() + scheduler.waiting.len() < SIZE {
            let Some(request) = queue.next() else { break };
            scheduler.submit(request)?;
        }
        if scheduler.is_idle() {
            return Ok(());
        }
        scheduler.run_iteration()?;
    }
}

/// A model that records the number of rows in every decoding pass.
struct Counted {
    model: Box<dyn Model>,
    rows: RefCell<Vec<usize>>,
}

impl Model for Counted {
    fn config(&self) -> &ModelConfig {
        self.model.config()
    }

    fn device(&self) -> &Device {
        self.model.device()
    }

    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> candle_core::Result<Tensor> {
        let (rows, width) = step.ids.dims2()?;
        if width == 1 {
            self.rows.borrow_mut().push(rows);
        }
        self.model.forward(step, cache)
    }
}

/// Returns the rows of every decoding pass: in static batches, and in one continuous batch.
fn rows() -> Result<[Vec<usize>; 2]> {
    let tokenizer = tokenizer()?;
    let counted = Counted { model: model("story-3m")?, rows: RefCell::default() };
    fixed(&counted, &tokenizer)?;
    let fixed = counted.rows.take();
    running(&counted, &tokenizer)?;
    Ok([fixed, counted.rows.take()])
}

pub fn count(tally: &mut Tally) -> Result<()> {
    let [fixed, running] = rows()?;
    tally.add("decoding passes for 24 requests", fixed.len(), running.len());
    let mean =
        |rows: &[usize]| format!("{:.2}", rows.iter().sum::<usize>() as f64 / rows.len() as f64);
    tally.add("rows in a pass, on average", mean(&fixed), mean(&running));
    Ok(())
}

pub fn measure(times: &mut Times) -> Result<()> {
    let (model, tokenizer) = (model("story-3m")?, tokenizer()?);
    times.measure("static", || fixed(&*model, &tokenizer))?;
    times.measure("continuous", || running(&*model, &tokenizer))
}

pub fn report(times: &Times, folder: &Path) -> Result<()> {
    let ratio = times.of("static")? / times.of("continuous")?;
    let [fixed, running] = rows()?;
    println!("tokens per second, continuous / static: {ratio:.2}");
    plot::save(folder, "day15_throughput.svg", &bars(&fixed, &running, ratio))
}

/// Draws the number of rows in each pass: static batches above, the continuous batch below.
fn bars(fixed: &[usize], running: &[usize], ratio: f64) -> String {
    let mut svg = plot::open(
        330,
        "Rows in every decoding pass: static batches run down to one \
        row, one after another; the running batch stays full almost to the end, and needs fewer \
        passes.",
    );
    let width = 600.0 / fixed.len().max(running.len()) as f64;
    for (rows, top, role, name) in
        [(fixed, 50.0, "known", "static batches"), (running, 200.0, "kept", "one running batch")]
    {
        let base = top + 12.0 * SIZE as f64;
        let _ = writeln!(
            svg,
            "<text class=\"left strong\" x=\"70\" y=\"{}\">{name}: {} passes</text>",
            top - 14.0,
            rows.len()
        );
        for (count, y) in [(SIZE, top), (0, base)] {
            let _ = writeln!(svg, "<text class=\"right note\" x=\"60\" y=\"{y}\">{count}</text>");
        }
        let _ = writeln!(svg, "<g class=\"{role}\">");
        for (i, count) in rows.iter().enumerate() {
            let (x, high) = (70.0 + width * i as f64, 12.0 * *count as f64);
            let _ = writeln!(
                svg,
                "<rect class=\"bar\" x=\"{x:.1}\" y=\"{:.1}\" \
                width=\"{width:.1}\" height=\"{high:.1}\"/>",
                base - high
            );
        }
        let _ = writeln!(svg, "</g>\n<path class=\"axis\" d=\"M70 {base}H670\"/>");
    }
    let _ = writeln!(
        svg,
        "<text class=\"note\" x=\"370\" y=\"318\">decoding passes, in order; \
        height: rows in the pass. Tokens per second, running / static: {ratio:.2}</text>\n</svg>"
    );
    svg
}
