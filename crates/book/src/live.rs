//! Live figures: scripts, `book/src/live/figures/NAME.js`, that call the lessons (`crates/live`),
//! which are compiled to WebAssembly.

use anyhow::{bail, ensure, Context, Result};
use base64::Engine as _;
use candecode_course::Repo;
use flate2::write::GzEncoder;
use flate2::Compression;
use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::Command;

/// The embedded model that the figures use.
const MODEL: &str = "models/story-230k";

const TARGET: &str = "wasm32-unknown-unknown";

/// The source of the days' code in the figures.
#[derive(Clone, Copy, PartialEq)]
pub enum Days {
    /// Static pictures only.
    None,
    /// The reference.
    Reference,
    /// The reader's own code, with the reference for days that the reader hasn't started.
    Mine,
}

impl Days {
    /// Reads the environment variable `CANDECODE_BOOK`: `live`, `mine`, or unset.
    ///
    /// # Errors
    /// If it has any other value.
    pub fn asked_for() -> Result<Self> {
        match std::env::var("CANDECODE_BOOK").unwrap_or_default().as_str() {
            "" => Ok(Self::None),
            "live" => Ok(Self::Reference),
            "mine" => Ok(Self::Mine),
            other => bail!("CANDECODE_BOOK is {other:?}: expected `live` or `mine`"),
        }
    }
}

/// The lessons compiled for the pages, if any.
pub struct Lessons {
    wasm: Option<Vec<u8>>,
    /// The known mistakes that figures can switch on, as compiled lessons, by name.
    mistakes: Vec<(String, Vec<u8>)>,
    /// The days taken from the reader's code, if that was requested.
    yours: Option<Vec<u32>>,
}

impl Lessons {
    /// Creates the lessons of a book with static pictures.
    pub fn none() -> Self {
        Self { wasm: None, mistakes: Vec::new(), yours: None }
    }

    /// Compiles the lessons, unless the book gets static pictures.
    ///
    /// # Errors
    /// If they don't compile, or this machine can't compile for WebAssembly.
    pub fn compile(root: &Path, days: Days) -> Result<Self> {
        if days == Days::None {
            return Ok(Self::none());
        }
        let target = root.join("target/live");
        eprintln!(
            "Compiling the lessons for the live figures, unless that's done: about three minutes \
             on two cores."
        );
        if days == Days::Mine {
            let (yours, features) = mixture(root)?;
            let wasm = cargo(root, &target, &features)?;
            return Ok(Self { wasm: Some(wasm), mistakes: Vec::new(), yours: Some(yours) });
        }
        let wasm = cargo(root, &target, "ref")?;
        Ok(Self { wasm: Some(wasm), mistakes: mistakes(&target)?, yours: None })
    }

    /// Returns whether figures can be live.
    pub fn are_compiled(&self) -> bool {
        self.wasm.is_some()
    }

    /// Returns the place of a live figure on a page.
    pub fn place(name: &str) -> String {
        format!(
            "<div class=\"live\" data-live=\"{name}\"><p class=\"live-off\">With JavaScript, this \
             figure is interactive.</p></div>"
        )
    }

    /// Replaces a directory with the scripts that contain the lessons and the model. Without
    /// compiled lessons, just removes the directory.
    ///
    /// # Errors
    /// If a file can't be read or written.
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

/// Compiles the lessons and writes the WebAssembly to a file.
///
/// # Errors
/// If this machine can't compile for WebAssembly, or the lessons don't compile.
pub fn compile_to(root: &Path, target: &Path, features: &str, to: &Path) -> Result<()> {
    let wasm = cargo(root, target, features)?;
    fs::write(to, wasm).with_context(|| to.display().to_string())
}

/// Returns the days that the reader has started, and the cargo features that use the reference for
/// all others.
fn mixture(root: &Path) -> Result<(Vec<u32>, String)> {
    let repo = Repo::open(root)?;
    let mut yours = Vec::new();
    for day in &repo.days {
        if repo.progress(day)?.has_a_task(&repo.tasks(day)?) {
            yours.push(day.number);
        }
    }
    // If no day has been started, use the same features as the reference, to share its build.
    if yours.is_empty() {
        return Ok((yours, "ref".to_string()));
    }
    let features = repo.features(|day| !yours.contains(&day.number));
    let features: Vec<String> = features.iter().map(|name| format!("candecode/{name}")).collect();
    Ok((yours, features.join(",")))
}

/// Returns the lessons compiled by `cargo lab live-mistakes`, as names and WebAssembly.
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

/// Returns a program's output, if it exists and succeeds.
fn said(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// Compiles `crates/live` to WebAssembly and returns its bytes. (binaryen's `wasm-opt -Oz` takes
/// minutes, and the savings disappear once both files are gzipped.)
fn cargo(root: &Path, target: &Path, features: &str) -> Result<Vec<u8>> {
    let library = said("rustc", &["--print", "target-libdir", "--target", TARGET]);
    ensure!(
        library.is_some_and(|library| Path::new(&library).is_dir()),
        "live figures need Rust's target for WebAssembly: `rustup target add {TARGET}` (on Debian \
         without rustup: `apt install libstd-rust-dev-wasm32`); `cargo xtask book` without --live \
         needs nothing"
    );
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Build only the cdylib, not the library that the tests use, which would rule out link-time
    // optimization.
    cargo.current_dir(root).args(["rustc", "--package", "candecode-live"]);
    cargo.args(["--crate-type", "cdylib", "--profile", "live", "--features", features]);
    cargo.args(["--target", TARGET, "--target-dir"]).arg(target);
    // On a terminal, let cargo show its progress.
    cargo.args((!std::io::stderr().is_terminal()).then_some("--quiet"));
    let status = cargo.status().context("cannot start cargo")?;
    ensure!(
        status.success(),
        "the live figures don't compile (`cargo xtask book` without --live skips them)"
    );
    let wasm = target.join(TARGET).join("live/candecode_live.wasm");
    fs::read(&wasm).with_context(|| wasm.display().to_string())
}

/// Compresses bytes with gzip at the best level.
fn packed(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(bytes)?;
    Ok(packed.finish()?)
}

/// Returns bytes as a base64 JavaScript string.
fn quoted(bytes: &[u8]) -> String {
    format!("\"{}\"", base64::engine::general_purpose::STANDARD.encode(bytes))
}

/// Writes a classic script (not a module) that passes data to `live.js`.
fn write_part(to: &Path, name: &str, data: &str) -> Result<()> {
    let path = to.join(format!("{name}.js"));
    fs::write(&path, format!("candecode.part(\"{name}\", {data});\n"))
        .with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_scripts_are_installed_only_in_a_live_book() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let out = std::env::temp_dir().join(format!("candecode-book-live-{}", std::process::id()));
        fs::create_dir_all(&out).unwrap();
        fs::write(out.join("old.js"), "x").unwrap();
        let lessons =
            Lessons { wasm: Some(b"wasm".to_vec()), mistakes: Vec::new(), yours: Some(vec![0, 8]) };
        lessons.install(&root, &out).unwrap();
        let model = fs::metadata(out.join("model.js")).unwrap().len();
        assert!(model < 650_000, "the page's budget for the model");
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
