//! What this machine has: cores, accelerators, free space.

use crate::usage;
use anyhow::Result;
use std::path::Path;
use std::process::{Command, Stdio};

/// The number of threads for products: the engine's own rule, from the same file.
#[path = "../../crates/kernels/src/thread_count.rs"]
mod thread_count;
pub use thread_count::default_threads as threads;

/// Gives a child `RAYON_NUM_THREADS`, as the reader set it if that is sensible; as for rayon, 0 is
/// unset. Without it candle reads `/proc/cpuinfo` again on every product.
pub fn set_threads(command: &mut Command) {
    command.env("RAYON_NUM_THREADS", threads_of_children().to_string());
}

/// The number that [`set_threads`] sets.
pub fn threads_of_children() -> usize {
    thread_count::threads_asked_for("RAYON_NUM_THREADS").unwrap_or_else(threads)
}

/// The feature that a device needs, if any.
///
/// # Errors
/// Bad usage, if there is no such device, or this machine cannot build for it.
pub fn device_feature(device: &str) -> Result<Option<&'static str>> {
    match device {
        "cpu" => Ok(None),
        "metal" if cfg!(target_os = "macos") => Ok(Some("metal")),
        "metal" => Err(usage(format!(
            "--device metal needs macOS, this is {}: use --device cpu",
            std::env::consts::OS
        ))),
        "cuda" if output("nvcc", &["--version"]).is_some() => Ok(Some("cuda")),
        "cuda" => Err(usage(
            "--device cuda needs NVIDIA's compiler, and there is no `nvcc` here: install the CUDA \
             toolkit and put its bin directory on PATH, or use --device cpu",
        )),
        _ => Err(usage(format!("unknown device \"{device}\"; choose cpu, metal or cuda"))),
    }
}

/// Free bytes on the disk that holds `path`, where the system's own tools can tell.
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

/// The output of a command that succeeds; `None` if it is not there or fails.
pub fn output(program: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(program).args(args).stdin(Stdio::null()).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}
