//! The mutants that `cargo mutants` knows, from its list.

use super::{functions, own_mutants, told_apart, Mutant};
use anyhow::{ensure, Context, Result};
use serde_json::Value;
use std::fs;
use xtask::cargo;
use xtask::repo::{Day, Repo};

/// A crate of nothing but the references: `cargo mutants` does not look through `cfg_attr(path)`.
const MANIFEST: &str =
    "[package]\nname = \"references\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n[workspace]\n";

/// Every mutant of a day's reference: those of `cargo mutants`, then our own.
///
/// # Errors
/// If `cargo mutants` is not installed, or its list cannot be read.
pub fn mutants(repo: &Repo, day: &Day) -> Result<Vec<Mutant>> {
    let source = repo.read(&day.solution())?;
    let dir = cargo::target_dir(repo).join("mutants/list");
    fs::create_dir_all(dir.join("src")).with_context(|| dir.display().to_string())?;
    fs::write(dir.join("Cargo.toml"), MANIFEST)?;
    fs::write(dir.join("src/lib.rs"), format!("pub mod {};\n", day.name))?;
    fs::write(dir.join(format!("src/{}.rs", day.name)), &source)?;
    let mut command = cargo::command(repo);
    command.args(["mutants", "--list", "--json", "--dir"]).arg(&dir);
    let out = command.output().context("cannot start cargo")?;
    ensure!(
        out.status.success(),
        "`cargo mutants --list` failed: `cargo install cargo-mutants --locked` brings it\n{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let list: Vec<Value> = serde_json::from_slice(&out.stdout).context("cargo mutants --list")?;
    let mut mutants = list.iter().map(|entry| read(entry, &source)).collect::<Result<Vec<_>>>()?;
    mutants.extend(own_mutants::mutants(&source));
    let absent = functions::of_a_feature(&source);
    mutants.retain(|mutant| !absent.iter().any(|item| item.contains(&mutant.place.start)));
    Ok(told_apart(mutants))
}

/// What makes the list, and what compiles it: "cargo-mutants 27.1.0, cargo 1.95.0".
pub fn versions(repo: &Repo) -> String {
    let version = |args: &[&str]| {
        let out = cargo::command(repo).args(args).output().ok()?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        Some(text.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
    };
    let all = [version(&["mutants", "--version"]), version(&["--version"])];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// One entry of the list.
fn read(entry: &Value, source: &str) -> Result<Mutant> {
    let at = |end: &str| {
        let place = &entry["span"][end];
        let number = |name: &str| place[name].as_u64().map(|number| number as usize);
        offset(source, number("line")?, number("column")?)
    };
    let words = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let read = || {
        let (start, end) = (at("start")?, at("end")?);
        let function = words(&entry["function"]["function_name"]);
        // "src/f.rs:16:41: replace > with == in repetition_penalty"
        let name = entry["name"].as_str()?.splitn(4, ':').nth(3)?.trim();
        let change = name.strip_suffix(&format!(" in {function}")).unwrap_or(name);
        let replacement = words(&entry["replacement"]);
        Some(Mutant::new(source, start..end, &function, change, &replacement))
    };
    read().with_context(|| format!("cargo mutants --list has an entry of another form: {entry}"))
}

/// Where a line and a column are, both counted from 1, columns in characters.
fn offset(source: &str, line: usize, column: usize) -> Option<usize> {
    let start: usize = source.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
    let rest = source.get(start..)?;
    let within = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
    within.clone().nth(column.checked_sub(1)?).map(|at| start + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_characters() {
        let source = "a\n// √D √D\nb + c\n";
        assert_eq!(offset(source, 1, 1), Some(0));
        assert_eq!(&source[offset(source, 2, 5).unwrap()..][..1], "D");
        assert_eq!(&source[offset(source, 3, 3).unwrap()..][..1], "+");
        assert_eq!(offset(source, 9, 9), None);
    }

    #[test]
    fn an_entry_is_read() {
        let entry = serde_json::json!({
            "name": "src/day09.rs:1:3: replace + with - in f",
            "function": { "function_name": "f" },
            "replacement": "-",
            "span": { "start": { "line": 1, "column": 3 }, "end": { "line": 1, "column": 4 } },
        });
        let mutant = read(&entry, "a + b\n").unwrap();
        assert_eq!(mutant.of("a + b\n"), "a - b\n");
        assert_eq!(mutant.id.change, "replace + with -");
    }
}
