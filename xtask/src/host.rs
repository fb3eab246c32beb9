//! The machine's resources: cores, accelerators and free space.

use anyhow::Result;
use candecode_course::usage;
use candecode_threads::{default_threads, threads_asked_for};
use std::path::Path;
use std::process::{Command, Stdio};

/// Sets `RAYON_NUM_THREADS` for a child. Keeps the reader's value if it's valid (0 means unset, as
/// in rayon). Without the variable, candle rereads `/proc/cpuinfo` for every matrix product.
pub fn set_threads(command: &mut Command) {
    let threads = threads_asked_for("RAYON_NUM_THREADS").unwrap_or_else(default_threads);
    command.env("RAYON_NUM_THREADS", threads.to_string());
}

/// The engine's default device. `DEFAULT` in `crates/kit/src/device.rs` says why.
pub const DEFAULT_DEVICE: &str = "cpu";

/// Returns the Cargo feature that a device needs, if any.
///
/// # Errors
/// Bad usage: an unknown device, or one this machine can't build for.
pub fn device_feature(device: &str) -> Result<Option<&'static str>> {
    match device {
        "cpu" => Ok(None),
        "metal" if cfg!(target_os = "macos") => Ok(Some("metal")),
        "metal" => Err(usage(format!(
            "--device metal needs macOS, but this is {}: use --device cpu",
            std::env::consts::OS
        ))),
        "cuda" if output("nvcc", &["--version"]).is_some() => Ok(Some("cuda")),
        "cuda" => Err(usage(
            "--device cuda needs NVIDIA's compiler, but `nvcc` isn't on PATH: install the CUDA \
             toolkit and put its bin directory on PATH, or use --device cpu",
        )),
        "mps" => Err(usage("unknown device \"mps\"; did you mean metal?")), // torch's name for it
        _ => Err(usage(format!("unknown device \"{device}\"; choose cpu, metal or cuda"))),
    }
}

/// Returns the free bytes on the disk that holds `path`, if the system's tools can report them.
pub fn free_space(path: &Path) -> Option<u64> {
    if cfg!(windows) {
        let drive = path.components().next()?.as_os_str().to_string_lossy().into_owned();
        let ask = format!("([System.IO.DriveInfo]::new('{drive}')).AvailableFreeSpace");
        return output("powershell", &["-NoProfile", "-Command", &ask])?.trim().parse().ok();
    }
    let text = output("df", &["-Pk", &path.to_string_lossy()])?;
    let kib: u64 = text.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()?;
    Some(kib * 1024)
}

/// Returns a command's output, or `None` if the command is missing or fails.
pub fn output(program: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(program).args(args).stdin(Stdio::null()).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}
