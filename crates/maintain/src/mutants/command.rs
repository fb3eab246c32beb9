//! `cargo maintain mutants`: changes a day's reference in small ways, and sees whether its checks
//! notice. For maintainers.

use super::survivors::{self, Counts, Report};
use super::trial::{self, Verdict};
use super::verdicts::Results;
use super::{binary, cargo_mutants, Mutant};
use anyhow::{anyhow, Result};
use clap::Args;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use xtask::note;
use xtask::repo::{Day, Repo};
use xtask::say;
use xtask::usage;

/// The flags of `mutants`.
#[derive(Args)]
pub struct Mutants {
    /// The day; all, if none is named
    #[arg(value_name = "DAY")]
    day: Option<String>,
    /// So many mutants in one test binary
    #[arg(long, default_value_t = 80)]
    batch: usize,
    /// So many run at a time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Only list them
    #[arg(long)]
    list: bool,
}

/// Runs `mutants`. What is known from a run that was broken off is not done again.
///
/// # Errors
/// If `cargo mutants` is not installed, the reference does not pass its checks, or a file cannot be
/// written.
pub fn run(repo: &Repo, args: &Mutants) -> Result<ExitCode> {
    if args.batch == 0 || args.jobs == 0 {
        return Err(usage("--batch and --jobs must be at least 1"));
    }
    let days = match &args.day {
        Some(day) => vec![repo.day(day)?],
        None => repo.days.iter().collect(),
    };
    let mut open = 0;
    for day in days {
        let mutants = cargo_mutants::mutants(repo, day)?;
        if args.list {
            for mutant in &mutants {
                say!("{}: `{}`: {}", mutant.id.function, mutant.id.line, mutant.id.change);
            }
            continue;
        }
        let mut results = Results::open(repo, day)?;
        examine(repo, day, &mutants, &mut results, args)?;
        open += conclude(repo, day, &mutants, &results)?;
    }
    Ok(ExitCode::from(u8::from(open > 0)))
}

/// Brings a verdict on every mutant that has none, batch by batch.
fn examine(
    repo: &Repo,
    day: &Day,
    mutants: &[Mutant],
    results: &mut Results,
    args: &Mutants,
) -> Result<()> {
    // From 1: 0 is the reference itself.
    let open: Vec<usize> =
        (1..=mutants.len()).filter(|at| results.get(&mutants[at - 1].id).is_none()).collect();
    note!("day {}: {} mutants, {} to try", day.number, mutants.len(), open.len());
    for batch in open.chunks(args.batch) {
        let built = binary::build(repo, day, mutants, batch)?;
        for at in &built.unviable {
            results.keep(&mutants[at - 1].id, Verdict::Unviable)?;
        }
        let viable: Vec<usize> =
            batch.iter().copied().filter(|at| !built.unviable.contains(at)).collect();
        note!("day {}: {} of {} compile", day.number, viable.len(), batch.len());
        let limit = trial::limit(repo, &built.program)?;
        trials(repo, &built.program, mutants, &viable, results, limit, args.jobs)?;
    }
    Ok(())
}

/// Tries mutants, some at a time; each verdict is kept as it comes.
fn trials(
    repo: &Repo,
    program: &Path,
    mutants: &[Mutant],
    viable: &[usize],
    results: &mut Results,
    limit: Duration,
    jobs: usize,
) -> Result<()> {
    let (queue, results) = (Mutex::new(viable.iter()), Mutex::new(results));
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next().copied();
    let work = || -> Result<()> {
        while let Some(at) = next() {
            let id = &mutants[at - 1].id;
            let hint = {
                let results = results.lock().unwrap_or_else(PoisonError::into_inner);
                results.hint(id).to_string()
            };
            let verdict = trial::run(repo, program, at, &hint, limit)?;
            if verdict == Verdict::Survived {
                note!("survived  {}: `{}`: {}", id.function, id.line, id.change);
            }
            results.lock().unwrap_or_else(PoisonError::into_inner).keep(id, verdict)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().map_err(|_| anyhow!("a worker panicked"))??;
        }
        Ok(())
    })
}

/// Writes the report, keeping the reasons, and says what is still without one; how many those are.
fn conclude(repo: &Repo, day: &Day, mutants: &[Mutant], results: &Results) -> Result<usize> {
    let before = Report::read(repo, day)?;
    let mut now = Report { versions: cargo_mutants::versions(repo), ..Report::default() };
    let counts: &mut Counts = &mut now.counts;
    for mutant in mutants {
        match results.get(&mutant.id) {
            Some(Verdict::Unviable) => counts.unviable += 1,
            Some(Verdict::Caught(_)) => counts.caught += 1,
            Some(Verdict::Stopped(_)) => {
                counts.caught += 1;
                counts.stopped += 1;
            }
            Some(Verdict::Survived) | None => {
                counts.survived += 1;
                let reason = before.reasons.get(&mutant.id).cloned().unwrap_or_default();
                now.reasons.insert(mutant.id.clone(), reason);
            }
        }
    }
    now.write(repo, day)?;
    for id in before.reasons.keys().filter(|id| !now.reasons.contains_key(id)) {
        say!("no survivor any more: {}: `{}`: {}", id.function, id.line, id.change);
    }
    let open = now.unexplained();
    for id in &open {
        say!("SURVIVED  {}: `{}`: {}", id.function, id.line, id.change);
    }
    let Counts { unviable, caught, survived, .. } = now.counts;
    say!(
        "day {}: {caught} caught, {survived} survived, {} of them without a reason in {}; \
         {unviable} do not compile",
        day.number,
        open.len(),
        survivors::path(day)
    );
    Ok(open.len())
}
