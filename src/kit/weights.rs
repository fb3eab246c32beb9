//! The tensors of a model: safetensors files, mapped and checked against the shapes that the configuration asks for.

use crate::formats::gguf::Gguf;
use crate::kit::device::activation_dtype;
use anyhow::{ensure, Context as _};
use candle_core::safetensors::MmapedSafetensors;
use candle_core::{bail, DType, Device, Result, Tensor};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A weight matrix `(out, in)` as the door [`crate::kit::linear`] takes it.
#[derive(Debug, Clone)]
pub struct Weight(Tensor);

impl Weight {
    /// Wraps a matrix `(out, in)`.
    ///
    /// # Errors
    /// If it is not a matrix.
    pub fn new(matrix: Tensor) -> Result<Self> {
        matrix.dims2()?;
        Ok(Self(matrix))
    }

    /// `(out, in)`.
    pub fn shape(&self) -> (usize, usize) {
        match self.0.dims() {
            [out, inner] => (*out, *inner),
            _ => (0, 0), // `new` takes matrices only
        }
    }

    /// The matrix itself, in its type in memory.
    pub fn tensor(&self) -> &Tensor {
        &self.0
    }
}

/// The weights of a model's folder: `model.safetensors`, or the shards of `model.safetensors.index.json`; or a GGUF file.
pub struct Weights {
    source: Source,
    dtype: DType,
    device: Device,
}

enum Source {
    Folder { files: MmapedSafetensors, names: BTreeSet<String> },
    Gguf(Gguf),
}

impl Weights {
    /// Maps the files. Matrices will be of type `dtype`, all else of the type of activations.
    ///
    /// # Errors
    /// If there are no weights, or a file is cut short or damaged.
    pub fn open(dir: &Path, dtype: DType, device: &Device) -> anyhow::Result<Self> {
        let device = device.clone();
        if dir.is_file() {
            return Ok(Self { source: Source::Gguf(Gguf::open(dir)?), dtype, device });
        }
        let paths = weight_files(dir)?;
        for path in &paths {
            ensure!(path.is_file(), "{}: no such file, though the index lists it", path.display());
        }
        // SAFETY: mapping a file is unsafe because another process could change it under us, and the numbers
        // would change with it. The course never writes to a weights file, and the hub's cache replaces files by
        // renaming, which leaves a mapped one as it was.
        let files = unsafe { MmapedSafetensors::multi(&paths) };
        let files = files.map_err(|e| {
            anyhow::anyhow!(
                "{}: the weights are cut short or damaged ({}); fetch the file again",
                dir.display(),
                crate::kit::error::plain(&e)
            )
        })?;
        let names = files.tensors().into_iter().map(|(name, _)| name).collect();
        Ok(Self { source: Source::Folder { files, names }, dtype, device })
    }

    /// Where the tensors are loaded to.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// True if there is a tensor of that name.
    pub fn has(&self, name: &str) -> bool {
        match &self.source {
            Source::Folder { names, .. } => find(names, name).is_some(),
            Source::Gguf(gguf) => gguf.has(name),
        }
    }

    /// A vector or table that is not multiplied with (norm weights, biases), in the type of activations.
    ///
    /// # Errors
    /// If it is missing or of another shape: both shapes are named.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        self.load(name, shape)?.to_dtype(activation_dtype(self.dtype, &self.device))
    }

    /// A matrix `(out, in)`, in the type of weights.
    ///
    /// # Errors
    /// As [`Weights::tensor`].
    pub fn matrix(&self, name: &str, out: usize, inner: usize) -> Result<Weight> {
        Weight::new(self.load(name, &[out, inner])?.to_dtype(self.dtype)?)
    }

    /// A matrix stored as `(in, out)`, as GPT-2's `Conv1D` does, turned into `(out, in)`.
    ///
    /// # Errors
    /// As [`Weights::tensor`].
    pub fn transposed(&self, name: &str, out: usize, inner: usize) -> Result<Weight> {
        let stored = self.load(name, &[inner, out])?;
        Weight::new(stored.t()?.contiguous()?.to_dtype(self.dtype)?)
    }

    fn load(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let tensor = match &self.source {
            Source::Gguf(gguf) => gguf.tensor(name, &self.device)?,
            Source::Folder { files, names } => match find(names, name) {
                Some(stored) => Some(self.load_stored(files, stored)?),
                None => None,
            },
        };
        let config = match &self.source {
            Source::Folder { .. } => "config.json",
            Source::Gguf(_) => "the metadata",
        };
        let Some(tensor) = tensor else {
            bail!("tensor {name} is missing; is {config} of another model?")
        };
        if tensor.dims() != shape {
            bail!("tensor {name} has shape {:?}, {config} asks for {shape:?}", tensor.dims())
        }
        Ok(tensor)
    }

    fn load_stored(&self, files: &MmapedSafetensors, stored: &str) -> Result<Tensor> {
        // Quantised numbers mean nothing without their scales, which lie in other tensors.
        let view = files.get(stored)?;
        let dtype = DType::try_from(view.dtype());
        if !matches!(dtype, Ok(DType::F32 | DType::BF16 | DType::F16 | DType::F64)) {
            bail!("tensor {stored} is stored as {:?}; candecode reads f32, bf16 and f16, nothing quantised", view.dtype())
        }
        files.load(stored, &self.device)
    }
}

/// Files saved from a bare model lack the first part of the name: `wte.weight` for `transformer.wte.weight`.
fn find<'a>(names: &BTreeSet<String>, name: &'a str) -> Option<&'a str> {
    let bare = name.split_once('.').map_or(name, |(_, bare)| bare);
    [name, bare].into_iter().find(|name| names.contains(*name))
}

/// All weights in one file.
pub const SINGLE: &str = "model.safetensors";

/// Which of several files each tensor is in.
pub const INDEX: &str = "model.safetensors.index.json";

fn weight_files(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let single = dir.join(SINGLE);
    if single.is_file() {
        return Ok(vec![single]);
    }
    let index = dir.join(INDEX);
    let text = std::fs::read_to_string(&index).with_context(|| {
        format!(
            "{}: no model.safetensors; expected config.json, tokenizer.json and model.safetensors, as in a Hugging Face repository",
            dir.display()
        )
    })?;
    let shards = shard_names(&text).with_context(|| index.display().to_string())?;
    Ok(shards.into_iter().map(|name| dir.join(name)).collect())
}

/// The files that a `model.safetensors.index.json` lists.
///
/// # Errors
/// If it is not an index, or a name would leave the folder.
pub fn shard_names(index: &str) -> anyhow::Result<BTreeSet<String>> {
    let index: serde_json::Value = serde_json::from_str(index).context("not an index of shards")?;
    let map = index.get("weight_map").and_then(|map| map.as_object());
    let map = map.context("not an index of shards: no weight_map")?;
    let name = |value: &serde_json::Value| {
        let name = value.as_str().context("weight_map must name files")?;
        ensure!(
            !name.contains(['/', '\\']),
            "weight_map names {name}, which is not a plain file name"
        );
        Ok(name.to_string())
    };
    let names: anyhow::Result<BTreeSet<String>> = map.values().map(name).collect();
    let names = names?;
    ensure!(!names.is_empty(), "weight_map is empty");
    Ok(names)
}
