//! Checks the shape of the repository: the picture of the crates in ARCHITECTURE.md is true, files
//! of a folder don't use each other in circles, each day is registered everywhere, an editor shows
//! the reader's days, and the manifests and the stages of CI fit each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

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

/// A day is a module and an entry of `DAYS` in `src/lib.rs`, a feature that `ref` includes, a check
/// program, a reference, and a chapter.
#[test]
fn every_day_is_registered_everywhere() {
    let (lib, manifest) = (read("src/lib.rs"), read("Cargo.toml"));
    let (checks, summary) = (read("tests/Cargo.toml"), read("book/src/SUMMARY.md"));
    let all = manifest.lines().find(|line| line.starts_with("ref = ")).unwrap();
    let mut days = 0;
    for entry in std::fs::read_dir(root().join("solutions")).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = file.strip_suffix(".rs").filter(|name| name.starts_with("day")) else {
            panic!("solutions/{file} isn't a day");
        };
        let number: usize = name[3..5].parse().unwrap();
        let feature = format!("ref-day{number:02}");
        for (place, text, line) in [
            (
                "src/lib.rs",
                &*lib,
                format!(
                    "#[cfg_attr(feature = \"{feature}\", path = \"../solutions/{name}.rs\")]\n\
                     pub mod {name};"
                ),
            ),
            (
                "src/lib.rs",
                &lib,
                format!(
                    "Day {{ number: {number}, name: \"{name}\", \
                     reference: cfg!(feature = \"{feature}\") }},"
                ),
            ),
            ("Cargo.toml", &manifest, format!("\n{feature} = []\n")),
            ("ref in Cargo.toml", all, format!("\"{feature}\"")),
            ("tests/Cargo.toml", &checks, format!("name = \"{name}\"")),
            ("book/src/SUMMARY.md", &summary, format!("({name}.md)")),
        ] {
            assert!(text.contains(&line), "{place} has no {line}");
        }
        assert!(root().join("src").join(&file).is_file(), "no src/{file}");
        days += 1;
    }
    assert_eq!(lib.matches("Day { number: ").count(), days);
    assert_eq!(manifest.matches("\nref-day").count(), days);
    let programs = checks.matches("\nname = \"day").count();
    assert_eq!(programs, days);
}

/// The source of a crate: each file's module path, and the names that it re-exports.
struct Crate {
    /// From a module's path, such as `["hub", "fetch"]`, to its file.
    files: BTreeMap<Vec<String>, PathBuf>,
    /// From a module and a name that it re-exports to the path of the item.
    exports: BTreeMap<(Vec<String>, String), Vec<String>>,
}

impl Crate {
    fn read(src: &Path) -> Crate {
        let mut krate = Crate { files: BTreeMap::new(), exports: BTreeMap::new() };
        krate.collect(src, &[]);
        for (module, file) in krate.files.clone() {
            for path in used(&module, &code(&file), true) {
                if let Some((name, _)) = path.split_last() {
                    krate.exports.insert((module.clone(), name.clone()), path);
                }
            }
        }
        krate
    }

    fn collect(&mut self, folder: &Path, module: &[String]) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
            let inside = [module, std::slice::from_ref(&stem)].concat();
            if path.is_dir() {
                self.collect(&path, &inside);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let is_root = matches!(&*stem, "mod" | "lib" | "main");
                let module = if is_root { module.to_vec() } else { inside };
                self.files.insert(module, path);
            }
        }
    }

    /// Returns the module that defines what `path` names.
    fn home(&self, path: &[String]) -> Vec<String> {
        let mut path = path.to_vec();
        for _ in 0..8 {
            let depth = (0..=path.len()).rev().find(|n| self.files.contains_key(&path[..*n]));
            let module = path[..depth.unwrap_or(0)].to_vec();
            let Some(name) = path.get(module.len()) else { return module };
            match self.exports.get(&(module.clone(), name.clone())) {
                Some(item) if *item != path => path.clone_from(item),
                _ => return module,
            }
        }
        path
    }
}

/// Returns a file's code without comments and without the tests at its end.
fn code(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    let text = text.split("\n#[cfg(test)]\nmod ").next().unwrap();
    let lines = text.lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the paths in this crate that a file names, from the crate's root: those of its `pub use`
/// declarations, or all others.
fn used(module: &[String], code: &str, exported: bool) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mut rest = code;
    let mut plain = String::new();
    while let Some(at) = rest.find("use ") {
        let before = &rest[..at];
        let starts = before.is_empty() || before.ends_with(['\n', ' ', ')']);
        let Some(end) = rest[at..].find(';').filter(|_| starts) else {
            plain += &rest[..at + 4];
            rest = &rest[at + 4..];
            continue;
        };
        let line = before.rsplit('\n').next().unwrap_or_default();
        plain += before;
        if line.contains("pub") == exported {
            expand(&[], &rest[at + 4..at + end], &mut paths);
        }
        rest = &rest[at + end + 1..];
    }
    plain += rest;
    if !exported {
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let words = plain.split(|c: char| !is_part(c));
        let starts = ["crate::", "super::", "self::"];
        let named = words.filter(|word| starts.iter().any(|start| word.starts_with(start)));
        paths.extend(named.map(|word| word.split("::").map(str::to_string).collect()));
    }
    let resolve = |path: Vec<String>| {
        let mut base = module.to_vec();
        let mut parts = path.into_iter().peekable();
        match parts.peek().map(String::as_str) {
            Some("crate") => base.clear(),
            Some("super" | "self") => {}
            Some(_) if exported => {}
            _ => return None, // another crate's
        }
        for part in parts {
            match &*part {
                "crate" | "self" => {}
                "super" => drop(base.pop()),
                _ => base.push(part),
            }
        }
        Some(base)
    };
    paths.into_iter().filter_map(resolve).collect()
}

/// Expands a tree such as `a::{b, c::{d, e}}` into paths. A renamed item keeps its own name.
fn expand(prefix: &[String], tree: &str, paths: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    let (head, group) = match tree.split_once('{') {
        Some((head, group)) => (head, group.strip_suffix('}')),
        None => (tree, None),
    };
    let head = head.split(" as ").next().unwrap_or_default();
    let parts = head.split("::").map(str::trim).filter(|part| !part.is_empty() && *part != "*");
    let path: Vec<String> = prefix.iter().cloned().chain(parts.map(str::to_string)).collect();
    let Some(group) = group else { return paths.push(path) };
    let (mut depth, mut from) = (0, 0);
    for (at, c) in group.char_indices().chain([(group.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !group[from..at].trim().is_empty() {
                    expand(&path, &group[from..at], paths);
                }
                from = at + 1;
            }
            _ => {}
        }
    }
}

/// In every folder of a crate, whatever stands side by side (a file, or a folder with all its
/// files) must not use each other in a circle, directly or through others.
#[test]
fn no_circle_between_siblings() {
    let mut crates: Vec<PathBuf> = std::fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().path().join("src"))
        .collect();
    crates.push(root().join("xtask/src"));
    let mut circles = Vec::new();
    for src in crates.iter().filter(|src| src.is_dir()) {
        let krate = Crate::read(src);
        let mut arrows: BTreeMap<Vec<String>, BTreeSet<(String, String)>> = BTreeMap::new();
        for (module, file) in &krate.files {
            for path in used(module, &code(file), false) {
                let home = krate.home(&path);
                let common = module.iter().zip(&home).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (module.get(common), home.get(common)) {
                    let folder = module[..common].to_vec();
                    arrows.entry(folder).or_default().insert((from.clone(), to.clone()));
                }
            }
        }
        for (folder, arrows) in arrows {
            let reaches = |from: &str| {
                let mut seen = BTreeSet::from([from.to_string()]);
                while let Some((_, next)) =
                    arrows.iter().find(|(a, b)| seen.contains(a) && !seen.contains(b))
                {
                    seen.insert(next.clone());
                }
                seen
            };
            for (from, to) in &arrows {
                if from != to && reaches(to).contains(from) {
                    let place = src.strip_prefix(root()).unwrap().join(folder.join("/"));
                    circles.push(format!("{}: {from} -> {to}", place.display()));
                }
            }
        }
    }
    assert!(circles.is_empty(), "arrows in circles:\n{}", circles.join("\n"));
}

/// Reads a TOML file of the repository.
fn table(path: impl AsRef<Path>) -> toml::Table {
    let path = path.as_ref();
    read(path).parse().unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The manifests of all packages of the workspace.
fn manifests() -> Vec<PathBuf> {
    let crates = std::fs::read_dir(root().join("crates")).unwrap();
    let mut found: Vec<_> =
        crates.map(|folder| folder.unwrap().path().join("Cargo.toml")).collect();
    found.retain(|path| path.is_file());
    found.extend(["", "tests", "xtask"].map(|folder| root().join(folder).join("Cargo.toml")));
    found
}

/// Cargo warns on every command about a profile of a package that isn't in the workspace any more.
#[test]
fn profiles_name_packages_that_exist() {
    let (manifest, lock) = (table("Cargo.toml"), table("Cargo.lock"));
    let locked = lock["package"].as_array().unwrap().iter();
    let locked: BTreeSet<&str> = locked.map(|package| package["name"].as_str().unwrap()).collect();
    let mut named = 0;
    for (profile, settings) in manifest["profile"].as_table().unwrap() {
        let packages = settings.get("package").and_then(toml::Value::as_table);
        for name in packages.into_iter().flat_map(toml::Table::keys).filter(|name| *name != "*") {
            assert!(
                locked.contains(&**name),
                "[profile.{profile}.package.{name}]: no such package"
            );
            named += 1;
        }
    }
    assert!(named > 0);
}

/// What a reader edits panics with a line, and on an index that went below 0.
#[test]
fn the_readers_code_panics_with_a_line() {
    let manifest = table("Cargo.toml");
    for name in ["candecode", "candecode-checks"] {
        let profile = &manifest["profile"]["dev"]["package"][name];
        assert_eq!(profile["debug"].as_str(), Some("line-tables-only"), "{name}");
        assert_eq!(profile["overflow-checks"].as_bool(), Some(true), "{name}");
    }
}

/// A crate that several packages use has its version in `[workspace.dependencies]`, and only there.
#[test]
fn every_shared_version_stands_once() {
    /// Calls `each` with the name and value of every dependency in a manifest, or in its section
    /// for one target.
    fn dependencies(manifest: &toml::Table, each: &mut dyn FnMut(&str, &toml::Value)) {
        for (key, value) in manifest {
            match (&**key, value.as_table()) {
                ("dependencies" | "dev-dependencies" | "build-dependencies", Some(listed)) => {
                    listed.iter().for_each(|(name, value)| each(name, value));
                }
                ("target", Some(targets)) => {
                    for target in targets.values().filter_map(toml::Value::as_table) {
                        dependencies(target, each);
                    }
                }
                _ => {}
            }
        }
    }
    let mut users: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
    let mut own: BTreeSet<String> = BTreeSet::new();
    for path in manifests() {
        dependencies(&table(&path), &mut |name, value| {
            users.entry(name.to_string()).or_default().insert(path.clone());
            if value.get("workspace").is_none() {
                own.insert(name.to_string());
            }
        });
    }
    let workspace = table("Cargo.toml");
    let shared = workspace["workspace"]["dependencies"].as_table().unwrap();
    for (name, users) in &users {
        let twice = own.contains(name) && (users.len() > 1 || shared.contains_key(name));
        assert!(!twice, "{name} has a version outside of [workspace.dependencies]");
    }
    for name in shared.keys() {
        assert!(users.contains_key(name), "no package uses {name} of [workspace.dependencies]");
    }
}

/// A program that computes keeps freed memory, and does so before anything else.
#[test]
fn programs_set_the_allocator_first() {
    let mut programs = 0;
    for path in manifests() {
        if !read(&path).contains("candecode-allocator") || path == root().join("Cargo.toml") {
            continue;
        }
        let src = Crate::read(&path.with_file_name("src"));
        for file in src.files.values().filter(|file| file.ends_with("main.rs")) {
            let code = code(file);
            if file.parent().unwrap().ends_with("lab/src") {
                continue; // the program `lab` only starts others
            }
            let (_, main) = code.split_once("\nfn main() ").unwrap();
            let first = main.split_once('{').unwrap().1.trim_start();
            let call = "candecode_allocator::keep_freed_memory();";
            assert!(first.starts_with(call), "{}", file.display());
            programs += 1;
        }
    }
    assert_eq!(programs, 4, "candecode, candecode-serve, bench and peer");
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
