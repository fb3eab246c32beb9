//! Checks which part of `src/` uses which: the days use only the kit, the engine uses the days, and
//! the command uses the engine. Between crates, cargo enforces this.

use std::path::{Path, PathBuf};

/// Lists the Rust files in a folder and its subfolders.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let inside = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(inside).filter(|path| path.extension().is_some_and(|e| e == "rs")).collect()
}

#[test]
fn dependencies_inside_src_point_down() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = files(&root.join("src"));
    sources.extend(files(&root.join("solutions")));
    for file in sources {
        let name = file.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
        let forbidden: &[&str] = match name.as_str() {
            _ if name.contains("/day") => &["cli", "engine", "formats", "kernels"],
            _ if name.starts_with("src/engine/") => &["cli"],
            "src/kernels.rs" | "src/days.rs" => &["cli", "engine", "formats"],
            _ => &[],
        };
        let text = std::fs::read_to_string(&file).unwrap();
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for room in forbidden {
                let used = |krate| line.contains(&format!("{krate}::{room}"));
                assert!(!used("crate") && !used("candecode"), "{name} uses {room}: {line}");
            }
        }
    }
}

/// ARCHITECTURE.md has one line `crate -> crate, crate` for each workspace crate that uses others,
/// and these lines must match cargo's metadata.
#[test]
fn the_crate_diagram_matches_cargo_metadata() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
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
