//! Counts and measures what the days gain, the reader's or the reference's; measures the whole
//! engine, this machine, and the server under load. `cargo xtask bench` runs this program.

mod args;
mod day00;
mod day01;
mod day02;
mod day03;
mod day04;
mod day05;
mod day06;
mod day07;
mod day08;
mod day09;
mod day10;
mod day11;
mod day12;
mod day13;
mod day14;
mod day15;
mod day16;
mod day17;
mod day18;
mod day19;
mod day20;
mod day21;
mod day22;
mod day23;
mod day24;
mod engine;
mod paged;
mod plot;
mod probe;
mod roofline;
mod serve;
mod shared;
mod tally;
mod times;

use anyhow::{bail, ensure, Result};
use args::Args;
use candecode::kit::error::{describe, usage, Usage};
use candecode::kit::panics;
use candecode::DAYS;
use candecode_engine::{credits, kernels};
use clap::Parser as _;
use shared::results;
use std::path::Path;
use std::process::ExitCode;
use tally::Tally;
use times::Times;

/// Counts what the day's code changes.
type Count = fn(&mut Tally) -> Result<()>;
/// Measures in rounds.
type Measure = fn(&mut Times) -> Result<()>;
/// Prints the times, and writes plots to a folder.
type Report = fn(&Times, &Path) -> Result<()>;

/// What the program counts and measures for a day, or for attention over pages.
struct Bench {
    name: &'static str,
    /// The counts are the same on every machine.
    count: Option<Count>,
    times: Option<(Measure, Report)>,
}

const fn counted(name: &'static str, count: Count) -> Bench {
    Bench { name, count: Some(count), times: None }
}

const fn timed(name: &'static str, measure: Measure, report: Report) -> Bench {
    Bench { name, count: None, times: Some((measure, report)) }
}

const fn both(name: &'static str, count: Count, measure: Measure, report: Report) -> Bench {
    Bench { name, count: Some(count), times: Some((measure, report)) }
}

const IN_ROUNDS: [Bench; 24] = [
    both("day0", day00::count, day00::measure, day00::report),
    both("day1", day01::count, day01::measure, day01::report),
    both("day2", day02::count, day02::measure, day02::report),
    both("day3", day03::count, day03::measure, day03::report),
    both("day4", day04::count, day04::measure, day04::report),
    both("day5", day05::count, day05::measure, day05::report),
    both("day6", day06::count, day06::measure, day06::report),
    counted("day7", day07::count),
    counted("day8", day08::count),
    counted("day9", day09::count),
    both("day10", day10::count, day10::measure, day10::report),
    counted("day11", day11::count),
    both("day12", day12::count, day12::measure, day12::report),
    both("day13", day13::count, day13::measure, day13::report),
    both("day14", day14::count, day14::measure, day14::report),
    both("day15", day15::count, day15::measure, day15::report),
    timed("day17", day17::measure, day17::report),
    timed("day18", day18::measure, day18::report),
    counted("day20", day20::count),
    both("day21", day21::count, day21::measure, day21::report),
    both("day22", day22::count, day22::measure, day22::report),
    both("day23", day23::count, day23::measure, day23::report),
    both("day24", day24::count, day24::measure, day24::report),
    timed("paged", paged::measure, paged::report),
];

/// A measurement that takes care of everything itself.
type Whole = (&'static str, fn(&Args) -> Result<()>);

const WHOLE: [Whole; 6] = [
    ("day16", day16::measure),
    ("day19", day19::measure),
    ("engine", engine::measure),
    ("machine", roofline::machine_alone),
    ("roofline", roofline::measure),
    ("serve", serve::measure),
];

fn main() -> ExitCode {
    candecode_allocator::keep_freed_memory();
    let args = Args::parse();
    kernels::set_threads();
    panics::quiet_panics();
    match std::panic::catch_unwind(|| kernels::in_pool(|| run(&args))) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("error: {}", describe(&error));
            ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
        }
        Err(panic) => {
            eprintln!("{}", panics::describe_panic(&*panic));
            ExitCode::FAILURE
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
    let is_guess = args.guess.is_none() || what == Some("day16");
    ensure!(is_guess, usage("--guess is for day16"));
    let has_model = args.model.is_none() || matches!(what, Some("day19" | "engine" | "serve"));
    ensure!(has_model, usage("--model is for day19, engine and serve"));
    if let Some((name, measure)) = WHOLE.into_iter().find(|(name, _)| what == Some(*name)) {
        let has_rounds = args.rounds.is_none() || name == "engine";
        ensure!(has_rounds, usage(format!("bench {name} has no rounds: omit --rounds")));
        eprintln!("[{}]", credits::whose(DAYS));
        ready();
        return measure(args);
    }
    let asked =
        |bench: &&Bench| what.map_or(bench.name.starts_with("day"), |what| what == bench.name);
    let benches: Vec<&Bench> = IN_ROUNDS.iter().filter(asked).collect();
    if benches.is_empty() {
        let names = IN_ROUNDS.iter().map(|bench| bench.name);
        let names = names.chain(WHOLE.iter().map(|whole| whole.0)).collect::<Vec<_>>().join(", ");
        bail!(usage(format!("no benchmark {:?}; choose one of {names}", what.unwrap_or_default())));
    }
    if let [Bench { name, count: None, .. }] = benches[..] {
        let measures = args.rounds != Some(0);
        ensure!(measures, usage(format!("bench {name} counts nothing: omit --rounds 0")));
    }
    eprintln!("[{}]", credits::whose(DAYS));
    benches.into_iter().try_for_each(|bench| in_rounds(args, bench))
}

fn ready() {
    eprintln!("Close other programs, because they affect the measurements.");
}

/// Counts, then measures in rounds, then reports the times.
fn in_rounds(args: &Args, bench: &Bench) -> Result<()> {
    let asked_for_counts = args.only.is_none() && args.times.is_none() && !args.no_counts;
    if let Some(count) = bench.count.filter(|_| asked_for_counts) {
        let mut tally = Tally::default();
        count(&mut tally)?;
        tally.print(bench.name.trim_start_matches("day").parse().unwrap_or_default());
    }
    let Some((measure, report)) = bench.times.filter(|_| args.rounds() > 0) else {
        return Ok(());
    };
    ready();
    let mut times = Times::new(args.only.clone());
    for round in 1..=args.rounds() {
        eprintln!("round {round} of {}", args.rounds());
        measure(&mut times)?;
    }
    if let Some(file) = &args.times {
        return times.save(file);
    }
    if let Some(file) = &args.beside {
        times.put_beside(file)?;
    }
    match &args.only {
        Some(name) => println!("{:.0}", times.of(name)? * 1e9),
        None => report(&times, &results(args)?)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_has_a_number() {
        let names = IN_ROUNDS.iter().map(|bench| bench.name);
        let names: Vec<&str> = names.chain(WHOLE.map(|whole| whole.0)).collect();
        for day in DAYS {
            assert!(names.contains(&&*format!("day{}", day.number)), "day {}", day.number);
        }
    }

    #[test]
    fn a_flag_that_would_do_nothing_is_refused() {
        for (name, flag, value) in [
            ("day17", "--rounds", "0"),
            ("day18", "--rounds", "0"),
            ("serve", "--rounds", "2"),
            ("day10", "--model", "story-230k"),
            ("roofline", "--model", "story-230k"),
            ("day10", "--guess", "40"),
            ("day10", "--device", "cuda"),
        ] {
            let error = run(&Args::parse_from(["bench", name, flag, value])).unwrap_err();
            assert!(error.is::<Usage>() && error.to_string().contains(flag), "{name}: {error}");
        }
    }
}
