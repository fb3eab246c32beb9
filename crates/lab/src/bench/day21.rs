//! Day 21: day 15's requests in a cache with a fixed number of positions, as one rectangle and in
//! pages.

use crate::shared::{counted, mix, model, scheduler, tokenizer};
use crate::tally::Tally;
use crate::times::Times;
use anyhow::Result;
use candecode::day07_greedy::Sequence;
use candecode::day21_pages::{PagedBatch, PagedCache};
use candecode::kit::{Model, Tokenizer};
use std::path::Path;

/// Number of positions in the cache.
const POSITIONS: usize = 512;
/// The block sizes to compare.
const BLOCK_SIZES: [usize; 3] = [4, 16, 64];

/// The passes of the model, prompts included, and sums over the steps after which something runs.
#[derive(Default)]
struct Sums {
    /// The passes of the model.
    passes: usize,
    steps: usize,
    running: usize,
    /// Positions taken by the running sequences, including padding and empty slots.
    taken: usize,
    /// Positions that hold a token.
    used: usize,
}

impl Sums {
    fn add(&mut self, running: usize, taken: usize, used: usize) {
        self.steps += 1;
        self.running += running;
        self.taken += taken;
        self.used += used;
    }

    /// The mean number of running sequences.
    fn at_once(&self) -> f64 {
        self.running as f64 / self.steps as f64
    }

    /// The share of the taken positions that hold no token.
    fn wasted(&self) -> String {
        format!("{:.1} %", 100.0 * (1.0 - self.used as f64 / self.taken as f64))
    }

    fn print(&self, name: &str, speed: f64) {
        let mean = |sum: usize| sum as f64 / self.steps as f64;
        println!(
            "{name:<14}{:>7}{:>11.2}{:>11.1}{:>8.1}{:>9}{speed:>7.2}",
            self.passes,
            self.at_once(),
            mean(self.taken),
            mean(self.used),
            self.wasted()
        );
    }
}

/// Serves the mix with day 15's scheduler, where every row takes as many positions as the longest.
fn rectangle(model: &dyn Model, tokenizer: &Tokenizer) -> Result<Sums> {
    let (mut sums, [passes, _]) = counted(model, |model| serve_rows(model, tokenizer))?;
    sums.passes = passes;
    Ok(sums)
}

/// Serves the mix from a pool of blocks. A sequence starts as soon as there are enough blocks for
/// its maximum length.
fn pages(model: &dyn Model, tokenizer: &Tokenizer, block_size: usize) -> Result<Sums> {
    let (mut sums, [passes, _]) =
        counted(model, |model| serve_pages(model, tokenizer, block_size))?;
    sums.passes = passes;
    Ok(sums)
}

/// The rectangle's steps.
fn serve_rows(model: &dyn Model, tokenizer: &Tokenizer) -> Result<Sums> {
    let mut scheduler = scheduler(model, tokenizer, POSITIONS);
    for request in mix(model) {
        scheduler.submit(request)?;
    }
    let mut sums = Sums::default();
    while !scheduler.is_idle() {
        scheduler.run_iteration()?;
        let held: Vec<_> =
            scheduler.running.iter().map(|row| row.sequence.tokens.len() - 1).collect();
        let widest =
            scheduler.running.iter().zip(&held).map(|(row, held)| row.padding + held).max();
        if let Some(widest) = widest {
            sums.add(held.len(), held.len() * widest, held.iter().sum());
        }
    }
    Ok(sums)
}

/// The steps over pages.
fn serve_pages(model: &dyn Model, tokenizer: &Tokenizer, block_size: usize) -> Result<Sums> {
    let blocks = POSITIONS / block_size;
    let cache = PagedCache::new(model.config().num_hidden_layers, blocks, block_size)?;
    let mut batch = PagedBatch::new(model, Vec::new(), cache);
    let most = |sequence: &Sequence| {
        let positions = sequence.prompt_len + sequence.request.max_new_tokens - 1;
        positions.div_ceil(block_size)
    };
    let sequences = mix(model).into_iter().map(|request| Sequence::new(request, tokenizer));
    let mut waiting = sequences.peekable();
    let mut sums = Sums::default();
    loop {
        let mut room = blocks - batch.running.iter().map(most).sum::<usize>();
        while let Some(sequence) = waiting.next_if(|sequence| most(sequence) <= room) {
            room -= most(&sequence);
            batch.running.push(sequence);
        }
        if batch.running.is_empty() {
            return Ok(sums);
        }
        batch.step()?;
        let taken = (blocks - batch.cache.pool.num_free()) * block_size;
        let used = batch.cache.tables.values().map(|table| table.len).sum();
        if taken > 0 {
            sums.add(batch.running.len(), taken, used);
        }
    }
}

pub fn count(tally: &mut Tally) -> Result<()> {
    let (model, tokenizer) = (model("story-3m")?, tokenizer()?);
    let (before, after) = (rectangle(&*model, &tokenizer)?, pages(&*model, &tokenizer, 16)?);
    tally.add("positions taken and not used; before: a rectangle", before.wasted(), after.wasted());
    let at_once = |sums: &Sums| format!("{:.2}", sums.at_once());
    tally.add("sequences at a time in 512 positions", at_once(&before), at_once(&after));
    tally.add("passes for 24 requests", before.passes, after.passes);
    Ok(())
}

pub fn measure(times: &mut Times) -> Result<()> {
    let (model, tokenizer) = (model("story-3m")?, tokenizer()?);
    times.measure("rectangle", || rectangle(&*model, &tokenizer).map(drop))?;
    for block_size in BLOCK_SIZES {
        let name = format!("blocks of {block_size}");
        times.measure(&name, || pages(&*model, &tokenizer, block_size).map(drop))?;
    }
    Ok(())
}

pub fn report(times: &Times, _: &Path) -> Result<()> {
    let (model, tokenizer) = (model("story-3m")?, tokenizer()?);
    println!("24 requests, a cache of {POSITIONS} positions");
    println!("               passes  sequences  positions    used   wasted  speed");
    rectangle(&*model, &tokenizer)?.print("rectangle", 1.0);
    for block_size in BLOCK_SIZES {
        let name = format!("blocks of {block_size}");
        let speed = times.of("rectangle")? / times.of(&name)?;
        pages(&*model, &tokenizer, block_size)?.print(&name, speed);
    }
    Ok(())
}
