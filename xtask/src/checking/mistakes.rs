//! The known mistakes of a day, `tests/dayNN_*/mistakes.toml`: compiles them into one program that
//! reports how each affects every check.
//!
//! The program is compiled with `rustc` directly, from the libraries that cargo has just built.

use crate::cargo::{self, Programs};
use crate::checking::outcome::{self, Unit};
use crate::checking::runner::{self, DayRun};
use anyhow::{ensure, Context, Result};
use candecode_course::{Day, Repo};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use toml::{Table, Value};

/// Tests a day's checkers on the known mistakes, the correct variants and the stub.
///
/// # Errors
/// If the known mistakes don't compile, or their program ends before it has reported them all.
pub fn prove(repo: &Repo, day: &Day, programs: &Programs) -> Result<DayRun> {
    let dir = WorkDir::new(repo, day)?;
    let program = compile(repo, day, programs, &dir.0)?;
    let report = report(runner::command(repo, &program, None))?;
    let units: Vec<Unit> = outcome::parse(&report).into_values().collect();
    let number = day.number;
    ensure!(
        !units.is_empty(),
        "the program with day {number}'s known mistakes ended before it had tried all of them"
    );
    Ok(DayRun { report, ..DayRun::of(day, units) })
}

/// Runs the program with the known mistakes, and returns what it reports, one record a line.
fn report(mut command: Command) -> Result<String> {
    let out = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&out.stdout);
    // Each record starts with this character, wherever the code under test has printed something.
    let records = text.split('\u{1e}').skip(1).filter_map(|record| record.lines().next());
    Ok(records.map(|record| format!("{record}\n")).collect())
}

/// A directory for files that this process compiles, in the target directory. Removed on drop.
struct WorkDir(PathBuf);

impl WorkDir {
    fn new(repo: &Repo, day: &Day) -> Result<WorkDir> {
        let name = format!("candecode/work/{}-{}", day.name, std::process::id());
        let dir = cargo::target_dir(repo).join(name);
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        Ok(WorkDir(dir))
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How cargo compiles the check programs, by the root's `Cargo.toml`. Debug info and incremental
/// compilation are left out, since no result depends on them.
const FLAGS: [&str; 4] =
    ["--edition=2021", "-Copt-level=0", "-Cdebug-assertions=no", "-Coverflow-checks=yes"];

/// Compiles the program with a day's mistakes in `dir`.
fn compile(repo: &Repo, day: &Day, programs: &Programs, dir: &Path) -> Result<PathBuf> {
    let source = write_modules(repo, day, dir)?;
    let program = dir.join("program").with_extension(std::env::consts::EXE_EXTENSION);
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    command.current_dir(&repo.root);
    command.arg(repo.root.join(day.tests())).args(["--crate-name", &day.name]);
    command.args(FLAGS).args(["--cfg=mistakes", "--cap-lints=allow"]);
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
    let status = command.stdin(Stdio::null()).status().context("cannot start rustc")?;
    ensure!(status.success(), "the known mistakes of day {} don't compile", day.number);
    Ok(program)
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
    let mistakes = known.mistakes.iter().map(|one| (&*one.name, &one.change));
    let variants = known.variants.iter().map(|one| (&*one.name, &one.change));
    for (kind, all) in [("mistakes", Vec::from_iter(mistakes)), ("variants", variants.collect())] {
        writeln!(lists, "fn {kind}() -> Vec<frame::Known<Day>> {{ vec![")?;
        for (name, change) in all {
            let place = || format!("{}: {name}", day.mistakes());
            module(name, &change.applied_to(&reference).with_context(place)?)?;
            writeln!(
                lists,
                "    frame::Known {{ name: {name:?}, day: implementation!(wrong::{name}) }},"
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
