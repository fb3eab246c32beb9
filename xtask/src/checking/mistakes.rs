//! The known mistakes of a day, `tests/dayNN_*/mistakes.toml`: compiles them into one program and
//! records how each affects every check.
//!
//! The record doesn't depend on the reader's code, so it is computed when a check first fails and
//! then kept in `target/`. The program is compiled with `rustc` directly, from the libraries that
//! cargo has just built. Cargo would lock its target directory and block a save or a `hint` in
//! another terminal.

use crate::backup;
use crate::cargo::{self, Programs};
use crate::checking::builds;
use crate::checking::outcome::{self, Unit};
use crate::checking::runner::{self, DayRun};
use crate::checking::saved::Inputs;
use crate::host;
use anyhow::{bail, ensure, Context, Result};
use candecode_course::{Day, Repo};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use toml::{Table, Value};

/// Polled during long operations. Returns true to stop.
pub type Stop<'a> = &'a dyn Fn() -> bool;

/// Returns the record of a day's known mistakes if there is one and nothing it depends on has
/// changed.
pub fn record(
    repo: &Repo,
    day: &Day,
    programs: &Programs,
    device: Option<&str>,
) -> Option<PathBuf> {
    let path = path(repo, day);
    let text = String::from_utf8(backup::read(&path)?).ok()?;
    let (known, rows) = text.split_once('\n')?;
    let rows = outcome::mistake_rows(rows).into_iter().map(|row| row.name);
    let is_whole = known == key(repo, day, programs, device)
        && rows.eq(repo.mistakes(day).ok()?.mistakes.into_iter().map(|mistake| mistake.name));
    is_whole.then_some(path)
}

/// Computes and saves the record of a day. Returns `None` if it was stopped.
///
/// # Errors
/// If the known mistakes don't compile, or their program ends before it has reported them all.
pub fn make_record(
    repo: &Repo,
    day: &Day,
    programs: &Programs,
    device: Option<&str>,
    stop: Stop,
) -> Result<Option<PathBuf>> {
    // Computed first, so that a file that changes in the meantime makes the record stale, never
    // wrong.
    let key = key(repo, day, programs, device);
    let dir = WorkDir::new(repo, day)?;
    let Some(program) = compile(repo, day, programs, &dir.0, stop)? else { return Ok(None) };
    let mut command = runner::command(repo, &program, device);
    command.arg("record").stderr(Stdio::null());
    let Some(report) = report(command, &dir.0, stop)? else { return Ok(None) };
    keep(repo, day, &key, &report)?;
    Ok(Some(path(repo, day)))
}

/// Tests a day's checkers on the known mistakes, the correct variants and the stub. If there is a
/// record, compares it with what the mistakes do now. Otherwise, saves this run as the record.
///
/// # Errors
/// Same as [`make_record`].
pub fn prove(repo: &Repo, day: &Day, programs: &Programs) -> Result<DayRun> {
    let key = key(repo, day, programs, None);
    let dir = WorkDir::new(repo, day)?;
    let Some(program) = compile(repo, day, programs, &dir.0, &|| false)? else { bail!("stopped") };
    let record = record(repo, day, programs, None);
    let mut command = runner::command(repo, &program, None);
    command.envs(record.as_ref().map(|path| ("CANDECODE_RECORD", path)));
    let Some(report) = report(command, &dir.0, &|| false)? else { bail!("stopped") };
    if record.is_none() {
        keep(repo, day, &key, &report)?;
    }
    let units: Vec<Unit> = outcome::parse(&report).into_values().collect();
    ensure!(!units.is_empty(), ended_early(day));
    Ok(DayRun { report, ..DayRun::of(day, units) })
}

/// Runs the program with the known mistakes, and returns what it reports, one record a line. `None`
/// if it was stopped.
fn report(mut command: Command, dir: &Path, stop: Stop) -> Result<Option<String>> {
    let path = dir.join("report");
    command.stdin(Stdio::null()).stdout(fs::File::create(&path)?);
    if run(&mut command, stop)?.is_none() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
    // Each record starts with this character, wherever the code under test has printed something.
    let records = text.split('\u{1e}').skip(1).filter_map(|record| record.lines().next());
    Ok(Some(records.map(|record| format!("{record}\n")).collect()))
}

/// Says that a program ended early.
fn ended_early(day: &Day) -> String {
    let number = day.number;
    format!("the program with day {number}'s known mistakes ended before it had tried all of them")
}

/// A directory for files that this process compiles. Removed on drop.
struct WorkDir(PathBuf);

impl WorkDir {
    fn new(repo: &Repo, day: &Day) -> Result<WorkDir> {
        let dir = runner::work_dir(repo)?.join(format!("{}-{}", day.name, std::process::id()));
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        Ok(WorkDir(dir))
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Saves the rows of a report that are about mistakes.
fn keep(repo: &Repo, day: &Day, key: &str, report: &str) -> Result<()> {
    let known = repo.mistakes(day)?.mistakes.len();
    let rows: Vec<&str> =
        report.lines().filter(|line| line.contains("\"row\":\"mistake\"")).collect();
    ensure!(rows.len() == known, ended_early(day));
    let text: String = [key].into_iter().chain(rows).map(|line| format!("{line}\n")).collect();
    backup::write(&path(repo, day), text.as_bytes())
}

/// Returns the path of a day's record.
fn path(repo: &Repo, day: &Day) -> PathBuf {
    cargo::target_dir(repo).join(format!("candecode/records/{}.jsonl", day.name))
}

/// Returns a key for everything a record depends on. The library's file name in `target/` covers
/// the compiler and the features.
fn key(repo: &Repo, day: &Day, programs: &Programs, device: Option<&str>) -> String {
    let library = programs.library("candecode").map(|path| path.display().to_string());
    let variable = |name| std::env::var(name).unwrap_or_default();
    let machine = [
        library.unwrap_or_default(),
        device.unwrap_or("cpu").to_string(),
        variable("CANDECODE_SIMD"),
        variable("CANDECODE_KERNELS"),
        host::threads_of_children().to_string(),
        instruction_set(),
    ];
    Inputs::read(repo).record_key(day, &machine)
}

/// Lists the CPU features that decide which instructions the kernels use.
fn instruction_set() -> String {
    #[cfg(target_arch = "x86_64")]
    return format!(
        "{:?}",
        [
            is_x86_feature_detected!("avx2"),
            is_x86_feature_detected!("fma"),
            is_x86_feature_detected!("avx512f"),
            is_x86_feature_detected!("avx512vnni"),
        ]
    );
    #[cfg(not(target_arch = "x86_64"))]
    return std::env::consts::ARCH.to_string();
}

/// Compiles the program with a day's mistakes in `dir`. Returns `None` if it was stopped.
fn compile(
    repo: &Repo,
    day: &Day,
    programs: &Programs,
    dir: &Path,
    stop: Stop,
) -> Result<Option<PathBuf>> {
    let source = write_modules(repo, day, dir)?;
    let program = dir.join("program").with_extension(std::env::consts::EXE_EXTENSION);
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    command.current_dir(&repo.root);
    command.arg(repo.root.join(day.tests())).args(["--crate-name", &day.name]);
    command.args(builds::flags(repo)?).args(["--cfg=mistakes", "--cap-lints=allow"]);
    // Panics print their location, which shouldn't include the temporary directory.
    command.arg(format!("--remap-path-prefix={}=mistakes", dir.display()));
    command.args(programs.folders().iter().map(|folder| format!("-L{folder}")));
    let manifest: Table = repo.read("tests/Cargo.toml")?.parse().context("tests/Cargo.toml")?;
    let used = manifest.get("dependencies").and_then(Value::as_table);
    for name in used.into_iter().flat_map(Table::keys).map(|name| name.replace('-', "_")) {
        if let Some(path) = programs.library(&name) {
            command.arg("--extern").arg(format!("{name}={}", path.display()));
        }
    }
    command.arg("-o").arg(&program).env("CANDECODE_MISTAKES", &source);
    command.env("CARGO_MANIFEST_DIR", repo.root.join("tests")).env("CARGO_TARGET_TMPDIR", dir);
    command.stdin(Stdio::null());
    match run(&mut command, stop)? {
        None => Ok(None),
        Some(true) => Ok(Some(program)),
        Some(false) => bail!("the known mistakes of day {} don't compile", day.number),
    }
}

/// Runs a program to completion and returns whether it succeeded, or `None` if it was stopped.
fn run(command: &mut Command, stop: Stop) -> Result<Option<bool>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if stop() {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Writes the stub and each mistake and variant of a day as modules, and a file that lists them.
/// Returns the path of that file, which the day's check program includes.
fn write_modules(repo: &Repo, day: &Day, dir: &Path) -> Result<PathBuf> {
    let known = repo.mistakes(day)?;
    let reference = repo.read(&day.solution())?;
    let mut modules = String::new();
    let mut module = |name: &str, code: &str| -> Result<()> {
        let path = dir.join(format!("{name}.rs"));
        fs::write(&path, code).with_context(|| path.display().to_string())?;
        let path = path.display().to_string();
        Ok(writeln!(modules, "    #[path = {path:?}]\n    pub mod {name};")?)
    };
    module("stub", &repo.stub(day)?)?;
    let mut lists = String::new();
    let mistakes = known.mistakes.iter().map(|one| (&*one.name, &*one.diagnosis, &one.change));
    let variants = known.variants.iter().map(|one| (&*one.name, "", &one.change));
    for (kind, all) in [("mistakes", Vec::from_iter(mistakes)), ("variants", variants.collect())] {
        writeln!(lists, "fn {kind}() -> Vec<frame::Known<Day>> {{ vec![")?;
        for (name, diagnosis, change) in all {
            let place = || format!("{}: {name}", day.mistakes());
            module(name, &change.applied_to(&reference).with_context(place)?)?;
            writeln!(
                lists,
                "    frame::Known {{ name: {name:?}, diagnosis: {diagnosis:?}, day: \
                    implementation!(wrong::{name}) }},"
            )?;
        }
        lists += "] }\n";
    }
    let code = format!(
        "mod wrong {{\n{modules}}}\n{lists}fn stub() -> Day {{ implementation!(wrong::stub) }}\n"
    );
    let path = dir.join("list.rs");
    fs::write(&path, code).with_context(|| path.display().to_string())?;
    Ok(path)
}
