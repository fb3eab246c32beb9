//! The house of ARCHITECTURE.md, kept: which room imports which, no circle of files, names that are
//! unique, 100 columns, dependencies that code uses.
//!
//! This reads the sources as text, `use` lines and paths in the code alike: `cargo test --test
//! house`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What each room may import, beside itself, other crates and, for the days, earlier days.
const ARROWS: &[(&str, &[&str])] = &[
    ("kit", &[]),
    ("kernels", &["kit"]),
    ("formats", &["kit"]),
    ("days", &["kit"]),
    ("engine", &["days", "kit", "formats", "kernels"]),
    ("cli", &["engine", "kit", "formats", "kernels"]),
    ("main", &["cli", "kernels", "kit"]),
];

/// The crate of the kernels themselves, which counts as a part of their room. Cargo sees to it that
/// it imports nothing of this one.
const KERNELS: &str = "candecode_kernels";

/// Names that say where a file stands, and not what it does.
const COMMON_NAMES: [&str; 4] = ["mod.rs", "main.rs", "lib.rs", "build.rs"];

/// The longest line, in characters.
const COLUMNS: usize = 100;
/// Whether a longer line in `src/` or `solutions/` fails the test; otherwise it is only printed.
const LONG_LINES_FAIL: bool = false;

/// A word or a sign of a source, and the line it stands on.
#[derive(Clone, Debug, PartialEq)]
struct Piece {
    text: String,
    line: usize,
}

/// A path that a file names, from the root of the crate, as `["kit", "step", "Step"]`.
#[derive(Clone, Debug, PartialEq)]
struct Import {
    path: Vec<String>,
    /// The name under which the file knows it.
    alias: String,
    line: usize,
}

/// A file of the crate.
struct Source {
    /// Relative to the root of the repository.
    file: String,
    /// Its module, from the root of the crate: empty for `lib.rs`.
    module: Vec<String>,
    imports: Vec<Import>,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All Rust files below a folder of the repository, relative to its root, in order. Build folders
/// and hidden ones are left out.
fn rust_files(below: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(below)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let is_link = path.symlink_metadata().unwrap().file_type().is_symlink();
            if path.is_dir() && !is_link && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if name.ends_with(".rs") {
                let relative = path.strip_prefix(root()).unwrap();
                found.push(relative.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    found.sort();
    found
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Words and signs of a source, without comments and without what stands in quotes.
fn pieces(source: &str) -> Vec<Piece> {
    let letters: Vec<char> = source.chars().collect();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while at < letters.len() {
        let start = at;
        let rest = &letters[at..];
        if rest.starts_with(&['/', '/']) {
            at += rest.iter().position(|c| *c == '\n').unwrap_or(rest.len());
        } else if rest.starts_with(&['/', '*']) {
            let end = rest.windows(2).position(|pair| pair == ['*', '/']);
            at += end.map_or(rest.len(), |end| end + 2);
        } else if let Some(length) = raw_text(rest).or_else(|| quoted(rest)) {
            at += length;
        } else if is_word(rest[0]) {
            at += rest.iter().position(|c| !is_word(*c)).unwrap_or(rest.len());
            found.push(Piece { text: letters[start..at].iter().collect(), line });
        } else {
            at += if rest.starts_with(&[':', ':']) { 2 } else { 1 };
            if !rest[0].is_whitespace() {
                found.push(Piece { text: letters[start..at].iter().collect(), line });
            }
        }
        line += letters[start..at].iter().filter(|c| **c == '\n').count();
    }
    found
}

/// The length of a text like `r#"…"#`, if one stands here.
fn raw_text(rest: &[char]) -> Option<usize> {
    if rest[0] != 'r' {
        return None;
    }
    let hashes = rest[1..].iter().take_while(|c| **c == '#').count();
    if rest.get(1 + hashes) != Some(&'"') {
        return None;
    }
    let mut end = vec!['"'];
    end.extend(std::iter::repeat_n('#', hashes));
    let body = &rest[2 + hashes..];
    let length = body.windows(end.len()).position(|part| part == end)?;
    Some(2 + hashes + length + end.len())
}

/// The length of a text in quotes or of a character, if one stands here. A lifetime is neither.
fn quoted(rest: &[char]) -> Option<usize> {
    let quote = rest[0];
    let is_character = quote == '\'' && (rest.get(1) == Some(&'\\') || rest.get(2) == Some(&'\''));
    if quote != '"' && !is_character {
        return None;
    }
    let mut at = 1;
    while *rest.get(at)? != quote || at == 0 {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    Some(at + 1)
}

/// The paths of a tree like `kit::{step::Step, rng}`, with the aliases of their ends; `at` moves
/// behind it.
fn tree(pieces: &[Piece], at: &mut usize, before: &[String], found: &mut Vec<Import>) {
    let text = |at: usize| pieces.get(at).map_or("", |piece| piece.text.as_str());
    let mut path = before.to_vec();
    let line = pieces.get(*at).map_or(0, |piece| piece.line);
    loop {
        match text(*at) {
            "{" => {
                *at += 1;
                while *at < pieces.len() && text(*at) != "}" {
                    tree(pieces, at, &path, found);
                    if text(*at) == "," {
                        *at += 1;
                    } else if text(*at) != "}" {
                        return; // no tree: a block of code
                    }
                }
                *at += 1;
                return;
            }
            word if word == "*" || word.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                path.push(word.to_string());
                *at += 1;
            }
            _ => break,
        }
        if text(*at) != "::" {
            break;
        }
        *at += 1;
    }
    let mut alias = path.last().cloned().unwrap_or_default();
    if alias == "self" {
        path.pop();
        alias = path.last().cloned().unwrap_or_default();
    }
    if text(*at) == "as" {
        alias = text(*at + 1).to_string();
        *at += 2;
    }
    found.push(Import { path, alias, line });
}

/// What a file imports from its own crate: in `use` lines, and by paths in the code. `is_module`
/// says whether a path from the root of the crate is a module.
fn imports(source: &str, module: &[String], is_module: &dyn Fn(&[String]) -> bool) -> Vec<Import> {
    let pieces = pieces(source);
    let mut found = Vec::new();
    let mut at = 0;
    while at < pieces.len() {
        let word = pieces[at].text.as_str();
        let starts = ["crate", "candecode", "super", "self", KERNELS].contains(&word)
            && (at == 0 || pieces[at - 1].text != "::")
            && pieces.get(at + 1).is_some_and(|next| next.text == "::");
        if word == "use" {
            at += 1;
            tree(&pieces, &mut at, &[], &mut found);
        } else if starts {
            tree(&pieces, &mut at, &[], &mut found);
        } else {
            at += 1;
        }
    }
    let from_root = |mut import: Import| {
        let mut base = module.to_vec();
        let supers = import.path.iter().take_while(|word| *word == "super").count();
        let first = import.path.first()?.clone();
        if first == "crate" || first == "candecode" {
            base.clear();
            import.path.remove(0);
        } else if first == KERNELS {
            base.clear();
            import.path[0] = "kernels".into();
        } else if supers > 0 {
            base.truncate(base.len().checked_sub(supers)?);
            import.path.drain(..supers);
        } else if first == "self" {
            import.path.remove(0);
        } else {
            let child = [module, &[first]].concat();
            if !is_module(&child) {
                return None; // another crate
            }
        }
        import.path.splice(..0, base);
        Some(import)
    };
    found.into_iter().filter_map(from_root).collect()
}

/// The module of a file: `src/kit/rng.rs` is `kit::rng`, `src/kit/mod.rs` is `kit`, a day is its
/// own.
fn module_of(file: &str) -> Vec<String> {
    let path = file.trim_start_matches("src/").trim_start_matches("solutions/");
    let mut words: Vec<String> =
        path.trim_end_matches(".rs").split('/').map(String::from).collect();
    if ["mod", "lib"].contains(&words.last().map_or("", String::as_str)) {
        words.pop();
    }
    words
}

/// All files of the crate; days in the reader's form and in the reference's.
fn crate_files() -> Vec<Source> {
    let files = [rust_files("src"), rust_files("solutions")].concat();
    let modules: BTreeSet<Vec<String>> = files.iter().map(|file| module_of(file)).collect();
    let source = |file: String| {
        let module = module_of(&file);
        let imports = imports(&read(&file), &module, &|path| modules.contains(path));
        Source { file, module, imports }
    };
    files.into_iter().map(source).collect()
}

/// `day06` of `day06_generate`; None of what is no day.
fn day_of(word: &str) -> Option<&str> {
    let digits = word.strip_prefix("day")?.get(..2)?;
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| &word[..5])
}

/// The room of a path from the root of the crate, what the root re-exports being of the room it
/// comes from.
fn room_of(path: &[String], root: &[Import]) -> String {
    let first = path.first().map_or("", String::as_str);
    if day_of(first).is_some() {
        return "days".into();
    }
    match root.iter().find(|import| import.alias == first && import.path.len() > 1) {
        Some(import) => import.path[0].clone(),
        None => first.to_string(),
    }
}

/// What is wrong with the imports of a file: one line each.
fn wrong_arrows(source: &Source, root: &[Import]) -> Vec<String> {
    let room = room_of(&source.module, &[]);
    if room.is_empty() {
        return Vec::new(); // lib.rs: the map of all rooms
    }
    let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == room) else {
        return vec![format!("{}: the room {room} has no line in ARROWS", source.file)];
    };
    let mut wrong = Vec::new();
    for import in &source.imports {
        let to = room_of(&import.path, root);
        let target = import.path.first().map_or("", String::as_str);
        let own_day = day_of(&source.module[0]);
        let fits = match (own_day, day_of(target)) {
            (Some(own), Some(day)) => day <= own, // "day04" < "day13"
            _ => to == room || allowed.contains(&to.as_str()),
        };
        if !fits {
            let (file, line) = (&source.file, import.line);
            wrong.push(format!("{file}:{line}: {room} imports {}", import.path.join("::")));
        }
    }
    wrong
}

#[test]
fn arrows_between_rooms_point_one_way() {
    let sources = crate_files();
    let root = sources.iter().find(|source| source.file == "src/lib.rs").unwrap();
    let mut wrong: Vec<String> = Vec::new();
    for source in &sources {
        wrong.extend(wrong_arrows(source, &root.imports));
    }
    for (room, _) in ARROWS {
        let has_files = sources.iter().any(|source| room_of(&source.module, &[]) == *room);
        if !has_files {
            wrong.push(format!("the room {room} has no file: is ARROWS out of date?"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong imports:\n{}", wrong.len(), wrong.join("\n"));
}

/// The file that a path leads to, by way of what modules re-export; None if that is the file of a
/// folder or of the crate.
fn file_of<'a>(path: &[String], sources: &'a [Source], depth: usize) -> Option<&'a Source> {
    let longest = (0..=path.len())
        .rev()
        .find_map(|length| sources.iter().find(|source| source.module == path[..length]))?;
    let is_folder = longest.module.is_empty() || longest.file.ends_with("/mod.rs");
    if !is_folder {
        return Some(longest);
    }
    let name = path.get(longest.module.len())?;
    let import = longest.imports.iter().find(|import| import.alias == *name)?;
    // A re-export of a re-export is followed; one that leads to itself is not.
    if depth == 0 || import.path == path {
        return None;
    }
    file_of(&import.path, sources, depth - 1)
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let sources: Vec<Source> =
        crate_files().into_iter().filter(|source| !source.file.starts_with("src/day")).collect();
    let mut arrows: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for source in &sources {
        let targets = source.imports.iter().filter_map(|i| file_of(&i.path, &sources, 4));
        let others = targets.filter(|target| {
            // A file and those of its own folder, `chat.rs` and `chat/template.rs`, are one thing
            // in parts.
            let is_part = target.module.starts_with(&source.module)
                || source.module.starts_with(&target.module);
            !is_part
        });
        arrows.insert(&source.file, others.map(|target| target.file.as_str()).collect());
    }
    // What imports nothing that is left is in no circle, and neither is what nothing imports.
    loop {
        let before = arrows.len();
        let left: BTreeSet<&str> = arrows.keys().copied().collect();
        arrows.retain(|_, targets| targets.iter().any(|target| left.contains(target)));
        let named: BTreeSet<&str> = arrows.values().flatten().copied().collect();
        arrows.retain(|file, _| named.contains(file));
        if arrows.len() == before {
            break;
        }
    }
    let left: BTreeSet<&str> = arrows.keys().copied().collect();
    let mut lines = Vec::new();
    for (file, targets) in &arrows {
        let within: Vec<&str> = targets.intersection(&left).copied().collect();
        lines.push(format!("{file} -> {}", within.join(", ")));
    }
    assert!(lines.is_empty(), "{} files are in circles:\n{}", lines.len(), lines.join("\n"));
}

/// Whether these two are a file of a package and the test of it, as `src/kit/rng.rs` and
/// `tests/kit/rng.rs`.
fn file_and_its_test(places: &[String]) -> bool {
    let [one, other] = places else { return false };
    let package_of = |file: &str, folder: &str| {
        let at = if file.starts_with(folder) { Some(0) } else { file.find(&format!("/{folder}")) };
        at.map(|at| file[..at].to_string())
    };
    let is_test = !other.starts_with("tests/checks/"); // those are what the days' tests share
    is_test && package_of(one, "src/").is_some_and(|of| package_of(other, "tests/") == Some(of))
}

#[test]
fn no_two_files_have_one_name() {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in rust_files(".") {
        let file = file.trim_start_matches("./").to_string();
        let name = Path::new(&file).file_name().unwrap().to_string_lossy().into_owned();
        // The files of a day have its name: stub, reference, checkers, known mistakes, benchmark.
        if !COMMON_NAMES.contains(&name.as_str()) && day_of(&name).is_none() {
            files.entry(name).or_default().push(file);
        }
    }
    files.retain(|_, places| places.len() > 1 && !file_and_its_test(places));
    let lines: Vec<String> = files.values().map(|places| places.join(", ")).collect();
    assert!(lines.is_empty(), "{} names are used twice:\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn lines_have_at_most_100_columns() {
    let mut long = Vec::new();
    for file in [rust_files("src"), rust_files("solutions")].concat() {
        for (at, line) in read(&file).lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS {
                long.push(format!("{file}:{}: {columns} columns", at + 1));
            }
        }
    }
    let text = format!("{} lines are over {COLUMNS} columns:\n{}", long.len(), long.join("\n"));
    if LONG_LINES_FAIL {
        assert!(long.is_empty(), "{text}");
    } else {
        println!("{text}");
    }
}

#[test]
fn imports_are_read_from_use_lines_and_from_paths() {
    let words = |text: &str| text.split("::").map(String::from).collect::<Vec<_>>();
    let source = "
        //! crate::comment::a
        use anyhow::Result;
        use crate::{kit::{step::Step, rng as random}, day01_attention::sdpa};
        use candecode_kernels::linear;
        pub use child::Name;
        fn f<'a>(x: &'a str) -> char { let _ = \"crate::text::b\"; super::rng::g(x); ':' }
        fn g() -> u32 { candecode::engine::open::<u32>() + crate::kit::weights::N }
    ";
    let is_module = |path: &[String]| path == words("kit::here::child");
    let found = imports(source, &words("kit::here"), &is_module);
    let paths: Vec<String> = found.iter().map(|import| import.path.join("::")).collect();
    assert_eq!(
        paths,
        [
            "kit::step::Step",
            "kit::rng",
            "day01_attention::sdpa",
            "kernels::linear",
            "kit::here::child::Name",
            "kit::rng::g",
            "engine::open",
            "kit::weights::N",
        ]
    );
    assert_eq!(found[1].alias, "random");
    assert_eq!(found[5].line, 7);
}

#[test]
fn a_wrong_arrow_is_found() {
    let words = |text: &str| text.split("::").map(String::from).collect::<Vec<_>>();
    let source = |file: &str, path: &str| Source {
        file: file.into(),
        module: module_of(file),
        imports: vec![Import { path: words(path), alias: String::new(), line: 3 }],
    };
    let entrance = Import { path: words("engine::Engine"), alias: "Engine".into(), line: 1 };
    let root = [entrance];
    for (file, path) in [
        ("src/kit/rng.rs", "kit::step::Step"),
        ("src/kernels.rs", "kit::device::on_cpu"),
        ("src/engine/operations.rs", "day04_attention_block::grouped_attention"),
        ("src/engine/operations.rs", "kernels::attention"),
        ("src/engine/load.rs", "day05_model::Transformer"),
        ("solutions/day13_speculative.rs", "day12_batching::f"),
        ("src/cli/run.rs", "Engine"),
        ("src/main.rs", "cli::run"),
    ] {
        assert_eq!(wrong_arrows(&source(file, path), &root), [""; 0], "{file} {path}");
    }
    for (file, path) in [
        ("src/kit/rng.rs", "day01_attention::f"),
        ("src/kit/rng.rs", "kernels::dot"),
        ("src/kit/rng.rs", "Engine"),
        ("src/kit/ops.rs", "day04_attention_block::grouped_attention"),
        ("src/kit/ops.rs", "kernels::attention"),
        ("src/kit/ops.rs", "engine::operations::choose"),
        ("src/kernels.rs", "day17_kernel::linear"),
        ("src/day04_attention_block.rs", "kernels::attention"),
        ("src/formats/hub.rs", "cli::run"),
        ("src/day04_attention_block.rs", "day05_model::Transformer"),
        ("src/day04_attention_block.rs", "engine::Engine"),
        ("src/unheard/of.rs", "kit::step::Step"),
    ] {
        assert_eq!(wrong_arrows(&source(file, path), &root).len(), 1, "{file} {path}");
    }
}

#[test]
fn a_test_may_have_the_name_of_what_it_tests() {
    let are = |one: &str, other: &str| file_and_its_test(&[one.to_string(), other.to_string()]);
    assert!(are("src/kit/rng.rs", "tests/kit/rng.rs"));
    assert!(are("xtask/src/commands/run.rs", "xtask/tests/run.rs"));
    assert!(!are("src/cli/run.rs", "xtask/tests/run.rs"));
    assert!(!are("src/kit/plan.rs", "tests/checks/plan.rs"));
    assert!(!are("src/kit/error.rs", "xtask/src/error.rs"));
}

/// Dependencies that no code of their package names, and why they are listed all the same.
const NOT_NAMED: [(&str, &str, &str); 6] = [
    ("Cargo.toml", "serde_core", "the server's crates ask for more of it: one candle for both"),
    ("Cargo.toml", "smallvec", "the server's crates ask for two features: one candle for both"),
    ("Cargo.toml", "getrandom", "in WebAssembly its numbers come from JavaScript: version 0.3"),
    ("Cargo.toml", "getrandom_04", "the same for version 0.4"),
    ("xtask/Cargo.toml", "num_cpus", "it compiles `kernels/src/thread_count.rs` as its own"),
    ("tools/Cargo.toml", "ring", "its test compiles `tests/hub/server.rs`"),
];

/// The names under a manifest's `[dependencies]`, `[dev-dependencies]` and so on.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut listed = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            listed = line.ends_with("dependencies]") && !line.contains("workspace");
        } else if let Some((name, _)) = line.split_once(['.', ' ', '=']).filter(|_| listed) {
            if !name.is_empty() && !name.starts_with('#') {
                names.push(name.replace('-', "_"));
            }
        }
    }
    names
}

#[test]
fn every_dependency_is_used_by_code() {
    let mut manifests = vec!["Cargo.toml".to_string()];
    let root_manifest = read("Cargo.toml");
    let members = root_manifest.split_once("members = [").unwrap().1.split(']').next().unwrap();
    manifests.extend(members.split('"').skip(1).step_by(2).map(|m| format!("{m}/Cargo.toml")));
    let mut idle = Vec::new();
    for manifest in &manifests {
        let package = manifest.strip_suffix("Cargo.toml").unwrap();
        let others: Vec<_> =
            manifests.iter().filter_map(|m| m.strip_suffix("Cargo.toml")).collect();
        // A package inside another one is not its code.
        let is_own = |file: &String| {
            let holder = others.iter().filter(|other| file.starts_with(**other));
            holder.max_by_key(|other| other.len()) == Some(&package)
        };
        let files = rust_files(if package.is_empty() { "." } else { package });
        let files = files.iter().map(|file| file.trim_start_matches("./").to_string());
        let code: Vec<Vec<Piece>> = files.filter(is_own).map(|file| pieces(&read(&file))).collect();
        for name in dependencies(&read(manifest)) {
            // As the start of a path: `half` alone may be a variable.
            let is_path = |two: &[Piece]| two[0].text == name && two[1].text.starts_with(':');
            let used = code.iter().any(|file| file.windows(2).any(is_path));
            let listed = NOT_NAMED.iter().any(|(of, known, _)| of == manifest && *known == name);
            if used == listed {
                let what = if used { "some code now uses" } else { "no code uses" };
                idle.push(format!("{manifest}: {what} {name}"));
            }
        }
    }
    assert!(idle.is_empty(), "{}", idle.join("\n"));
}

#[test]
fn dependencies_are_read_from_a_manifest() {
    let manifest = "[package]\nname = \"x\"\n\n[dependencies]\n# why\nhf-hub = \"1\"\nserde.workspace = true\n\
        \n[target.'cfg(unix)'.dependencies]\nmemmap2 = \"1\"\n\n[lints]\nptr = \"allow\"\n";
    assert_eq!(dependencies(manifest), ["hf_hub", "serde", "memmap2"]);
}
