//! The tensors of a model, checked against the shapes that its configuration asks for.
//!
//! Where they come from is a [`TensorSource`]: the files of `formats`, or tensors that are in memory already.

use crate::kit::device::activation_dtype;
use crate::kit::quantized::QuantizedMatrix;
use candle_core::{bail, DType, Device, Result, Tensor};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

/// A weight matrix `(out, in)` as [`crate::kit::linear`] takes it: a tensor, or quantised.
#[derive(Debug, Clone)]
pub struct Weight(Matrix);

#[derive(Debug, Clone)]
enum Matrix {
    Tensor(Tensor),
    Quantized(Arc<QuantizedMatrix>),
}

impl Weight {
    /// Wraps a matrix `(out, in)`.
    ///
    /// # Errors
    /// If it is not a matrix.
    pub fn new(matrix: Tensor) -> Result<Self> {
        matrix.dims2()?;
        Ok(Self(Matrix::Tensor(matrix)))
    }

    /// `(out, in)`.
    pub fn shape(&self) -> (usize, usize) {
        match &self.0 {
            Matrix::Quantized(matrix) => matrix.shape(),
            Matrix::Tensor(matrix) => match matrix.dims() {
                [out, inner] => (*out, *inner),
                _ => (0, 0), // `new` takes matrices only
            },
        }
    }

    /// The matrix as a tensor: as it is in memory (nothing is copied), or, if it is quantised, widened
    /// to f32, anew at every call.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn tensor(&self) -> Result<Tensor> {
        match &self.0 {
            Matrix::Tensor(matrix) => Ok(matrix.clone()),
            Matrix::Quantized(matrix) => matrix.widened(),
        }
    }

    /// The matrix in its blocks, if it is quantised.
    pub fn quantized(&self) -> Option<&QuantizedMatrix> {
        match &self.0 {
            Matrix::Tensor(_) => None,
            Matrix::Quantized(matrix) => Some(matrix),
        }
    }
}

impl From<QuantizedMatrix> for Weight {
    fn from(matrix: QuantizedMatrix) -> Self {
        Self(Matrix::Quantized(Arc::new(matrix)))
    }
}

/// Where tensors come from: safetensors files, a GGUF file, memory.
///
/// A tensor is asked for by the name that Hugging Face's models give it, as `model.norm.weight`. A source may store it under
/// another one.
pub trait TensorSource: Send + Sync {
    /// The name under which the source has the tensor that Hugging Face calls `name`; None if it has none.
    fn find(&self, name: &str) -> Option<String>;

    /// The tensor that is stored under a name, in the type that it is stored in.
    ///
    /// # Errors
    /// If it cannot be read, or is quantised in a way that the source does not widen.
    fn load(&self, stored: &str, device: &Device) -> Result<Tensor>;

    /// The names of all tensors, as they are stored.
    fn names(&self) -> Vec<String>;

    /// What says which shapes there must be, for messages: `config.json`, if it is that of a folder.
    fn config_name(&self) -> &'static str {
        "config.json"
    }
}

/// The name in a source for `name`. Files that were saved from a bare model lack the first part: `wte.weight` for
/// `transformer.wte.weight`.
pub fn full_or_bare(name: &str, has: impl Fn(&str) -> bool) -> Option<String> {
    let bare = name.split_once('.').map_or(name, |(_, bare)| bare);
    [name, bare].into_iter().find(|name| has(name)).map(str::to_string)
}

/// Tensors that are in memory: of a test, or random ones.
impl TensorSource for HashMap<String, Tensor> {
    fn find(&self, name: &str) -> Option<String> {
        full_or_bare(name, |name| self.contains_key(name))
    }

    fn load(&self, stored: &str, device: &Device) -> Result<Tensor> {
        match self.get(stored) {
            Some(tensor) => tensor.to_device(device),
            None => bail!("there is no tensor {stored}"),
        }
    }

    fn names(&self) -> Vec<String> {
        self.keys().cloned().collect()
    }

    fn config_name(&self) -> &'static str {
        "the configuration"
    }
}

/// The weights of a model: its tensors by name, each with the shape and in the type that is wanted.
pub struct Weights {
    source: Arc<dyn TensorSource>,
    dtype: DType,
    device: Device,
    /// The stored names of the tensors that were loaded.
    loaded: Mutex<BTreeSet<String>>,
}

impl Weights {
    /// The tensors of a source. Matrices will be of type `dtype`, all else of the type of activations.
    pub fn new(source: Arc<dyn TensorSource>, dtype: DType, device: &Device) -> Self {
        Self { source, dtype, device: device.clone(), loaded: Mutex::default() }
    }

    /// Where the tensors are loaded to.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// True if there is a tensor of that name.
    pub fn has(&self, name: &str) -> bool {
        self.source.find(name).is_some()
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

    /// Sees that a model that is loaded left no tensor of a layer behind. One that did computes something else than what was
    /// trained: its configuration has fewer layers than the file, or lacks a bias. Other tensors may stay behind, as in
    /// transformers: heads of other tasks, and tables that old versions of transformers wrote into the file.
    ///
    /// # Errors
    /// If tensors were left: they are named.
    pub fn check_layers_were_loaded(&self) -> Result<()> {
        let Ok(loaded) = self.loaded.lock() else { return Ok(()) };
        let mut left = self.source.names();
        left.retain(|name| !loaded.contains(name) && is_of_a_layer(name));
        left.sort();
        let Some(first) = left.first() else { return Ok(()) };
        let config = self.source.config_name();
        bail!(
            "{} tensors of layers would not be used, {first} the first of them; is {config} of another model, or has it fewer layers?",
            left.len()
        )
    }

    fn load(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let config = self.source.config_name();
        let Some(stored) = self.source.find(name) else {
            bail!("tensor {name} is missing; is {config} of another model?")
        };
        let tensor = self.source.load(&stored, &self.device)?;
        if tensor.dims() != shape {
            bail!("tensor {name} has shape {:?}, {config} asks for {shape:?}", tensor.dims())
        }
        if let Ok(mut loaded) = self.loaded.lock() {
            loaded.insert(stored);
        }
        Ok(tensor)
    }
}

/// True for the weights and biases of a decoder's layer, as `model.layers.3.mlp.up_proj.weight`; false for the constants that
/// some files have beside them: GPT-2's causal mask (`attn.bias`), and RoPE's frequencies.
fn is_of_a_layer(stored: &str) -> bool {
    let bare = stored.strip_prefix("model.").or(stored.strip_prefix("transformer."));
    let in_layer = ["layers.", "h.", "blk."].iter().any(|l| bare.unwrap_or(stored).starts_with(l));
    let constants = [".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"];
    in_layer && !constants.iter().any(|end| stored.ends_with(end))
}
