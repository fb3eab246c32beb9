//! `cargo xtask doctor`: what this machine lacks, and how to mend it.

mod checkout;
mod devices;
mod network;

use crate::cargo;
use crate::machine;
use crate::paint::{paint, Colour};
use crate::repo::Repo;
use crate::say;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

/// What each embedded model consists of.
const MODEL_FILES: [&str; 3] = ["config.json", "tokenizer.json", "model.safetensors"];
const MODELS: [&str; 3] = ["story-3m", "story-230k", "story-gpt2-1m"];
const GIB: u64 = 1 << 30;

/// One finding.
pub enum Finding {
    /// As it should be.
    Good(String),
    /// Worth knowing; nothing to mend.
    Note(String),
    /// What is wrong, and what mends it.
    Bad(String, String),
}

use Finding::{Bad, Good, Note};

/// Looks at everything, and prints a line each. The exit code is 1 if something must be mended.
///
/// # Errors
/// None today: what cannot be found out is a note.
pub fn run(repo: &Repo) -> Result<ExitCode> {
    let mut findings = vec![toolchain(repo), linker(), threads()];
    findings.extend(devices::findings());
    findings.extend(models(repo));
    findings.push(space(repo));
    findings.extend(permissions(repo));
    findings.push(crates(repo));
    findings.extend(network::findings());
    findings.push(editor(repo));
    findings.extend(days(repo));
    findings.extend(checkout::findings(repo));
    let bad = findings.iter().filter(|finding| matches!(finding, Bad(..))).count();
    for finding in &findings {
        match finding {
            Good(text) => say!("{} {text}", paint(Colour::Green, "✓ good:")),
            Note(text) => say!("{} {text}", paint(Colour::Dim, "– note:")),
            Bad(text, mend) => {
                say!("{} {text}\n         to mend: {mend}", paint(Colour::Red, "✗ bad: "))
            }
        }
    }
    match bad {
        0 => say!("\nNothing to mend."),
        n => say!("\n{n} to mend."),
    }
    Ok(ExitCode::from(u8::from(bad > 0)))
}

/// The compiler against `rust-version`.
fn toolchain(repo: &Repo) -> Finding {
    let manifest = repo.read("Cargo.toml").unwrap_or_default();
    let wanted = manifest
        .lines()
        .find_map(|line| line.trim().strip_prefix("rust-version = \"")?.split('"').next());
    let Some(wanted) = wanted else { return Note("Cargo.toml asks for no Rust version".into()) };
    let mend = format!("install Rust {wanted} or newer, with rustup: `rustup update stable`");
    match machine::output("rustc", &["--version"]) {
        None => Bad("there is no rustc on PATH".into(), mend),
        Some(text) => {
            let found = text.split_whitespace().nth(1).unwrap_or_default();
            match version(found) >= version(wanted) {
                true => Good(format!("rustc {found} (the course needs {wanted} or newer)")),
                false => Bad(format!("rustc {found} is too old: the course needs {wanted}"), mend),
            }
        }
    }
}

/// `1.88.0-nightly` as numbers.
fn version(text: &str) -> Vec<u32> {
    let plain = text.split('-').next().unwrap_or_default();
    plain.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

/// What links programs: Rust brings none on Unix.
fn linker() -> Finding {
    let mend = if cfg!(target_os = "macos") {
        "install Apple's command line tools: `xcode-select --install`"
    } else {
        "install a C compiler: on Debian and Ubuntu `apt install gcc libc6-dev`"
    };
    match machine::output("cc", &["--version"]) {
        _ if cfg!(windows) => {
            Note("the linker is Visual Studio's build tools, which rustup asks for".into())
        }
        Some(text) => Good(format!("a linker: {}", text.lines().next().unwrap_or("cc"))),
        None => Bad("there is no `cc` on PATH: nothing can be linked".into(), mend.into()),
    }
}

/// How many threads products will have.
fn threads() -> Finding {
    let own = std::env::var("RAYON_NUM_THREADS").ok().filter(|n| !matches!(n.as_str(), "" | "0"));
    Good(match own {
        Some(n) => format!("{n} threads, as RAYON_NUM_THREADS says"),
        None => format!("{} threads, one for each physical core", machine::threads()),
    })
}

/// The embedded models.
fn models(repo: &Repo) -> Vec<Finding> {
    let own = std::env::var_os("CANDECODE_MODELS").map(PathBuf::from);
    let dir = own.clone().unwrap_or_else(|| repo.root.join("models"));
    let mend = match own {
        Some(_) => {
            "unset CANDECODE_MODELS, or set it to a folder with the story models".to_string()
        }
        None => "bring the folder back: `git checkout -- models`".to_string(),
    };
    let check = |model: &str| {
        let lacks = MODEL_FILES.iter().find(|file| {
            let size = std::fs::metadata(dir.join(model).join(file)).map_or(0, |meta| meta.len());
            size == 0
        });
        match lacks {
            None => Good(format!("model {model} is in {}", dir.display())),
            Some(file) => Bad(
                format!(
                    "model {model}: {} is absent or empty",
                    dir.join(model).join(file).display()
                ),
                mend.clone(),
            ),
        }
    };
    MODELS.iter().map(|model| check(model)).collect()
}

/// Free space where cargo builds.
fn space(repo: &Repo) -> Finding {
    let target = cargo::target_dir(repo);
    let there = target.ancestors().find(|dir| dir.exists()).unwrap_or(&repo.root);
    let needed = if cargo::candle_is_built(&target) { GIB } else { 4 * GIB };
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / GIB as f64);
    match machine::free_space(there) {
        None => Note(format!("free space in {} is unknown; building needs {}", there.display(), gib(needed))),
        Some(free) if free < needed => Bad(
            format!("{} free in {}: building needs {}", gib(free), there.display(), gib(needed)),
            "make room, or set CARGO_TARGET_DIR to a folder on another disk; `cargo clean` empties this one".into(),
        ),
        Some(free) => Good(format!("{} free in {}", gib(free), there.display())),
    }
}

/// Whether files can be made where the runner and cargo make them.
fn permissions(repo: &Repo) -> Vec<Finding> {
    let dirs = [repo.root.clone(), repo.root.join("src"), cargo::target_dir(repo)];
    let check = |dir: &PathBuf| {
        let there = dir.ancestors().find(|dir| dir.exists()).unwrap_or(dir);
        let probe = there.join(format!(".candecode-probe-{}", std::process::id()));
        let made = std::fs::write(&probe, "x");
        let _ = std::fs::remove_file(&probe);
        match made {
            Ok(()) => Good(format!("{} can be written", there.display())),
            Err(problem) => Bad(
                format!("{} cannot be written: {problem}", there.display()),
                "make the folder yours, or clone the course into one that is".into(),
            ),
        }
    };
    dirs.iter().map(check).collect()
}

/// Whether cargo has all crates, so that building needs no network.
fn crates(repo: &Repo) -> Finding {
    let mut command = cargo::command(repo);
    command.args(["fetch", "--offline", "--locked", "--quiet", "--target", host().as_str()]);
    match command.stderr(Stdio::null()).status() {
        Ok(status) if status.success() => Good("all crates are here: building needs no network".into()),
        Ok(_) => Note("some crates are not here yet: the next build downloads them (to do it now: `cargo fetch`)".into()),
        Err(problem) => {
            Bad(format!("cannot start cargo: {problem}"), "install Rust with rustup; it brings cargo".into())
        }
    }
}

/// The platform that rustc builds for.
fn host() -> String {
    let text = machine::output("rustc", &["-vV"]).unwrap_or_default();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.unwrap_or_default().to_string()
}

/// Whether an editor builds in the runner's directory: each would then undo what the other built, and wait for it.
fn editor(repo: &Repo) -> Finding {
    let path = ".vscode/settings.json";
    match repo.read(path) {
        Ok(text) if text.contains("rust-analyzer.cargo.targetDir") => {
            Good("rust-analyzer in VS Code has a target directory of its own".into())
        }
        Ok(_) => Bad(
            format!("{path} gives rust-analyzer no target directory of its own: it and the runner wait for each other"),
            "add \"rust-analyzer.cargo.targetDir\": true".into(),
        ),
        Err(_) => Note(format!("no {path}: give your editor's rust-analyzer a target directory of its own")),
    }
}

/// Days that lost a file.
fn days(repo: &Repo) -> Vec<Finding> {
    let exists = |path: &String| Path::new(&repo.root).join(path).is_file();
    let mut bad = Vec::new();
    for day in &repo.days {
        if !exists(&day.src()) {
            bad.push(Bad(
                format!("{} is absent", day.src()),
                format!("cargo xtask reset day{}", day.number),
            ));
        }
        if !exists(&day.tests()) {
            bad.push(Bad(
                format!("{} is absent", day.tests()),
                format!("git checkout -- {}", day.tests()),
            ));
        }
    }
    if bad.is_empty() {
        bad.push(Good(format!(
            "{} days, each with its stub, reference and checkers",
            repo.days.len()
        )));
    }
    bad
}
