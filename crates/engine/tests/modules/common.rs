//! What these tests share: models, the device, and errors as a program prints them.

use candecode::kit::{Model, NoCache, Step, Tokenizer};
use candecode_engine::load::load_transformer;
use candecode_engine::load_model;
use candecode_engine::operations::plain;
use candecode_testing::{story, Random};
use candle_core::{DType, Device, Error, Result, Tensor};
use std::path::Path;

thread_local! {
    /// Opened once per test: candle treats two Metal devices as different even if they are the same
    /// GPU, and refuses to add their tensors.
    static DEVICE: Device = {
        let name = std::env::var("CANDECODE_DEVICE").unwrap_or_else(|_| "cpu".into());
        candecode::kit::device::device(&name).unwrap()
    };
}

/// Returns the device these tests run on: `CANDECODE_DEVICE`, or the CPU if it isn't set.
pub fn device() -> Result<Device> {
    Ok(DEVICE.with(Device::clone))
}

/// Random tensors.
pub trait RandomTensor {
    /// Returns a tensor of this shape on [`device`], with numbers in [-1, 1).
    fn tensor(&mut self, shape: &[usize]) -> Result<Tensor>;
}

impl RandomTensor for Random {
    fn tensor(&mut self, shape: &[usize]) -> Result<Tensor> {
        let numbers: Vec<f32> = (0..shape.iter().product()).map(|_| self.float()).collect();
        Tensor::from_vec(numbers, shape, &device()?)
    }
}

/// Loads an embedded model in f32, with the days' own code as its operations.
pub fn model(name: &str) -> Result<Box<dyn Model>> {
    match load_transformer(&story(name), DType::F32, &device()?, &plain()) {
        Ok(model) => Ok(Box::new(model)),
        Err(e) => Err(Error::Msg(format!("{e:#}"))),
    }
}

/// Loads the embedded models' tokenizer, which all three share.
pub fn tokenizer() -> Result<Tokenizer> {
    candecode_formats::read_tokenizer(&story("story-3m")).map_err(|e| Error::Msg(format!("{e:#}")))
}

/// Returns the logits after three tokens, from the model in a folder or file.
pub fn logits(path: &Path) -> Vec<f32> {
    let model = load_model(path, DType::F32, &Device::Cpu).unwrap();
    let step = Step::new(&*model, &[5, 6, 7], 0).unwrap();
    model.forward(&step, &mut NoCache).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// Returns an error's message, with everything that caused it.
#[track_caller]
pub fn message<T>(result: anyhow::Result<T>) -> String {
    match result {
        Ok(_) => panic!("this should have been rejected"),
        Err(error) => candecode::kit::error::describe(&error),
    }
}
