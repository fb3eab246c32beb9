//! `cargo xtask doctor`: what this machine lacks, and how to mend it; with `--report`, what the
//! course does on it.

mod machine_report;

use crate::cargo;
use crate::git::git;
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

/// A finding: what it is, and what mends it if it is bad.
type Finding = (String, Option<&'static str>);

/// Looks at the disk, the clone and the threads, and prints a line each. The exit code is 1 if
/// something must be mended. Whether there is a compiler needs no look: it compiled this program.
///
/// # Errors
/// With `--report`, bad usage, or programs of the course that cannot be built. Otherwise none: what
/// cannot be found out is passed over.
pub fn run(repo: &Repo, args: &Doctor) -> Result<ExitCode> {
    if args.report {
        let usual = if cfg!(target_os = "macos") { "metal" } else { "cpu" };
        return machine_report::print(repo, args.device.as_deref().unwrap_or(usual));
    }
    let threads = (format!("{} threads for products", host::threads()), None);
    let findings = [space(repo), clone(repo), Some(threads)];
    let findings: Vec<Finding> = findings.into_iter().flatten().collect();
    for (text, mend) in &findings {
        match mend {
            None => say!("{} {text}", paint(Colour::Green, "✓ good:")),
            Some(mend) => {
                say!("{} {text}\n         to mend: {mend}", paint(Colour::Red, "✗ bad: "));
            }
        }
    }
    let bad = findings.iter().filter(|(_, mend)| mend.is_some()).count();
    say!("\n{}", if bad == 0 { "Nothing to mend.".to_string() } else { format!("{bad} to mend.") });
    Ok(ExitCode::from(u8::from(bad > 0)))
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
    Some(match free >= needed {
        true => (text, None),
        false => (format!("{text}: building needs {}", gib(needed)), Some(mend)),
    })
}

/// How far the clone is behind what was fetched last.
fn clone(repo: &Repo) -> Option<Finding> {
    let behind = |remote: &str| {
        let range = format!("HEAD..refs/remotes/{remote}/HEAD");
        git(repo, &["rev-list", "--count", &range]).ok()
    };
    Some(match behind("upstream").or_else(|| behind("origin"))?.as_str() {
        "0" => ("the clone has all that was fetched last".into(), None),
        n => (format!("the clone is {n} commits behind"), Some("cargo xtask update")),
    })
}
