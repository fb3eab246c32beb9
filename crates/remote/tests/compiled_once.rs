//! Checks that a build with downloads compiles nothing again that a build without them has
//! compiled: no package that both have gets a feature from this crate's dependencies.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Returns the features of each package that a build of the program in this folder compiles.
fn features(folder: &Path, features: &str) -> BTreeMap<String, Vec<String>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--edges", "normal,build", "--prefix", "none", "--format", "{p}|{f}"]);
    cargo.args(["--no-default-features", "--features", features]).current_dir(folder);
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut found = BTreeMap::<String, Vec<String>>::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let line = line.trim_end_matches(" (*)");
        let (package, features) = line.split_once('|').unwrap_or((line, ""));
        found.entry(package.to_string()).or_default().push(features.to_string());
    }
    // A package may be compiled twice, for the program and for a build script.
    found.values_mut().for_each(|features| features.sort());
    found.values_mut().for_each(Vec::dedup);
    found
}

#[test]
fn a_download_compiles_nothing_again_but_the_program() {
    for program in ["cli", "server"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name(program);
        let without = features(&folder, "candecode/ref");
        let with = features(&folder, "candecode/ref,hub");
        assert!(with.keys().any(|package| package.starts_with("candecode-remote ")));
        let own = format!("({})", folder.display());
        for (package, features) in without.iter().filter(|(package, _)| !package.ends_with(&own)) {
            assert_eq!(with.get(package), Some(features), "{program}: {package}");
        }
    }
}
