//! `{{#live NAME}}`: a figure that answers, under the still picture that it starts as.
//!
//! A live figure is a script, `book/src/live/figures/NAME.js`, that asks the lessons, compiled to
//! WebAssembly (`crates/live`). Where this machine cannot compile for WebAssembly the book has its
//! still pictures and a line that says what is missing.

use crate::source::{Line, Origin};
use anyhow::{bail, Context, Result};
use base64::Engine as _;
use flate2::write::GzEncoder;
use flate2::Compression;
use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the scripts of live figures lie.
const SCRIPTS: &str = "book/src/live/figures";

/// The embedded model that the figures ask.
const MODEL: &str = "models/story-230k";

const TARGET: &str = "wasm32-unknown-unknown";

/// What a page without JavaScript says in the place of a live figure.
const SLEEPING: &str = "With JavaScript this figure answers when you touch it.";

/// What it says where the lessons were not compiled.
const STILL: &str =
    "This figure can answer: <code>rustup target add wasm32-unknown-unknown</code>, \
                     then build the book again.";

/// Whose days the figures run.
#[derive(Clone, Copy, PartialEq)]
pub enum Days {
    /// None: still pictures only.
    None,
    /// The reference's.
    Reference,
    /// The reader's.
    Mine,
}

impl Days {
    /// What the environment variable `CANDECODE_BOOK` says: `still`, `mine`, or nothing.
    ///
    /// # Errors
    /// If it says something else.
    pub fn asked_for() -> Result<Self> {
        match std::env::var("CANDECODE_BOOK").unwrap_or_default().as_str() {
            "" => Ok(Self::Reference),
            "still" => Ok(Self::None),
            "mine" => Ok(Self::Mine),
            other => bail!("CANDECODE_BOOK is {other:?}: `still` or `mine` was expected"),
        }
    }
}

/// The lessons for a page: WebAssembly, or none.
pub struct Lessons {
    wasm: Option<Vec<u8>>,
    /// The known mistakes that figures can switch on, by their part's name.
    mistakes: Vec<(String, Vec<u8>)>,
    /// The days that are the reader's, if they are asked for.
    yours: Option<Vec<u32>>,
}

impl Lessons {
    /// A book with still pictures.
    pub fn none() -> Self {
        Self { wasm: None, mistakes: Vec::new(), yours: None }
    }

    /// Compiles the lessons, where this machine can: with the target of rustup, or with the
    /// standard library's source (rustup's component, or what `crates/maintain/scripts/rust-src.sh`
    /// has fetched).
    ///
    /// # Errors
    /// If they do not compile.
    pub fn compile(root: &Path, days: Days) -> Result<Self> {
        if days == Days::None {
            return Ok(Self::none());
        }
        let Some(std) = StandardLibrary::find() else { return Ok(Self::none()) };
        let target = root.join("target/live");
        if !target.join(TARGET).exists() {
            eprintln!(
                "The first time the live figures are compiled: some minutes on two cores \
                 (`cargo xtask book --still` leaves them out)."
            );
        }
        if days == Days::Mine {
            let (yours, features) = mixture(root)?;
            let wasm = cargo(root, &std, &target, &features)?;
            return Ok(Self { wasm: Some(wasm), mistakes: Vec::new(), yours: Some(yours) });
        }
        let wasm = cargo(root, &std, &target, "ref")?;
        Ok(Self { wasm: Some(wasm), mistakes: mistakes(&target)?, yours: None })
    }

    /// What stands in a chapter for a live figure of this name.
    pub fn placeholder(&self, name: &str, root: &Path) -> Result<Vec<Line>, String> {
        let script = format!("{SCRIPTS}/{name}.js");
        if !root.join(&script).is_file() {
            return Err(format!("{script}: no such figure"));
        }
        let (mark, words) = match self.wasm {
            Some(_) => (format!(" data-live=\"{name}\""), SLEEPING),
            None => (String::new(), STILL),
        };
        let text = format!("<div class=\"live\"{mark}><p class=\"live-off\">{words}</p></div>");
        Ok(vec![Line { text, at: Origin { file: script.into(), line: 1 } }])
    }

    /// Writes lessons and model into a folder of scripts, which has nothing else in it then, or
    /// isn't there.
    ///
    /// # Errors
    /// If a file cannot be read or written.
    pub fn install(&self, root: &Path, to: &Path) -> Result<()> {
        if to.exists() {
            fs::remove_dir_all(to).with_context(|| to.display().to_string())?;
        }
        let Some(wasm) = &self.wasm else { return Ok(()) };
        fs::create_dir_all(to).with_context(|| to.display().to_string())?;
        write_part(to, "engine", &quoted(&packed(wasm)?))?;
        let mut names = String::new();
        for (name, wasm) in &self.mistakes {
            write_part(to, name, &quoted(&packed(wasm)?))?;
            names += &format!("\"{name}\",");
        }
        let yours = self.yours.as_ref().map_or("null".to_string(), |days| format!("{days:?}"));
        write_part(to, "about", &format!("{{mistakes:[{names}],yours:{yours}}}"))?;
        let mut model = String::from("{");
        for (name, file) in [
            ("config", "config.json"),
            ("tokenizer", "tokenizer.json"),
            ("weights", "model.safetensors"),
        ] {
            let path = root.join(MODEL).join(file);
            let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
            model += &format!("{name}:{},", quoted(&packed(&bytes)?));
        }
        write_part(to, "model", &format!("{model}}}"))
    }
}

/// Compiles the lessons of a course into a file.
///
/// # Errors
/// If this machine cannot compile for WebAssembly, or they do not compile.
pub fn compile_to(root: &Path, target: &Path, features: &str, to: &Path) -> Result<()> {
    let std = StandardLibrary::find().with_context(|| format!("rustup target add {TARGET}"))?;
    let wasm = cargo(root, &std, target, features)?;
    fs::write(to, wasm).with_context(|| to.display().to_string())
}

/// The days that the reader has begun, and cargo's features for a course in which all others are
/// the reference's.
fn mixture(root: &Path) -> Result<(Vec<u32>, String)> {
    let dir = root.join("solutions");
    let (mut yours, mut features) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let number = name.get(3..5).and_then(|digits| digits.parse().ok());
        let (true, Some(number)) = (name.starts_with("day"), number) else { continue };
        let reference = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let mine = fs::read_to_string(root.join("src").join(&name)).unwrap_or_default();
        if begun(&mine, &reference) {
            yours.push(number);
        } else {
            features.push(format!("candecode/ref-day{number:02}"));
        }
    }
    yours.sort_unstable();
    // With nothing begun it's the reference's build.
    let features = if yours.is_empty() { "ref".to_string() } else { features.join(",") };
    Ok((yours, features))
}

/// Whether a task of a day is written: in its stub every task is a `todo!`.
fn begun(mine: &str, reference: &str) -> bool {
    let code = mine.lines().filter(|line| !line.trim_start().starts_with("//"));
    let left = code.filter(|line| line.contains("todo!(")).count();
    let tasks = reference.lines().filter(|line| line.trim_start().starts_with("// task ")).count();
    !mine.is_empty() && left < tasks
}

/// What `cargo maintain live-mistakes` has compiled: names and WebAssembly.
fn mistakes(target: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let Ok(entries) = fs::read_dir(target.join("mistakes")) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let wasm = fs::read(&path).with_context(|| path.display().to_string())?;
        found.push((name, wasm));
    }
    found.sort();
    Ok(found)
}

/// Where the standard library for WebAssembly comes from.
enum StandardLibrary {
    /// Rustup's target is installed.
    Installed,
    /// Its source is here, and cargo compiles it.
    Source(PathBuf),
}

impl StandardLibrary {
    fn find() -> Option<Self> {
        let installed = said("rustc", &["--print", "target-libdir", "--target", TARGET])?;
        if Path::new(&installed).is_dir() {
            return Some(Self::Installed);
        }
        let sysroot = PathBuf::from(said("rustc", &["--print", "sysroot"])?);
        let version = said("rustc", &["-vV"])?;
        let version = version.lines().find_map(|line| line.strip_prefix("release: "))?;
        let cache = match std::env::var_os("RUST_SRC_CACHE") {
            Some(cache) => PathBuf::from(cache),
            None => std::env::home_dir()?.join(".cache/rust-src"),
        };
        let component = sysroot.join("lib/rustlib/src/rust/library");
        let places = [component, cache.join(version).join("library")];
        places.into_iter().find(|place| place.join("Cargo.lock").is_file()).map(Self::Source)
    }
}

/// What a program prints, if it is there and succeeds.
fn said(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// Compiles `crates/live` for WebAssembly; its bytes. (binaryen's `wasm-opt -Oz` takes minutes, and
/// what it saves is gone when both are gzipped.)
fn cargo(root: &Path, std: &StandardLibrary, target: &Path, features: &str) -> Result<Vec<u8>> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // The library for tests is left out: beside it there would be no link-time optimisation.
    cargo.current_dir(root).args([
        "rustc",
        "--package",
        "candecode-live",
        "--crate-type",
        "cdylib",
    ]);
    cargo
        .args(["--profile", "live"])
        .args(["--target", TARGET, "--target-dir"])
        .arg(target)
        .args(["--features", features]);
    // On a terminal cargo shows how far it is.
    cargo.args((!std::io::stderr().is_terminal()).then_some("--quiet"));
    if let StandardLibrary::Source(library) = std {
        // As crates/maintain/scripts/wasm-check.sh: a stable compiler builds its own standard
        // library.
        cargo.args(["-Zbuild-std=std,panic_abort"]).env("RUSTC_BOOTSTRAP", "1");
        cargo.env("__CARGO_TESTS_ONLY_SRC_ROOT", library);
    }
    let status = cargo.status().context("cargo could not be started")?;
    if !status.success() {
        bail!("the live figures do not compile (`cargo xtask book --still` leaves them out)");
    }
    let wasm = target.join(TARGET).join("live/candecode_live.wasm");
    fs::read(&wasm).with_context(|| wasm.display().to_string())
}

/// Returns the bytes gzipped, as small as that gets.
fn packed(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(bytes)?;
    Ok(packed.finish()?)
}

/// Bytes as a string of JavaScript.
fn quoted(bytes: &[u8]) -> String {
    format!("\"{}\"", base64::engine::general_purpose::STANDARD.encode(bytes))
}

/// A classic script that hands data to `live.js`.
fn write_part(to: &Path, name: &str, data: &str) -> Result<()> {
    let path = to.join(format!("{name}.js"));
    fs::write(&path, format!("candecode.part(\"{name}\", {data});\n"))
        .with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_without_a_script_is_refused() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let none = Lessons::none();
        assert!(none.placeholder("gone", &root).unwrap_err().ends_with("gone.js: no such figure"));
        let line = &none.placeholder("sampler", &root).unwrap()[0].text;
        assert!(!line.contains("data-live=") && line.contains("rustup target add"), "{line}");
    }

    #[test]
    fn a_day_is_begun_when_a_task_is_written() {
        let reference = "// task 8.1: a\n// <solution>\n1\n// task 8.2: b\n// <solution>\n2\n";
        let todo = |n| format!("// task 8.{n}: x\n    todo!(\n        \"day 8, task {n}: x\"\n)\n");
        assert!(!begun(&(todo(1) + &todo(2)), reference));
        assert!(begun(&("1\n".to_string() + &todo(2)), reference));
        assert!(begun("1 // was todo\n// todo!(\"day 8, task 1: x\")\n2", reference));
        assert!(!begun("", reference), "no such file");
    }

    #[test]
    fn a_live_book_has_its_parts_and_a_still_one_has_none() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let out = std::env::temp_dir().join(format!("book-tool-live-{}", std::process::id()));
        fs::create_dir_all(&out).unwrap();
        fs::write(out.join("old.js"), "x").unwrap();
        let lessons =
            Lessons { wasm: Some(b"wasm".to_vec()), mistakes: Vec::new(), yours: Some(vec![0, 8]) };
        lessons.install(&root, &out).unwrap();
        let model = fs::metadata(out.join("model.js")).unwrap().len();
        assert!(model < 650_000, "the page's budget for the model");
        assert!(lessons.placeholder("rope", &root).unwrap()[0].text.contains("data-live=\"rope\""));
        assert!(!out.join("old.js").exists());
        let about = ("about", "{mistakes:[],yours:[0, 8]}");
        for (part, begin) in [("engine", "\"H4sI"), ("model", "{config:\"H4sI"), about] {
            let text = fs::read_to_string(out.join(format!("{part}.js"))).unwrap();
            assert!(text.starts_with(&format!("candecode.part(\"{part}\", {begin}")), "{part}");
        }
        Lessons::none().install(&root, &out).unwrap();
        assert!(!out.exists());
    }
}
