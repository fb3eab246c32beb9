//! What was measured on: the processor, its threads, and the commit.

use candecode::engine::operations;
use candle_core::Device;
use std::process::Command;

/// The processor and the kernels on it, in words.
pub fn words() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map(|line| line.trim_start_matches([' ', '\t', ':']).trim().to_string());
    let name = name.or_else(|| {
        let out = Command::new("sysctl").args(["-n", "machdep.cpu.brand_string"]).output().ok()?;
        Some(String::from_utf8_lossy(&out.stdout).trim().to_string())
            .filter(|name| !name.is_empty())
    });
    let name = name.unwrap_or_else(|| std::env::consts::ARCH.to_string());
    let ops = operations::choose(None, &Device::Cpu);
    format!("{name}, kernels {}", ops.describe(true))
}

/// The commit of this clone, with a `+` if files differ from it.
pub fn commit() -> String {
    let git = |args: &[&str]| {
        let out = Command::new("git").args(args).current_dir(crate::root()).output().ok()?;
        out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_string())
    };
    let hash = git(&["rev-parse", "--short", "HEAD"]).unwrap_or_else(|| "unknown".into());
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    hash + if changed.is_some_and(|files| !files.is_empty()) { "+" } else { "" }
}
