//! A model's tensors, checked against the shapes that its configuration requires.
//!
//! They come from a [`TensorSource`]: the files in `formats`, or tensors already in memory.

use crate::device::activation_dtype;
use crate::error::{plain, shown};
use crate::quantized::{QuantType, QuantizedMatrix};
use candle_core::{bail, DType, Device, Result, Tensor};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

/// A weight matrix `(out, in)` in the form that [`Ops::linear`](crate::Ops::linear) takes: a
/// tensor, or quantized.
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

    /// Returns `(out, in)`.
    pub fn shape(&self) -> (usize, usize) {
        match &self.0 {
            Matrix::Quantized(matrix) => matrix.shape(),
            Matrix::Tensor(matrix) => match matrix.dims() {
                [out, inner] => (*out, *inner),
                _ => (0, 0), // `new` accepts only matrices
            },
        }
    }

    /// Returns the matrix as a tensor. A plain matrix is returned as it is, without a copy; a
    /// quantized one is widened to f32 on every call.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn tensor(&self) -> Result<Tensor> {
        match &self.0 {
            Matrix::Tensor(matrix) => Ok(matrix.clone()),
            Matrix::Quantized(matrix) => matrix.widened(),
        }
    }

    /// Returns the matrix's size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Matrix::Tensor(matrix) => matrix.elem_count() * matrix.dtype().size_in_bytes(),
            Matrix::Quantized(matrix) => matrix.bytes(),
        }
    }

    /// Returns the quantized blocks, or None for a plain tensor.
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

/// A source of tensors: safetensors files, a GGUF file, or memory.
///
/// Callers ask for a tensor by its Hugging Face name, such as `model.norm.weight`. A source may
/// store it under another name.
pub trait TensorSource: Send + Sync {
    /// Returns the name under which the source stores the tensor that Hugging Face calls `name`, or
    /// None if it doesn't have that tensor.
    fn find(&self, name: &str) -> Option<String>;

    /// Returns the tensor stored under a name, in its stored type.
    ///
    /// # Errors
    /// If the tensor can't be read, or its quantization is one that the source can't widen.
    fn load(&self, stored: &str, device: &Device) -> Result<Tensor>;

    /// Returns the blocks of the matrix `(out, in)` stored under a name. None if it is not
    /// quantized, or is in a block format that no kernel reads.
    ///
    /// # Errors
    /// If the matrix can't be read.
    fn load_quantized(&self, _stored: &str) -> Result<Option<QuantizedMatrix>> {
        Ok(None)
    }

    /// Returns the stored names of all tensors.
    fn names(&self) -> Vec<String>;

    /// Returns true if a model that leaves this tensor unused would compute something other than
    /// the model that was trained.
    fn matters(&self, stored: &str) -> bool {
        is_of_a_layer(stored)
    }

    /// Returns the name to use in messages for the source of the expected shapes: `config.json` for
    /// a folder.
    fn config_name(&self) -> &'static str {
        "config.json"
    }
}

/// Returns the name that a source uses for `name`. Files saved from a bare model lack the first
/// part: `wte.weight` for `transformer.wte.weight`.
pub fn full_or_bare(name: &str, has: impl Fn(&str) -> bool) -> Option<String> {
    let bare = name.split_once('.').map_or(name, |(_, bare)| bare);
    [name, bare].into_iter().find(|name| has(name)).map(str::to_string)
}

/// Tensors already in memory: from a test, or random ones.
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

/// Quantizes an f32 matrix: day 19's `quantize_matrix`.
pub type Quantizer = fn(QuantType, &Tensor) -> Result<QuantizedMatrix>;

/// The in-memory format of a model's matrices. All other tensors have the activation type.
#[derive(Debug, Clone, Copy)]
pub enum WeightFormat {
    /// Tensors of one type. Matrices that are quantized in the file are widened.
    Tensors(DType),
    /// Quantized wherever the source is (Q8_0, Q4_0, Q4_1), f32 tensors otherwise. CPU only.
    AsStored,
    /// Quantized while loading. CPU only.
    Quantized(QuantType, Quantizer),
}

impl WeightFormat {
    /// Returns the type of the tensors that are not quantized.
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

/// A model's weights: tensors by name, with checked shapes and converted types.
pub struct Weights {
    source: Arc<dyn TensorSource>,
    format: WeightFormat,
    /// True to store quantized matrices in tiles, for the kernels.
    tiles: bool,
    device: Device,
    /// Stored names of the tensors loaded so far.
    loaded: Mutex<BTreeSet<String>>,
}

impl Weights {
    /// Wraps a source. `format` is the in-memory format for matrices; a plain type works, too.
    pub fn new(
        source: Arc<dyn TensorSource>,
        format: impl Into<WeightFormat>,
        device: &Device,
    ) -> Self {
        let (format, device) = (format.into(), device.clone());
        Self { source, format, tiles: false, device, loaded: Mutex::default() }
    }

    /// Sets whether quantized matrices are [tiled](QuantizedMatrix::tiled) for the kernels.
    pub fn in_tiles(self, tiles: bool) -> Self {
        Self { tiles, ..self }
    }

    /// Returns the device that tensors are loaded onto.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns true if there is a tensor with that name.
    pub fn has(&self, name: &str) -> bool {
        self.source.find(name).is_some()
    }

    /// Loads a vector or table that isn't used in a matrix product (norm weights, biases), in the
    /// activation type.
    ///
    /// # Errors
    /// If it is missing, or has another shape. The message names both shapes.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        self.load(name, shape)?.to_dtype(activation_dtype(self.format.dtype(), &self.device))
    }

    /// Loads a matrix `(out, in)` in the weight format.
    ///
    /// # Errors
    /// Same as [`Weights::tensor`]. When quantizing, also if the row length is not a multiple of
    /// the block size, or a value is infinite or NaN.
    pub fn matrix(&self, name: &str, out: usize, inner: usize) -> Result<Weight> {
        match self.load_quantized(name, out, inner)? {
            Some(matrix) => Ok(self.arranged(matrix)),
            None => self.formatted(name, self.load(name, &[out, inner])?, self.format),
        }
    }

    /// Like [`Weights::matrix`], for an output head that is also the embedding table.
    ///
    /// # Errors
    /// Same as [`Weights::matrix`].
    pub fn tied_head(&self, name: &str, out: usize, inner: usize) -> Result<Weight> {
        let WeightFormat::Quantized(kind, quantizer) = self.format else {
            return self.matrix(name, out, inner);
        };
        let format = WeightFormat::Quantized(kind.of_a_tied_head(), quantizer);
        self.formatted(name, self.load(name, &[out, inner])?, format)
    }

    /// Loads a matrix stored as `(in, out)`, like GPT-2's `Conv1D`, and transposes it to
    /// `(out, in)`.
    ///
    /// # Errors
    /// Same as [`Weights::matrix`].
    pub fn transposed(&self, name: &str, out: usize, inner: usize) -> Result<Weight> {
        if let Some(matrix) = self.load_quantized(name, out, inner)? {
            return Ok(self.arranged(matrix));
        }
        let stored = self.load(name, &[inner, out])?;
        self.formatted(name, stored.t()?.contiguous()?, self.format)
    }

    /// Returns true if both names have a tensor and their values differ.
    ///
    /// # Errors
    /// If both exist, and one can't be read or has another shape. The message names both shapes.
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

    /// Converts a matrix `(out, in)` to a format.
    fn formatted(&self, name: &str, matrix: Tensor, format: WeightFormat) -> Result<Weight> {
        let WeightFormat::Quantized(kind, quantizer) = format else {
            return Weight::new(matrix.to_dtype(format.dtype())?);
        };
        match quantizer(kind, &matrix.to_dtype(DType::F32)?) {
            Ok(matrix) => Ok(self.arranged(matrix)),
            Err(error) => bail!("tensor {name} cannot be quantized: {}", plain(&error)),
        }
    }

    fn arranged(&self, matrix: QuantizedMatrix) -> Weight {
        let matrix = if self.tiles { matrix.tiled() } else { matrix };
        matrix.into()
    }

    /// Loads a matrix's blocks unchanged, if the format asks for that and the source stores blocks.
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

    /// Checks that the loaded model uses every tensor that [matters](TensorSource::matters). If
    /// some tensors are unused, the configuration has fewer layers than the file, or lacks a bias.
    /// In a folder, other tensors may stay unused, as in transformers: heads for other tasks, and
    /// tables written by old versions of transformers. llama.cpp allows no unused tensors.
    ///
    /// # Errors
    /// If there are unused tensors. The message names them.
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
            bail!("tensor {name} is missing; does {config} belong to another model?")
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

/// Returns true for the weights and biases of a decoder layer, such as
/// `model.layers.3.mlp.up_proj.weight`. Returns false for the constants that some files also
/// contain: GPT-2's causal mask (`attn.bias`) and RoPE's frequencies.
fn is_of_a_layer(stored: &str) -> bool {
    let bare = stored.strip_prefix("model.").or(stored.strip_prefix("transformer."));
    let in_layer = ["layers.", "h.", "blk."].iter().any(|l| bare.unwrap_or(stored).starts_with(l));
    let constants = [".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"];
    in_layer && !constants.iter().any(|end| stored.ends_with(end))
}
