//! Runs models with different implementations of the operations, next to each other and on several
//! threads. This is a separate program, because the bytes that kernels read are counted for the
//! whole process.

#![cfg(feature = "ref")]

use candecode::day05_model::Transformer;
use candecode::day12_batching::BatchCache;
use candecode::day12_batching::{left_pad, ragged_mask};
use candecode::day16_cost_of_a_token::{bytes_moved, Pass, Precision};
use candecode::day17_kernel::numbers;
use candecode::day18_flash_attention::{heads_of, RowMask};
use candecode::kit::{write_slots, PagedSequence, Pages, Weight, WeightFormat};
use candecode::kit::{Batch, Cache, Logits, Model, NoCache, Ops, SamplingParams, SharedOps};
use candecode::kit::{Step, View};
use candecode_engine::kernels;
use candecode_engine::load::{load_files, load_transformer, own_format};
use candecode_engine::operations::{choose, Kernels};
use candecode_engine::Engine;
use candecode_testing::{story, tiny};
use candle_core::{DType, Device, Layout, Result, Storage, Tensor};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Held by every test that computes, because one of them reads the kernels' counter.
static KERNELS: Mutex<()> = Mutex::new(());

/// Loads an embedded model with these operations.
fn model(name: &str, dtype: DType, ops: &SharedOps) -> Transformer {
    model_on(name, dtype, ops, &Device::Cpu)
}

/// Loads an embedded model onto a device.
fn model_on(name: &str, dtype: DType, ops: &SharedOps, device: &Device) -> Transformer {
    let folder = if name.starts_with("tiny") { tiny(name) } else { story(name) };
    load_transformer(&folder, dtype, device, ops).unwrap()
}

fn named(kernels: Kernels) -> SharedOps {
    choose(Some(kernels), &Device::Cpu)
}

/// Returns the device these tests compare with the CPU: `CANDECODE_DEVICE`, or the CPU itself.
fn device() -> Device {
    let name = std::env::var("CANDECODE_DEVICE").unwrap_or_else(|_| "cpu".into());
    candecode::kit::device::device(&name).unwrap()
}

#[test]
fn day_16_predicts_the_bytes_that_the_kernels_read() {
    let _held = KERNELS.lock();
    for name in ["story-3m", "story-230k", "story-gpt2-1m"] {
        for dtype in [DType::F32, DType::BF16] {
            let model = model(name, dtype, &named(Kernels::Fast));
            let mut cache = BatchCache::new(model.config().num_hidden_layers, None);
            // A prompt, three rows that decode after it, and five tokens of one row to verify.
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
                let step = Step::batch(&model, &rows, &places, None).unwrap();
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
fn a_whole_model_gives_the_same_logits_with_all_kernels() {
    let _held = KERNELS.lock();
    let device = device();
    let stories = ["story-3m", "story-230k", "story-gpt2-1m"];
    for name in stories.into_iter().chain(["tiny-llama", "tiny-qwen2", "tiny-qwen3", "tiny-gpt2"]) {
        let ids: Vec<u32> = (0..40).map(|i| 5 + i * 37 % 59).collect(); // of at least 64
        let logits = |kernels, device: &Device| -> Tensor {
            let ops = choose(Some(kernels), device);
            let model = model_on(name, DType::F32, &ops, device);
            let step = Step::new(&model, &ids, 0).unwrap();
            let logits = model.forward(&step, &mut NoCache).unwrap().flatten_all().unwrap();
            logits.to_device(&Device::Cpu).unwrap()
        };
        let plain = logits(Kernels::Plain, &Device::Cpu);
        for kernels in [Kernels::Plain, Kernels::Candle, Kernels::Fast, Kernels::Mine] {
            let difference = (logits(kernels, &device) - &plain).unwrap();
            let largest: f32 = difference.abs().unwrap().max(0).unwrap().to_scalar().unwrap();
            // After five layers and a head, with logits of size 20.
            assert!(largest < 2e-3, "{name}, {kernels}: {largest}");
        }
    }
}

/// Returns a tensor of numbers in [-1, 1), the same on every machine, rounded to `dtype`.
fn numbers_of(shape: &[usize], dtype: DType) -> Tensor {
    let len: usize = shape.iter().product();
    let number = |i: usize| ((i * 7919 + len * 31) % 2003) as f32 / 1001.5 - 1.0;
    let numbers: Vec<f32> = (0..len).map(number).collect();
    let numbers = Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap();
    numbers.to_dtype(dtype).unwrap().to_dtype(DType::F32).unwrap()
}

/// Runs every operation on inputs of type `dtype` that were first rounded to the type `rounded`,
/// and returns the results as f32 on the CPU.
fn every_operation(
    ops: &dyn Ops,
    rounded: DType,
    dtype: DType,
    device: &Device,
) -> Vec<(String, Tensor)> {
    let x = |shape: &[usize]| {
        numbers_of(shape, rounded).to_device(device).unwrap().to_dtype(dtype).unwrap()
    };
    let mut done: Vec<(String, Result<Tensor>)> = vec![];
    // The widths of story-3m and of a model of 135 million weights, and rows of 1 to 70.
    for (rows, width, heads, kv_heads, head) in [(1, 192, 6, 2, 32), (70, 576, 9, 3, 64)] {
        let named = |name: &str| format!("{name}, {rows} of {width}");
        let hidden = x(&[2, rows, width]);
        let weight = Weight::new(x(&[100, width])).unwrap();
        let linear = ops.linear(&hidden, &[&weight]).map(|all| all[0].clone());
        done.push((named("linear"), linear));
        let ids: Vec<u32> = (0..2 * rows as u32).map(|i| i * 37 % 100).collect();
        let ids = Tensor::from_vec(ids, (2, rows), device).unwrap();
        done.push((named("embed"), ops.embed(&ids, &weight)));
        let (scale, bias) = (x(&[width]), x(&[width]));
        done.push((named("rms_norm"), ops.rms_norm(&hidden, &scale, 1e-5)));
        done.push((named("layer_norm"), ops.layer_norm(&hidden, &scale, &bias, 1e-5)));
        done.push((named("silu_and_mul"), ops.silu_and_mul(&hidden, &x(&[2, rows, width]))));
        let q = x(&[2, heads, rows, head]);
        let half = [2, rows, head / 2];
        done.push((named("rotate"), ops.rotate(&q, &(x(&half), x(&half)))));
        let all = rows + 11;
        let kv = View::new(x(&[2, kv_heads, all, head]), x(&[2, kv_heads, all, head]));
        done.push((named("attend"), ops.attend(&q, &kv, None)));
        let may = |i: usize| {
            let (row, token, to) = (i / (rows * all), i / all % rows, i % all);
            u8::from(to == token + 11 || (3 * row <= to && to < token + 11))
        };
        let mask: Vec<u8> = (0..2 * rows * all).map(may).collect();
        let mask = Tensor::from_vec(mask, (2, 1, rows, all), device).unwrap();
        done.push((named("attend, padded"), ops.attend(&q, &kv, Some(&mask))));
        // Two sequences in blocks of 16, the second one in blocks that aren't in order.
        let sequence = |block_table: &[u32], len, new| PagedSequence {
            block_table: block_table.to_vec(),
            len,
            new,
        };
        let blocks: Vec<u32> = (0..6).collect();
        let sequences = vec![sequence(&blocks, rows + 11, rows), sequence(&[7, 6], 20, 1)];
        let pool = [8, kv_heads, 16, head];
        let pages = Pages { block_size: 16, sequences };
        let kv = View { pages: Some(Arc::new(pages)), ..View::new(x(&pool), x(&pool)) };
        let q = x(&[1, heads, rows + 1, head]);
        done.push((named("attend, in pages"), ops.attend(&q, &kv, None)));
        let pool = x(&pool);
        let slots: Vec<u32> = (0..rows as u32 + 1).map(|i| (i * 5 + 3) % 128).collect();
        let written = write_slots(&pool, &x(&[1, kv_heads, rows + 1, head]), &slots);
        done.push((named("write_slots"), written.map(|()| pool)));
    }
    let on_cpu = |y: Tensor| y.to_device(&Device::Cpu)?.to_dtype(DType::F32);
    let named = |(name, y): (String, Result<Tensor>)| match y.and_then(on_cpu) {
        Ok(y) => (name, y),
        Err(error) => panic!("{name}, {dtype:?}: {error}"),
    };
    done.into_iter().map(named).collect()
}

/// `CANDECODE_DEVICE=cuda cargo test --features ref,cuda --test operations` runs this on a GPU.
#[test]
fn every_operation_on_the_device_matches_plain_code_on_the_cpu() {
    let _held = KERNELS.lock();
    let device = device();
    // In f32, sums of a few hundred products in a different order. 16-bit results are rounded to 8
    // or 11 bits, and plain code rounds after each of several operations.
    let types = [(DType::F32, 2e-4), (DType::BF16, 0.05), (DType::F16, 0.01)];
    let types = if device.is_cpu() { &types[..1] } else { &types[..] }; // on the CPU, always f32
    for (dtype, tolerance) in types {
        let plain = named(Kernels::Plain);
        let want = every_operation(&*plain, *dtype, DType::F32, &Device::Cpu);
        let kinds = [Kernels::Plain, Kernels::Candle, Kernels::Fast, Kernels::Mine];
        for kernels in kinds {
            let ops = choose(Some(kernels), &device);
            let got = every_operation(&*ops, *dtype, *dtype, &device);
            assert_eq!(got.len(), want.len());
            for ((name, got), (_, want)) in got.iter().zip(&want) {
                assert_eq!(got.dims(), want.dims(), "{name}, {kernels}, {dtype:?}");
                for (got, want) in flat(got).iter().zip(flat(want)) {
                    let allowed = tolerance * want.abs().max(1.0);
                    let near = (got - want).abs() <= allowed;
                    assert!(near, "{name}, {kernels}, {dtype:?}: {got} instead of {want}");
                }
            }
        }
    }
}

#[test]
fn gguf_weights_are_widened_to_f32_for_a_device() {
    let _held = KERNELS.lock();
    let device = device();
    for name in ["tiny-llama.gguf", "tiny-qwen2.gguf", "tiny-qwen3.gguf", "tiny-gpt2.gguf"] {
        let files = candecode_formats::ModelFiles::at(&tiny(name)).unwrap();
        let logits = |format: WeightFormat, kernels, device: &Device| -> Tensor {
            let model = load_files(&files, format, device, &choose(Some(kernels), device)).unwrap();
            let step = Step::new(&model, &[5, 9, 41, 3], 0).unwrap();
            let logits = model.forward(&step, &mut NoCache).unwrap().flatten_all().unwrap();
            logits.to_device(&Device::Cpu).unwrap()
        };
        let widened = WeightFormat::Tensors(DType::F32);
        let plain = logits(widened, Kernels::Plain, &Device::Cpu);
        if !device.is_cpu() {
            assert!(matches!(own_format(&files, &device), WeightFormat::Tensors(DType::F32)));
        }
        for kernels in [Kernels::Plain, Kernels::Candle] {
            let difference = (logits(widened, kernels, &device) - &plain).unwrap();
            let largest: f32 = difference.abs().unwrap().max(0).unwrap().to_scalar().unwrap();
            assert!(largest < 2e-3, "{name}, {kernels}: {largest}");
        }
    }
}

/// Another implementation's attention with the fast kernels' products, which add in the same order
/// for any number of rows.
#[derive(Debug)]
struct FastProducts(SharedOps, SharedOps);

impl Ops for FastProducts {
    fn rest(&self) -> &dyn Ops {
        &*self.0
    }
    fn attend(&self, q: &Tensor, kv: &View, mask: Option<&Tensor>) -> Result<Tensor> {
        self.1.attend(q, kv, mask)
    }
    fn describe(&self, cpu: bool) -> String {
        self.1.describe(cpu)
    }
}

/// Returns each kind of attention together with the fast kernels' products.
fn attentions() -> [(Kernels, SharedOps); 2] {
    [Kernels::Fast, Kernels::Mine].map(|kernels| {
        (kernels, Arc::new(FastProducts(named(Kernels::Fast), named(kernels))) as SharedOps)
    })
}

/// Returns `len` token ids that differ from row to row.
fn ids(row: usize, len: usize) -> Vec<u32> {
    (0..len).map(|i| (5 + (i * 37 + row * 101) % 900) as u32).collect()
}

fn flat(logits: &Tensor) -> Vec<f32> {
    logits.flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn a_row_gets_the_same_logits_alone_and_in_a_running_batch() {
    let _held = KERNELS.lock();
    let models = attentions().map(|(kind, ops)| (kind, model("story-3m", DType::F32, &ops)));
    let cases = [2, 3, 8, 17, 32, 45].into_iter();
    for (rows, (attention, model)) in cases.flat_map(|rows| models.iter().map(move |m| (rows, m))) {
        let new_cache = || BatchCache::new(model.config().num_hidden_layers, None);
        // As in a scheduler: each prompt is prefilled alone, its cache joins the batch, and all
        // rows decode together.
        let lengths: Vec<usize> = (0..rows).map(|row| 1 + row * 53 % 97).collect();
        let longest = lengths.iter().copied().max().unwrap();
        let padding: Vec<usize> = lengths.iter().map(|len| longest - len).collect();
        let (mut alone, mut batch) = (Vec::new(), new_cache());
        for (row, len) in lengths.iter().enumerate() {
            let step = Step::new(model, &ids(row, *len), 0).unwrap();
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
            let step = Step::batch(model, &next, &places, Some(mask)).unwrap();
            let together = model.forward(&step, &mut batch).unwrap();
            for (row, cache) in alone.iter_mut().enumerate() {
                let step = Step::new(model, &next[row], lengths[row] + more).unwrap();
                let single = flat(&model.forward(&step, cache).unwrap());
                let of_batch = flat(&together.narrow(0, row, 1).unwrap());
                assert_eq!(of_batch, single, "{attention}, row {row} of {rows}, token {more}");
            }
        }
    }
}

#[test]
fn a_padded_prompt_gets_the_same_logits_as_alone() {
    let _held = KERNELS.lock();
    let models = attentions().map(|(kind, ops)| (kind, model("story-3m", DType::F32, &ops)));
    let long: Vec<usize> = (0..32).map(|row| 33 + row * 23 % 40).collect();
    let mixed: Vec<usize> = (0..12).map(|row| 1 + row * 41 % 90).collect();
    let cases = [vec![8, 1, 5, 7], vec![2, 16], long, mixed];
    for (lengths, (attention, model)) in
        cases.iter().flat_map(|lengths| models.iter().map(move |m| (lengths, m)))
    {
        let prompts: Vec<Vec<u32>> =
            lengths.iter().enumerate().map(|(row, len)| ids(row, *len)).collect();
        let slices: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        let padded = left_pad(&slices);
        let width = padded.ids[0].len();
        let mask = ragged_mask(&padded.padding, width, 0, &Device::Cpu).unwrap();
        let step = Step::batch(model, &padded.ids, &padded.positions, Some(mask)).unwrap();
        let together = model.forward(&step, &mut NoCache).unwrap();
        for (row, prompt) in prompts.iter().enumerate() {
            let step = Step::new(model, prompt, 0).unwrap();
            let single = flat(&model.forward(&step, &mut NoCache).unwrap());
            let own = together.narrow(0, row, 1).unwrap();
            let own = own.narrow(1, padded.padding[row], prompt.len()).unwrap();
            assert_eq!(flat(&own), single, "{attention}, row {row} of {}", prompts.len());
        }
    }
}

#[test]
fn fast_kernels_are_the_default_with_the_reference() {
    let text = |ops: SharedOps| ops.describe(true);
    assert_eq!(text(choose(None, &Device::Cpu)), text(named(Kernels::Fast)));
    assert!(text(named(Kernels::Fast)).starts_with("fast ("));
}

#[test]
fn engines_with_different_kernels_do_not_affect_each_other() {
    let _held = KERNELS.lock();
    let params = SamplingParams { max_new_tokens: 40, ..SamplingParams::default() };
    let text = |kernels: Kernels| -> Vec<(u32, f32)> {
        let files = candecode_formats::ModelFiles::open("story-3m").unwrap();
        let ops = named(kernels);
        let engine = Engine::from_files(&files, DType::F32, &Device::Cpu, &ops).unwrap();
        let tokens = engine.generate("Lily and her dog", &params).unwrap();
        tokens.map(|token| token.map(|token| (token.id, token.logprob)).unwrap()).collect()
    };
    let all = [Kernels::Plain, Kernels::Candle, Kernels::Fast, Kernels::Mine];
    let alone = all.map(text);
    for (kernels, tokens) in all.iter().zip(&alone) {
        let ids = |tokens: &[(u32, f32)]| tokens.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        assert_eq!(ids(tokens), ids(&alone[0]), "{kernels}");
    }
    // Running side by side also leaves every bit the same.
    std::thread::scope(|scope| {
        let threads = all.map(|kernels| scope.spawn(move || text(kernels)));
        for ((thread, kernels), alone) in threads.into_iter().zip(all).zip(&alone) {
            assert_eq!(&thread.join().unwrap(), alone, "{kernels}");
        }
    });
}

/// A program with a thread pool of size one calls from three threads after
/// [`kernels::set_threads`], and must not deadlock.
#[test]
fn a_one_thread_pool_serves_callers_on_several_threads() {
    const INSIDE: &str = "CANDECODE_TEST_ONE_THREAD";
    if std::env::var_os(INSIDE).is_some() {
        kernels::set_threads();
        let engine = Engine::open("story-230k").unwrap();
        let params = SamplingParams { max_new_tokens: 8, ..SamplingParams::default() };
        let text = |engine: &Engine| {
            engine.generate_batch(&["Once"], std::slice::from_ref(&params)).unwrap()
        };
        let here = text(&engine);
        std::thread::scope(|scope| {
            let others = [(); 2].map(|()| {
                scope.spawn(|| {
                    let engine = Engine::open("story-230k").unwrap();
                    text(&engine)
                })
            });
            for other in others {
                assert_eq!(other.join().unwrap(), here);
            }
        });
        return;
    }
    let name = "a_one_thread_pool_serves_callers_on_several_threads";
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env(INSIDE, "1")
        .env("RAYON_NUM_THREADS", "1")
        .spawn()
        .unwrap();
    let began = std::time::Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > std::time::Duration::from_secs(120) {
            child.kill().unwrap();
            panic!("the program is deadlocked");
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(child.wait().unwrap().success());
}

/// Returns day 12's mask, `(T, S)`, for a row that starts with padding.
fn padded(padding: usize, new: usize, all: usize) -> Vec<u8> {
    let see = |i: usize, j: usize| j == i || (padding <= j && j <= i);
    (all - new..all).flat_map(|i| (0..all).map(move |j| u8::from(see(i, j)))).collect()
}

#[test]
fn day_18_finds_the_columns_that_a_token_sees() {
    let causal = |new, all, token| RowMask { mask: None, new, all }.columns(token);
    assert_eq!(causal(4, 4, 0), 0..1);
    assert_eq!(causal(4, 4, 3), 0..4);
    assert_eq!(causal(2, 7, 0), 0..6);
    assert_eq!(causal(1, 9, 0), 0..9);
    let mask = padded(2, 5, 5);
    let mask = RowMask { mask: Some(&mask), new: 5, all: 5 };
    assert_eq!([0, 1, 2, 4].map(|token| mask.columns(token)), [0..1, 1..2, 2..3, 2..5]);
    let mask = [0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0];
    let mask = RowMask { mask: Some(&mask), new: 2, all: 6 };
    assert_eq!([0, 1].map(|token| mask.columns(token)), [1..5, 0..0]);
}

#[test]
#[allow(clippy::single_range_in_vec_init)] // some lists have only one block
fn day_18_divides_tokens_into_blocks_that_start_after_the_padding() {
    for ((new, all, padding), want) in [
        ((40, 40, 0), vec![0..16, 16..32, 32..40]),
        ((40, 100, 0), vec![0..16, 16..32, 32..40]),
        ((40, 40, 5), vec![0..5, 5..21, 21..37, 37..40]),
        ((40, 40, 39), vec![0..16, 16..32, 32..39, 39..40]),
        ((3, 60, 20), vec![0..3]),
        ((3, 60, 2), vec![0..3]),
        ((32, 32, 16), vec![0..16, 16..32]),
        ((1, 9, 0), vec![0..1]),
        ((1, 9, 8), vec![0..1]),
    ] {
        let mask = padded(padding, new, all);
        assert_eq!(RowMask { mask: Some(&mask), new, all }.blocks(), want, "{new} {all} {padding}");
        if padding == 0 {
            assert_eq!(RowMask { mask: None, new, all }.blocks(), want, "{new} {all}, no mask");
        }
    }
}

#[test]
fn day_18_reads_heads_in_place() {
    let buffer = Tensor::arange(0f32, 216.0, &Device::Cpu).unwrap();
    let buffer = buffer.reshape((2, 3, 9, 4)).unwrap();
    let flat: Vec<f32> = buffer.flatten_all().unwrap().to_vec1().unwrap();
    for tensor in [
        buffer.clone(),
        buffer.narrow(2, 0, 5).unwrap(), // positions 0 to 4 of a static cache of 9
        buffer.narrow(2, 3, 6).unwrap(), // positions 3 to 8
        buffer.narrow(0, 1, 1).unwrap(), // the second row
        buffer.narrow(1, 1, 2).unwrap(), // the last two heads
        buffer.transpose(1, 2).unwrap(), // heads side by side in each position
    ] {
        let got = heads_of(&flat, tensor.layout()).unwrap();
        let (rows, heads, len, width) = tensor.dims4().unwrap();
        let want = tensor.reshape((rows * heads, len, width)).unwrap().to_vec3::<f32>().unwrap();
        assert_eq!(got.len(), want.len());
        for (head, want) in got.iter().zip(&want) {
            for (position, want) in want.iter().enumerate() {
                assert_eq!(head.at(position), want, "{:?}", tensor.layout());
            }
        }
    }
    // If D is 1, a position's numbers are contiguous at any stride. If it isn't, a transposed
    // tensor is rejected, and so are other numbers of dimensions.
    let tensor = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
    let narrow = tensor(&[1, 2, 1, 3]).transpose(2, 3).unwrap();
    assert_eq!(heads_of(&[0.0; 6], narrow.layout()).unwrap().len(), 2);
    let turned = tensor(&[1, 2, 2, 3]).transpose(2, 3).unwrap();
    assert!(heads_of(&[0.0; 12], turned.layout()).is_err());
    assert!(heads_of(&[0.0; 24], tensor(&[2, 12]).layout()).is_err());
}

#[test]
fn day_17_borrows_contiguous_numbers_and_gathers_others() {
    let counting = |shape: &[usize]| {
        let len = shape.iter().product::<usize>() as f32;
        Tensor::arange(0f32, len, &Device::Cpu).unwrap().reshape(shape).unwrap()
    };
    let read = |x: &Tensor| {
        let (storage, layout) = x.storage_and_layout();
        let Storage::Cpu(storage) = &*storage else { unreachable!("made on the CPU") };
        let numbers = numbers::<f32>(storage, layout).unwrap();
        (numbers.to_vec(), matches!(numbers, Cow::Borrowed(_)))
    };
    let x = counting(&[3, 4]);
    let borrowed = |numbers: Range<usize>| (numbers.map(|n| n as f32).collect(), true);
    assert_eq!(read(&x), borrowed(0..12));
    assert_eq!(read(&x.narrow(0, 1, 2).unwrap()), borrowed(4..12));
    assert_eq!(read(&x.narrow(0, 0, 1).unwrap()), borrowed(0..4));
    let columns = x.narrow(1, 1, 2).unwrap();
    assert_eq!(read(&columns), (vec![1.0, 2.0, 5.0, 6.0, 9.0, 10.0], false));
    let turned = counting(&[2, 3]).t().unwrap();
    assert_eq!(read(&turned), (vec![0.0, 3.0, 1.0, 4.0, 2.0, 5.0], false));
    let spread = counting(&[3]).narrow(0, 1, 1).unwrap().broadcast_as(4).unwrap();
    assert_eq!(read(&spread), (vec![1.0; 4], false));
    let part = counting(&[4, 2, 3]).narrow(0, 2, 1).unwrap().transpose(1, 2).unwrap();
    assert_eq!(read(&part), (vec![12.0, 15.0, 13.0, 16.0, 14.0, 17.0], false));
    let (storage, layout) = (candle_core::CpuStorage::F64(vec![1.0]), Layout::contiguous(1));
    assert!(numbers::<f32>(&storage, &layout).is_err());
}
