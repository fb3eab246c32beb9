//! Helpers shared by the benchmarks: the story models, the reference's generation loops, and a
//! description of the machine.

use crate::args::Args;
use anyhow::{ensure, Result};
use candecode::day05_model::Transformer;
use candecode::day07_greedy::{argmax, log_softmax};
use candecode::day10_kv_cache::{generate_cached, Cached, DynamicCache};
use candecode::day12_batching::BatchCache;
use candecode::day15_scheduler::Scheduler;
use candecode::kit::panics::Unwritten;
use candecode::kit::{Batch, Cache, Logits, Model, NoCache, Request, Step, Tokenizer};
use candecode_course::Repo;
use candecode_engine::load::load_transformer;
use candecode_engine::operations;
use candecode_engine::score::{trace, Counted};
use candecode_formats::{hub, read_tokenizer};
use candecode_remote::hub::Hub;
use candle_core::{DType, Device, Tensor};
use std::collections::BTreeSet;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use xtask::cargo;

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new(".")).into()
}

/// Returns the path of a model, which is downloaded if necessary.
///
/// # Errors
/// If there is no such model, or it can't be downloaded.
pub fn locate(name: &str) -> Result<PathBuf> {
    hub::locate(name, Some(&Hub { offline: false }))
}

/// Returns the folder for plots.
///
/// # Errors
/// If the repository can't be read.
pub fn results(args: &Args) -> Result<PathBuf> {
    Ok(match &args.out {
        Some(folder) => folder.clone(),
        None => cargo::target_dir(&Repo::open(&root())?).join("bench"),
    })
}

/// Loads a model in f32 on the CPU, with the kernels that the command chooses by default.
///
/// # Errors
/// If it can't be read.
pub fn transformer(name: &str) -> Result<Transformer> {
    let ops = operations::choose(None, &Device::Cpu);
    load_transformer(&locate(name)?, DType::F32, &Device::Cpu, &ops)
}

/// Returns the same as a [`Model`].
///
/// # Errors
/// If it can't be read.
pub fn model(name: &str) -> Result<Box<dyn Model>> {
    Ok(Box::new(transformer(name)?))
}

/// Loads story-3m in f32 on the CPU, with the days' own tensor operations.
///
/// # Errors
/// If it can't be read.
pub fn plain_story() -> Result<Transformer> {
    load_transformer(&locate("story-3m")?, DType::F32, &Device::Cpu, &operations::plain())
}

/// Loads the story models' tokenizer.
///
/// # Errors
/// If it can't be read.
pub fn tokenizer() -> Result<Tokenizer> {
    read_tokenizer(&locate("story-3m")?)
}

/// Returns an empty growing cache for one sequence.
pub fn cache(model: &dyn Model) -> DynamicCache {
    DynamicCache::new(model.config().num_hidden_layers)
}

/// Returns an empty growing cache for a batch.
pub fn batch_cache(model: &dyn Model) -> BatchCache {
    BatchCache::new(model.config().num_hidden_layers, None)
}

/// Returns a tensor of normally distributed numbers.
///
/// # Errors
/// If candle fails.
pub fn random(shape: &[usize]) -> candle_core::Result<Tensor> {
    Tensor::randn(0f32, 1.0, shape, &Device::Cpu)
}

/// Returns a greedy request for exactly `new` tokens. It has no EOS, so every run does the same
/// work.
pub fn request<'a>(model: &dyn Model, prompt: &[u32], new: usize) -> Request<'a> {
    let mut request = Request::new(model.config(), prompt, new, argmax);
    request.eos_token_ids.clear();
    request
}

/// Returns day 15's 24 requests, of very different lengths.
pub fn mix(model: &dyn Model) -> Vec<Request<'static>> {
    let request = |(id, (prompt, new)): (usize, (Vec<u32>, usize))| Request {
        id,
        ..request(model, &prompt, new)
    };
    trace().into_iter().enumerate().map(request).collect()
}

/// Returns day 15's scheduler with a growing cache, for at most `positions` positions.
pub fn scheduler<'a>(
    model: &'a dyn Model,
    tokenizer: &'a Tokenizer,
    positions: usize,
) -> Scheduler<'a> {
    let layers = model.config().num_hidden_layers;
    let new_cache = Box::new(move || Box::new(BatchCache::new(layers, None)) as Box<dyn Batch>);
    Scheduler::new(model, tokenizer, new_cache, positions)
}

/// Returns the ids of a prompt and its greedy continuation, `len` in total.
///
/// # Errors
/// If the prompt is longer than `len`, or the model fails.
pub fn text(model: &dyn Model, prompt: &str, len: usize) -> Result<Vec<u32>> {
    let tokenizer = tokenizer()?;
    let mut ids = tokenizer.encode(prompt)?;
    ensure!(ids.len() <= len, "the prompt has {} tokens, more than {len}", ids.len());
    let more = text_of(model, &tokenizer, request(model, &ids, len - ids.len()))?;
    ids.extend(more);
    Ok(ids)
}

/// Returns the tokens generated for a request.
///
/// # Errors
/// If the model fails.
pub fn text_of(model: &dyn Model, tokenizer: &Tokenizer, request: Request) -> Result<Vec<u32>> {
    let cached = Cached::new(model, Box::new(cache(model)));
    let tokens = generate_cached(cached, tokenizer, request)?;
    tokens.map(|token| Ok(token?.id)).collect()
}

/// Returns the logits after the last of `ids`, `(V)`. The cache must hold everything before `ids`.
///
/// # Errors
/// If the model fails.
pub fn logits(model: &dyn Model, ids: &[u32], cache: &mut dyn Cache) -> Result<Vec<f32>> {
    let step = Step::new(model, ids, cache.len())?.with_logits(Logits::Last(1));
    Ok(model.forward(&step, cache)?.flatten_all()?.to_vec1()?)
}

/// Returns the most likely token of every row of `(B, V)`.
///
/// # Errors
/// If a row contains NaN.
pub fn best(logits: &Tensor) -> Result<Vec<u32>> {
    let rows: Vec<Vec<f32>> = logits.to_vec2()?;
    Ok(rows.iter().map(|row| argmax(row)).collect::<candle_core::Result<_>>()?)
}

/// Returns the log probabilities of all tokens at every position of a text, evaluated in one pass.
///
/// # Errors
/// If the model fails.
pub fn log_probs(model: &dyn Model, ids: &[u32], cache: &mut dyn Cache) -> Result<Vec<Vec<f32>>> {
    let step = Step::new(model, ids, 0)?.with_logits(Logits::All);
    let logits = model.forward(&step, cache)?.squeeze(0)?.to_vec2::<f32>()?;
    Ok(logits.iter().map(|row| log_softmax(row)).collect::<candle_core::Result<_>>()?)
}

/// Returns whether no earlier call had this task. A benchmark reaches an open one again and again,
/// in every round.
fn is_new(task: &Unwritten) -> bool {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(task.task.clone())
}

/// Runs work that reaches a task which a reader may leave open. If it isn't written, says so, once
/// for each task, and returns None.
///
/// # Errors
/// If the work fails.
pub fn if_written<T>(work: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done.map(Some),
        Err(panic) => match Unwritten::of(&*panic) {
            Some(task) => {
                if is_new(&task) {
                    eprintln!("[left out: {task}]");
                }
                Ok(None)
            }
            None => resume_unwind(panic),
        },
    }
}

/// Returns the mean loss of a model over the held-out stories, in nats per token.
///
/// # Errors
/// If the stories can't be read, or the model fails.
pub fn loss(model: &dyn Model) -> Result<f64> {
    let (mut sum, mut count) = (0.0, 0);
    for ids in held_out_stories(&tokenizer()?)? {
        let step = Step::new(model, &ids, 0)?;
        let rows = model.forward(&step, &mut NoCache)?.squeeze(0)?.to_vec2::<f32>()?;
        for (row, id) in rows.iter().zip(&ids[1..]) {
            // A model without a piece can compute a NaN, which day 7 refuses.
            let largest = row.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
            let all: f64 = row.iter().map(|logit| f64::from(logit - largest).exp()).sum();
            sum += all.ln() - f64::from(row[*id as usize] - largest);
            count += 1;
        }
    }
    Ok(sum / f64::from(count))
}

/// Runs some work with a model that is watched. Returns the result, and the passes and positions
/// that were computed.
///
/// # Errors
/// If the work fails.
pub fn counted<T>(
    model: &dyn Model,
    work: impl FnOnce(&dyn Model) -> Result<T>,
) -> Result<(T, [usize; 2])> {
    let counted = Counted::new(model);
    let found = work(&counted)?;
    Ok((found, [counted.passes(), counted.positions()]))
}

/// Returns the tokens of the held-out stories, which no model was trained on.
///
/// # Errors
/// If the file can't be read.
pub fn held_out_stories(tokenizer: &Tokenizer) -> Result<Vec<Vec<u32>>> {
    let text = std::fs::read_to_string(root().join("crates/lab/held_out_stories.txt"))?;
    text.trim().split("\n\n").map(|story| Ok(tokenizer.encode(story)?)).collect()
}

/// Describes the processor and the kernels used on it.
pub fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("model name"));
    let name = line.map(|line| line.trim_start_matches([' ', '\t', ':']).trim().to_string());
    let name = name.or_else(|| said("sysctl", &["-n", "machdep.cpu.brand_string"]));
    let name = name.unwrap_or_else(|| std::env::consts::ARCH.to_string());
    format!("{name}, kernels {}", operations::choose(None, &Device::Cpu).describe(true))
}

/// Returns a program's output, if it succeeds and prints anything.
fn said(program: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(program).args(args).current_dir(root()).output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout).trim().to_string();
    Some(text).filter(|text| out.status.success() && !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_is_not_written_is_left_out_and_named_once() {
        let reach = || -> Result<u8> { todo!("day 99, task 1: a test") };
        assert!(if_written(reach).unwrap().is_none());
        let task = Unwritten::reached_by(reach).unwrap();
        assert!(!is_new(&task), "named already");
        assert!(is_new(&Unwritten { task: "99.2".to_string(), title: task.title }));
        assert_eq!(if_written(|| Ok(1)).unwrap(), Some(1));
    }
}
