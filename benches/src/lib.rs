//! What the benchmarks share: the story models, prompts, and the loops of the reference to be
//! timed.

#![warn(missing_docs)]

pub mod estimates;
pub mod kernel_sizes;
pub mod machine;
pub mod plot;
pub mod serving;

use candecode::day07_greedy::argmax;
use candecode::day10_kv_cache::{generate_cached, Cached, DynamicCache};
use candecode::day12_batching::BatchCache;
use candecode::engine::{load::load_transformer, operations};
use candecode::formats::hub;
use candecode::kit::{Cache, Model, Request, Tokenizer};
use candle_core::{DType, Device, Result};
use std::path::PathBuf;

/// `main` of a program of benchmarks: as the command, it computes on a thread of the pool.
#[macro_export]
macro_rules! benchmarks {
    ($group:ident) => {
        fn main() {
            candecode::kernels::set_threads();
            candecode::kernels::in_pool(|| {
                $group();
                criterion::Criterion::default().configure_from_args().final_summary();
            });
        }
    };
}

/// The root of the repository.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn folder(name: &str) -> Result<PathBuf> {
    hub::locate(name, false).map_err(|e| candle_core::Error::Msg(format!("{e:#}")))
}

/// An embedded model, in f32 on the CPU, with the kernels of the command that it dispatches to.
///
/// # Errors
/// If it cannot be read.
pub fn model(name: &str) -> Result<Box<dyn Model>> {
    let ops = operations::choose(None, &Device::Cpu);
    match load_transformer(&folder(name)?, DType::F32, &Device::Cpu, &ops) {
        Ok(model) => Ok(Box::new(model)),
        Err(e) => Err(candle_core::Error::Msg(format!("{e:#}"))),
    }
}

/// The tokenizer of the story models.
///
/// # Errors
/// If it cannot be read.
pub fn tokenizer() -> Result<Tokenizer> {
    candecode::formats::read_tokenizer(&folder("story-3m")?)
        .map_err(|e| candle_core::Error::Msg(format!("{e:#}")))
}

/// An empty growing cache, for one text.
pub fn cache(model: &dyn Model) -> DynamicCache {
    DynamicCache::new(model.config().num_hidden_layers)
}

/// An empty growing cache, for a batch.
pub fn batch_cache(model: &dyn Model) -> BatchCache {
    BatchCache::new(model.config().num_hidden_layers, None)
}

/// A greedy request for exactly `new` tokens: nothing ends it early, so that every run does the
/// same work.
pub fn request<'a>(model: &dyn Model, prompt: &[u32], new: usize) -> Request<'a> {
    let mut request = Request::new(model.config(), prompt, new, argmax);
    request.eos_token_ids.clear();
    request
}

/// The ids of a prompt and of the greedy text after it, `len` in all.
///
/// # Errors
/// If the prompt is longer than that, or the model fails.
pub fn text(model: &dyn Model, prompt: &str, len: usize) -> Result<Vec<u32>> {
    let tokenizer = tokenizer()?;
    let mut ids = tokenizer.encode(prompt)?;
    let Some(new) = len.checked_sub(ids.len()) else {
        candle_core::bail!("the prompt has {} tokens, more than {len}", ids.len())
    };
    let more = text_of(model, &tokenizer, &ids, new)?;
    ids.extend(more);
    Ok(ids)
}

/// The greedy tokens after a prompt, `new` of them.
///
/// # Errors
/// If the model fails.
pub fn text_of(
    model: &dyn Model,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    new: usize,
) -> Result<Vec<u32>> {
    let cached = Cached::new(model, Box::new(cache(model)));
    let tokens = generate_cached(cached, tokenizer, request(model, prompt, new))?;
    tokens.map(|token| Ok(token?.id)).collect()
}

/// Logits of the last of `ids`, `(V)`, after what the cache holds.
///
/// # Errors
/// If the model fails.
pub fn logits(model: &dyn Model, ids: &[u32], cache: &mut dyn Cache) -> Result<Vec<f32>> {
    use candecode::kit::{Logits, Step};
    let step = Step::new(model, ids, cache.len())?.with_logits(Logits::Last(1));
    model.forward(&step, cache)?.flatten_all()?.to_vec1()
}
