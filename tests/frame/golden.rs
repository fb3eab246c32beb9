//! Reference data for the checks: goldens from torch and transformers, the embedded models, and
//! random tensors.

use super::random::Random;
use candecode::kit::{self, Model, SharedOps, Tokenizer};
use candecode_engine::load::load_transformer;
use candecode_engine::operations::{choose, Kernels};
use candle_core::{DType, Device, Error, Result, Tensor};
use std::cell::OnceCell;
use std::path::{Path, PathBuf};

thread_local! {
    /// The device of the check that runs on this thread. Opened once: candle treats two Metal
    /// devices as different even if they are the same GPU, and refuses to add their tensors. Not
    /// shared between threads, because one cuBLAS handle must not serve two at a time.
    static DEVICE: OnceCell<Device> = const { OnceCell::new() };
}

/// Returns the device the checks run on: `CANDECODE_DEVICE`, or the CPU if it isn't set. All calls
/// on one thread return the same device.
pub fn device() -> Result<Device> {
    DEVICE.with(|device| match device.get() {
        Some(device) => Ok(device.clone()),
        None => {
            let name =
                std::env::var("CANDECODE_DEVICE").unwrap_or_else(|_| kit::device::DEFAULT.into());
            let opened = kit::device::device(&name).map_err(|e| Error::Msg(format!("{e:#}")))?;
            Ok(device.get_or_init(|| opened).clone())
        }
    })
}

/// Returns the folder of a small model that tests share, or of the tokenizer `sentencepiece`.
pub fn small_model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/testing/models").join(name)
}

/// Reads a file of a day's oracle, `tests/dayNN_*/oracle.{json,safetensors}`.
fn read(day: &str, extension: &str) -> Result<Vec<u8>> {
    let mut path = PathBuf::from(day);
    for folder in std::fs::read_dir(env!("CARGO_MANIFEST_DIR"))?.flatten() {
        if folder.file_name().to_string_lossy().starts_with(&format!("{day}_")) {
            path = folder.path().join("oracle").with_extension(extension);
        }
    }
    std::fs::read(&path).map_err(|e| Error::Msg(format!("{}: {e}", path.display())))
}

/// Loads a tensor from a day's `oracle.safetensors`.
pub fn golden(day: &str, name: &str) -> Result<Tensor> {
    let bytes = read(day, "safetensors")?;
    candle_core::safetensors::BufferedSafetensors::new(bytes)?.load(name, &device()?)
}

/// Loads a day's `oracle.json`.
pub fn golden_json(day: &str) -> Result<serde_json::Value> {
    let wrong = |e: serde_json::Error| Error::Msg(format!("the oracle of {day}: {e}"));
    serde_json::from_slice(&read(day, "json")?).map_err(wrong)
}

/// Returns the folder of the embedded models. A check must not skip because it is missing.
pub fn models_dir() -> Result<PathBuf> {
    candecode_formats::hub::models_dir().map_err(|e| Error::Msg(format!("{e:#}")))
}

/// Returns the operations for whole models: those that `CANDECODE_KERNELS` names
/// (`check --kernels`), otherwise the days' own code.
pub fn ops() -> Result<SharedOps> {
    let named = match std::env::var("CANDECODE_KERNELS").as_deref() {
        Ok("candle") => Kernels::Candle,
        Ok("fast") => Kernels::Fast,
        Ok("plain") | Err(_) => Kernels::Plain,
        Ok(other) => return Err(Error::Msg(format!("CANDECODE_KERNELS is {other}"))),
    };
    Ok(choose(Some(named), &device()?))
}

/// Loads an embedded model in f32.
pub fn model(name: &str) -> Result<Box<dyn Model>> {
    model_of(name, DType::F32)
}

/// Loads an embedded model with weights of this dtype.
pub fn model_of(name: &str, dtype: DType) -> Result<Box<dyn Model>> {
    match load_transformer(&models_dir()?.join(name), dtype, &device()?, &ops()?) {
        Ok(model) => Ok(Box::new(model)),
        Err(e) => Err(Error::Msg(format!("{e:#}"))),
    }
}

/// Loads the embedded models' tokenizer, which all three share.
pub fn tokenizer() -> Result<Tokenizer> {
    candecode_formats::read_tokenizer(&models_dir()?.join("story-3m"))
        .map_err(|e| Error::Msg(format!("{e:#}")))
}

impl Random {
    /// Returns a tensor of this shape with numbers in [-1, 1).
    pub fn tensor(&mut self, shape: &[usize]) -> Result<Tensor> {
        let numbers: Vec<f32> = (0..shape.iter().product()).map(|_| self.float()).collect();
        Tensor::from_vec(numbers, shape, &device()?)
    }
}
