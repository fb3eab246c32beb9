//! What is the whole process's: the switch between the kernels, and the number of threads. These tests
//! have a program of their own, because a test beside them would feel the switch.

#![cfg(feature = "ref")]

use candecode::day10_kv_cache::KvCache;
use candecode::day12_batching::{left_pad, ragged_mask};
use candecode::day16_cost_of_a_token::{bytes_moved, Pass, Precision};
use candecode::engine::load_model;
use candecode::kernels::{self, Choice, Kernels};
use candecode::kit::{Batch, Cache, CacheKind, Logits, NoCache, Step};
use candle_core::{DType, Device, Tensor};
use std::path::Path;
use std::sync::Mutex;

/// Held by a test that chooses kernels, or looks at what they counted.
static KERNELS: Mutex<()> = Mutex::new(());

#[test]
fn day_16_says_what_the_kernels_read() {
    let _held = KERNELS.lock();
    kernels::choose(Kernels::Fast);
    for name in ["story-3m", "story-230k", "story-gpt2-1m"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(name);
        for dtype in [DType::F32, DType::BF16] {
            let model = load_model(&folder, dtype, &Device::Cpu).unwrap();
            let mut cache = KvCache::new(CacheKind::Dynamic, model.config().num_hidden_layers);
            // A prompt, three rows of it that decode, and five tokens of a row that are verified.
            let prefill = Pass::prefill(1, 40);
            let decode = Pass::decode(3, 40);
            let verify = Pass { rows: 1, new: 5, past: 41, logits: 5 };
            for pass in [prefill, decode, verify] {
                if cache.len() > 0 {
                    cache.select(&vec![0; pass.rows]).unwrap();
                }
                let ids: Vec<u32> = (0..pass.new as u32).map(|i| 5 + i * 37 % 900).collect();
                let positions: Vec<u32> = (pass.past as u32..).take(pass.new).collect();
                let (rows, places) = (vec![ids; pass.rows], vec![positions; pass.rows]);
                let step = Step::batch(&*model, &rows, &places, None).unwrap();
                let step = step.with_logits(Logits::Last(pass.logits));
                let before = kernels::bytes_read();
                model.forward(&step, &mut cache).unwrap();
                let read = (kernels::bytes_read() - before) as f64;
                let precision = Precision::new(dtype, DType::F32);
                let said = bytes_moved(model.config(), &pass, &precision);
                assert_eq!(read, said.weights + said.cache, "{name}, {dtype:?}, {pass:?}");
            }
        }
    }
}

#[test]
fn a_whole_model_says_the_same_with_all_kernels() {
    let _held = KERNELS.lock();
    for name in ["story-3m", "story-230k", "story-gpt2-1m"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(name);
        let model = load_model(&folder, DType::F32, &Device::Cpu).unwrap();
        let ids: Vec<u32> = (0..40).map(|i| 5 + i * 37 % 900).collect();
        let step = Step::new(&*model, &ids, 0).unwrap();
        let logits = |kernels| -> Tensor {
            kernels::choose(kernels);
            model.forward(&step, &mut NoCache).unwrap().flatten_all().unwrap()
        };
        let plain = logits(Kernels::Plain);
        for kernels in [Kernels::Fast, Kernels::Mine] {
            let difference = (logits(kernels) - &plain).unwrap();
            let largest: f32 = difference.abs().unwrap().max(0).unwrap().to_scalar().unwrap();
            // Through five layers and a head of logits of size 20.
            assert!(largest < 2e-3, "{name}, {kernels}: {largest}");
        }
    }
}

/// Token ids of some length, other ones for every row.
fn ids(row: usize, len: usize) -> Vec<u32> {
    (0..len).map(|i| (5 + (i * 37 + row * 101) % 900) as u32).collect()
}

fn flat(logits: &Tensor) -> Vec<f32> {
    logits.flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn a_row_of_a_running_batch_gets_the_very_logits_that_it_gets_alone() {
    let _held = KERNELS.lock();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/story-3m");
    let model = load_model(&folder, DType::F32, &Device::Cpu).unwrap();
    let new_cache = || KvCache::new(CacheKind::Dynamic, model.config().num_hidden_layers);
    let attentions = [Kernels::Fast, Kernels::Mine];
    let cases =
        [2, 3, 8, 17, 32, 45].into_iter().flat_map(|rows| attentions.map(|kind| (rows, kind)));
    for (rows, attention) in cases {
        kernels::choose(Choice { products: Kernels::Fast, attention });
        // As a scheduler does: every prompt alone, then its cache joins, and all decode together.
        let lengths: Vec<usize> = (0..rows).map(|row| 1 + row * 53 % 97).collect();
        let longest = lengths.iter().copied().max().unwrap();
        let padding: Vec<usize> = lengths.iter().map(|len| longest - len).collect();
        let (mut alone, mut batch) = (Vec::new(), new_cache());
        for (row, len) in lengths.iter().enumerate() {
            let step = Step::new(&*model, &ids(row, *len), 0).unwrap();
            let mut cache = new_cache();
            model.forward(&step, &mut cache).unwrap();
            batch.join(&cache).unwrap();
            alone.push(cache);
        }
        for more in 0..3 {
            let token = |row: usize| ids(row, lengths[row] + more + 1)[lengths[row] + more];
            let next: Vec<Vec<u32>> = (0..rows).map(|row| vec![token(row)]).collect();
            let place = |len: &usize| vec![(len + more) as u32];
            let places: Vec<Vec<u32>> = lengths.iter().map(place).collect();
            let mask = ragged_mask(&padding, 1, longest + more, &Device::Cpu).unwrap();
            let step = Step::batch(&*model, &next, &places, Some(mask)).unwrap();
            let together = model.forward(&step, &mut batch).unwrap();
            for (row, cache) in alone.iter_mut().enumerate() {
                let step = Step::new(&*model, &next[row], lengths[row] + more).unwrap();
                let single = flat(&model.forward(&step, cache).unwrap());
                let of_batch = flat(&together.narrow(0, row, 1).unwrap());
                assert_eq!(of_batch, single, "{attention}, row {row} of {rows}, token {more}");
            }
        }
    }
}

#[test]
fn a_padded_prompt_gets_the_very_logits_that_it_gets_alone() {
    let _held = KERNELS.lock();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/story-3m");
    let model = load_model(&folder, DType::F32, &Device::Cpu).unwrap();
    let long: Vec<usize> = (0..32).map(|row| 33 + row * 23 % 40).collect();
    let attentions = [Kernels::Fast, Kernels::Mine];
    let mixed: Vec<usize> = (0..12).map(|row| 1 + row * 41 % 90).collect();
    let cases = [vec![8, 1, 5, 7], vec![2, 16], long, mixed];
    let cases = cases.into_iter().flat_map(|l| attentions.map(|kind| (l.clone(), kind)));
    for (lengths, attention) in cases {
        kernels::choose(Choice { products: Kernels::Fast, attention });
        let prompts: Vec<Vec<u32>> =
            lengths.iter().enumerate().map(|(row, len)| ids(row, *len)).collect();
        let slices: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        let padded = left_pad(&slices);
        let width = padded.ids[0].len();
        let mask = ragged_mask(&padded.padding, width, 0, &Device::Cpu).unwrap();
        let step = Step::batch(&*model, &padded.ids, &padded.positions, Some(mask)).unwrap();
        let together = model.forward(&step, &mut NoCache).unwrap();
        for (row, prompt) in prompts.iter().enumerate() {
            let step = Step::new(&*model, prompt, 0).unwrap();
            let single = flat(&model.forward(&step, &mut NoCache).unwrap());
            let own = together.narrow(0, row, 1).unwrap();
            let own = own.narrow(1, padded.padding[row], prompt.len()).unwrap();
            assert_eq!(flat(&own), single, "{attention}, row {row} of {}", prompts.len());
        }
    }
}

#[test]
fn the_default_with_the_reference_is_the_fast_kernels() {
    assert_eq!(Choice::default(), Kernels::Fast.into());
}

/// A container of one core on a larger machine: `taskset` allows one core alone.
#[cfg(target_os = "linux")]
#[test]
fn there_are_no_more_threads_than_allowed_cores() {
    let mut command = std::process::Command::new("taskset");
    command.args(["--cpu-list", "0", env!("CARGO_BIN_EXE_candecode")]);
    command.args(["-p", "Once", "--max-new-tokens", "1", "--kernels", "fast", "--stats"]);
    let output = command.env_remove("RAYON_NUM_THREADS").output().unwrap();
    let stats = String::from_utf8_lossy(&output.stderr);
    assert!(stats.contains(" 1 threads"), "{stats}");
}
