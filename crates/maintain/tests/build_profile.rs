//! What cargo would compile for a first text, and how: read from its own plan, without building.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Cargo's plan, unit by unit. It is printed by an unstable flag, which `RUSTC_BOOTSTRAP` allows.
fn units() -> Vec<Value> {
    units_of(&["--bin", "candecode", "--features", "ref"])
}

/// As [`units`], of what these arguments of `cargo build` ask for.
fn units_of(args: &[&str]) -> Vec<Value> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.arg("build").args(args);
    cargo.args(["--unit-graph", "-Z", "unstable-options"]).env("RUSTC_BOOTSTRAP", "1");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = cargo.current_dir(root).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let graph: Value = serde_json::from_slice(&output.stdout).unwrap();
    graph["units"].as_array().unwrap().clone()
}

/// syn at opt-level 3 costs more than candle gains: once, all of them took two of five minutes.
#[test]
fn no_procedural_macro_or_build_script_is_compiled_with_optimisation() {
    let units = units();
    let is_built = |unit: &Value| unit["mode"] == "build";
    let runs_at_compile_time = |unit: &Value| {
        let kind = &unit["target"]["kind"][0];
        // Not our own script: a profile for a package by its name counts for that, too. It is short.
        let is_ours = unit["pkg_id"].as_str().unwrap().starts_with("path+");
        is_built(unit) && (kind == "proc-macro" || kind == "custom-build") && !is_ours
    };
    let mut todo: Vec<usize> =
        (0..units.len()).filter(|&at| runs_at_compile_time(&units[at])).collect();
    let mut seen = BTreeSet::new();
    while let Some(at) = todo.pop() {
        if !is_built(&units[at]) || !seen.insert(at) {
            continue;
        }
        let (id, level) = (&units[at]["pkg_id"], &units[at]["profile"]["opt_level"]);
        assert_eq!(level, "0", "{id} is needed while compiling only, and it is optimised");
        for dependency in units[at]["dependencies"].as_array().unwrap() {
            todo.push(dependency["index"].as_u64().unwrap() as usize);
        }
    }
    assert!(seen.len() > 30, "{} units: is the plan read rightly?", seen.len());
}

/// The server is a second program around the same engine: if it asked for other features of a crate that candle needs, a
/// reader who has built the engine would wait for candle once more.
#[test]
fn the_server_shares_candle_with_the_engine() {
    let engine = units_of(&["--no-default-features", "--features", "cli,ref"]);
    let server = units_of(&["--package", "candecode-serve", "--features", "ref"]);
    let below_candle = |units: &[Value]| -> BTreeSet<String> {
        let is_candle = |unit: &Value| {
            unit["pkg_id"].as_str().unwrap().contains("candle-core") && unit["mode"] == "build"
        };
        let mut todo: Vec<usize> = (0..units.len()).filter(|at| is_candle(&units[*at])).collect();
        let mut seen = BTreeSet::new();
        let mut found = BTreeSet::new();
        while let Some(at) = todo.pop() {
            if seen.insert(at) {
                found.insert(format!("{} {}", units[at]["pkg_id"], units[at]["features"]));
                for dependency in units[at]["dependencies"].as_array().unwrap() {
                    todo.push(dependency["index"].as_u64().unwrap() as usize);
                }
            }
        }
        found
    };
    let (engine, server) = (below_candle(&engine), below_candle(&server));
    assert!(engine.len() > 30, "{} units: is the plan read rightly?", engine.len());
    let differ: Vec<&String> = engine.symmetric_difference(&server).collect();
    assert!(differ.is_empty(), "{differ:#?}");
}
