//! A mix of short and long requests, served in static batches or by the scheduler.

use crate::{batch_cache, request};
use candecode::day12_batching::{generate_batch, BatchCache};
use candecode::day15_scheduler::Scheduler;
use candecode::kit::{Batch, Cache, Model, ModelConfig, Step, Tokenizer};
use candle_core::{Device, Result, Tensor};
use std::cell::RefCell;

/// At most so many rows in a batch.
pub const SIZE: usize = 8;

/// Prompts, and how many tokens each wants: 24 requests, every fourth of them long (48 to 64), the
/// others short (4 to 16).
pub fn mix() -> Vec<(Vec<u32>, usize)> {
    let wants = |i: usize| if i.is_multiple_of(4) { 48 + 7 * i % 17 } else { 4 + 5 * i % 13 };
    (0..24).map(|i| ((300..304 + i as u32 % 6).collect(), wants(i))).collect()
}

/// Static batches of [`SIZE`], each run until all of it have ended.
///
/// # Errors
/// If the model fails.
pub fn fixed(model: &dyn Model, tokenizer: &Tokenizer, mix: &[(Vec<u32>, usize)]) -> Result<()> {
    for chunk in mix.chunks(SIZE) {
        let mut requests = Vec::new();
        for (prompt, wanted) in chunk {
            requests.push(request(model, prompt, *wanted));
        }
        let tokens = generate_batch(model, tokenizer, requests, Box::new(batch_cache(model)))?;
        tokens.collect::<Result<Vec<_>>>()?;
    }
    Ok(())
}

/// One running batch of at most [`SIZE`] rows: the scheduler is fed as soon as a row is free.
///
/// # Errors
/// If the model fails.
pub fn running(model: &dyn Model, tokenizer: &Tokenizer, mix: &[(Vec<u32>, usize)]) -> Result<()> {
    let layers = model.config().num_hidden_layers;
    let new_cache = Box::new(move || Box::new(BatchCache::new(layers, None)) as Box<dyn Batch>);
    let mut scheduler = Scheduler::new(model, tokenizer, new_cache, usize::MAX);
    let mut queue = mix.iter().enumerate();
    loop {
        while scheduler.running.len() + scheduler.waiting.len() < SIZE {
            let Some((id, (prompt, wanted))) = queue.next() else { break };
            let mut request = request(model, prompt, *wanted);
            request.id = id;
            scheduler.submit(request)?;
        }
        if scheduler.is_idle() {
            return Ok(());
        }
        scheduler.step()?;
    }
}

/// A model that notes how many rows every decoding pass had.
pub struct Counted<'a> {
    model: &'a dyn Model,
    /// Rows of every pass over one new token a row, in order.
    pub rows: RefCell<Vec<usize>>,
}

impl<'a> Counted<'a> {
    /// Nothing noted yet.
    pub fn new(model: &'a dyn Model) -> Self {
        Self { model, rows: RefCell::default() }
    }
}

impl Model for Counted<'_> {
    fn config(&self) -> &ModelConfig {
        self.model.config()
    }

    fn device(&self) -> &Device {
        self.model.device()
    }

    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> Result<Tensor> {
        let (rows, width) = step.ids.dims2()?;
        if width == 1 {
            self.rows.borrow_mut().push(rows);
        }
        self.model.forward(step, cache)
    }
}
