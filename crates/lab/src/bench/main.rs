//! Measures the reference: the days, the whole engine, its quality, this machine, and the server
//! under load. `cargo xtask bench` runs this program.

mod args;
mod day00;
mod day01;
mod day02;
mod day03;
mod day04;
mod day05;
mod day06;
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
use shared::results;
use std::path::Path;
use std::process::ExitCode;
use times::Times;

/// A measurement in rounds: its name, the function that measures, and the one that prints the
/// results and writes plots to a folder.
type Bench = (&'static str, fn(&mut Times) -> Result<()>, fn(&Times, &Path) -> Result<()>);

const IN_ROUNDS: [Bench; 19] = [
    ("day0", day00::measure, day00::report),
    ("day1", day01::measure, day01::report),
    ("day2", day02::measure, day02::report),
    ("day3", day03::measure, day03::report),
    ("day4", day04::measure, day04::report),
    ("day5", day05::measure, day05::report),
    ("day6", day06::measure, day06::report),
    ("day10", day10::measure, day10::report),
    ("day12", day12::measure, day12::report),
    ("day13", day13::measure, day13::report),
    ("day14", day14::measure, day14::report),
    ("day15", day15::measure, day15::report),
    ("day17", day17::measure, day17::report),
    ("day18", day18::measure, day18::report),
    ("day21", day21::measure, day21::report),
    ("day22", day22::measure, day22::report),
    ("day23", day23::measure, day23::report),
    ("day24", day24::measure, day24::report),
    ("paged", paged::measure, paged::report),
];

/// A measurement that takes care of everything itself.
type Whole = (&'static str, fn(&Args) -> Result<()>);

const WHOLE: [Whole; 6] = [
    ("day19", day19::measure),
    ("engine", engine::measure),
    ("machine", roofline::machine_alone),
    ("roofline", roofline::measure),
    ("quality", quality::measure),
    ("serve", serve::measure),
];

fn main() -> ExitCode {
    candecode_allocator::keep_freed_memory();
    let args = Args::parse();
    kernels::set_threads();
    match kernels::in_pool(|| run(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
        }
    }
}

fn run(args: &Args) -> Result<()> {
    if let Some(job) = &args.job {
        return engine::play(job);
    }
    let what = args.what.as_ref().map(|what| match what.parse::<u8>() {
        Ok(day) => format!("day{day}"),
        Err(_) => what.clone(),
    });
    let what = what.as_deref();
    if args.device != "cpu" {
        let has_device = matches!(what, Some("engine" | "serve"));
        ensure!(
            has_device,
            usage("--device works with engine and serve; the others measure the CPU's kernels")
        );
    }
    if let Some((name, measure)) = WHOLE.into_iter().find(|(name, _)| what == Some(*name)) {
        let has_rounds = args.rounds.is_none() || name == "engine";
        ensure!(has_rounds, usage(format!("bench {name} has no rounds: omit --rounds")));
        ready();
        return measure(args);
    }
    let asked = |name: &str| what.map_or(name.starts_with("day"), |what| what == name);
    let benches: Vec<Bench> = IN_ROUNDS.into_iter().filter(|bench| asked(bench.0)).collect();
    if benches.is_empty() {
        let names = IN_ROUNDS.iter().map(|bench| bench.0).chain(WHOLE.iter().map(|whole| whole.0));
        let names = names.collect::<Vec<_>>().join(", ");
        bail!(usage(format!("no benchmark {:?}; choose one of {names}", what.unwrap_or_default())));
    }
    ready();
    benches.into_iter().try_for_each(|bench| in_rounds(args, bench))
}

fn ready() {
    eprintln!("Close other programs, because they affect the measurements.");
}

/// Measures in rounds, then reports the results.
fn in_rounds(args: &Args, (_, measure, report): Bench) -> Result<()> {
    let mut times = Times::new(args.only.clone());
    for round in 1..=args.rounds() {
        eprintln!("round {round} of {}", args.rounds());
        measure(&mut times)?;
    }
    match &args.only {
        Some(name) => println!("{:.0}", times.of(name)? * 1e9),
        None => report(&times, &results(args)?)?,
    }
    Ok(())
}
