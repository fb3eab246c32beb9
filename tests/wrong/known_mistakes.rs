//! Makes, for every `tests/wrong/dayNN.toml`, the known mistakes of that day: edits of `solutions/dayNN_*.rs`, each a
//! module of the day's test binary, and beside them the day's stub. So a mistake costs a few lines and cannot drift.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

#[path = "../../xtask/src/stubs.rs"]
#[allow(dead_code)]
mod stubs;

/// Makes those of all days.
pub fn make() {
    for watched in ["tests/wrong", "solutions", "xtask/src/stubs.rs"] {
        println!("cargo::rerun-if-changed={watched}");
    }
    println!("cargo::rerun-if-env-changed=CANDECODE_MUTANTS");
    if let Err(message) = all_days() {
        println!("cargo::error={message}");
    }
}

fn all_days() -> Result<(), String> {
    let out = PathBuf::from(env::var("OUT_DIR").map_err(|e| e.to_string())?);
    let mut files: Vec<PathBuf> = list("tests/wrong")?;
    files.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    files.sort();
    for file in files {
        day(&file, &out).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    Ok(())
}

fn list(dir: &str) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(dir).map_err(|e| format!("{dir}: {e}"))?;
    entries.map(|entry| entry.map(|e| e.path()).map_err(|e| e.to_string())).collect()
}

/// One day: its modules, and a file that lists them.
fn day(file: &Path, out: &Path) -> Result<(), String> {
    let day = file.file_stem().and_then(|stem| stem.to_str()).ok_or("no name")?;
    let table: toml::Table = read(file)?.parse().map_err(|e: toml::de::Error| e.to_string())?;
    let reference = list("solutions")?.into_iter().find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&format!("{day}_")))
    });
    let reference = read(&reference.ok_or("there is no solution of that day")?)?;
    let dir = out.join(day);
    fs::create_dir_all(&dir).map_err(|e| e.to_string())?;

    // `cargo maintain mutants` puts modules of its own here, in place of the mistakes, and changes the file without this
    // script running again.
    let mutants = env::var("CANDECODE_MUTANTS").ok();

    let mut modules = module(&dir, "stub", &stubs::stub(&reference)?)?;
    // A long day's modules share the parts that come before their edit.
    let shared = table.get("share_earlier_parts").and_then(toml::Value::as_bool) == Some(true);
    if shared {
        modules += &module(&dir, "reference", &reference)?;
    }
    let mut lists = String::new();
    for kind in ["mistake", "variant"] {
        let mut entries = String::new();
        let known = table.get(kind).and_then(toml::Value::as_array).filter(|_| mutants.is_none());
        for entry in known.into_iter().flatten() {
            let name = text(entry, "name")?;
            let mut code = edited(&reference, entry).map_err(|e| format!("{name}: {e}"))?;
            if shared {
                code = without_equal_parts(&reference, &code);
            }
            modules += &module(&dir, name, &code)?;
            let diagnosis = if kind == "mistake" { text(entry, "diagnosis")? } else { "" };
            let _ = writeln!(
                entries,
                "    checks::Known {{ name: {name:?}, diagnosis: {diagnosis:?}, day: implementation!(wrong::{name}) }},"
            );
        }
        let _ =
            writeln!(lists, "fn {kind}s() -> Vec<checks::Known<day::Day>> {{ vec![\n{entries}] }}");
    }
    let stub = "fn stub() -> day::Day { implementation!(wrong::stub) }";
    let mutants = mutants
        .map(|dir| format!("include!({:?});\n", Path::new(&dir).join(format!("{day}.rs"))))
        .unwrap_or_default();
    let code = format!("mod wrong {{\n{modules}}}\n{lists}{stub}\n{mutants}");
    fs::write(out.join(format!("{day}.rs")), code).map_err(|e| e.to_string())
}

/// The reference with every edit of an entry made; each `find` must be there exactly once.
fn edited(reference: &str, entry: &toml::Value) -> Result<String, String> {
    let edits = match entry.get("edits").and_then(toml::Value::as_array) {
        Some(edits) => edits.clone(),
        None => vec![entry.clone()],
    };
    let mut code = reference.to_string();
    for edit in &edits {
        let (find, replace) = (text(edit, "find")?.trim_matches('\n'), text(edit, "replace")?);
        match code.matches(find).count() {
            1 => code = code.replacen(find, replace.trim_matches('\n'), 1),
            n => return Err(format!("find matches {n} times, it must match once: {find}")),
        }
    }
    Ok(code)
}

/// Code without the parts (`// part 2: title`) in front of its first edit: their items are those of the module `reference`,
/// where they are compiled once. Later parts stay, for they may call what was edited. So no part may use what is private in
/// an earlier one.
fn without_equal_parts(reference: &str, code: &str) -> String {
    let parts: Vec<usize> = code.match_indices("\n// part ").map(|(at, _)| at).collect();
    let equal = |at: &usize| reference.get(..*at) == code.get(..*at);
    let Some(&kept) = parts.iter().skip(1).rfind(|at| equal(at)) else {
        return code.to_string();
    };
    let imports: Vec<&str> = code.lines().filter(|line| line.starts_with("use ")).collect();
    format!("{}\npub use super::reference::*;\n{}", imports.join("\n"), &code[kept..])
}

fn module(dir: &Path, name: &str, code: &str) -> Result<String, String> {
    let path = dir.join(format!("{name}.rs"));
    fs::write(&path, code).map_err(|e| e.to_string())?;
    Ok(format!(
        "    #[allow(warnings, clippy::all)]\n    #[path = {path:?}]\n    pub mod {name};\n"
    ))
}

fn text<'a>(entry: &'a toml::Value, key: &str) -> Result<&'a str, String> {
    entry.get(key).and_then(toml::Value::as_str).ok_or(format!("an entry lacks {key}"))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}
