//! What criterion measured, read back.

use anyhow::{ensure, Context as _, Result};
use serde_json::Value;
use std::path::Path;

/// The time of one iteration of a benchmark, in seconds, in the fastest sample of any round:
/// `target/criterion/GROUP/FUNCTION/roundN/sample.json`.
///
/// The fastest, not the median: the work is the same in every sample, and what else a machine does
/// adds time to some and takes it from none. A ratio of two medians moves with the neighbours, a
/// ratio of two fastest samples hardly.
///
/// # Errors
/// If it was not measured yet.
pub fn fastest(group: &str, function: &str) -> Result<f64> {
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => crate::root().join(dir),
        None => crate::root().join("target"),
    };
    let dir = target.join("criterion").join(group).join(function);
    let unmeasured = || format!("{}: not measured yet; run `cargo xtask bench`", dir.display());
    let mut best = f64::INFINITY;
    for entry in std::fs::read_dir(&dir).with_context(unmeasured)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with("round") {
            best = best.min(samples(&entry.path().join("sample.json"))?);
        }
    }
    ensure!(best.is_finite(), unmeasured());
    Ok(best * 1e-9)
}

/// The fastest sample of a file, in nanoseconds for one iteration.
fn samples(path: &Path) -> Result<f64> {
    let context = || path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(context)?;
    let json: Value = serde_json::from_str(&text).with_context(context)?;
    let numbers = |key: &str| -> Vec<f64> {
        json[key].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
    };
    let times = numbers("times").into_iter().zip(numbers("iters")).map(|(t, n)| t / n);
    Ok(times.fold(f64::INFINITY, f64::min))
}
