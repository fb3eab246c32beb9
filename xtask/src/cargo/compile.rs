//! Builds the course for one mix of days, and reports the programs or the errors.

use crate::cargo;
use crate::note;
use crate::term;
use anyhow::{anyhow, Context, Result};
use candecode_course::{in_src, Repo};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// The outcome of a build.
pub enum Built {
    /// The programs, by target name.
    Done(Programs),
    /// The build failed with errors in these places. Cargo's own output is already on standard
    /// error.
    Broken(BTreeSet<Place>),
}

/// The source location of a compiler error.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Path relative to the repository's root.
    pub file: String,
    /// Line number, from 1.
    pub line: u64,
}

/// The artifacts of a build.
#[derive(Default)]
pub struct Programs {
    paths: BTreeMap<String, PathBuf>,
    libraries: BTreeMap<String, PathBuf>,
    folders: BTreeSet<String>,
}

impl Programs {
    /// Returns the program of a target.
    ///
    /// # Errors
    /// If the build produced no program of that name.
    pub fn get(&self, target: &str) -> Result<&Path> {
        self.paths
            .get(target)
            .map(PathBuf::as_path)
            .with_context(|| format!("cargo built no program `{target}`"))
    }

    /// Records an artifact that cargo reports, whether it's new or up to date.
    fn take(&mut self, artifact: &Value) {
        let name = artifact["target"]["name"].as_str().unwrap_or_default().to_string();
        let files = artifact["filenames"].as_array().into_iter().flatten();
        let mut files = files.filter_map(Value::as_str).map(PathBuf::from);
        if let Some(program) = artifact["executable"].as_str() {
            self.paths.insert(name, PathBuf::from(program));
        } else if let Some(library) = files.find(|file| file.extension() == Some("rlib".as_ref())) {
            let folder = library.parent().map(|folder| format!("dependency={}", folder.display()));
            self.folders.extend(folder);
            self.libraries.insert(name, library);
        }
    }

    /// Returns the compiled library of a crate that the programs link to.
    pub fn library(&self, name: &str) -> Option<&Path> {
        self.libraries.get(name).map(PathBuf::as_path)
    }

    /// Returns the library search paths, as rustc's `-L` takes them.
    pub fn folders(&self) -> &BTreeSet<String> {
        &self.folders
    }
}

/// What cargo reported during a build.
#[derive(Default)]
struct Messages {
    programs: Programs,
    broken: BTreeSet<Place>,
}

/// Runs `cargo SUBCOMMAND ARGS` and returns what it built. Cargo's messages are passed through,
/// with its progress bar if standard error is a terminal. `next` announces the build in a sentence.
///
/// # Errors
/// If cargo cannot be started.
pub fn build(repo: &Repo, subcommand: &str, args: &[String], next: &str) -> Result<Built> {
    let target = cargo::target_dir(repo);
    let format = if term::stderr_colors() { "json-diagnostic-rendered-ansi" } else { "json" };
    let mut command = cargo::command(repo);
    command.arg(subcommand).arg(format!("--message-format={format}")).args(args);
    if !cargo::has_built(&target) {
        note!("{next}\n{FIRST_BUILD}");
    } else if std::io::stderr().is_terminal() {
        note!("{next}");
    } else {
        command.arg("--quiet");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|e| anyhow!("cannot start cargo: {e}"))?;
    let messages = collect(&mut child)?;
    if !child.wait()?.success() {
        return Ok(Built::Broken(messages.broken));
    }
    super::note_built(&target);
    Ok(Built::Done(messages.programs))
}

/// Reads cargo's messages until the stream ends.
fn collect(child: &mut Child) -> Result<Messages> {
    let mut messages = Messages::default();
    let pipe = child.stdout.take().context("cargo has no output")?;
    for line in BufReader::new(pipe).lines() {
        let Ok(value) = serde_json::from_str::<Value>(&line?) else { continue };
        match value["reason"].as_str() {
            Some("compiler-artifact") => messages.programs.take(&value),
            Some("build-script-executed") => {
                let paths = value["linked_paths"].as_array().into_iter().flatten();
                messages.programs.folders.extend(paths.filter_map(Value::as_str).map(String::from));
            }
            Some("compiler-message") => messages.take(&value["message"]),
            _ => {}
        }
    }
    Ok(messages)
}

impl Messages {
    /// Prints a compiler message, and records its location if it is an error.
    fn take(&mut self, message: &Value) {
        let rendered = in_src(message["rendered"].as_str().unwrap_or_default());
        let _ = write!(std::io::stderr(), "{}{rendered}", start_of_line());
        let level = message["level"].as_str().unwrap_or_default();
        let spans = message["spans"].as_array().filter(|_| level.starts_with("error"));
        let primary = spans.into_iter().flatten().filter(|span| span["is_primary"] == true);
        self.broken.extend(primary.filter_map(place));
    }
}

/// What a reader is told while candle is compiled.
const FIRST_BUILD: &str = "The first build compiles candle and its dependencies. That takes \
    minutes, and happens only once.\n\
    In the meantime, read book/src/preface.md and book/src/how_a_day_works.md. After that, `cargo \
    xtask book` builds the whole book.";

/// Returns what clears a terminal's line, which may hold cargo's progress bar.
fn start_of_line() -> &'static str {
    if term::stderr_colors() {
        "\r\x1b[K"
    } else {
        ""
    }
}

/// Returns where a span starts. For a span inside a macro, returns the call site.
fn place(span: &Value) -> Option<Place> {
    match &span["expansion"]["span"] {
        call if call.is_object() => place(call),
        _ => Some(Place {
            file: in_src(&span["file_name"].as_str()?.replace('\\', "/")),
            line: span["line_start"].as_u64()?,
        }),
    }
}

/// Explains a failed build: where the errors are, and what still works.
pub fn explain(broken: &BTreeSet<Place>) -> String {
    // If a day has errors, those in the kit or the checks are probably just consequences.
    let days: BTreeSet<Place> =
        broken.iter().filter(|place| place.file.starts_with("src/day")).cloned().collect();
    let broken = if days.is_empty() { broken } else { &days };
    let all = |start: &str| broken.iter().all(|place| place.file.starts_with(start));
    if broken.is_empty() {
        "cargo couldn't build; see its output above. `cargo xtask doctor` checks for common \
         causes."
            .to_string()
    } else if all("src/day") {
        format!("The error is in {}. Days from the reference are not affected.", places(broken))
    } else if all("tests/") {
        format!(
            "The checks don't compile with your file ({}): has a signature changed? It must stay \
             as it was in the stub.",
            places(broken)
        )
    } else {
        format!("The error is in {}.", places(broken))
    }
}

/// Lists the first few locations, in the form `src/day01_attention.rs, line 79`.
pub fn places(broken: &BTreeSet<Place>) -> String {
    const SHOWN: usize = 5;
    let (mut words, mut file) = (Vec::new(), "");
    for place in broken.iter().take(SHOWN) {
        let line = place.line;
        let same = place.file == file;
        words.push(if same { line.to_string() } else { format!("{}, line {line}", place.file) });
        file = &place.file;
    }
    let more = broken.len().saturating_sub(SHOWN);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    words.join(", ") + &rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(places: &[(&str, u64)]) -> BTreeSet<Place> {
        places.iter().map(|&(file, line)| Place { file: file.into(), line }).collect()
    }

    #[test]
    fn compile_errors_are_located_by_file_and_line() {
        let day = "src/day06_generate.rs";
        let text = explain(&broken(&[(day, 9)]));
        assert!(text.starts_with("The error is in src/day06_generate.rs, line 9. Days"), "{text}");
        let kit = explain(&broken(&[("crates/kit/src/mod.rs", 3)]));
        assert_eq!(kit, "The error is in crates/kit/src/mod.rs, line 3.");
        assert!(explain(&broken(&[])).contains("cargo xtask doctor"));
        let tests = explain(&broken(&[("tests/day06_generate/checks.rs", 3)]));
        assert!(tests.contains("has a signature changed?"));
        let two = broken(&[(day, 20), (day, 9), ("src/main.rs", 1)]);
        assert_eq!(places(&two), "src/day06_generate.rs, line 9, 20, src/main.rs, line 1");
        let many: Vec<_> = (1..=7).map(|line| (day, line)).collect();
        assert!(places(&broken(&many)).ends_with("line 1, 2, 3, 4, 5 and 2 more"));
    }

    #[test]
    fn an_error_in_a_macro_is_located_at_the_call_site() {
        let inner = serde_json::json!({"file_name": "/rustc/macros.rs", "line_start": 7,
            "expansion": {"span": {"file_name": "src\\day01_attention.rs", "line_start": 4, 
            "expansion": null}}});
        let there = Place { file: "src/day01_attention.rs".into(), line: 4 };
        assert_eq!(place(&inner), Some(there));
    }
}
