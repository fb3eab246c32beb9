//! Medusa heads: reading their file, and the seam that shows a model's states to them.

use crate::day03_norms_and_mlps::Projection;
use crate::day05_model::{Norm, Transformer};
use crate::day24_draft_trees::MedusaHeads;
use crate::kit::device::activation_dtype;
use crate::kit::error::shown;
use crate::kit::{Cache, Step, Weight};
use anyhow::{ensure, Context as _, Result};
use candle_core::{DType, Tensor};
use std::path::Path;

/// The name of the heads' file in a model's folder.
pub const FILE: &str = "medusa.safetensors";

/// Runs one step as day 5's `forward` does, and also returns the states that the head read: `(B, n,
/// C)`, after the last norm.
///
/// # Errors
/// As `forward`.
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
    // The head norms the states itself. They are normed a second time here, to be returned.
    Ok((model.head(&x)?, Some(model.norm.forward(&x)?)))
}

/// Reads heads for this model: `heads.K.weight`, `(C, C)`, and `heads.K.bias`, `(C)`, for K = 0, 1,
/// …; `norm.weight`, `(C)`, a copy of the model's last norm, and `vocab_size`, which tell whose
/// heads they are.
///
/// # Errors
/// If the file can't be read or is damaged, or the heads are another model's.
pub fn load(file: &Path, model: &Transformer) -> Result<MedusaHeads> {
    let name = shown(file.display());
    read(file, model).with_context(|| format!("--medusa {name}"))
}

fn read(file: &Path, model: &Transformer) -> Result<MedusaHeads> {
    ensure!(
        file.exists(),
        "no such file; models/train/medusa.py trains heads for a model, and story-3m has some"
    );
    let tensors = candle_core::safetensors::load(file, &model.device)
        .map_err(|_| anyhow::anyhow!("this is no safetensors file, or a damaged one"))?;
    let get = |name: &str| {
        tensors.get(name).with_context(|| format!("there is no tensor {name}: these aren't heads"))
    };
    let width = model.config.hidden_size;
    let vocab = get("vocab_size")?.flatten_all()?.to_dtype(DType::I64)?.to_vec1::<i64>()?;
    let own_vocab = model.config.vocab_size;
    ensure!(
        vocab == [own_vocab as i64],
        "these heads are for a vocabulary of {vocab:?} tokens, the model has {own_vocab}: they are \
         another model's"
    );
    let norm = match &model.norm {
        Norm::Rms { weight, .. } | Norm::Layer { weight, .. } => weight,
    };
    let same = numbers(get("norm.weight")?)?;
    let own = numbers(norm)?;
    let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 0.01 * b.abs().max(1.0);
    ensure!(
        same.len() == own.len() && same.iter().zip(&own).all(close),
        "these heads were trained on the states of another model: its last norm has other weights"
    );
    let count = (0..).take_while(|k| tensors.contains_key(&format!("heads.{k}.weight"))).count();
    ensure!(count > 0, "there is no tensor heads.0.weight: these aren't heads");
    let table = model.embed_tokens.quantized().is_none();
    let dtype = if table { model.embed_tokens.tensor()?.dtype() } else { DType::F32 };
    let dtype = activation_dtype(dtype, &model.device);
    let block = |k: usize| -> Result<Projection> {
        let part = |part: &str, shape: &[usize]| -> Result<Tensor> {
            let name = format!("heads.{k}.{part}");
            let tensor = get(&name)?;
            let dims = tensor.dims();
            ensure!(
                dims == shape,
                "{name} is {dims:?}; for a model of width {width} it must be {shape:?}"
            );
            ensure!(
                numbers(tensor)?.iter().all(|x| x.is_finite()),
                "{name} has numbers that are NaN or infinite; train the heads again"
            );
            Ok(tensor.to_dtype(dtype)?)
        };
        let weight = Weight::new(part("weight", &[width, width])?)?;
        let bias = Some(part("bias", &[width])?);
        Ok(Projection { weight, bias, ops: model.ops.clone() })
    };
    let lm_head = model.lm_head.as_ref().unwrap_or(&model.embed_tokens).clone();
    let lm_head = Projection { weight: lm_head, bias: None, ops: model.ops.clone() };
    Ok(MedusaHeads { blocks: (0..count).map(block).collect::<Result<_>>()?, lm_head })
}

fn numbers(tensor: &Tensor) -> candle_core::Result<Vec<f32>> {
    tensor.flatten_all()?.to_dtype(DType::F32)?.to_vec1()
}

/// The number of tokens that a tree of this shape drafts.
pub fn tree_size(shape: &[usize]) -> usize {
    let mut level = 1usize;
    shape.iter().fold(0, |sum: usize, width| {
        level = level.saturating_mul(*width);
        sum.saturating_add(level)
    })
}
