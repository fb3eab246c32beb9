//! The format of the weights in memory, from `--dtype`, `--quantize` and the model's file.

use crate::flags::Args;
use anyhow::{ensure, Result};
use candecode::kit::error::usage;
use candecode::kit::{ModelConfig, WeightFormat};
use candecode_engine::load;
use candecode_formats::ModelFiles;
use candle_core::Device;

/// A model to load: its files, the format of its matrices, and the device.
#[derive(Clone, Copy)]
pub struct ModelLoad<'a> {
    /// The files.
    pub files: &'a ModelFiles,
    /// The format of its matrices in memory.
    pub format: WeightFormat,
    /// The device to load it on.
    pub device: &'a Device,
}

impl<'a> ModelLoad<'a> {
    /// Returns the configuration, and the average number of bytes per weight.
    pub fn size(&self) -> (&'a ModelConfig, f64) {
        let config = self.files.config();
        (config, self.files.weight_bytes(self.format) / config.size() as f64)
    }
}

/// Returns the format of a model's matrices.
///
/// # Errors
/// If `--quantize` is used with an unsupported device or with a file that is already quantized.
pub fn weight_format(args: &Args, files: &ModelFiles, device: &Device) -> Result<WeightFormat> {
    if let Some(kind) = args.quantize {
        ensure!(
            device.is_cpu(),
            usage(format!("--quantize is for the CPU; leave it out, or --device {}", args.device))
        );
        let types = files.quantized_types();
        ensure!(
            types.is_empty(),
            usage(format!(
                "--quantize: {} is already quantized ({}); leave out --quantize",
                files.path().display(),
                types.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
            ))
        );
        return Ok(load::quantized_format(kind));
    }
    Ok(args.dtype.map_or_else(|| load::own_format(files, device), WeightFormat::Tensors))
}

/// Describes how a quantized file's weights are handled, unless a type was requested.
pub fn note(args: &Args, load: &ModelLoad) -> Option<String> {
    let types = load.files.quantized_types();
    if types.is_empty() || args.dtype.is_some() {
        return None;
    }
    let stay = matches!(load.format, WeightFormat::AsStored);
    let said = types.iter().map(|(name, can_stay)| {
        if stay && *can_stay {
            format!("{name} stays as it is in the file")
        } else {
            format!("{name} is widened to f32")
        }
    });
    let said = said.collect::<Vec<_>>().join(", ");
    Some(format!("note: weights: {said}; the CPU multiplies with Q8_0, Q4_0 and Q4_1"))
}
