//! `--device` and `--dtype`, with clear errors for devices that this build doesn't support.

use anyhow::{bail, Context as _, Result};
use candle_core::{DType, Device, Tensor};

/// True if this build can use Metal.
pub const METAL: bool = cfg!(feature = "metal");
/// True if this build can use CUDA.
pub const CUDA: bool = cfg!(feature = "cuda");

/// The device that is used unless another is asked for. It's the CPU, also on a Mac: the CPU is
/// what every check and every number of the book ran on, and Metal is what nothing has run on yet.
pub const DEFAULT: &str = "cpu";

/// Opens the device with that name: `cpu`, `metal` or `cuda`.
///
/// # Errors
/// If the name is unknown, this build lacks the feature, or the device cannot be opened.
pub fn device(name: &str) -> Result<Device> {
    let built = match name {
        "cpu" => return Ok(Device::Cpu),
        "metal" => METAL,
        "cuda" => CUDA,
        // torch's name for it
        "mps" => bail!("unknown device \"mps\"; did you mean metal?"),
        _ => bail!("unknown device \"{name}\"; choose cpu, metal or cuda"),
    };
    if !built {
        bail!(
            "this build doesn't support {name}; use `cargo xtask run --device {name}`, which \
            adds it, or --device cpu"
        )
    }
    let opened = if name == "metal" { Device::new_metal(0) } else { Device::new_cuda(0) };
    opened.with_context(|| format!("could not open the {name} device; use --device cpu"))
}

/// Returns a device's name for messages.
pub fn name(device: &Device) -> &'static str {
    match device {
        Device::Cpu => "the CPU",
        Device::Metal(_) => "Metal",
        Device::Cuda(_) => "CUDA",
    }
}

/// Returns the type with that name: `f32`, `bf16` or `f16`.
///
/// # Errors
/// If the name is not one of these.
pub fn dtype(name: &str) -> Result<DType> {
    match name {
        "f32" => Ok(DType::F32),
        "bf16" => Ok(DType::BF16),
        "f16" => Ok(DType::F16),
        _ => bail!("unknown dtype \"{name}\"; choose f32, bf16 or f16"),
    }
}

/// Returns the type of activations and KV cache for weights of type `weights`.
///
/// On the CPU, always f32, because half-precision sums lose too much there. On Metal and CUDA, the
/// same as the weights, as in transformers.
pub fn activation_dtype(weights: DType, device: &Device) -> DType {
    if device.is_cpu() {
        DType::F32
    } else {
        weights
    }
}

/// Applies an operation that is implemented only for the CPU. For a `CustomOp1`, `CustomOp2` or
/// `CustomOp3` without Metal or CUDA code, candle itself would fail with "no metal implementation".
/// Tensors on another device are copied to the CPU, and the result is copied back. Each copy waits
/// for the device.
///
/// `operation` receives the tensors in the same order, all on the CPU.
///
/// # Errors
/// If the tensors are not all on one device, or the operation fails.
pub fn on_cpu(
    tensors: &[&Tensor],
    operation: impl FnOnce(&[&Tensor]) -> candle_core::Result<Tensor>,
) -> candle_core::Result<Tensor> {
    let Some(first) = tensors.first() else { return operation(&[]) };
    let device = first.device();
    if let Some(other) = tensors.iter().find(|tensor| !tensor.device().same_device(device)) {
        candle_core::bail!(
            "one tensor is on {:?} and another on {:?}; move them to one device first",
            device.location(),
            other.device().location()
        )
    }
    if device.is_cpu() {
        return operation(tensors);
    }
    let copies = tensors.iter().map(|tensor| tensor.to_device(&Device::Cpu));
    let copies = copies.collect::<candle_core::Result<Vec<_>>>()?;
    operation(&copies.iter().collect::<Vec<_>>())?.to_device(device)
}
