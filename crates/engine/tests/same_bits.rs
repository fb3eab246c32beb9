//! Checks that a text gets the same bits regardless of what runs with it: the logits after its last
//! token, computed in every way the engine supports. `book/src/same_bits.md` shows the table.

#![cfg(feature = "ref")]

use candecode::day07_greedy::{argmax, Sequence};
use candecode::day10_kv_cache::DynamicCache;
use candecode::day12_batching::{prefill_step, BatchCache, Row};
use candecode::day21_pages::{varlen_step, NewTokens, PagedCache};
use candecode::day22_shared_prefixes::{attach_prefix, PrefixCache};
use candecode::kit::{Logits, Model, QuantType, Request, Step, WeightFormat};
use candecode_engine::load::{load_transformer, quantized_format};
use candecode_engine::operations::{choose, Kernels};
use candecode_formats::{hub, read_tokenizer};
use candecode_kernels::InstructionSet;
use candle_core::{DType, Device, Tensor};
use std::fmt::Write as _;

/// Returns the text: 150 tokens, more than two tiles of the kernels and more than nine blocks of
/// 16.
fn text() -> Vec<u32> {
    (0..150).map(|i| 300 + (i * i * 7 + i * 13) % 900).collect()
}

/// Returns another text, to run alongside the first.
fn other() -> Vec<u32> {
    (0..91).map(|i| 310 + (i * 31) % 800).collect()
}

fn bits(logits: &Tensor) -> Vec<u32> {
    let numbers = logits.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    numbers.into_iter().map(f32::to_bits).collect()
}

/// Returns the logits after the text, in passes of `chunk` tokens.
fn in_passes(model: &dyn Model, chunk: usize) -> Vec<u32> {
    let mut cache = DynamicCache::new(model.config().num_hidden_layers);
    let mut last = Vec::new();
    for (i, ids) in text().chunks(chunk).enumerate() {
        let step = Step::new(model, ids, i * chunk).unwrap().with_logits(Logits::Last(1));
        last = bits(&model.forward(&step, &mut cache).unwrap());
    }
    last
}

/// Returns the logits after the text, in a batch with a shorter and a longer row.
fn in_a_batch(model: &dyn Model) -> Vec<u32> {
    let tokenizer = read_tokenizer(&hub::locate("story-3m", None).unwrap()).unwrap();
    let longer = [other(), other()].concat();
    let texts = [other(), text(), longer];
    let row = |ids: &Vec<u32>| {
        let request = Request::new(model.config(), ids, 1, argmax);
        Row::new(Sequence::new(request, &tokenizer))
    };
    let mut rows: Vec<Row> = texts.iter().map(row).collect();
    let step = prefill_step(model, &mut rows).unwrap();
    let mut cache = BatchCache::new(model.config().num_hidden_layers, None);
    bits(&model.forward(&step, &mut cache).unwrap().narrow(0, 1, 1).unwrap())
}

fn pages(model: &dyn Model, block_size: usize) -> PagedCache {
    PagedCache::new(model.config().num_hidden_layers, 1024 / block_size, block_size).unwrap()
}

/// Computes some tokens of sequences in one varlen batch. Returns the bits after the last of each.
fn line(model: &dyn Model, cache: &mut PagedCache, parts: &[(usize, &[u32])]) -> Vec<Vec<u32>> {
    let new = |(sequence, ids): &(usize, &[u32])| {
        let start = cache.len_of(*sequence);
        (*sequence, start, ids.to_vec())
    };
    let parts: Vec<_> = parts.iter().map(new).collect();
    let new: Vec<_> = parts
        .iter()
        .map(|(sequence, start, ids)| NewTokens { sequence: *sequence, start: *start, ids })
        .collect();
    let logits = model.forward(&varlen_step(model, &new).unwrap(), cache).unwrap();
    (0..parts.len()).map(|i| bits(&logits.narrow(1, i, 1).unwrap())).collect()
}

/// Returns the logits after the text, computed in chunks and in blocks, in varlen batches with
/// another text.
fn in_pages(model: &dyn Model, block_size: usize) -> Vec<u32> {
    let (text, other, mut cache) = (text(), other(), pages(model, block_size));
    line(model, &mut cache, &[(7, &other[..50]), (3, &text[..33])]);
    line(model, &mut cache, &[(3, &text[33..149]), (7, &other[50..])]);
    line(model, &mut cache, &[(3, &text[149..])]).remove(0)
}

/// Returns the logits after the text, with its first blocks computed by another text.
fn from_a_prefix(model: &dyn Model) -> Vec<u32> {
    let (text, mut cache, mut prefixes) = (text(), pages(model, 16), PrefixCache::new());
    let first = [&text[..100], &other()[..20]].concat();
    line(model, &mut cache, &[(0, &first)]);
    prefixes.cache_full_blocks(&cache, 0, &first, "");
    cache.release(0);
    attach_prefix(&mut cache, 1, prefixes.lookup(&text, 16, ""));
    let known = cache.len_of(1);
    assert_eq!(known, 96);
    line(model, &mut cache, &[(1, &text[known..])]).remove(0)
}

/// Returns the logits after the text, recomputed in other blocks after it has lost its own.
fn after_preemption(model: &dyn Model) -> Vec<u32> {
    let (text, mut cache) = (text(), pages(model, 16));
    line(model, &mut cache, &[(0, &text[..120])]);
    cache.release(0);
    line(model, &mut cache, &[(9, &other())]);
    line(model, &mut cache, &[(0, &text)]).remove(0)
}

/// One way to compute the logits.
type Way = (&'static str, Box<dyn Fn(&dyn Model) -> Vec<u32> + Sync>);

#[test]
fn a_text_gets_the_same_bits_however_it_is_computed() {
    let mut ways: Vec<Way> = vec![
        ("in passes of 1 token", Box::new(|model| in_passes(model, 1))),
        ("in passes of 7", Box::new(|model| in_passes(model, 7))),
        ("in passes of 64", Box::new(|model| in_passes(model, 64))),
        ("in a padded batch of three rows", Box::new(in_a_batch)),
        ("with a prefix cached from another text", Box::new(from_a_prefix)),
        ("recomputed in other blocks, after preemption", Box::new(after_preemption)),
    ];
    for (name, size) in [
        ("in blocks of 4, in several passes, batched with another text", 4),
        ("in blocks of 16, in several passes, batched with another text", 16),
        ("in blocks of 64, in several passes, batched with another text", 64),
    ] {
        ways.push((name, Box::new(move |model| in_pages(model, size))));
    }
    let folder = hub::locate("story-3m", None).unwrap();
    let ops = choose(Some(Kernels::Fast), &Device::Cpu);
    let formats = [
        WeightFormat::Tensors(DType::F32),
        WeightFormat::Tensors(DType::BF16),
        WeightFormat::Tensors(DType::F16),
        quantized_format(QuantType::Q8_0),
        quantized_format(QuantType::Q4_0),
    ];
    let mut table = String::from(
        "| 150 tokens of `story-3m` | f32 | bf16 | f16 | Q8_0 | Q4_0 |\n|---|---|---|---|---|---|\n",
    );
    let models =
        formats.map(|format| load_transformer(&folder, format, &Device::Cpu, &ops).unwrap());
    let whole = models.each_ref().map(|model| in_passes(model, 150));
    let in_pool_of = |threads: usize, way: &Way| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        models.each_ref().map(|model| pool.install(|| (way.1)(model)))
    };
    for way in &ways {
        let same = [1, 2].map(|threads| in_pool_of(threads, way));
        let _ = write!(table, "| {} |", way.0);
        for (i, whole) in whole.iter().enumerate() {
            let same = same.iter().all(|got| got[i] == *whole);
            let _ = write!(table, " {} |", if same { "same" } else { "differs" });
        }
        table += "\n";
    }
    assert!(!table.contains("differs"), "{table}");
    let page = std::fs::read_to_string("../../book/src/same_bits.md").unwrap();
    assert!(page.contains(&table), "book/src/same_bits.md should have this table:\n{table}");
}

/// Runs the test above with every instruction set that is here. A process reads `CANDECODE_SIMD`
/// once, so each gets one of its own. (Plain code takes minutes; `passes.rs` covers it.)
#[test]
fn every_instruction_set_keeps_the_bits() {
    let vectors = |set: &InstructionSet| set.is_here() && *set != InstructionSet::Scalar;
    for set in InstructionSet::ALL.into_iter().filter(vectors) {
        let mut test = std::process::Command::new(std::env::current_exe().unwrap());
        test.args(["a_text_gets_the_same_bits", "--quiet"]).env("CANDECODE_SIMD", set.name());
        let out = test.output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && text.contains("1 passed"), "{}: {text}", set.name());
    }
}
