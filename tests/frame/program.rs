//! A day's checks as a program, which does what its first argument says:
//!
//! | argument | what it does |
//! |---|---|
//! | `serve` | runs each check whose id arrives on standard input, and sends a report |
//! | `measure` | prints numbers for the day's chapter, if the day has any |
//! | none, or parts of ids | runs these checks side by side, and prints what fails |
//!
//! The runner starts several programs that `serve`, and sends each one check at a time: what a
//! program prints is then that check's, and a check that never ends, or takes its program down, is
//! the one that the runner is waiting for.

use super::report::Report;
use super::{run, run_to_the_end, Check};
use candecode::kit::panics::describe_panic;
use candle_core::Result;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Lists a day's checks by task, and turns the file into a program. The list starts with the module
/// of the day. A check is named after its function, or `name = function` if two tasks make the same
/// claim. After the tasks, `also:` lists tests of what isn't the reader's, and `measure:` names the
/// function that prints numbers for the chapter.
///
/// `implementation!` builds a `Day` from a module: `src/dayNN_*.rs` with the feature `mine`,
/// otherwise the library's. The runner compiles the program again with the cfg `mistakes`, for the
/// file generated from `mistakes.toml`, which provides `stub()`, `mistakes()` and `variants()`.
#[allow(unused_macros)] // frame/likely.rs isn't a day
macro_rules! checks {
    (
        $day:ident:
        $($task:literal: $($name:ident $(= $check:ident)?),+;)+
        $(also: $($also:ident),+;)?
        $(measure: $measure:path;)?
    ) => {
        #[cfg(mistakes)]
        include!(env!("CANDECODE_MISTAKES"));

        fn main() -> std::process::ExitCode {
            let checks = [$($(
                frame::Check {
                    task: stringify!($task),
                    name: stringify!($name),
                    check: frame::checks!(@ $name $($check)?),
                },
            )+)+];
            let also: &[(&str, frame::program::Test)] = &[$($((stringify!($also), $also)),+)?];
            let measure: &[frame::program::Measure<Day>] = &[$($measure)?];
            #[cfg(mistakes)]
            let all = |_: &[String]| {
                let _ = measure;
                frame::proof::main(&checks, also, &stub(), &mistakes(), &variants())
            };
            #[cfg(not(mistakes))]
            let all = |args: &[String]| {
                frame::program::main(args, &checks, also, measure, &implementation!(crate::$day))
            };
            all(&std::env::args().skip(1).collect::<Vec<_>>())
        }
    };
    (@ $name:ident) => { $name };
    (@ $name:ident $check:ident) => { $check };
}
pub(crate) use checks;

/// A test of what isn't the reader's.
pub type Test = fn() -> Result<()>;

/// Prints numbers for a day's chapter.
pub type Measure<D> = fn(&D) -> Result<()>;

/// Runs the program of a day.
pub fn main<D: Copy + Send + Sync + 'static>(
    args: &[String],
    checks: &[Check<D>],
    also: &[(&str, Test)],
    measure: &[Measure<D>],
    day: &D,
) -> ExitCode {
    match args.first().map(String::as_str) {
        Some("serve") => serve(checks, day),
        Some("measure") => {
            for measure in measure {
                if let Err(error) = measure(day) {
                    eprintln!("error: {error}");
                    return ExitCode::FAILURE;
                }
            }
        }
        Some(flag) if flag.starts_with('-') => {
            eprintln!("error: unknown flag {flag}: use serve, measure or parts of ids");
            return ExitCode::from(2);
        }
        _ => return all(args, checks, also, day),
    }
    ExitCode::SUCCESS
}

/// Runs every check whose id arrives on standard input, until that ends. Then the runner has gone,
/// so a check that still runs a minute later is stuck, and the program exits.
fn serve<D: Copy + Send + 'static>(checks: &[Check<D>], day: &D) {
    let (send, ids) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let lines = std::io::stdin().lines().map_while(std::result::Result::ok);
        lines.for_each(|id| drop(send.send(id)));
        drop(send);
        std::thread::sleep(Duration::from_secs(60));
        std::process::exit(1);
    });
    for id in ids {
        let report = match checks.iter().find(|check| check.id() == id) {
            Some(check) => Report::of(check, &run_to_the_end(check, day)),
            None => Report::plain("failed", format!("there is no check `{id}`")),
        };
        report.send(&id);
    }
}

/// Runs all checks, or those whose ids contain one of `parts`, and prints what fails.
fn all<D: Copy + Send + Sync + 'static>(
    parts: &[String],
    checks: &[Check<D>],
    also: &[(&str, Test)],
    day: &D,
) -> ExitCode {
    let asked = |id: &str| parts.is_empty() || parts.iter().any(|part| id.contains(part.as_str()));
    let checks: Vec<&Check<D>> = checks.iter().filter(|check| asked(&check.id())).collect();
    let passes = |check: &&Check<D>| {
        let report = Report::of(check, &run(check, day));
        if !report.passed() {
            println!("{}: {}\n", report.status, report.message);
        }
        report.passed()
    };
    let mut passed = on_all_cores(&checks, passes);
    for (name, test) in also.iter().filter(|(name, _)| asked(&also_id(name))) {
        let problem = problem(*test);
        problem.iter().for_each(|problem| println!("{}: {problem}\n", also_id(name)));
        passed.push(problem.is_none());
    }
    let failed = passed.iter().filter(|passed| !**passed).count();
    println!("{} passed, {failed} failed", passed.len() - failed);
    ExitCode::from(u8::from(failed > 0))
}

/// Returns the id of a test of what isn't the reader's.
pub fn also_id(name: &str) -> String {
    format!("proof_{name}")
}

/// Runs such a test. Returns what is wrong.
pub fn problem(test: Test) -> Option<String> {
    match std::panic::catch_unwind(test) {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(panic) => Some(describe_panic(&*panic)),
    }
}

/// Applies `f` to every item. Doesn't use rayon, because a check blocks while it waits for its own
/// thread, and that thread may need rayon's pool.
pub fn on_all_cores<T: Sync, R: Send>(items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = || {
        let at = next.fetch_add(1, Ordering::Relaxed);
        Some((at, f(items.get(at)?)))
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let work = || std::iter::from_fn(take).collect::<Vec<_>>();
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}
