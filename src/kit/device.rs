//! `--device` and `--dtype`, with a clear word where this build lacks one.

use anyhow::{bail, Context as _, Result};
use candle_core::{DType, Device};

/// The device of that name: `cpu`, `metal` or `cuda`.
///
/// # Errors
/// If the name is unknown, this build lacks the feature, or the device cannot be opened.
pub fn device(name: &str) -> Result<Device> {
    let built = match name {
        "cpu" => return Ok(Device::Cpu),
        "metal" => cfg!(feature = "metal"),
        "cuda" => cfg!(feature = "cuda"),
        _ => bail!("unknown device \"{name}\"; choose cpu, metal or cuda"),
    };
    if !built {
        bail!("this build has no {name}; `cargo xtask run --device {name}` builds it in, or use --device cpu")
    }
    let opened = if name == "metal" { Device::new_metal(0) } else { Device::new_cuda(0) };
    opened.with_context(|| format!("could not open the {name} device; use --device cpu"))
}

/// The type of that name: `f32`, `bf16` or `f16`.
///
/// # Errors
/// If the name is none of the three.
pub fn dtype(name: &str) -> Result<DType> {
    match name {
        "f32" => Ok(DType::F32),
        "bf16" => Ok(DType::BF16),
        "f16" => Ok(DType::F16),
        _ => bail!("unknown dtype \"{name}\"; choose f32, bf16 or f16"),
    }
}

/// The type of activations and cache for weights of type `weights`.
///
/// On the CPU always f32: its half-precision sums lose too much. On Metal and CUDA the weights' own, as in transformers.
pub fn activation_dtype(weights: DType, device: &Device) -> DType {
    if device.is_cpu() {
        DType::F32
    } else {
        weights
    }
}
