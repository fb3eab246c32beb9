//! Reads Medusa heads from their file, and gives them access to a model's states.

use anyhow::{anyhow, ensure, Context as _, Result};
use candecode::day03_norms_and_mlps::Projection;
use candecode::day05_model::{Norm, Transformer};
use candecode::day24_draft_trees::MedusaHeads;
use candecode::kit::device::activation_dtype;
use candecode::kit::error::shown;
use candecode::kit::weights::TensorSource as _;
use candecode::kit::{Cache, ModelConfig, Step, Weight};
use candecode_formats::SafetensorsSource;
use candle_core::{DType, Device, Tensor};
use std::collections::BTreeSet;
use std::path::Path;

/// The name of the heads' file in a model's folder.
pub const FILE: &str = "medusa.safetensors";

/// Runs one step as day 5's `forward` does, and also returns the states that the head read:
/// `(B, n, C)`, after the last norm.
///
/// # Errors
/// Same as `forward`.
pub fn forward_with_hidden(
    model: &Transformer,
    step: &Step,
    cache: &mut dyn Cache,
) -> candle_core::Result<(Tensor, Option<Tensor>)> {
    cache.begin(step)?;
    let rotary = model.rotary_emb.as_ref();
    let cos_sin = rotary.map(|rotary| rotary.cos_sin(&step.positions)).transpose()?;
    let mut x = model.embed(step)?;
    for layer in &model.layers {
        x = layer.forward(&x, step, cos_sin.as_ref(), cache)?;
    }
    let x = step.chosen(&x)?;
    // The head applies the norm itself. It is applied a second time here, to return the normed
    // states.
    Ok((model.head(&x)?, Some(model.norm.forward(&x)?)))
}

/// Medusa heads as stored in their file, read before the model is in memory.
pub struct HeadsFile {
    /// The file, for messages.
    name: String,
    /// Weight `(C, C)` and bias `(C)` of each head.
    blocks: Vec<(Tensor, Tensor)>,
    /// The last norm of the model that the heads were trained on.
    norm: Vec<f32>,
}

impl HeadsFile {
    /// Reads heads for a model with this configuration: `heads.K.weight`, `(C, C)`, and
    /// `heads.K.bias`, `(C)`, for K = 0, 1, …; `vocab_size`; and `norm.weight`, `(C)`, a copy of
    /// the model's last norm, which identifies the model.
    ///
    /// # Errors
    /// If the file can't be read or is damaged, or if the heads don't fit the configuration or
    /// contain a NaN or an infinity.
    pub fn read(file: &Path, config: &ModelConfig) -> Result<Self> {
        let name = format!("--medusa {}", shown(file.display()));
        // The file's own errors begin with its path.
        let tensors = SafetensorsSource::open(file).map_err(|e| anyhow!("--medusa {e:#}"))?;
        let (blocks, norm) = read(tensors, config).context(name.clone())?;
        Ok(Self { name, blocks, norm })
    }

    /// Returns the number of heads, which is also the depth of the deepest tree they can draft.
    pub fn num_heads(&self) -> usize {
        self.blocks.len()
    }

    /// Checks that the heads belong to the model whose last norm has this weight, `(C)`.
    ///
    /// # Errors
    /// If they were trained on another model.
    pub fn check_model(&self, norm: &Tensor) -> Result<()> {
        let own = numbers(norm)?;
        let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 0.01 * b.abs().max(1.0);
        ensure!(
            self.norm.len() == own.len() && self.norm.iter().zip(&own).all(close),
            "{}: these heads were trained on another model: its last norm has other weights",
            self.name
        );
        Ok(())
    }

    /// Widens the heads for the model that is made by widening theirs, with this configuration
    /// ([`candecode_formats::ModelFiles::inside`]). Its states begin with those that the heads were
    /// trained on, and the rest of a state is zero. It stays zero in a head: added rows and biases
    /// are, `silu(0) + 0` is, and the model's own head ignores it, because the added columns of its
    /// embedding are zero.
    ///
    /// # Errors
    /// If a tensor can't be made.
    pub fn widened(mut self, config: &ModelConfig) -> Result<Self> {
        for (weight, bias) in &mut self.blocks {
            let added = config.hidden_size - bias.dim(0)?;
            *weight = weight.pad_with_zeros(0, 0, added)?.pad_with_zeros(1, 0, added)?;
            *bias = bias.pad_with_zeros(0, 0, added)?;
        }
        Ok(self)
    }

    /// Puts the heads on the model's device, in the type that the model computes in.
    ///
    /// # Errors
    /// If a tensor can't be converted or moved.
    pub fn into_heads(self, model: &Transformer) -> Result<MedusaHeads> {
        let table = model.embed_tokens.quantized().is_none();
        let dtype = if table { model.embed_tokens.tensor()?.dtype() } else { DType::F32 };
        let dtype = activation_dtype(dtype, &model.device);
        let moved = |x: &Tensor| x.to_device(&model.device)?.to_dtype(dtype);
        let block = |(weight, bias): &(Tensor, Tensor)| -> Result<Projection> {
            let (weight, bias) = (Weight::new(moved(weight)?)?, Some(moved(bias)?));
            Ok(Projection { weight, bias, ops: model.ops.clone() })
        };
        let lm_head = model.lm_head.as_ref().unwrap_or(&model.embed_tokens).clone();
        let lm_head = Projection { weight: lm_head, bias: None, ops: model.ops.clone() };
        Ok(MedusaHeads { blocks: self.blocks.iter().map(block).collect::<Result<_>>()?, lm_head })
    }
}

/// Reads heads for a model that is already in memory, with all checks.
///
/// # Errors
/// Same as [`HeadsFile::read`] and [`HeadsFile::check_model`].
pub fn load(file: &Path, model: &Transformer) -> Result<MedusaHeads> {
    let heads = HeadsFile::read(file, &model.config)?;
    let norm = match &model.norm {
        Norm::Rms { weight, .. } | Norm::Layer { weight, .. } => weight,
    };
    heads.check_model(norm)?;
    heads.into_heads(model)
}

/// The weights and biases of the heads, and their copy of the model's last norm.
type Parts = (Vec<(Tensor, Tensor)>, Vec<f32>);

fn read(tensors: Option<SafetensorsSource>, config: &ModelConfig) -> Result<Parts> {
    let tensors = tensors.context(
        "no such file; models/train/medusa.py trains heads for a model, and story-3m comes with \
         some",
    )?;
    let names: BTreeSet<String> = tensors.names().into_iter().collect();
    let get = |name: &str| -> Result<Tensor> {
        ensure!(names.contains(name), "the file has no tensor {name}, so it holds no Medusa heads");
        Ok(tensors.load_as_stored(name, &Device::Cpu)?)
    };
    let vocab = get("vocab_size")?.flatten_all()?.to_dtype(DType::I64)?.to_vec1::<i64>()?;
    ensure!(
        vocab == [config.vocab_size as i64],
        "these heads belong to another model: their vocabulary has {} tokens, this model's has {}",
        vocab.iter().map(i64::to_string).collect::<Vec<_>>().join(", "),
        config.vocab_size
    );
    let norm = numbers(&get("norm.weight")?)?;
    let count = (0..).take_while(|k| names.contains(&format!("heads.{k}.weight"))).count();
    get("heads.0.weight")?;
    let width = config.hidden_size;
    let part = |name: String, shape: &[usize]| -> Result<Tensor> {
        let tensor = get(&name)?;
        let dims = tensor.dims();
        ensure!(
            dims == shape,
            "{name} is {dims:?}, and a model of width {width} needs {shape:?}: these heads belong \
             to another model"
        );
        ensure!(
            numbers(&tensor)?.iter().all(|x| x.is_finite()),
            "{name} contains NaN or infinity; train the heads again"
        );
        Ok(tensor)
    };
    let block = |k: usize| {
        let weight = part(format!("heads.{k}.weight"), &[width, width])?;
        Ok((weight, part(format!("heads.{k}.bias"), &[width])?))
    };
    Ok(((0..count).map(block).collect::<Result<_>>()?, norm))
}

fn numbers(tensor: &Tensor) -> candle_core::Result<Vec<f32>> {
    tensor.flatten_all()?.to_dtype(DType::F32)?.to_vec1()
}

/// Returns the number of tokens that a tree of this shape drafts.
pub fn tree_size(shape: &[usize]) -> usize {
    let mut level = 1usize;
    shape.iter().fold(0, |sum: usize, width| {
        level = level.saturating_mul(*width);
        sum.saturating_add(level)
    })
}
