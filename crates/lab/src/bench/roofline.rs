//! The roofline of this machine, and day 16's predictions for a model next to measurements.
//!
//! Memory bandwidth and peak operations are probed before and after each model. If the two probes
//! differ by more than a tenth, something else was running, and the model is measured again.

use crate::args::Args;
use crate::plot::{tens, Axis, Plot};
use crate::shared::{machine, model, results};
use crate::times::median;
use anyhow::Result;
use candecode::day12_batching::BatchCache;
use candecode::day16_cost_of_a_token::{
    bytes_moved, critical_batch, intensity, operations, Bound, Machine, Pass, Precision,
};
use candecode::kit::{Batch, Cache, Logits, Model, Step};
use candecode_engine::kernels;
use candle_core::DType;
use std::path::Path;
use std::time::{Duration, Instant};

/// The model used for the roofline plot.
const DRAWN: &str = "random-135m";

/// Maximum number of times to measure a model while the probes disagree.
const ATTEMPTS: usize = 4;

/// Number of cached positions before a decoding step, and number of tokens in the longer prompt.
const PAST: usize = 128;
const PROMPT: usize = 256;

/// Number of draft tokens in a verification pass.
const DRAFTS: usize = 4;

/// A pass and its duration.
struct Measured {
    name: String,
    pass: Pass,
    seconds: f64,
}

/// Measures the roof and each model's passes, and prints predictions next to the measurements.
pub fn measure(args: &Args) -> Result<()> {
    machine_alone(args)?;
    for name in ["story-3m", DRAWN] {
        let model = model(name)?;
        let (machine, measured) = steady(&*model)?;
        show(name, &*model, &machine, &measured);
        if name == DRAWN {
            draw(&*model, &machine, &measured, &results(args)?)?;
        }
    }
    Ok(())
}

/// Prints what this machine is, and its two numbers.
pub fn machine_alone(_: &Args) -> Result<()> {
    let found = probe(usize::MAX);
    println!(
        "{}\nmemory bandwidth {:.1} GB/s, peak {:.0} GFLOP/s, balance {:.1} operations per byte",
        machine(),
        found.bandwidth / 1e9,
        found.peak / 1e9,
        found.peak / found.bandwidth
    );
    Ok(())
}

/// Measures the peak, and the bandwidth when reading this many bytes repeatedly.
fn probe(bytes: usize) -> Machine {
    Machine { bandwidth: kernels::bandwidth_of(bytes, 5), peak: kernels::peak_operations(8) }
}

fn precision() -> Precision {
    Precision::new(DType::F32, DType::F32)
}

/// Measures a model's passes between two probes, again if the probes disagree. Returns the average
/// of the probes, and the passes.
fn steady(model: &dyn Model) -> Result<(Machine, Vec<Measured>)> {
    let one = Pass::decode(1, PAST);
    let bytes = bytes_moved(model.config(), &one, &precision()).total() as usize;
    let differ = |a: f64, b: f64| (a / b - 1.0).abs() > 0.1;
    let mut attempts = 0;
    loop {
        let before = probe(bytes);
        let measured = passes(model)?;
        let after = probe(bytes);
        let moved = differ(before.bandwidth, after.bandwidth) || differ(before.peak, after.peak);
        attempts += 1;
        if moved && attempts < ATTEMPTS {
            continue;
        }
        if moved {
            eprintln!(
                "The probes before and after differ by more than a tenth; this machine is busy."
            );
        }
        let bandwidth = (before.bandwidth + after.bandwidth) / 2.0;
        return Ok((Machine { bandwidth, peak: (before.peak + after.peak) / 2.0 }, measured));
    }
}

/// Measures decoding at several batch sizes, a verification, and two prefills.
fn passes(model: &dyn Model) -> Result<Vec<Measured>> {
    let mut all = vec![];
    let mut add = |name: String, pass: Pass| -> Result<()> {
        all.push(Measured { name, pass, seconds: seconds(model, &pass)? });
        Ok(())
    };
    for rows in [1, 2, 4, 8, 16, 32] {
        let noun = if rows == 1 { "row" } else { "rows" };
        add(format!("decode, {rows} {noun}"), Pass::decode(rows, PAST))?;
    }
    let fed = DRAFTS + 1;
    add(format!("verify {DRAFTS} drafts"), Pass { rows: 1, new: fed, past: PAST, logits: fed })?;
    for prompt in [16, PROMPT] {
        add(format!("prefill, {prompt} tokens"), Pass::prefill(1, prompt))?;
    }
    Ok(all)
}

/// Returns the median time of a pass, in seconds.
fn seconds(model: &dyn Model, pass: &Pass) -> Result<f64> {
    let layers = model.config().num_hidden_layers;
    let mut cache = BatchCache::new(layers, Some(pass.past + pass.new));
    let ids: Vec<u32> = (0..(pass.past + pass.new) as u32).map(|i| 300 + i * 7 % 1000).collect();
    if pass.past > 0 {
        let step = Step::new(model, &ids[..pass.past], 0)?.with_logits(Logits::Last(1));
        model.forward(&step, &mut cache)?;
        cache.select(&vec![0; pass.rows])?;
    }
    let positions: Vec<u32> = (pass.past..pass.past + pass.new).map(|p| p as u32).collect();
    let rows = vec![ids[pass.past..].to_vec(); pass.rows];
    let step = Step::batch(model, &rows, &vec![positions; pass.rows], None)?;
    let step = step.with_logits(Logits::Last(pass.logits));
    let mut times = vec![];
    let begun = Instant::now();
    while times.len() < 3 || (times.len() < 31 && begun.elapsed() < Duration::from_millis(600)) {
        let start = Instant::now();
        model.forward(&step, &mut cache)?.to_vec3::<f32>()?;
        times.push(start.elapsed().as_secs_f64());
        cache.truncate(pass.past)?;
    }
    Ok(median(times))
}

fn show(name: &str, model: &dyn Model, machine: &Machine, measured: &[Measured]) {
    let config = model.config();
    println!("\n{name}: {:.1} GB/s, {:.0} GFLOP/s", machine.bandwidth / 1e9, machine.peak / 1e9);
    println!(
        "  {:<19} {:>6} {:>6} {:>8}  {:<10} {:>9} {:>9} {:>6}",
        "pass", "MB", "GFLOP", "ops/byte", "bound by", "predicted", "measured", "share"
    );
    for Measured { name, pass, seconds } in measured {
        let bytes = bytes_moved(config, pass, &precision()).total();
        let count = operations(config, pass).total();
        let prediction = machine.predict_pass(config, pass, &precision());
        let bound = match prediction.bound {
            Bound::Memory => "memory",
            Bound::Compute => "operations",
        };
        println!(
            "  {name:<19} {:>6.1} {:>6.2} {:>8.1}  {bound:<10} {:>6} ms {:>6} ms {:>4.0} %",
            bytes / 1e6,
            count / 1e9,
            intensity(bytes, count),
            milliseconds(prediction.seconds),
            milliseconds(*seconds),
            100.0 * prediction.seconds / seconds
        );
    }
    match critical_batch(config, &precision(), machine) {
        Some(rows) => println!("  products are no longer memory-bound from {rows} rows"),
        None => println!("  products are memory-bound with any number of rows"),
    }
}

/// Returns the time in milliseconds, in at most six characters up to 10 s, so that a line of the
/// table stays in its columns.
fn milliseconds(seconds: f64) -> String {
    let decimals = if seconds < 0.1 { 2 } else { 1 };
    format!("{:.decimals$}", 1e3 * seconds)
}

/// Plots the roof and the measurements: operations per second against operations per byte, on
/// logarithmic axes.
fn draw(model: &dyn Model, machine: &Machine, measured: &[Measured], folder: &Path) -> Result<()> {
    let config = model.config();
    let (left, right) = (0.25, 256.0);
    let tens = tens(1.0, machine.peak / 1e9);
    let twos: Vec<f64> = (-2..=8).map(|n| 2f64.powi(n)).collect();
    let mut plot = Plot::new(
        "Operations per second against operations per byte. The roof rises with the intensity up \
         to the peak, and is flat from there. Decoding one row is near the left end, under the \
         slope; with more rows, it moves right and up. Prefill is under the flat part.",
        Axis::log("operations per byte", (left, right), &twos),
        Axis::log("GFLOP/s; random-135m in f32", (1.0, tens[tens.len() - 1]), &tens),
    );
    let roof = |x: f64| machine.attainable(x) / 1e9;
    let balance = machine.peak / machine.bandwidth;
    let line = [left.max(1e9 / machine.bandwidth), balance, right];
    plot.line("known", &line.map(|x| (x, roof(x))));
    plot.words("", (balance, roof(balance)), (0.0, -16.0), &format!("balance: {balance:.1}"));
    let mut decode = vec![];
    let mut others = vec![];
    for Measured { name, pass, seconds } in measured {
        let bytes = bytes_moved(config, pass, &precision()).total();
        let count = operations(config, pass).total();
        let point = (intensity(bytes, count), count / seconds / 1e9);
        let decodes = pass.new == 1;
        if decodes { &mut decode } else { &mut others }.push(point);
        if pass.new == PROMPT {
            plot.words("right", point, (-8.0, 16.0), name);
        } else if decodes && [1, 8].contains(&pass.rows) {
            plot.words("left", point, (8.0, 20.0), name);
        }
    }
    plot.series("kept", &decode);
    plot.dots("new", &others);
    plot.save(folder, "day16_roofline.svg")
}
