//! Tests that a model made in memory is really there: `cargo test --features ref --test
//! resident_memory`. The only test of its program, because it looks at the memory of the process.

#![cfg(all(feature = "ref", target_os = "linux"))]

use candecode_engine::{load, operations};
use candecode_formats::{ModelFiles, WIDENED};
use candle_core::{DType, Device};

/// Returns the bytes of this process that are in memory.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0
}

/// Pages that nobody has written to are one page of zeros, which stays in the processor's cache. A
/// pass over them would be too fast for a model of this size.
#[test]
fn the_widened_model_is_in_memory() {
    let files = ModelFiles::open(WIDENED).unwrap();
    let before = resident();
    let model = load::load_files(&files, DType::F32, &Device::Cpu, &operations::plain()).unwrap();
    let bytes = files.weight_bytes(DType::F32.into());
    let share = (resident() - before) / bytes;
    assert!(model.layers.len() == 21 && bytes > 500e6 && share >= 0.95, "{share} of {bytes} bytes");
}
