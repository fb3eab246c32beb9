//! Day 17: matrix products at the sizes of SmolLM2-135M's matrices, with a simple loop, several
//! running sums, threads, the fast kernel, and candle's kernel. Then whole steps of random-135m.

use crate::plot::{Axis, Plot};
use crate::shared::{locate, random};
use crate::times::Times;
use anyhow::Result;
use candecode::day10_kv_cache::DynamicCache;
use candecode::day16_cost_of_a_token::weights_read;
use candecode::day17_kernel::{self, vectorized, Stored};
use candecode::kit::ops::{Ops, SharedOps};
use candecode::kit::{Cache, Logits, Model, Step, Weight};
use candecode::DAYS;
use candecode_engine::kernels;
use candecode_engine::load::load_transformer;
use candecode_engine::operations::{self, Kernels};
use candle_core::{CpuStorage, DType, Device, Storage, Tensor, WithDType};
use half::bf16;
use rayon::prelude::*;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

/// The query projection, the MLP's up and down projections, and the head, which doesn't fit in any
/// cache: name, row length, and number of rows.
const MATRICES: [(&str, usize, usize); 4] =
    [("query", 576, 576), ("up", 576, 1536), ("down", 1536, 576), ("head", 576, 49152)];

/// Numbers of vectors to multiply at once.
const VECTORS: [usize; 4] = [1, 2, 4, 8];

/// Computes a dot product the obvious way, with one running sum.
fn simple_dot<W: Stored>(row: &[W], x: &[f32]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in row.iter().zip(x) {
        sum += w.widen() * x;
    }
    sum
}

/// The model for whole steps, and the positions in its cache before each.
const MODEL: &str = "random-135m";
const PAST: usize = 32;

/// The days' own operations, but with the obvious product: one running sum per row, on all threads.
#[derive(Debug)]
struct OneSum(SharedOps);

impl Ops for OneSum {
    fn rest(&self) -> &dyn Ops {
        &*self.0
    }

    fn linear(&self, x: &Tensor, weights: &[&Weight]) -> candle_core::Result<Vec<Tensor>> {
        let rows = x.flatten_all()?.to_vec1::<f32>()?;
        let product = |weight: &&Weight| {
            let (out, inner) = weight.shape();
            let matrix = weight.tensor()?;
            let (storage, layout) = matrix.storage_and_layout();
            let Storage::Cpu(CpuStorage::F32(numbers)) = &*storage else {
                candle_core::bail!("a simple loop over f32 on the CPU")
            };
            let numbers = &numbers[layout.start_offset()..][..out * inner];
            let mut y = Vec::with_capacity(rows.len() / inner * out);
            for x in rows.chunks_exact(inner) {
                y.par_extend(numbers.par_chunks_exact(inner).map(|row| simple_dot(row, x)));
            }
            let mut shape = x.dims().to_vec();
            shape.pop();
            shape.push(out);
            Tensor::from_vec(y, shape, x.device())
        };
        weights.iter().map(product).collect()
    }

    fn describe(&self, _cpu: bool) -> String {
        "one running sum".to_string()
    }
}

/// The operations for whole steps, by name.
fn implementations() -> [(&'static str, SharedOps); 4] {
    let named = |kernels| operations::choose(Some(kernels), &Device::Cpu);
    [
        ("one sum", Arc::new(OneSum(operations::plain()))),
        ("mine", named(Kernels::Mine)),
        ("plain", named(Kernels::Plain)),
        ("fast", named(Kernels::Fast)),
    ]
}

/// Measures a step of the whole model: a token after [`PAST`] others. Memory can be faster in some
/// minutes than in others, on a virtual machine for example. So the bandwidth is probed before and
/// after each implementation's steps, and the implementations take turns.
fn whole_steps(times: &mut Times) -> Result<()> {
    let ids: Vec<u32> = (300..300 + PAST as u32).collect();
    let turns = [implementations(), implementations()];
    for (name, ops) in turns.into_iter().flatten() {
        probe(times)?;
        let model = load_transformer(&locate(MODEL)?, DType::F32, &Device::Cpu, &ops)?;
        let mut cache = DynamicCache::new(model.config().num_hidden_layers);
        model.forward(&Step::new(&model, &ids, 0)?.with_logits(Logits::Last(1)), &mut cache)?;
        let step = Step::new(&model, &[400], PAST)?;
        times.measure(&format!("step_{name}"), || {
            cache.truncate(PAST)?;
            model.forward(&step, &mut cache)?.to_vec3::<f32>()
        })?;
    }
    probe(times)
}

/// Measures how long memory takes to deliver a gigabyte.
fn probe(times: &mut Times) -> Result<()> {
    times.samples("memory_gb", || Ok(1e9 / kernels::bandwidth(3)))
}

/// Prints the whole steps, from the slow form that the chapter starts from to the bound.
fn report_steps(times: &Times) -> Result<()> {
    let config = load_transformer(&locate(MODEL)?, DType::F32, &Device::Cpu, &operations::plain())?;
    let bytes = weights_read(config.config()) * size_of::<f32>() as f64;
    let bandwidth = 1e9 / times.of("memory_gb")?;
    let whose = if DAYS[17].reference { "day 17, the reference" } else { "day 17, yours" };
    println!("a step of {MODEL} in f32, in ms");
    for (name, shown) in
        [("one sum", "one running sum"), ("mine", whose), ("plain", "plain"), ("fast", "fast")]
    {
        println!("{shown:<30}{:>7.1}", 1e3 * times.of(&format!("step_{name}"))?);
    }
    let bound = format!("the bound: {:.0} MB, {:.1} GB/s", bytes / 1e6, bandwidth / 1e9);
    println!("{bound:<30}{:>7.1}", 1e3 * bytes / bandwidth);
    Ok(())
}

pub fn measure(times: &mut Times) -> Result<()> {
    whole_steps(times)?;
    for (name, inner, out) in MATRICES {
        one_dtype::<f32>(times, &format!("{name}_f32"), inner, out)?;
        one_dtype::<bf16>(times, &format!("{name}_bf16"), inner, out)?;
        let (x, w) = (random(&[1, inner])?, random(&[out, inner])?);
        times.measure(&format!("{name}_f32_candle_1"), || x.matmul(&w.t()?))?;
    }
    Ok(())
}

fn one_dtype<W: Stored + WithDType>(
    times: &mut Times,
    name: &str,
    inner: usize,
    out: usize,
) -> Result<()> {
    let w = random(&[out, inner])?.to_dtype(W::DTYPE)?;
    let numbers: Vec<W> = w.flatten_all()?.to_vec1()?;
    let x: Vec<f32> = random(&[inner])?.to_vec1()?;
    // One vector, one thread.
    let mut y = vec![0.0; out];
    times.measure(&format!("{name}_loop_1"), || {
        for (row, y) in black_box(&numbers).chunks_exact(inner).zip(&mut y) {
            *y = simple_dot(row, &x);
        }
        anyhow::Ok(())
    })?;
    times.measure(&format!("{name}_sums_1"), || {
        vectorized(black_box(&numbers), &x, inner, &mut y);
        anyhow::Ok(())
    })?;
    for vectors in VECTORS {
        let x = random(&[vectors, inner])?;
        times.measure(&format!("{name}_threads_{vectors}"), || day17_kernel::linear(&x, &w))?;
        times.measure(&format!("{name}_kit_{vectors}"), || kernels::linear(&x, &[&w]))?;
    }
    Ok(())
}

pub fn report(times: &Times, folder: &Path) -> Result<()> {
    report_steps(times)?;
    let rows = ["f32", "bf16"].map(|dtype| MATRICES.map(|(name, ..)| format!("{name} {dtype}")));
    let rows = rows.concat();
    let micros = |row: &str, kind: &str, vectors: usize| -> Result<f64> {
        Ok(1e6 * times.of(&format!("{}_{kind}_{vectors}", row.replace(' ', "_")))?)
    };
    println!("one vector         loop     sums   candle  linear    fast  your speed (fast = 1)");
    for row in &rows {
        let [loops, sums] = [micros(row, "loop", 1)?, micros(row, "sums", 1)?];
        let candle = micros(row, "candle", 1).map_or("-".into(), |micros| format!("{micros:.0}"));
        let [linear, kit] = [micros(row, "threads", 1)?, micros(row, "kit", 1)?];
        println!(
            "{row:<14} {loops:>8.0} {sums:>8.0} {candle:>8} {linear:>7.0} {kit:>7.0} {:>22.2}",
            kit / linear
        );
    }
    println!("\nyour speed, vectors:{}", VECTORS.map(|n| format!("{n:>8}")).concat());
    for row in &rows {
        let share = |n| -> Result<String> {
            Ok(format!("{:>8.2}", micros(row, "kit", n)? / micros(row, "threads", n)?))
        };
        let shares = VECTORS.into_iter().map(share).collect::<Result<String>>()?;
        println!("{:<20}{shares}", row.replace(' ', ", "));
    }
    let millis = |kind: &str, vectors: &[usize]| -> Result<Vec<(f64, f64)>> {
        let line = times.line(&format!("head_f32_{kind}"), vectors)?;
        Ok(line.into_iter().map(|(n, seconds)| (n, 1e3 * seconds)).collect())
    };
    let (mine, kit) = (millis("threads", &VECTORS)?, millis("kit", &VECTORS)?);
    let (simple, sums) = (millis("loop", &[1])?[0], millis("sums", &[1])?[0]);
    let mut plot = Plot::new(
        "Milliseconds for a product with SmolLM2-135M's head in f32 against the number of \
         vectors, on logarithmic axes: a simple loop is slowest, several running sums are much \
         faster, and two threads are faster still. Up to four vectors take little longer than one.",
        Axis::log(
            "vectors multiplied at once",
            (1.0, 12.0), // leaves room for the labels next to the lines
            &VECTORS.map(|n| n as f64),
        ),
        Axis::log(
            "milliseconds for a product, 576 to 49,152 in f32",
            (2.0, 100.0),
            &[2.0, 5.0, 10.0, 20.0, 50.0, 100.0],
        ),
    );
    plot.dots("dropped", &[simple, sums]);
    let words = format!("simple loop, one thread: {:.0} ms", simple.1);
    plot.words("left", simple, (12.0, 4.0), &words);
    plot.words("left", sums, (12.0, 4.0), &format!("several sums, one thread: {:.1} ms", sums.1));
    plot.beside(&times.beside_line("head_f32_threads", &VECTORS, 1e-3));
    plot.series("kept", &mine);
    plot.series("known", &kit);
    let (mine, kit) = (mine[VECTORS.len() - 1], kit[VECTORS.len() - 1]);
    plot.words("left", mine, (10.0, -4.0), &format!("day 17: {:.1} ms", mine.1));
    plot.words("left", kit, (10.0, 12.0), &format!("fast: {:.1} ms", kit.1));
    plot.save(folder, "day17_kernel.svg")
}
