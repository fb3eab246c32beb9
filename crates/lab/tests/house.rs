//! Checks that the picture of the crates in ARCHITECTURE.md is true.

use std::path::Path;

/// ARCHITECTURE.md has one line `crate -> crate, crate` for each workspace crate that uses others,
/// and these lines must match cargo's metadata.
#[test]
fn the_crate_diagram_matches_cargo_metadata() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut cargo = std::process::Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(root);
    let known: serde_json::Value = serde_json::from_slice(&cargo.output().unwrap().stdout).unwrap();
    let packages = known["packages"].as_array().unwrap();
    let name = |value: &serde_json::Value| value["name"].as_str().unwrap().to_string();
    let members: Vec<String> = packages.iter().map(name).collect();
    let mut want = Vec::new();
    for package in packages {
        let named = package["dependencies"].as_array().unwrap().iter().map(name);
        let mut used: Vec<String> = named.filter(|other| members.contains(other)).collect();
        used.sort();
        used.dedup();
        if !used.is_empty() {
            want.push(format!("{} -> {}", name(package), used.join(", ")));
        }
    }
    let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let is_arrow = |line: &&str| {
        let from = line.split_once(" -> ").map(|(from, _)| from.to_string());
        from.is_some_and(|from| members.contains(&from))
    };
    let mut drawn: Vec<&str> = page.lines().filter(is_arrow).collect();
    drawn.sort_unstable();
    want.sort();
    assert_eq!(drawn, want);
}
