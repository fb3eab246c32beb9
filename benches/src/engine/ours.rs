//! Our own runs, each in a process of its own.

use crate::contender::{line, ours};
use crate::Args;
use anyhow::{bail, Result};
use benches::{request, text_of};
use candecode::day07_greedy::argmax;
use candecode::day10_kv_cache::{Cached, DynamicCache, StaticCache};
use candecode::day13_speculative::{decode_block, NgramDrafter, SpeculativeDecoder};
use candecode::engine::load::{load_transformer, quantized_format};
use candecode::engine::operations;
use candecode::engine::CacheKind;
use candecode::kernels;
use candecode::kit::WeightFormat;
use candecode::kit::{device, Cache, Logits, Model, QuantType, Step, Tokenizer};
use candle_core::Tensor;
use serde_json::{json, Value};
use std::path::Path;
use std::time::Instant;

/// One run of ours, as a line of JSON.
///
/// # Errors
/// If the model cannot be read, or fails.
pub fn run(what: &str, dir: &Path, ids: &[u32], args: &Args) -> Result<Value> {
    let format = match args.dtype.as_str() {
        "stored" => WeightFormat::AsStored,
        "q8_0" => quantized_format(QuantType::Q8_0),
        "q4_0" => quantized_format(QuantType::Q4_0),
        name => device::dtype(name)?.into(),
    };
    let device = device::device(&args.device)?;
    let ops = operations::choose(Some(args.kernels), &device);
    let model = load_transformer(dir, format, &device, &ops)?;
    match what {
        "engine" => {
            engine(&model, ids, args, 2)?;
            engine(&model, ids, args, args.new)
        }
        "verify" => verify(&model, ids),
        "speculate" => speculate(&model, &candecode::formats::read_tokenizer(dir)?, args.new),
        _ => bail!("no run {what}"),
    }
}

/// Runs `what` so often, in processes of their own.
///
/// # Errors
/// If one fails.
pub fn measure(what: &str, args: &Args, rounds: usize) -> Result<Vec<Value>> {
    let command = ours(args, what, &[])?;
    (0..rounds).map(|_| line(what, &command)).collect()
}

/// The best token of every row.
fn best(logits: &Tensor) -> Result<Vec<u32>> {
    let rows: Vec<Vec<f32>> = logits.to_vec2()?;
    Ok(rows.iter().map(|row| argmax(row)).collect::<candle_core::Result<_>>()?)
}

fn pass(model: &dyn Model, rows: &[Vec<u32>], cache: &mut dyn Cache) -> Result<Vec<u32>> {
    let at = cache.len();
    let positions: Vec<u32> = (at..at + rows[0].len()).map(|p| p as u32).collect();
    let step = Step::batch(model, rows, &vec![positions; rows.len()], None)?;
    best(&model.forward(&step.with_logits(Logits::Last(1)), cache)?.squeeze(1)?)
}

/// Prefill and decode of equal rows, greedy.
fn engine(model: &dyn Model, ids: &[u32], args: &Args, new: usize) -> Result<Value> {
    let kind = match args.cache.as_str() {
        "static" => CacheKind::Static(ids.len() + new),
        _ => CacheKind::Dynamic,
    };
    let mut cache = kind.new_cache(model.config().num_hidden_layers);
    let begun = Instant::now();
    let mut last = pass(model, &vec![ids.to_vec(); args.batch], &mut *cache)?;
    let prefill_s = begun.elapsed().as_secs_f64();
    let read = kernels::bytes_read();
    let (begun, mut tokens) = (Instant::now(), vec![last[0]]);
    for _ in 1..new {
        let rows: Vec<Vec<u32>> = last.iter().map(|id| vec![*id]).collect();
        last = pass(model, &rows, &mut *cache)?;
        tokens.push(last[0]);
    }
    let decode_s = begun.elapsed().as_secs_f64();
    let bytes = (kernels::bytes_read() - read) as f64 / (new - 1) as f64;
    Ok(json!({ "prefill_s": prefill_s, "decode_s": decode_s, "tokens": tokens, "bytes": bytes }))
}

/// Tokens of a pass that verifies.
pub const VERIFIED: [usize; 8] = [1, 2, 3, 4, 5, 6, 8, 16];

/// Seconds of a pass over m new tokens with all their logits behind a prompt, the fastest of many,
/// by turns.
fn verify(model: &dyn Model, ids: &[u32]) -> Result<Value> {
    let mut cache = StaticCache::new(model.config().num_hidden_layers, ids.len() + 16);
    pass(model, &[ids.to_vec()], &mut cache)?;
    let mut seconds = [f64::INFINITY; VERIFIED.len()];
    for _ in 0..25 {
        for (seconds, m) in seconds.iter_mut().zip(VERIFIED) {
            let step = Step::new(model, &ids[..m], cache.len())?;
            let begun = Instant::now();
            let logits = model.forward(&step, &mut cache)?;
            logits.to_vec3::<f32>()?;
            *seconds = seconds.min(begun.elapsed().as_secs_f64());
            cache.truncate(ids.len())?;
        }
    }
    Ok(json!({ "seconds": seconds.to_vec() }))
}

/// A text that repeats: plain, and with n-grams as drafts of 2 to 8 tokens. Seconds, and tokens a
/// pass.
fn speculate(model: &dyn Model, tokenizer: &Tokenizer, new: usize) -> Result<Value> {
    let prompt = tokenizer.encode(&"Tom sees a cat. The cat sees Tom. ".repeat(8))?;
    let begun = Instant::now();
    let plain = text_of(model, tokenizer, &prompt, new)?;
    let plain_s = begun.elapsed().as_secs_f64();
    let mut rows = vec![];
    for k in [2, 4, 8] {
        let drafter = Box::new(NgramDrafter { n: 2, vocab_size: model.config().vocab_size });
        let cache = DynamicCache::new(model.config().num_hidden_layers);
        let target = Cached::new(model, Box::new(cache));
        let request = request(model, &prompt, new);
        let mut decoder = SpeculativeDecoder::new(target, tokenizer, request, drafter, k)?;
        let begun = Instant::now();
        while decode_block(&mut decoder)?.last().is_some_and(|token| token.finish.is_none()) {}
        let seconds = begun.elapsed().as_secs_f64();
        let same = decoder.sequence.tokens[prompt.len()..] == plain[..];
        let a_pass = decoder.counts.written as f64 / decoder.counts.passes.max(1) as f64;
        rows.push(json!({ "k": k, "seconds": seconds, "a_pass": a_pass, "same": same }));
    }
    Ok(json!({ "plain_s": plain_s, "rows": rows }))
}
