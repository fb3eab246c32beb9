//! Tests the part of day 15's scheduler that day 20's loop drives.

use crate::common::tokenizer;
use candecode::day07_greedy::argmax;
use candecode::day12_batching::BatchCache;
use candecode::day15_scheduler::Scheduler;
use candecode::kit::{Batch, Cache, FinishReason, Model, ModelConfig};
use candecode::kit::{Request, SchedulerInterface, SchedulerLoad, Step, Token, Tokenizer};
use candecode_testing::least_config;
use candle_core::{bail, DType, Device, Result, Tensor};
use std::cell::Cell;

/// A model that repeats "a" forever. One of its passes may fail.
struct Repeating {
    config: ModelConfig,
    fails_at: usize,
    passes: Cell<usize>,
}

impl Repeating {
    fn new(fails_at: usize) -> Self {
        let config = ModelConfig::from_json(&least_config("llama").to_string()).unwrap();
        let config = ModelConfig { vocab_size: 2048, max_position_embeddings: 64, ..config };
        Self { config, fails_at, passes: Cell::new(0) }
    }
}

impl Model for Repeating {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn device(&self) -> &Device {
        &Device::Cpu
    }

    fn forward(&self, step: &Step, cache: &mut dyn Cache) -> Result<Tensor> {
        self.passes.set(self.passes.get() + 1);
        if self.passes.get() == self.fails_at {
            bail!("the device is lost")
        }
        let (rows, new) = step.ids.dims2()?;
        let keys = step.ids.to_dtype(DType::F32)?.reshape((rows, 1, new, 1))?;
        for layer in 0..self.config.num_hidden_layers {
            cache.append(layer, &keys, &keys)?;
        }
        let mut logits = vec![0.0f32; 2048];
        logits[65] = 10.0;
        let logits = Tensor::from_vec(logits, (1, 1, 2048), &Device::Cpu)?;
        step.chosen(&logits.broadcast_as((rows, new, 2048))?.contiguous()?)
    }
}

fn scheduler<'a>(
    model: &'a Repeating,
    tokenizer: &'a Tokenizer,
) -> Box<dyn SchedulerInterface<'a> + 'a> {
    let caches: Box<dyn Fn() -> Box<dyn Batch>> = Box::new(|| Box::new(BatchCache::new(2, None)));
    Box::new(Scheduler::new(model, tokenizer, caches, 5000))
}

fn request(model: &Repeating, id: usize, most: usize) -> Request<'static> {
    let mut request = Request::new(model.config(), &[431], most, argmax);
    request.id = id;
    request
}

/// Returns the rows these tokens belong to.
fn rows(tokens: Result<Vec<Token>>) -> Vec<usize> {
    tokens.unwrap().iter().map(|token| token.row).collect()
}

fn load(waiting: usize, running: usize) -> SchedulerLoad {
    SchedulerLoad { waiting, running }
}

#[test]
fn a_step_is_one_prefill_or_one_pass_over_the_batch() {
    let tokenizer = tokenizer().unwrap();
    let model = Repeating::new(0);
    let mut scheduler = scheduler(&model, &tokenizer);
    assert_eq!(rows(scheduler.step()), [0usize; 0]);
    for id in 0..3 {
        scheduler.submit(request(&model, id, 3)).unwrap();
    }
    assert_eq!(scheduler.load(), load(3, 0));
    for (want, after) in [
        (vec![0], load(2, 1)),
        (vec![1], load(1, 2)),
        (vec![2], load(0, 3)),
        (vec![0, 1, 2], load(0, 3)),
        (vec![0, 1, 2], load(0, 0)),
        (vec![], load(0, 0)),
    ] {
        assert_eq!(rows(scheduler.step()), want);
        assert_eq!(scheduler.load(), after);
    }
}

#[test]
fn one_token_requests_do_not_stall_the_batch() {
    let tokenizer = tokenizer().unwrap();
    let model = Repeating::new(0);
    let mut scheduler = scheduler(&model, &tokenizer);
    scheduler.submit(request(&model, 0, 6)).unwrap();
    assert_eq!(rows(scheduler.step()), [0]);
    for id in 1..6 {
        scheduler.submit(request(&model, id, 1)).unwrap();
        let tokens = scheduler.step().unwrap();
        assert_eq!(tokens[0].finish, Some(FinishReason::Length));
        assert_eq!(rows(Ok(tokens)), [id, 0]);
    }
    assert_eq!(scheduler.load(), load(0, 0));
}

#[test]
fn a_canceled_row_runs_in_at_most_one_more_pass() {
    let tokenizer = tokenizer().unwrap();
    let model = Repeating::new(0);
    let mut scheduler = scheduler(&model, &tokenizer);
    for id in 0..3 {
        scheduler.submit(request(&model, id, 9)).unwrap();
    }
    scheduler.cancel(1); // it is waiting
    scheduler.cancel(77); // unknown row
    assert_eq!(scheduler.load(), load(2, 0));
    for want in [vec![0], vec![2], vec![0, 2]] {
        assert_eq!(rows(scheduler.step()), want);
    }
    scheduler.cancel(2); // it is running
    scheduler.step().unwrap();
    assert_eq!(scheduler.load(), load(0, 1));
    assert_eq!(rows(scheduler.step()), [0]);
}

#[test]
fn a_failed_pass_leaves_the_scheduler_empty_and_usable() {
    let tokenizer = tokenizer().unwrap();
    // Of three requests, the second pass is a prefill. Of two, the third is a pass over the batch.
    for (requests, fails_at) in [(3, 2), (2, 3)] {
        let model = Repeating::new(fails_at);
        let mut scheduler = scheduler(&model, &tokenizer);
        for id in 0..requests {
            scheduler.submit(request(&model, id, 9)).unwrap();
        }
        for _ in 1..fails_at {
            scheduler.step().unwrap();
        }
        assert!(scheduler.step().unwrap_err().to_string().contains("the device is lost"));
        assert_eq!(scheduler.load(), load(0, 0));
        scheduler.submit(request(&model, 3, 3)).unwrap();
        for _ in 0..3 {
            assert_eq!(rows(scheduler.step()), [3]);
        }
        assert_eq!(scheduler.load(), load(0, 0));
    }
}
