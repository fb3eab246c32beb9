//! What the weights are in memory: what `--dtype` and `--quantize` ask for, and what a file has.

use crate::cli::flags::Args;
use crate::engine::load;
use crate::formats::ModelFiles;
use crate::kit::error::usage;
use crate::kit::{ModelConfig, WeightFormat};
use anyhow::{ensure, Result};
use candle_core::Device;

/// A model to load: its files, what its matrices will be, and where.
#[derive(Clone, Copy)]
pub struct ModelLoad<'a> {
    /// The files.
    pub files: &'a ModelFiles,
    /// What its matrices will be.
    pub format: WeightFormat,
    /// Where they will be.
    pub device: &'a Device,
}

impl<'a> ModelLoad<'a> {
    /// Its configuration, and the mean bytes of a weight.
    pub fn size(&self) -> (&'a ModelConfig, f64) {
        let config = self.files.config();
        (config, self.files.weight_bytes(self.format) / config.size() as f64)
    }
}

/// The format of a model's matrices.
///
/// # Errors
/// If `--quantize` is for another device, or for a file that is quantised.
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
                "--quantize: {} is quantised already ({}); leave --quantize out",
                files.path().display(),
                names(types.iter().map(|(name, _)| name))
            ))
        );
        return Ok(load::quantized_format(kind));
    }
    Ok(args.dtype.map_or_else(|| load::own_format(files, device), WeightFormat::Tensors))
}

/// What is said of a file that is quantised, if its weights stay so or nobody has asked for a type; None
/// if there is nothing to say.
pub fn note(args: &Args, load: &ModelLoad) -> Option<String> {
    let types = load.files.quantized_types();
    if types.is_empty() || args.dtype.is_some() {
        return None;
    }
    let stay = |stay: bool| {
        let found: Vec<_> = types.iter().filter(|(_, can)| *can == stay).collect();
        (!found.is_empty()).then(|| names(found.into_iter().map(|(name, _)| name)))
    };
    let widened = |names: String, why: &str| format!("{names} is widened to f32{why}");
    let said = match (load.format, stay(true), stay(false)) {
        (WeightFormat::AsStored, Some(kept), None) => {
            format!("weights stay {kept}, as in the file; --dtype f32 widens them")
        }
        (WeightFormat::AsStored, Some(kept), Some(other)) => {
            let other = widened(other, ", for which there is no kernel");
            format!("weights stay {kept}, as in the file; {other}")
        }
        _ if load.device.is_cpu() => widened(
            names(types.iter().map(|(name, _)| name)),
            ": there are kernels for Q8_0, Q4_0 and Q4_1",
        ),
        _ => widened(
            names(types.iter().map(|(name, _)| name)),
            &format!(": on {} nothing stays quantised", args.device),
        ),
    };
    Some(format!("note: {said}"))
}

fn names<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(String::as_str).collect::<Vec<_>>().join(", ")
}
