//! Measures the reference: the days, the whole engine, its quality, this machine, and the server
//! under load. `cargo xtask bench` runs this program.

mod args;
mod day10;
mod day12;
mod day13;
mod day14;
mod day15;
mod day17;
mod day18;
mod day19;
mod day21;
mod day22;
mod day23;
mod day24;
mod engine;
mod paged;
mod parts;
mod plot;
mod quality;
mod roofline;
mod serve;
mod shared;
mod times;

use anyhow::{bail, ensure, Result};
use args::Args;
use candecode::kit::error::{usage, Usage};
use candecode_engine::kernels;
use clap::Parser as _;
use std::process::ExitCode;
use times::Times;

/// A day's benchmark: its number, the function that measures, and the one that prints and plots the
/// results.
type Day = (u32, fn(&mut Times) -> Result<()>, fn(&Times) -> Result<()>);

const DAYS: [Day; 11] = [
    (10, day10::measure, day10::report),
    (12, day12::measure, day12::report),
    (13, day13::measure, day13::report),
    (14, day14::measure, day14::report),
    (15, day15::measure, day15::report),
    (17, day17::measure, day17::report),
    (18, day18::measure, day18::report),
    (21, day21::measure, day21::report),
    (22, day22::measure, day22::report),
    (23, day23::measure, day23::report),
    (24, day24::measure, day24::report),
];

fn main() -> ExitCode {
    candecode_allocator::keep_freed_memory();
    let args = Args::parse();
    kernels::set_threads();
    match kernels::in_pool(|| run(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
        }
    }
}

fn run(args: &Args) -> Result<()> {
    if let Some(job) = &args.job {
        return engine::play(job);
    }
    if args.device != "cpu" {
        let has_device = matches!(args.what.as_deref(), Some("engine" | "serve"));
        ensure!(
            has_device,
            usage("--device works with engine and serve; the others measure the CPU's kernels")
        );
        ensure!(!args.save, usage("the book shows only measurements on the CPU: omit --save"));
    }
    let fixed = ["roofline", "day19", "19", "day23", "23", "quality", "serve"];
    if let Some(what) = args.what.as_deref().filter(|what| fixed.contains(what)) {
        let message = format!("bench {what} has no rounds: omit --rounds");
        ensure!(args.rounds.is_none(), usage(message));
    }
    eprintln!("Close other programs, because they affect the measurements.");
    match args.what.as_deref() {
        None => DAYS.iter().try_for_each(|day| measure(args, day.1, day.2)),
        Some("parts") => measure(args, parts::measure, |times| {
            times.print();
            Ok(())
        }),
        Some("paged") => measure(args, paged::measure, paged::report),
        Some("engine") => engine::measure(args),
        Some("roofline") => roofline::measure(args),
        Some("day19" | "19") => day19::measure(args),
        Some("quality") => quality::measure(args),
        Some("serve") => serve::measure(args),
        Some(what) => {
            let number = what.strip_prefix("day").unwrap_or(what);
            match DAYS.iter().find(|day| number == day.0.to_string()) {
                Some(day) => measure(args, day.1, day.2),
                None => bail!(usage(format!(
                    "no benchmark {what:?}; choose day10, day12, day13, day14, day15, day17, \
                     day18, day19, day21, day22, day23, day24, parts, paged, engine, roofline, \
                     quality or serve"
                ))),
            }
        }
    }
}

/// Measures in rounds, then reports the results.
fn measure(
    args: &Args,
    measure: fn(&mut Times) -> Result<()>,
    report: fn(&Times) -> Result<()>,
) -> Result<()> {
    let mut times = Times::new(args.only.clone());
    for round in 1..=args.rounds() {
        eprintln!("round {round} of {}", args.rounds());
        measure(&mut times)?;
    }
    match &args.only {
        Some(name) => println!("{:.0}", times.of(name)? * 1e9),
        None => report(&times)?,
    }
    Ok(())
}
