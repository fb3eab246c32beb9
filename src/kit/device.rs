//! `--device` and `--dtype`, with a clear word where this build lacks one.

use anyhow::{bail, Context as _, Result};
use candle_core::{DType, Device, Tensor};

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

/// The name of a device, as messages show it.
pub fn name(device: &Device) -> &'static str {
    match device {
        Device::Cpu => "the CPU",
        Device::Metal(_) => "Metal",
        Device::Cuda(_) => "CUDA",
    }
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

/// Applies an operation that has code for the CPU only, as candle's `CustomOp1` to `CustomOp3` have
/// unless they are also written for Metal and CUDA: on those candle refuses with "no metal
/// implementation". Tensors of another device are copied to the CPU, and the result is copied back,
/// which costs a wait for the device each time.
///
/// `operation` gets the tensors in the same order, all on the CPU.
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
    let to_cpu = |tensor: &Tensor| tensor.to_device(&Device::Cpu);
    carried(device.is_cpu(), tensors, to_cpu, operation, |result| result.to_device(device))
}

/// [`on_cpu`] with its copies as functions, so that a machine without an accelerator can test it.
fn carried(
    is_there: bool,
    tensors: &[&Tensor],
    to_cpu: impl Fn(&Tensor) -> candle_core::Result<Tensor>,
    operation: impl FnOnce(&[&Tensor]) -> candle_core::Result<Tensor>,
    back: impl FnOnce(Tensor) -> candle_core::Result<Tensor>,
) -> candle_core::Result<Tensor> {
    if is_there {
        return operation(tensors);
    }
    let copies =
        tensors.iter().map(|tensor| to_cpu(tensor)).collect::<candle_core::Result<Vec<_>>>()?;
    back(operation(&copies.iter().collect::<Vec<_>>())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::error::plain;
    use std::cell::RefCell;

    fn numbers(tensor: &Tensor) -> Vec<f32> {
        tensor.flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn on_the_cpu_nothing_is_copied() {
        let (a, b) = (
            Tensor::new(&[1f32, 2.], &Device::Cpu).unwrap(),
            Tensor::new(&[3f32, 4.], &Device::Cpu).unwrap(),
        );
        let sum = on_cpu(&[&a, &b], |tensors| {
            assert!(std::ptr::eq(tensors[0], &a) && std::ptr::eq(tensors[1], &b));
            tensors[0] + tensors[1]
        });
        assert_eq!(numbers(&sum.unwrap()), [4., 6.]);
        assert_eq!(numbers(&on_cpu(&[], |_| Ok(a.clone())).unwrap()), [1., 2.]);
    }

    /// Another device is played by functions that mark what they copy.
    #[test]
    fn elsewhere_every_tensor_is_copied_there_in_order_and_the_result_back() {
        let tensor = |x: f32| Tensor::new(&[x], &Device::Cpu).unwrap();
        let (a, b, c) = (tensor(1.), tensor(20.), tensor(300.));
        let log = RefCell::new(Vec::new());
        let result = carried(
            false,
            &[&a, &b, &c],
            |tensor| {
                log.borrow_mut().push(numbers(tensor)[0]);
                tensor + 0.5
            },
            |tensors| {
                log.borrow_mut().push(-1.);
                let seen: Vec<f32> = tensors.iter().map(|tensor| numbers(tensor)[0]).collect();
                assert_eq!(seen, [1.5, 20.5, 300.5], "the copies, in order");
                (tensors[0] + tensors[1])? + tensors[2]
            },
            |result| {
                log.borrow_mut().push(numbers(&result)[0]);
                result * 2.
            },
        );
        assert_eq!(numbers(&result.unwrap()), [645.]);
        assert_eq!(log.into_inner(), [1., 20., 300., -1., 322.5]);
    }

    #[test]
    fn an_error_of_the_operation_is_the_error() {
        let a = Tensor::new(&[1f32], &Device::Cpu).unwrap();
        let failed = |_: &[&Tensor]| candle_core::bail!("no");
        let words = |failed: candle_core::Result<Tensor>| plain(&failed.unwrap_err());
        assert_eq!(words(on_cpu(&[&a], failed)), "no");
        let back = |_| panic!("nothing to copy back");
        let copy = |tensor: &Tensor| Ok(tensor.clone());
        assert_eq!(words(carried(false, &[&a], copy, failed, back)), "no");
    }
}
