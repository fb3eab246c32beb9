//! What each stage does.

use crate::prose;
use crate::python_packages;
use crate::stages::Outcome;
use crate::stock_book;
use crate::teeth_table;
use anyhow::{anyhow, bail, ensure, Context, Result};
use std::process::Command;
use std::time::Duration;
use xtask::cargo::{self, Built};
use xtask::checks;
use xtask::checks::builds::MISTAKES;
use xtask::checks::outcome::Status;
use xtask::checks::runner::{self, DayRun, Options, Teeth};
use xtask::checks::saved::Inputs;
use xtask::checks::table::{self, Sum};
use xtask::child::{self, End};
use xtask::commands::hint;
use xtask::commands::write_stubs::{self, Stubs};
use xtask::progress::{self, Progress};
use xtask::repo::Repo;
use xtask::say;

/// A stage of many tests may take this long.
const LIMIT: Duration = Duration::from_secs(60 * 60);

pub fn fmt(repo: &Repo) -> Result<Outcome> {
    succeed(repo, &["fmt", "--all", "--check"])
}

pub fn stubs_fresh(repo: &Repo) -> Result<Outcome> {
    write_stubs::run(repo, &Stubs::checking()).map_err(|e| {
        anyhow!("{e:#}\n(in a copy in which you write: `cargo maintain ci --fork`)")
    })?;
    Ok(Outcome::Done(Sum::default()))
}

pub fn hints_whole(repo: &Repo) -> Result<Outcome> {
    hint::run(repo, &hint::checking())?;
    Ok(Outcome::Done(Sum::default()))
}

pub fn house(repo: &Repo) -> Result<Outcome> {
    some(tests(repo, &["--test", "house"])?)
}

pub fn xtask(repo: &Repo) -> Result<Outcome> {
    some(tests(repo, &["--package", "xtask"])?)
}

pub fn tools(repo: &Repo) -> Result<Outcome> {
    let package = ["--package", "maintain", "--bins"];
    let programs = ["--test", "ci_stages", "--test", "build_profile"];
    some(tests(repo, &[&package[..], &programs].concat())?)
}

/// Tests of the runner that build the course: `cargo test` alone leaves them out.
pub fn real(repo: &Repo) -> Result<Outcome> {
    some(tests(repo, &["--package", "xtask", "--test", "real", "--", "--include-ignored"])?)
}

pub fn clippy_xtask(repo: &Repo) -> Result<Outcome> {
    let packages = ["--package", "xtask", "--package", "maintain"];
    succeed(
        repo,
        &[&["clippy", "--all-targets"], &packages[..], &["--", "-D", "warnings"]].concat(),
    )
}

pub fn clippy_stubs(repo: &Repo) -> Result<Outcome> {
    succeed(repo, &["clippy", "--all-targets", "--", "-D", "warnings"])
}

pub fn clippy_ref(repo: &Repo) -> Result<Outcome> {
    succeed(
        repo,
        &["clippy", "--all-targets", "--features", "ref,mistakes", "--", "-D", "warnings"],
    )
}

pub fn clippy_book(repo: &Repo) -> Result<Outcome> {
    succeed(repo, &["clippy", "--package", "book-tool", "--all-targets", "--", "-D", "warnings"])
}

pub fn stubs_compile(repo: &Repo) -> Result<Outcome> {
    match cargo::build(repo, "build", &["--lib".into(), "--bins".into()], "Building the stubs.")? {
        Built::Broken(_) => bail!("the stubs do not compile"),
        Built::Done(programs) => ensure!(programs.warnings == 0, "{} warnings", programs.warnings),
    }
    Ok(Outcome::Done(Sum::default()))
}

/// The checks of every task must tell an unwritten day from a wrong one; and every task must have a
/// check.
pub fn unwritten(repo: &Repo) -> Result<Outcome> {
    let mut sum = Sum::default();
    for run in days(repo, &[], Teeth::Without)? {
        for unit in &run.units {
            let honest = unit.status == Status::Unwritten;
            if !honest {
                say!("{} on the stubs: {}\n{}", unit.test, unit.status.words().1, unit.message);
            }
            sum.add(Sum { passed: usize::from(honest), failed: usize::from(!honest) });
        }
        for task in repo.tasks(&run.day)? {
            if !run.units.iter().any(|unit| unit.task().as_ref() == Some(&task.id)) {
                say!("task {} has no check", task.id);
                sum.failed += 1;
            }
        }
    }
    Ok(Outcome::Done(sum))
}

/// In a reader's copy: every day that is begun passes, as far as it is written.
pub fn mine_passes(repo: &Repo) -> Result<Outcome> {
    let (mut sum, inputs) = (Sum::default(), Inputs::read(repo));
    for day in &repo.days {
        if !matches!(progress::of(repo, day)?, Progress::Begun(_)) {
            continue;
        }
        let mut run = checks::of_reader(repo, &inputs, day, None)?;
        table::messages(&run, true, &[]);
        table::tasks(repo, &run, "yours", &[])?;
        run.units.retain(|unit| unit.status != Status::Unwritten);
        if !run.units.is_empty() {
            sum.add(Sum::of(&run.units));
        }
    }
    Ok(Outcome::Done(sum))
}

pub fn reference(repo: &Repo) -> Result<Outcome> {
    let mut sum = Sum::default();
    for run in days(repo, &["ref".to_string()], Teeth::Without)? {
        table::messages(&run, true, &[]);
        table::tasks(repo, &run, "the reference", &[])?;
        sum.add(Sum::of(&run.units));
    }
    // Once more on candle-nn's operations, which a GPU runs by default: whole models must say the same.
    std::env::set_var("CANDECODE_KERNELS", "candle");
    for run in days(repo, &["ref".to_string()], Teeth::Without)? {
        table::messages(&run, true, &[]);
        sum.add(Sum::of(&run.units));
    }
    std::env::remove_var("CANDECODE_KERNELS");
    Ok(Outcome::Done(sum))
}

pub fn known_mistakes(repo: &Repo) -> Result<Outcome> {
    let mut sum = Sum::default();
    for run in days(repo, &["ref".to_string(), MISTAKES.to_string()], Teeth::Only)? {
        sum.add(teeth_table::show(&run));
    }
    Ok(Outcome::Done(sum))
}

/// Runs the checkers of all days on one build.
pub fn days(repo: &Repo, features: &[String], teeth: Teeth) -> Result<Vec<DayRun>> {
    let Built::Done(programs) = runner::build(repo, features, &repo.days, None)? else {
        bail!("the checkers do not compile");
    };
    let options = Options { teeth, ..Options::default() };
    repo.days.iter().map(|day| runner::run_day(repo, day, &programs, &options)).collect()
}

/// Unit tests, and the test programs that belong to no day and have no stage of their own.
pub fn kit(repo: &Repo) -> Result<Outcome> {
    let mut args = vec!["--features".to_string(), "ref".into(), "--lib".into(), "--bins".into()];
    for entry in std::fs::read_dir(repo.root.join("tests")).context("tests/")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(stem) = name.strip_suffix(".rs") {
            let is_day = repo.days.iter().any(|day| day.name == stem);
            if !is_day && stem != "bad_input" && stem != "house" {
                args.extend(["--test".to_string(), stem.to_string()]);
            }
        }
    }
    some(tests(repo, &args.iter().map(String::as_str).collect::<Vec<_>>())?)
}

/// Chat templates beside Jinja2, and templates that mean harm.
pub fn jinja(repo: &Repo) -> Result<Outcome> {
    let package = ["--package", "candecode-jinja"];
    let lints = [&["clippy", "--all-targets"], &package[..], &["--", "-D", "warnings"]].concat();
    succeed(repo, &lints)?;
    some(tests(repo, &package)?)
}

pub fn bad_input(repo: &Repo) -> Result<Outcome> {
    ensure!(repo.root.join("tests/bad_input.rs").exists(), "tests/bad_input.rs is absent");
    some(tests(repo, &["--features", "ref", "--test", "bad_input"])?)
}

/// Some messages quote the operating system; the page has Linux's words.
pub fn messages(repo: &Repo) -> Result<Outcome> {
    if !cfg!(target_os = "linux") {
        return Ok(Outcome::Skipped("the page has the messages of Linux".into()));
    }
    some(tests(repo, &["--package", "maintain", "--test", "messages"])?)
}

/// Its lints, and its tests on the loopback.
pub fn server(repo: &Repo) -> Result<Outcome> {
    let package = ["--package", "candecode-serve", "--features", "ref"];
    let lints = [&["clippy", "--all-targets"], &package[..], &["--", "-D", "warnings"]].concat();
    succeed(repo, &lints)?;
    some(tests(repo, &package)?)
}

/// Clients that people use, on a server of ours.
pub fn clients(repo: &Repo) -> Result<Outcome> {
    crate::client_stage::run(repo, LIMIT)
}

/// `cargo xtask compare` fails where a text differs.
pub fn every_loop(repo: &Repo) -> Result<Outcome> {
    let texts = ["xtask", "compare", "--rounds", "1", "--max-new-tokens", "48"];
    succeed(repo, &texts)?;
    succeed(repo, &[&texts[..], &["--temperature", "0.9", "--seed", "3"]].concat())
}

/// Their lints, and that a wrong flag is told before anything is measured.
pub fn clippy_benches(repo: &Repo) -> Result<Outcome> {
    let packages = ["--package", "benches", "--package", "peers"];
    succeed(
        repo,
        &[&["clippy", "--all-targets"], &packages[..], &["--", "-D", "warnings"]].concat(),
    )?;
    some(tests(repo, &["--package", "benches", "--test", "save"])?)
}

pub fn docs(repo: &Repo) -> Result<Outcome> {
    let mut command = cargo::command(repo);
    command
        .args(["doc", "--no-deps", "--features", "ref", "--quiet"])
        .env("RUSTDOCFLAGS", "-D warnings");
    ensure!(command.status()?.success(), "cargo doc failed");
    tests(repo, &["--features", "ref", "--doc"])
}

/// The book, with live figures where what compiles them can be had; and once more by mdBook itself.
pub fn book(repo: &Repo) -> Result<Outcome> {
    if cfg!(unix) {
        script(repo, "crates/maintain/scripts/wasm-std.sh", &[])?;
    }
    succeed(
        repo,
        &["run", "--quiet", "--profile", "tools", "--package", "book-tool", "--", "build"],
    )?;
    stock_book::compare(repo)?;
    Ok(Outcome::Done(Sum::default()))
}

/// The outputs that the book prints, of the engine without mistakes.
pub fn printed(repo: &Repo) -> Result<Outcome> {
    if cfg!(windows) {
        return Ok(Outcome::Skipped("the commands of the book are typed into bash".into()));
    }
    some(Outcome::Done(crate::printed::quick(repo)?))
}

/// Where a reader may stumble: for the eyes of whoever reads the change.
pub fn prose(repo: &Repo) -> Result<Outcome> {
    prose::list(repo, "HEAD~1")?;
    Ok(Outcome::Done(Sum::default()))
}

/// On macOS the real thing; on Linux a type-check, where the parts for it can be had.
pub fn metal(repo: &Repo) -> Result<Outcome> {
    if cfg!(target_os = "macos") {
        return succeed(repo, &["check", "--features", "metal,ref"]);
    }
    if !cfg!(target_os = "linux") {
        return Ok(Outcome::Skipped(
            "the Metal path can be checked on macOS and Linux only".into(),
        ));
    }
    script(repo, "crates/maintain/scripts/metal-check.sh", &["--features", "metal,ref"])
}

/// The library alone, as a page of the book would run it.
pub fn wasm(repo: &Repo) -> Result<Outcome> {
    if cfg!(windows) {
        return Ok(Outcome::Skipped("the check is a script for bash".into()));
    }
    script(repo, "crates/maintain/scripts/wasm-check.sh", &["--features", "ref"])
}

/// The live figures: their answers on this machine, and those of the built book, driven in a
/// browser. `PYTHON` may name a Python with Playwright; else one is made where there is a browser.
pub fn live(repo: &Repo) -> Result<Outcome> {
    succeed(repo, &["test", "--quiet", "--package", "candecode-live", "--features", "ref"])?;
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    if Command::new(&python).arg("--version").output().is_err() {
        return Ok(Outcome::Skipped("no Python, which drives the browser".into()));
    }
    let drive = ["crates/maintain/scripts/live.py", "book/book"];
    let outcome = program(repo, &python, &drive)?;
    let Outcome::Skipped(why) = &outcome else { return Ok(outcome) };
    if !why.contains("Playwright") {
        return Ok(outcome);
    }
    match python_packages::environment(
        repo,
        "live-venv",
        "crates/maintain/scripts/live-requirements.txt",
    )? {
        Ok(python) => program(repo, &python.to_string_lossy(), &drive),
        Err(why) => Ok(Outcome::Skipped(why)),
    }
}

/// Runs a script of bash that says SKIPPED, and why, where it lacks what it needs.
fn script(repo: &Repo, path: &str, args: &[&str]) -> Result<Outcome> {
    program(repo, "bash", &[&[path], args].concat())
}

/// Runs a program that says SKIPPED, and why, where it lacks what it needs.
fn program(repo: &Repo, name: &str, args: &[&str]) -> Result<Outcome> {
    let mut command = Command::new(name);
    command.args(args).current_dir(&repo.root);
    let outcome = child::run(&mut command, LIMIT, |line| say!("{line}"))?;
    let all = outcome.stdout + &outcome.stderr;
    match (outcome.end, all.lines().find(|line| line.starts_with("SKIPPED"))) {
        (End::Exit(0), Some(why)) => Ok(Outcome::Skipped(why.to_string())),
        (End::Exit(0), None) => Ok(Outcome::Done(Sum::default())),
        _ => bail!("{all}"),
    }
}

/// Runs cargo, its output shown as it is; a failure is an error.
pub fn succeed(repo: &Repo, args: &[&str]) -> Result<Outcome> {
    let status = cargo::command(repo).args(args).status().context("cannot start cargo")?;
    ensure!(status.success(), "`cargo {}` failed", args.join(" "));
    Ok(Outcome::Done(Sum::default()))
}

/// Runs `cargo test` and sums what its programs report.
pub fn tests(repo: &Repo, args: &[&str]) -> Result<Outcome> {
    let mut command = cargo::command(repo);
    command.arg("test").arg("--no-fail-fast").args(args);
    let outcome = child::run(&mut command, LIMIT, |line| say!("{line}"))?;
    let (passed, failed) = totals(&outcome.stdout);
    ensure!(
        outcome.end == End::Exit(0) || failed > 0,
        "`cargo test {}` did not run to its end: {:?}\n{}",
        args.join(" "),
        outcome.end,
        outcome.stderr
    );
    Ok(Outcome::Done(Sum { passed, failed }))
}

/// What a stage of tests came to; that none ran is a failure: a stage that checks nothing must not
/// look green.
pub fn some(outcome: Outcome) -> Result<Outcome> {
    if let Outcome::Done(sum) = &outcome {
        ensure!(sum.passed + sum.failed > 0, "no test ran");
    }
    Ok(outcome)
}

/// Passed and failed, summed over all `test result:` lines of a `cargo test`.
fn totals(stdout: &str) -> (usize, usize) {
    let (mut passed, mut failed) = (0, 0);
    for line in stdout.lines().filter(|line| line.starts_with("test result:")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let before = |word: &str| {
            let at = words.iter().position(|w| *w == word)?;
            words.get(at.checked_sub(1)?)?.parse::<usize>().ok()
        };
        passed += before("passed;").unwrap_or(0);
        failed += before("failed;").unwrap_or(0);
    }
    (passed, failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_summed() {
        let stdout = "test result: ok. 3 passed; 0 failed; 1 ignored;\nx\ntest result: FAILED. 2 passed; 1 failed; 0";
        assert_eq!(totals(stdout), (5, 1));
    }

    #[test]
    fn a_stage_that_ran_no_test_fails() {
        assert!(some(Outcome::Done(Sum::default())).is_err());
        assert!(some(Outcome::Done(Sum { passed: 1, failed: 0 })).is_ok());
        assert!(some(Outcome::Done(Sum { passed: 0, failed: 1 })).is_ok());
        assert!(some(Outcome::Skipped("not here".into())).is_ok());
    }
}
