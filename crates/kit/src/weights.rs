//! The tensors of a model, checked against the shapes that its configuration asks for.
//!
//! Where they come from is a [`TensorSource`]: the files of `formats`, or tensors that are in
//! memory already.

use crate::device::activation_dtype;
use crate::error::{plain, shown};
use crate::quantized::{QuantType, QuantizedMatrix};
use candle_core::{bail, DType, Device, Result, Tensor};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

/// A weight matrix `(out, in)` as [`Ops::linear`](crate::Ops::linear) takes it: a tensor, or
/// quantised.
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

    /// The matrix as a tensor: as it is in memory (nothing is copied), or, if it is quantised,
    /// widened to f32, anew at every call.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn tensor(&self) -> Result<Tensor> {
        match &self.0 {
            Matrix::Tensor(matrix) => Ok(matrix.clone()),
            Matrix::Quantized(matrix) => matrix.widened(),
        }
    }

    /// Bytes that it takes in memory.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Matrix::Tensor(matrix) => matrix.elem_count() * matrix.dtype().size_in_bytes(),
            Matrix::Quantized(matrix) => matrix.bytes(),
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
/// A tensor is asked for by the name that Hugging Face's models give it, as `model.norm.weight`. A
/// source may store it under another one.
pub trait TensorSource: Send + Sync {
    /// The name under which the source has the tensor that Hugging Face calls `name`; None if it
    /// has none.
    fn find(&self, name: &str) -> Option<String>;

    /// The tensor that is stored under a name, in the type that it is stored in.
    ///
    /// # Errors
    /// If it cannot be read, or is quantised in a way that the source does not widen.
    fn load(&self, stored: &str, device: &Device) -> Result<Tensor>;

    /// The matrix `(out, in)` that is stored under a name, in its blocks; None if it is not
    /// quantised, or in blocks that no kernel reads.
    ///
    /// # Errors
    /// If it cannot be read.
    fn load_quantized(&self, _stored: &str) -> Result<Option<QuantizedMatrix>> {
        Ok(None)
    }

    /// The names of all tensors, as they are stored.
    fn names(&self) -> Vec<String>;

    /// True if a model that doesn't use this tensor computes something else than what was trained.
    fn matters(&self, stored: &str) -> bool {
        is_of_a_layer(stored)
    }

    /// What says which shapes there must be, for messages: `config.json`, if it is that of a
    /// folder.
    fn config_name(&self) -> &'static str {
        "config.json"
    }
}

/// The name in a source for `name`. Files that were saved from a bare model lack the first part:
/// `wte.weight` for `transformer.wte.weight`.
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

/// Quantises a matrix of f32: day 19's `quantize_matrix`.
pub type Quantizer = fn(QuantType, &Tensor) -> Result<QuantizedMatrix>;

/// What a model's matrices are in memory. All other tensors are of the type of activations.
#[derive(Debug, Clone, Copy)]
pub enum WeightFormat {
    /// Tensors of one type. What is quantised in a file is widened.
    Tensors(DType),
    /// Quantised where the source has them so (Q8_0, Q4_0, Q4_1), else tensors of f32. For the CPU.
    AsStored,
    /// Quantised as they are loaded. For the CPU.
    Quantized(QuantType, Quantizer),
}

impl WeightFormat {
    /// The type of what is not quantised.
    pub fn dtype(self) -> DType {
        match self {
            Self::Tensors(dtype) => dtype,
            Self::AsStored | Self::Quantized(..) => DType::F32,
        }
    }
}

impl From<DType> for WeightFormat {
    fn from(dtype: DType) -> Self {
        Self::Tensors(dtype)
    }
}

/// The weights of a model: its tensors by name, each with the shape and in the type that is wanted.
pub struct Weights {
    source: Arc<dyn TensorSource>,
    format: WeightFormat,
    /// True if quantised matrices are put into tiles, for the kernels.
    tiles: bool,
    device: Device,
    /// The stored names of the tensors that were loaded.
    loaded: Mutex<BTreeSet<String>>,
}

impl Weights {
    /// The tensors of a source; `format` says what matrices will be, and may be a type.
    pub fn new(
        source: Arc<dyn TensorSource>,
        format: impl Into<WeightFormat>,
        device: &Device,
    ) -> Self {
        let (format, device) = (format.into(), device.clone());
        Self { source, format, tiles: false, device, loaded: Mutex::default() }
    }

    /// With quantised matrices [tiled](QuantizedMatrix::tiled), for the kernels.
    pub fn in_tiles(self, tiles: bool) -> Self {
        Self { tiles, ..self }
    }

    /// Where the tensors are loaded to.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// True if there is a tensor of that name.
    pub fn has(&self, name: &str) -> bool {
        self.source.find(name).is_some()
    }

    /// A vector or table that is not multiplied with (norm weights, biases), in the type of
    /// activations.
    ///
    /// # Errors
    /// If it is missing or of another shape: both shapes are named.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        self.load(name, shape)?.to_dtype(activation_dtype(self.format.dtype(), &self.device))
    }

    /// A matrix `(out, in)`, in the format of weights.
    ///
    /// # Errors
    /// As [`Weights::tensor`]; if it is to be quantised, and its rows are no multiple of a block,
    /// or one of its numbers is infinite or not a number.
    pub fn matrix(&self, name: &str, out: usize, inner: usize) -> Result<Weight> {
        match self.load_quantized(name, out, inner)? {
            Some(matrix) => Ok(self.arranged(matrix)),
            None => self.formatted(name, self.load(name, &[out, inner])?, self.format),
        }
    }

    /// As [`Weights::matrix`], of a head that is the table of embeddings, too.
    ///
    /// # Errors
    /// As [`Weights::matrix`].
    pub fn tied_head(&self, name: &str, out: usize, inner: usize) -> Result<Weight> {
        let WeightFormat::Quantized(kind, quantizer) = self.format else {
            return self.matrix(name, out, inner);
        };
        let format = WeightFormat::Quantized(kind.of_a_tied_head(), quantizer);
        self.formatted(name, self.load(name, &[out, inner])?, format)
    }

    /// A matrix stored as `(in, out)`, as GPT-2's `Conv1D` does, turned into `(out, in)`.
    ///
    /// # Errors
    /// As [`Weights::matrix`].
    pub fn transposed(&self, name: &str, out: usize, inner: usize) -> Result<Weight> {
        if let Some(matrix) = self.load_quantized(name, out, inner)? {
            return Ok(self.arranged(matrix));
        }
        let stored = self.load(name, &[inner, out])?;
        self.formatted(name, stored.t()?.contiguous()?, self.format)
    }

    /// True if there are tensors under both names, and their numbers differ.
    ///
    /// # Errors
    /// If there are both, and one cannot be read or has another shape: both shapes are named.
    pub fn differ(&self, name: &str, other: &str, shape: &[usize]) -> Result<bool> {
        let (Some(stored), Some(another)) = (self.source.find(name), self.source.find(other))
        else {
            return Ok(false);
        };
        if stored == another {
            return Ok(false);
        }
        let (a, b) = (self.load(name, shape)?, self.load(other, shape)?);
        let differs = a.ne(&b.to_dtype(a.dtype())?)?.flatten_all()?.max(0)?;
        Ok(differs.to_scalar::<u8>()? != 0)
    }

    /// A matrix `(out, in)` in a format.
    fn formatted(&self, name: &str, matrix: Tensor, format: WeightFormat) -> Result<Weight> {
        let WeightFormat::Quantized(kind, quantizer) = format else {
            return Weight::new(matrix.to_dtype(format.dtype())?);
        };
        match quantizer(kind, &matrix.to_dtype(DType::F32)?) {
            Ok(matrix) => Ok(self.arranged(matrix)),
            Err(error) => bail!("tensor {name} cannot be quantised: {}", plain(&error)),
        }
    }

    fn arranged(&self, matrix: QuantizedMatrix) -> Weight {
        let matrix = if self.tiles { matrix.tiled() } else { matrix };
        matrix.into()
    }

    /// A matrix in its blocks, if they are to stay as they are stored, and are stored so.
    fn load_quantized(
        &self,
        name: &str,
        out: usize,
        inner: usize,
    ) -> Result<Option<QuantizedMatrix>> {
        if !matches!(self.format, WeightFormat::AsStored) {
            return Ok(None);
        }
        let Some(stored) = self.source.find(name) else { return Ok(None) };
        let matrix = match self.source.load_quantized(&stored) {
            Ok(None) => return Ok(None),
            Ok(Some(matrix)) => matrix,
            Err(error) => bail!("tensor {name}: {}", plain(&error)),
        };
        let (config, shape) = (self.source.config_name(), matrix.shape());
        if shape != (out, inner) {
            bail!("tensor {name} has shape {shape:?}, {config} asks for {:?}", (out, inner))
        }
        self.remember(stored);
        Ok(Some(matrix))
    }

    /// Checks that the loaded model uses every tensor that [matters](TensorSource::matters). If it
    /// doesn't, the configuration has fewer layers than the file, or lacks a bias. In a folder
    /// other tensors may stay unused, as in transformers: heads of other tasks, and tables that old
    /// versions of transformers wrote. llama.cpp allows none.
    ///
    /// # Errors
    /// If tensors were left: they are named.
    pub fn check_all_were_loaded(&self) -> Result<()> {
        let Ok(loaded) = self.loaded.lock() else { return Ok(()) };
        let mut left = self.source.names();
        left.retain(|name| !loaded.contains(name) && self.source.matters(name));
        left.sort();
        let Some(first) = left.first() else { return Ok(()) };
        let config = self.source.config_name();
        bail!(
            "{} tensors would not be used, {} the first of them; is {config} of another model, or \
                has it fewer layers?",
            left.len(),
            shown(first)
        )
    }

    fn load(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let config = self.source.config_name();
        let Some(stored) = self.source.find(name) else {
            bail!("tensor {name} is missing; is {config} of another model?")
        };
        let tensor = self.source.load(&stored, &self.device)?;
        if tensor.dims() != shape {
            let found = shown(format_args!("{:?}", tensor.dims()));
            bail!("tensor {name} has shape {found}, {config} asks for {shape:?}")
        }
        self.remember(stored);
        Ok(tensor)
    }

    fn remember(&self, stored: String) {
        if let Ok(mut loaded) = self.loaded.lock() {
            loaded.insert(stored);
        }
    }
}

/// True for the weights and biases of a decoder's layer, as `model.layers.3.mlp.up_proj.weight`;
/// false for the constants that some files have beside them: GPT-2's causal mask (`attn.bias`), and
/// RoPE's frequencies.
fn is_of_a_layer(stored: &str) -> bool {
    let bare = stored.strip_prefix("model.").or(stored.strip_prefix("transformer."));
    let in_layer = ["layers.", "h.", "blk."].iter().any(|l| bare.unwrap_or(stored).starts_with(l));
    let constants = [".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"];
    in_layer && !constants.iter().any(|end| stored.ends_with(end))
}
