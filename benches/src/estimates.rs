//! What criterion measured, read back.

use anyhow::{Context as _, Result};
use std::path::PathBuf;

/// The median time of one iteration of a benchmark, in seconds: `target/criterion/GROUP/FUNCTION/new/estimates.json`.
///
/// # Errors
/// If it was not measured yet.
pub fn median(group: &str, function: &str) -> Result<f64> {
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => crate::root().join(dir),
        None => crate::root().join("target"),
    };
    let path: PathBuf =
        [target.join("criterion"), group.into(), function.into(), "new/estimates.json".into()]
            .iter()
            .collect();
    let text = std::fs::read_to_string(&path).with_context(|| {
        format!("{}: not measured yet; run `cargo xtask bench`", path.display())
    })?;
    let json: serde_json::Value =
        serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    let nanoseconds = json["median"]["point_estimate"].as_f64();
    Ok(nanoseconds.with_context(|| format!("{}: no median in it", path.display()))? * 1e-9)
}
