//! The accelerators that could be built here, and why not.

use super::Finding::{self, Bad, Good, Note};
use crate::machine;

/// A line for each device.
pub fn findings() -> Vec<Finding> {
    vec![Good("--device cpu works everywhere".into()), metal(), cuda()]
}

fn metal() -> Finding {
    if !cfg!(target_os = "macos") {
        return Note("--device metal cannot be built here: it needs macOS".into());
    }
    match machine::output("xcode-select", &["-p"]) {
        Some(_) => Good("--device metal can be built: this is macOS, with Apple's tools".into()),
        None => Bad(
            "--device metal cannot be built: Apple's command line tools are absent".into(),
            "xcode-select --install".into(),
        ),
    }
}

/// candle's build asks NVIDIA's tools which GPU there is: a compiler alone is not enough.
fn cuda() -> Finding {
    let gpu =
        machine::output("nvidia-smi", &["--query-gpu=name,compute_cap", "--format=csv,noheader"]);
    let gpu = gpu.as_deref().and_then(|text| text.lines().next()).map(str::trim);
    let told = std::env::var("CUDA_COMPUTE_CAP").ok();
    match (machine::nvcc(), gpu, told) {
        (None, None, _) => Note(
            "--device cuda cannot be built here: no nvcc on PATH (the course does not need it)".into(),
        ),
        (None, Some(gpu), _) => Note(format!(
            "--device cuda cannot be built here: there is a GPU ({gpu}), but no nvcc on PATH; the CUDA toolkit brings it"
        )),
        (Some(nvcc), Some(gpu), _) => Good(format!("--device cuda can be built: {nvcc}; {gpu}")),
        (Some(nvcc), None, Some(cap)) => {
            Good(format!("--device cuda can be built: {nvcc}; for compute capability {cap}, as CUDA_COMPUTE_CAP says"))
        }
        (Some(nvcc), None, None) => Bad(
            format!("--device cuda cannot be built: {nvcc}, but nvidia-smi finds no GPU"),
            "set CUDA_COMPUTE_CAP (as 80) to build for another machine; `--device cpu` needs none of it".into(),
        ),
    }
}
