//! Tests day 15's scheduler the way day 20's loop drives it.

use crate::common::tokenizer;
use candecode::day07_greedy::argmax;
use candecode::day12_batching::BatchCache;
use candecode::day15_scheduler::Scheduler;
use candecode::kit::{Batch, Cache, FinishReason, Model, ModelConfig};
use candecode::kit::{Request, SchedulerInterface, SchedulerLoad, Step, Token, Tokenizer};
use candecode_testing::least_config;
use candle_core::{bail, DType, Device, Result, Tensor};
use std::cell::RefCell;

const ONE: u32 = 431;
const OTHER: u32 = 428;

/// A model that repeats "a" forever, for at most `bound` passes. One of the passes may fail. A
/// token's key is its id, so a pass reads from the cache which rows it computes.
struct Repeating {
    config: ModelConfig,
    bound: usize,
    fails_at: usize,
    /// The first token of each row, for each pass.
    passes: RefCell<Vec<Vec<u32>>>,
}

impl Repeating {
    fn new(bound: usize, fails_at: usize) -> Self {
        let config = ModelConfig::from_json(&least_config("llama").to_string()).unwrap();
        let config = ModelConfig { vocab_size: 2048, max_position_embeddings: 64, ..config };
        Self { config, bound, fails_at, passes: RefCell::default() }
    }

    fn passes(&self) -> Vec<Vec<u32>> {
        self.passes.borrow().clone()
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
        let passes = self.passes.borrow().len() + 1;
        if passes == self.fails_at {
            self.passes.borrow_mut().push(Vec::new());
            bail!("the device is lost")
        }
        if passes > self.bound {
            bail!("the model was called {passes} times: does the loop ever end?")
        }
        let (rows, new) = step.ids.dims2()?;
        let keys = step.ids.to_dtype(DType::F32)?.reshape((rows, 1, new, 1))?;
        let mut keys_of_all = None;
        for layer in 0..self.config.num_hidden_layers {
            keys_of_all = Some(cache.append(layer, &keys, &keys)?.k);
        }
        let keys = keys_of_all.expect("there are layers").squeeze(3)?.squeeze(1)?;
        let keys = keys.to_vec2::<f32>()?;
        // A row's first token is the first column that its last one may attend to.
        let mask =
            step.mask.as_ref().map(|mask| mask.flatten_all()?.to_vec1::<u8>()).transpose()?;
        let all = keys[0].len();
        let first = |(row, keys): (usize, &Vec<f32>)| {
            let seen = |column: &usize| match &mask {
                Some(mask) => mask[(row * new + new - 1) * all + column] == 1,
                None => true,
            };
            (0..all).find(seen).map_or(0, |column| keys[column] as u32)
        };
        self.passes.borrow_mut().push(keys.iter().enumerate().map(first).collect());
        let mut logits = vec![0.0f32; 2048];
        logits[65] = 10.0;
        let logits = Tensor::from_vec(logits, (1, 1, 2048), &Device::Cpu)?;
        step.chosen(&logits.broadcast_as((rows, new, 2048))?.contiguous()?)
    }
}

fn scheduler<'a>(
    model: &'a Repeating,
    tokenizer: &'a Tokenizer,
    bound: usize,
) -> Box<dyn SchedulerInterface<'a> + 'a> {
    let caches: Box<dyn Fn() -> Box<dyn Batch>> = Box::new(|| Box::new(BatchCache::new(2, None)));
    Box::new(Scheduler::new(model, tokenizer, caches, bound))
}

fn request(model: &Repeating, id: usize, first: u32, most: usize) -> Request<'static> {
    let mut request = Request::new(model.config(), &[first], most, argmax);
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
    let model = Repeating::new(20, 0);
    let mut scheduler = scheduler(&model, &tokenizer, 5000);
    assert_eq!(rows(scheduler.step()), [0usize; 0]);
    for id in 0..3 {
        scheduler.submit(request(&model, id, ONE, 3)).unwrap();
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
fn a_request_waits_until_the_batch_has_room() {
    let tokenizer = tokenizer().unwrap();
    let model = Repeating::new(20, 0);
    // One row may grow to four tokens, and two rows to eight positions.
    let mut scheduler = scheduler(&model, &tokenizer, 7);
    scheduler.submit(request(&model, 0, ONE, 3)).unwrap();
    scheduler.submit(request(&model, 1, ONE, 3)).unwrap();
    assert_eq!(rows(scheduler.step()), [0]);
    assert_eq!(rows(scheduler.step()), [0]);
    assert_eq!(scheduler.load(), load(1, 1));
    assert_eq!(rows(scheduler.step()), [0]);
    assert_eq!(rows(scheduler.step()), [1]);
    assert!(scheduler.submit(request(&model, 2, ONE, 60)).is_err());
}

#[test]
fn one_token_requests_do_not_stall_the_batch() {
    let tokenizer = tokenizer().unwrap();
    let model = Repeating::new(40, 0);
    let mut scheduler = scheduler(&model, &tokenizer, 5000);
    scheduler.submit(request(&model, 0, ONE, 6)).unwrap();
    assert_eq!(rows(scheduler.step()), [0]);
    for id in 1..6 {
        scheduler.submit(request(&model, id, OTHER, 1)).unwrap();
        let tokens = scheduler.step().unwrap();
        assert_eq!(tokens[0].finish, Some(FinishReason::Length));
        assert_eq!(rows(Ok(tokens)), [id, 0]);
    }
    assert_eq!(scheduler.load(), load(0, 0));
}

#[test]
fn a_canceled_row_runs_in_at_most_one_more_pass() {
    let tokenizer = tokenizer().unwrap();
    let model = Repeating::new(20, 0);
    let mut scheduler = scheduler(&model, &tokenizer, 5000);
    scheduler.submit(request(&model, 0, ONE, 9)).unwrap();
    scheduler.submit(request(&model, 1, OTHER, 9)).unwrap();
    scheduler.cancel(1); // it is waiting
    scheduler.cancel(77); // unknown row
    assert_eq!(scheduler.load(), load(1, 0));
    scheduler.step().unwrap();
    assert!(!model.passes().concat().contains(&OTHER));

    scheduler.submit(request(&model, 2, OTHER, 9)).unwrap();
    scheduler.step().unwrap();
    scheduler.step().unwrap();
    scheduler.cancel(2); // it is running
    let before = model.passes().len();
    for _ in 0..6 {
        let tokens = scheduler.step().unwrap();
        assert!(tokens.iter().any(|token| token.row == 0));
        assert_eq!(scheduler.load(), load(0, 1));
    }
    let of_it = model.passes()[before..].iter().filter(|rows| rows.contains(&OTHER)).count();
    assert_eq!(of_it, 1);
}

#[test]
fn a_failed_pass_leaves_the_scheduler_empty_and_usable() {
    let tokenizer = tokenizer().unwrap();
    // The second pass is a prefill, and the third is a pass over the batch.
    for (fails_at, steps) in [(2, 1), (3, 2)] {
        let model = Repeating::new(20, fails_at);
        let mut scheduler = scheduler(&model, &tokenizer, 5000);
        for id in 0..2 {
            scheduler.submit(request(&model, id, ONE, 9)).unwrap();
        }
        for _ in 0..steps {
            scheduler.step().unwrap();
        }
        if fails_at == 2 {
            scheduler.submit(request(&model, 2, ONE, 9)).unwrap();
        }
        assert!(scheduler.step().unwrap_err().to_string().contains("the device is lost"));
        assert_eq!(scheduler.load(), load(0, 0));
        scheduler.submit(request(&model, 3, OTHER, 3)).unwrap();
        for _ in 0..3 {
            assert_eq!(rows(scheduler.step()), [3]);
        }
        assert_eq!(scheduler.load(), load(0, 0));
    }
}
