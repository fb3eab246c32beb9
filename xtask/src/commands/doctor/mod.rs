//! `cargo xtask doctor`: what this machine lacks, and how to mend it; with `--report`, what the
//! course does on it.

mod machine_report;

use crate::cargo;
use crate::host;
use crate::repo::Repo;
use crate::say;
use crate::term::{paint, Colour};
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

/// The flags of `doctor`.
#[derive(Args)]
pub struct Doctor {
    /// Run every check of the reference and time the engine, and print a report to paste into an
    /// issue
    #[arg(long)]
    report: bool,
    /// cpu, metal or cuda, for the report; without it metal on a Mac and cpu elsewhere
    #[arg(long, requires = "report")]
    device: Option<String>,
}

const GIB: u64 = 1 << 30;

/// A finding: whether it is good, what it is, and what mends it if it is not.
type Finding = (bool, String, &'static str);

/// Looks at the toolchain, the C compiler, the disk, the threads and the clone, and prints a line
/// each. The exit code is 1 if something must be mended.
///
/// # Errors
/// With `--report`, bad usage, or programs of the course that cannot be built. Otherwise none: what
/// cannot be found out is passed over.
pub fn run(repo: &Repo, args: &Doctor) -> Result<ExitCode> {
    if args.report {
        let usual = if cfg!(target_os = "macos") { "metal" } else { "cpu" };
        return machine_report::print(repo, args.device.as_deref().unwrap_or(usual));
    }
    let findings: Vec<Finding> =
        [toolchain(repo), compiler(), space(repo), clone(repo)].into_iter().flatten().collect();
    for (good, text, mend) in &findings {
        if *good {
            say!("{} {text}", paint(Colour::Green, "✓ good:"));
        } else {
            say!("{} {text}\n         to mend: {mend}", paint(Colour::Red, "✗ bad: "));
        }
    }
    say!("{} {} threads for products", paint(Colour::Green, "✓ good:"), host::threads());
    let bad = findings.iter().filter(|(good, ..)| !good).count();
    match bad {
        0 => say!("\nNothing to mend."),
        n => say!("\n{n} to mend."),
    }
    Ok(ExitCode::from(u8::from(bad > 0)))
}

/// The compiler against `rust-version`.
fn toolchain(repo: &Repo) -> Option<Finding> {
    let mend = "install a newer Rust with rustup: `rustup update stable`";
    let manifest = repo.read("Cargo.toml").ok()?;
    let wanted = manifest.split_once("rust-version = \"")?.1.split('"').next()?;
    let Some(text) = host::output("rustc", &["--version"]) else {
        return Some((false, "there is no rustc on PATH".into(), mend));
    };
    let found = text.split_whitespace().nth(1)?;
    let version = |text: &str| -> Vec<u32> {
        let numbers = text.split('-').next().unwrap_or_default().split('.');
        numbers.map(|part| part.parse().unwrap_or(0)).collect()
    };
    Some(if version(found) >= version(wanted) {
        (true, format!("rustc {found} (the course needs {wanted} or newer)"), "")
    } else {
        (false, format!("rustc {found} is too old: the course needs {wanted}"), mend)
    })
}

/// What links programs: Rust brings none on Unix.
fn compiler() -> Option<Finding> {
    let mend = if cfg!(target_os = "macos") {
        "install Apple's command line tools: `xcode-select --install`"
    } else {
        "install a C compiler: on Debian and Ubuntu `apt install gcc libc6-dev`"
    };
    match host::output("cc", &["--version"]) {
        _ if cfg!(windows) => None,
        Some(text) => Some((true, format!("a C compiler: {}", text.lines().next()?), "")),
        None => Some((false, "there is no `cc` on PATH: nothing can be linked".into(), mend)),
    }
}

/// Free space where cargo builds.
fn space(repo: &Repo) -> Option<Finding> {
    let target = cargo::target_dir(repo);
    let there = target.ancestors().find(|dir| dir.exists())?;
    let needed = if cargo::candle_is_built(&target) { GIB } else { 4 * GIB };
    let free = host::free_space(there)?;
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / GIB as f64);
    let text = format!("{} free in {}", gib(free), there.display());
    let mend = "make room, or set CARGO_TARGET_DIR to a folder on another disk; `cargo clean` \
                empties this one";
    Some(if free >= needed {
        (true, text, "")
    } else {
        (false, format!("{text}: building needs {}", gib(needed)), mend)
    })
}

/// How far the clone is behind what was fetched last.
fn clone(repo: &Repo) -> Option<Finding> {
    let root = repo.root.to_str()?;
    let behind = |remote: &str| {
        let range = format!("HEAD..refs/remotes/{remote}/HEAD");
        host::output("git", &["-C", root, "rev-list", "--count", &range])
    };
    let count = behind("upstream").or_else(|| behind("origin"))?;
    Some(match count.trim() {
        "0" => (true, "the clone has all that was fetched last".into(), ""),
        n => (false, format!("the clone is {n} commits behind"), "cargo xtask update"),
    })
}
