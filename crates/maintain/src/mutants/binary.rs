//! Builds a day's test binary with mutants in it, and tells which of them do not compile.

use super::Mutant;
use anyhow::{bail, Context, Result};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use xtask::cargo;
use xtask::repo::{Day, Repo};

/// A test binary, and the mutants that are not in it.
pub struct Built {
    /// The program.
    pub program: PathBuf,
    /// Mutants that do not compile, by their places in the list.
    pub unviable: BTreeSet<usize>,
}

/// The module of a mutant; 0 is the reference as it is.
pub fn module(at: usize) -> String {
    format!("m{at}")
}

/// Builds the mutants of `all` at `chosen`, and the reference beside them.
///
/// # Errors
/// If cargo cannot be started, or what does not compile is no mutant.
pub fn build(repo: &Repo, day: &Day, all: &[Mutant], chosen: &[usize]) -> Result<Built> {
    let source = repo.read(&day.solution())?;
    let short = &day.name[..5];
    let dir = cargo::target_dir(repo).join("mutants");
    let modules = dir.join(short);
    fs::create_dir_all(&modules).with_context(|| modules.display().to_string())?;
    for other in &repo.days {
        write(&dir.join(format!("{}.rs", &other.name[..5])), "")?;
    }
    for at in chosen {
        write(&modules.join(module(*at) + ".rs"), &all[*at - 1].module(&source))?;
    }
    let mut unviable = BTreeSet::new();
    loop {
        let left: Vec<usize> = chosen.iter().copied().filter(|at| !unviable.contains(at)).collect();
        write(&modules.join("m0.rs"), &reference(&source, &modules, &left))?;
        write(&dir.join(format!("{short}.rs")), &list(&modules, &left))?;
        let (program, broken) = attempt(repo, day, &dir, &modules)?;
        match program {
            Some(program) if broken.is_empty() => return Ok(Built { program, unviable }),
            _ => unviable.extend(broken),
        }
    }
}

/// Writes a file unless it is so already: cargo goes by times.
fn write(path: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    fs::write(path, text).with_context(|| path.display().to_string())
}

const ALLOW: &str = "#[allow(warnings, clippy::all, arithmetic_overflow, unconditional_panic)]";

/// A file as a module of another.
fn part(dir: &Path, name: &str) -> String {
    let path = dir.join(format!("{name}.rs"));
    format!("{ALLOW}\n#[path = {path:?}]\npub mod {name};\n")
}

/// The reference with the mutants as modules inside it.
fn reference(source: &str, dir: &Path, chosen: &[usize]) -> String {
    let parts: String = chosen.iter().map(|at| part(dir, &module(*at))).collect();
    format!("{source}\n{parts}")
}

/// What `build.rs` includes: the reference, and a test that runs the checks on it or on one of its
/// mutants.
fn list(dir: &Path, chosen: &[usize]) -> String {
    let reference = module(0);
    let mut entries = String::new();
    for at in [0].iter().chain(chosen) {
        let name = module(*at);
        let path = if *at == 0 { name.clone() } else { format!("{reference}::{name}") };
        let known =
            format!("name: {name:?}, diagnosis: \"\", day: implementation!(mutant::{path})");
        let _ = writeln!(entries, "        checks::Known {{ {known} }},");
    }
    let modules = part(dir, &reference);
    let test = "#[test]\nfn a_mutant() -> Result<(), checks::Finding> {";
    format!(
        "mod mutant {{\n{modules}}}\n{test}\n    \
         checks::teeth::mutant(CHECKS, &[\n{entries}    ])\n}}\n"
    )
}

/// One run of cargo: the program, and the mutants that have errors.
fn attempt(
    repo: &Repo,
    day: &Day,
    dir: &Path,
    modules: &Path,
) -> Result<(Option<PathBuf>, BTreeSet<usize>)> {
    let mut command = cargo::command(repo);
    command.args([
        "test",
        "--no-run",
        "--features",
        "ref,mistakes",
        "--test",
        &day.name,
        "--message-format=json",
        "--quiet",
    ]);
    // Each is compiled for a moment's use.
    for setting in ["opt-level=0", "debug=false"] {
        command.args(["--config", &format!("profile.test.package.candecode.{setting}")]);
    }
    command.env("CANDECODE_MUTANTS", dir).stdin(Stdio::null());
    let out = command.output().context("cannot start cargo")?;
    let (mut program, mut broken, mut others) = (None, BTreeSet::new(), String::new());
    for line in String::from_utf8_lossy(&out.stdout).lines() {
        let Ok(value) = serde_json::from_str::<Value>(line) else { continue };
        if value["target"]["name"] == day.name.as_str() {
            program = value["executable"].as_str().map(PathBuf::from).or(program);
        }
        let message = &value["message"];
        if !message["level"].as_str().is_some_and(|level| level.starts_with("error")) {
            continue;
        }
        let spans = message["spans"].as_array().map_or(&[][..], Vec::as_slice);
        let found: BTreeSet<usize> =
            spans.iter().filter_map(|span| mutant(span, modules)).collect();
        if found.is_empty() && !spans.is_empty() {
            others += message["rendered"].as_str().unwrap_or_default();
        }
        broken.extend(found);
    }
    if !out.status.success() && broken.is_empty() {
        bail!(
            "the mutants of {} do not build\n{others}{}",
            day.name,
            String::from_utf8_lossy(&out.stderr)
        );
    }
    Ok((program.filter(|_| out.status.success()), broken))
}

/// The mutant that a compiler's span lies in, also by way of the macros that it was expanded from.
fn mutant(span: &Value, modules: &Path) -> Option<usize> {
    let path = Path::new(span["file_name"].as_str()?);
    if path.parent() == Some(modules) {
        return path.file_stem()?.to_str()?.strip_prefix('m')?.parse().ok().filter(|at| *at > 0);
    }
    mutant(span["expansion"].get("span")?, modules)
}
