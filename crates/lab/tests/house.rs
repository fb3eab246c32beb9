//! Checks the shape of the repository: the picture of the crates in ARCHITECTURE.md is true, an
//! editor shows the reader's days, what programs share is compiled once, and GitHub runs all stages
//! of CI.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// ARCHITECTURE.md has one line `crate -> crate, crate` for each workspace crate that uses others,
/// and these lines must match cargo's metadata.
#[test]
fn the_crate_diagram_matches_cargo_metadata() {
    let mut cargo = std::process::Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(root());
    let known: serde_json::Value = serde_json::from_slice(&cargo.output().unwrap().stdout).unwrap();
    let packages = known["packages"].as_array().unwrap();
    let name = |value: &serde_json::Value| value["name"].as_str().unwrap().to_string();
    let members: Vec<String> = packages.iter().map(name).collect();
    let mut want = Vec::new();
    for package in packages {
        // Dependencies of tests and examples are left out.
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let named = dependencies.filter(|other| other["kind"] != "dev").map(name);
        let mut used: Vec<String> = named.filter(|other| members.contains(other)).collect();
        used.sort();
        used.dedup();
        if !used.is_empty() {
            want.push(format!("{} -> {}", name(package), used.join(", ")));
        }
    }
    let page = read("ARCHITECTURE.md");
    let is_arrow = |line: &&str| {
        let from = line.split_once(" -> ").map(|(from, _)| from.to_string());
        from.is_some_and(|from| members.contains(&from))
    };
    let mut drawn: Vec<&str> = page.lines().filter(is_arrow).collect();
    drawn.sort_unstable();
    want.sort();
    assert_eq!(drawn, want);
}

/// What a reader edits panics with a line, and on an index that went below 0.
#[test]
fn the_readers_code_panics_with_a_line() {
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    for name in ["candecode", "candecode-checks"] {
        let profile = &manifest["profile"]["dev"]["package"][name];
        assert_eq!(profile["debug"].as_str(), Some("line-tables-only"), "{name}");
        assert_eq!(profile["overflow-checks"].as_bool(), Some(true), "{name}");
    }
}

/// GitHub's jobs run all stages of `.ci/run`, and no others.
#[test]
fn every_stage_has_a_job() {
    let mut list = std::process::Command::new("bash");
    let listed = list.args([".ci/run", "--list"]).current_dir(root()).output().unwrap();
    let stages = String::from_utf8(listed.stdout).unwrap();
    let stages: BTreeSet<&str> = stages.split_whitespace().collect();
    let jobs = read(".github/workflows/ci.yml");
    let (_, jobs) = jobs.split_once("\njobs:\n").unwrap();
    let mut named: BTreeSet<&str> = BTreeSet::new();
    let mut in_list = false;
    for line in jobs.lines().map(str::trim) {
        if line == "stages:" {
            in_list = true;
        } else if let Some(names) = line.strip_prefix("- ").filter(|_| in_list) {
            named.extend(names.split_whitespace());
        } else {
            in_list = false;
            let inline = line.split_once("stages: ").and_then(|(_, rest)| rest.strip_suffix(" }"));
            named.extend(inline.into_iter().flat_map(str::split_whitespace));
        }
    }
    assert_eq!(named, stages);
}

/// An editor asks cargo for the features of the whole workspace at once. With those of
/// `.vscode/settings.json`, the days that it shows must be the reader's, not the reference's.
#[test]
fn an_editor_shows_the_readers_days() {
    let settings = read(".vscode/settings.json");
    assert!(settings.contains("\"rust-analyzer.cargo.features\": [],"));
    assert!(settings.contains("\"rust-analyzer.cargo.noDefaultFeatures\": true,"));
    let mut cargo = std::process::Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-default-features", "--format-version", "1"]);
    let known = cargo.current_dir(root()).output().unwrap().stdout;
    let known: serde_json::Value = serde_json::from_slice(&known).unwrap();
    let days = &known["resolve"]["root"];
    let mut nodes = known["resolve"]["nodes"].as_array().unwrap().iter();
    let library = nodes.find(|node| &node["id"] == days).unwrap();
    assert_eq!(library["features"], serde_json::json!([]));
}

/// Builds what readers run in one mix of days, one program after the other, and sees that all of
/// them got the same library of days: cargo compiles a library again if another program asks for
/// other features of anything below it.
#[test]
fn the_days_are_compiled_once_for_all_programs() {
    let library = |arguments: &[&str]| {
        let mut cargo = std::process::Command::new(env!("CARGO"));
        cargo.args(arguments).args(["--message-format", "json", "--features", "candecode/ref"]);
        let built = cargo.current_dir(root()).stderr(std::process::Stdio::inherit());
        let built = built.output().unwrap();
        assert!(built.status.success(), "cargo {arguments:?}");
        let lines = String::from_utf8(built.stdout).unwrap();
        let messages = lines.lines().map(|line| serde_json::from_str(line).unwrap());
        let days = |message: &serde_json::Value| {
            message["reason"] == "compiler-artifact"
                && message["target"]["name"] == "candecode"
                && message["target"]["kind"][0] == "lib"
        };
        let found: BTreeSet<String> =
            messages.filter(days).map(|message| message["filenames"].to_string()).collect();
        assert_eq!(found.len(), 1, "cargo {arguments:?}");
        found.into_iter().next().unwrap()
    };
    let plain = |package| ["build", "--no-default-features", "--package", package];
    let first = library(&plain("candecode-cli"));
    let mut live = plain("candecode-live").to_vec();
    live.extend(["--features", "candecode-engine/clap"]); // as `.ci/run live`
    for arguments in [
        &plain("candecode-server")[..],
        &live,
        &["build", "--package", "candecode-lab", "--bin", "bench", "--features", "bench"],
        &["test", "--no-run", "--package", "candecode-checks", "--test", "day00_warm_up"],
    ] {
        assert_eq!(library(arguments), first, "cargo {arguments:?}");
    }
}

/// The runner is built first, and the engine after it: cargo compiles a crate that both use once
/// more if the engine asks for other features of it.
#[test]
fn the_runner_and_the_engine_share_what_both_use() {
    let crates = |arguments: &[&str]| -> BTreeMap<String, String> {
        let mut cargo = std::process::Command::new(env!("CARGO"));
        cargo.args(["tree", "--prefix", "none", "--edges", "normal,build", "--format", "{p}|{f}"]);
        let listed = cargo.args(arguments).current_dir(root()).output().unwrap();
        assert!(listed.status.success(), "cargo tree {arguments:?}");
        let text = String::from_utf8(listed.stdout).unwrap();
        let lines = text.lines().map(|line| line.trim_end_matches(" (*)"));
        lines.filter_map(|line| line.split_once('|')).map(|(a, b)| (a.into(), b.into())).collect()
    };
    let runner = crates(&["--package", "xtask"]);
    let engine = crates(&["--no-default-features", "--package", "candecode-cli"]);
    let common: Vec<_> = runner.keys().filter(|name| engine.contains_key(*name)).collect();
    assert!(common.len() > 20, "{common:?}");
    for name in common {
        assert_eq!(runner[name], engine[name], "the features of {name}, of runner and engine");
    }
}
