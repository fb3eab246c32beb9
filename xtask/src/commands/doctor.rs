//! `cargo xtask doctor`: describes the machine, reports problems, and suggests fixes.

use crate::cargo;
use crate::git::git;
use crate::host::{self, output};
use crate::say;
use crate::term::{paint, Color};
use candecode_course::Repo;
use candecode_threads::default_threads;
use std::process::ExitCode;

const GIB: u64 = 1 << 30;

/// A finding, with a fix if it is bad.
type Finding = (String, Option<&'static str>);

/// Prints a description of the machine to paste into an issue, and the result of each check. The
/// exit code is 1 if something needs fixing. The output doesn't name the reader or the machine.
///
/// There's no check for a compiler, because one must have compiled this program.
pub fn run(repo: &Repo) -> ExitCode {
    let known =
        |text: Option<String>| text.map_or("unknown".into(), |text| text.trim().to_string());
    say!("machine  {}, {} threads for matrix products", known(processor()), default_threads());
    say!("system   {} {}", known(system()), std::env::consts::ARCH);
    say!("compiler {}", known(output("rustc", &["--version"])));
    say!("commit   {}", known(git(repo, &["describe", "--always", "--dirty", "--exclude=*"]).ok()));
    let findings: Vec<Finding> = [space(repo), clone(repo)].into_iter().flatten().collect();
    for (text, mend) in &findings {
        match mend {
            None => say!("{} {text}", paint(Color::Green, "✓ good:")),
            Some(mend) => {
                say!("{} {text}\n         to fix: {mend}", paint(Color::Red, "✗ bad: "));
            }
        }
    }
    ExitCode::from(u8::from(findings.iter().any(|(_, mend)| mend.is_some())))
}

/// Returns the processor's name. On a Mac, it also names the GPU.
fn processor() -> Option<String> {
    if cfg!(target_os = "macos") {
        output("sysctl", &["-n", "machdep.cpu.brand_string"])
    } else if cfg!(windows) {
        std::env::var("PROCESSOR_IDENTIFIER").ok()
    } else {
        value("/proc/cpuinfo", "model name", ':')
    }
}

/// Returns the system and its version. Doesn't use `uname`, whose release field can contain any
/// text.
fn system() -> Option<String> {
    if cfg!(target_os = "macos") {
        return Some(format!("macOS {}", output("sw_vers", &["-productVersion"])?.trim()));
    }
    let name = value("/etc/os-release", "PRETTY_NAME", '=');
    Some(name.unwrap_or(std::env::consts::OS.into()).trim_matches('"').to_string())
}

/// Returns the value of a key in a file of key-value lines separated by `sign`.
fn value(file: &str, key: &str, sign: char) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(sign)?.1.to_string())
}

/// Reports the free space on the disk with cargo's target directory.
fn space(repo: &Repo) -> Option<Finding> {
    let target = cargo::target_dir(repo);
    let there = target.ancestors().find(|dir| dir.exists())?;
    let needed = if cargo::has_built(&target) { GIB } else { 4 * GIB };
    let free = host::free_space(there)?;
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / GIB as f64);
    let text = format!("{} free where cargo builds", gib(free));
    let mend = "free some space (`cargo clean` deletes what cargo has built), or set \
                CARGO_TARGET_DIR to a folder on another disk";
    Some(match free >= needed {
        true => (text, None),
        false => (format!("{text}: building needs {}", gib(needed)), Some(mend)),
    })
}

/// Reports how many of the last fetched commits the current branch lacks.
fn clone(repo: &Repo) -> Option<Finding> {
    let behind = |remote: &str| {
        let range = format!("HEAD..refs/remotes/{remote}/HEAD");
        git(repo, &["rev-list", "--count", &range]).ok()
    };
    Some(match behind("upstream").or_else(|| behind("origin"))?.as_str() {
        "0" => ("the clone has everything from the last fetch".into(), None),
        "1" => ("the clone is 1 commit behind".into(), Some("cargo xtask update")),
        n => (format!("the clone is {n} commits behind"), Some("cargo xtask update")),
    })
}
