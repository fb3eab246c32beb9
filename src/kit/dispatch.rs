//! Dispatch: every product with a model's weights goes through [`linear`], every attention in a model
//! through [`attend`]. Each asks which kernels are chosen for the tensor, and whether they can read the
//! weights. A product is a kernel's of the kit, day 17's, or candle's `matmul`. Attention is a kernel's of
//! the kit, day 18's, or goes back to the days: `causal_mask` of day 1 and `grouped_attention` of day 4.
//!
//! What is called changes with the machine and the flags; a lesson never does.

use crate::kernels::{self, BlockType, Kernels, TiledWeights};
use crate::kit::{Cache, QuantType, QuantizedMatrix, Step, View, Weight};
use crate::{day00_warm_up, day01_attention, day04_attention_block};
use crate::{day17_kernel, day18_flash_attention, day19_quantized_weights as day19};
use candle_core::{DType, Device, Error, Result, Tensor, D};

/// `x · wᵀ + bias` (torch `linear`).
///
/// `x` is `(…, in)`, `w` is `(out, in)` as in torch, `bias` is `(out)`; the result is `(…, out)`.
///
/// Weights of another type than `x` (bf16 on the CPU) are widened for the product.
///
/// # Errors
/// If the last dimension of `x` is not `in`.
pub fn linear(x: &Tensor, w: &Weight, bias: Option<&Tensor>) -> Result<Tensor> {
    let (out, inner) = w.shape();
    let mut shape = x.dims().to_vec();
    match shape.last_mut() {
        Some(last) if *last == inner => *last = out,
        _ => candle_core::bail!("linear: x is {:?}, its last dimension must be {inner}", x.shape()),
    }
    let y = match w.quantized() {
        Some(matrix) => quantized_linear(x, matrix)?,
        None => tensor_linear(x, &w.tensor()?)?,
    };
    with_bias(y, bias)?.reshape(shape)
}

/// [`linear`] for weights that are a tensor: `(rows of x, out)`.
fn tensor_linear(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    match kernels::products_for(x) {
        Kernels::Fast if kernels::can_read(w) => Ok(kernels::linear(x, &[w])?.remove(0)),
        Kernels::Mine => day17_kernel::linear(x, w),
        _ => x.reshape(((), w.dim(1)?))?.matmul(&w.to_dtype(x.dtype())?.t()?),
    }
}

/// Multiplies a few numbers with day 17's kernel, and attends to a few with day 18's, so that a task
/// which is not written yet is met before anything is loaded or shown. Weights are of type `dtype`.
///
/// # Errors
/// If the kernel returns one.
///
/// # Panics
/// If a task is not written.
pub fn try_mine(dtype: DType) -> Result<()> {
    let x = Tensor::ones((3, 70), DType::F32, &Device::Cpu)?;
    let w = Tensor::ones((5, 70), dtype, &Device::Cpu)?;
    day17_kernel::linear(&x, &w)?;
    for new in [3, 1] {
        let q = Tensor::ones((1, 2, new, 4), DType::F32, &Device::Cpu)?;
        let kv = Tensor::ones((1, 1, 3, 4), DType::F32, &Device::Cpu)?;
        day18_flash_attention::tiled_attention(&q, &kv, &kv, None)?;
    }
    Ok(())
}

/// [`linear`] for quantised weights: `(rows of x, out)`. A kernel computes it, or day 19. On other
/// devices, and for activations of other types, they are widened.
fn quantized_linear(x: &Tensor, matrix: &QuantizedMatrix) -> Result<Tensor> {
    let (_, inner) = matrix.shape();
    if x.device().is_cpu() && x.dtype() == DType::F32 {
        if let Some(tiles) = tiles_for(x, matrix) {
            return Ok(kernels::quantized_linear(x, &[tiles])?.remove(0));
        }
        return day19::quantized_linear(&x.reshape(((), inner))?, matrix);
    }
    let widened = matrix.widened()?.to_device(x.device())?.to_dtype(x.dtype())?;
    x.reshape(((), inner))?.matmul(&widened.t()?)
}

/// A matrix as the kernel reads it, if that is chosen for these activations, and the matrix is in tiles.
fn tiles_for<'a>(x: &Tensor, matrix: &'a QuantizedMatrix) -> Option<TiledWeights<'a>> {
    let kind = match matrix.kind() {
        QuantType::Q8_0 => BlockType::Q8_0,
        QuantType::Q4_0 => BlockType::Q4_0,
        QuantType::Q4_1 => BlockType::Q4_1,
    };
    let tiles = matrix.tiles().filter(|_| kernels::products_for(x) == Kernels::Fast)?;
    Some(TiledWeights { kind, out: matrix.shape().0, tiles })
}

/// The rows of a table for ids (torch `embedding`): `ids` is `(B, T)`, `table` is `(V, C)`; the result
/// is `(B, T, C)`, in the type that the table has in memory; of a quantised one f32.
///
/// # Errors
/// If an id is not below `V`.
pub fn embedding(ids: &Tensor, table: &Weight) -> Result<Tensor> {
    let Some(matrix) = table.quantized() else {
        return day00_warm_up::embed(&table.tensor()?, ids);
    };
    let (b, t) = ids.dims2()?;
    let all: Vec<u32> = ids.flatten_all()?.to_vec1()?;
    let rows = matrix.widened_rows(all.into_iter().map(|id| id as usize))?;
    rows.reshape((b, t, ()))?.to_device(ids.device())
}

fn with_bias(y: Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    match bias {
        Some(bias) => y.broadcast_add(bias),
        None => Ok(y),
    }
}

/// [`linear`] for weights that share an input (Q, K, V; gate, up), in the order given: a kernel
/// computes them as one product.
///
/// # Errors
/// As [`linear`].
pub fn linear_many<const N: usize>(
    x: &Tensor,
    w: [(&Weight, Option<&Tensor>); N],
) -> Result<[Tensor; N]> {
    let quantized: Vec<_> = w.iter().filter_map(|(w, _)| w.quantized()).collect();
    let products = if quantized.is_empty() {
        let tensors = w.iter().map(|(w, _)| w.tensor()).collect::<Result<Vec<_>>>()?;
        let tensors: Vec<&Tensor> = tensors.iter().collect();
        let same = |t: &&Tensor| kernels::can_read(t) && t.dtype() == tensors[0].dtype();
        if kernels::products_for(x) != Kernels::Fast || !tensors.iter().all(same) {
            return each_alone(x, w);
        }
        kernels::linear(x, &tensors)?
    } else {
        let tiles: Vec<_> = quantized.iter().filter_map(|matrix| tiles_for(x, matrix)).collect();
        let inner = x.dim(D::Minus1)?;
        let all_fit = quantized.iter().all(|matrix| matrix.shape().1 == inner);
        if tiles.len() != N || !all_fit {
            return each_alone(x, w);
        }
        kernels::quantized_linear(x, &tiles)?
    };
    let mut all = Vec::with_capacity(N);
    for (y, (w, bias)) in products.into_iter().zip(w) {
        let mut shape = x.dims().to_vec();
        shape.pop();
        shape.push(w.shape().0);
        all.push(with_bias(y, bias)?.reshape(shape)?);
    }
    exactly(all)
}

/// [`linear_many`], one product after the other.
fn each_alone<const N: usize>(
    x: &Tensor,
    w: [(&Weight, Option<&Tensor>); N],
) -> Result<[Tensor; N]> {
    let all = w.into_iter().map(|(w, bias)| linear(x, w, bias));
    exactly(all.collect::<Result<Vec<_>>>()?)
}

fn exactly<const N: usize>(all: Vec<Tensor>) -> Result<[Tensor; N]> {
    let count = all.len();
    all.try_into().map_err(|_| Error::Msg(format!("{N} weights gave {count} products")))
}

/// Appends `k` and `v` to the cache and attends over all of them: with a kernel, in day 18's
/// tiles, or with day 4's grouped attention.
///
/// `q` is `(B, H, T, D)`, `k` and `v` are `(B, Hkv, T, D)`; the result is `(B, H, T, D)`.
///
/// # Errors
/// If the shapes do not fit the cache or the step's mask.
pub fn attend(
    layer: usize,
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    step: &Step,
    cache: &mut dyn Cache,
) -> Result<Tensor> {
    let View { k, v } = cache.append(layer, k, v)?;
    match kernels::attention_for(q) {
        Kernels::Plain => {}
        Kernels::Fast => return kernels::attention(q, &k, &v, step.mask.as_ref()),
        Kernels::Mine => {
            return day18_flash_attention::tiled_attention(q, &k, &v, step.mask.as_ref())
        }
    }
    let (new, all) = (q.dim(2)?, k.dim(2)?);
    let mask = match &step.mask {
        Some(mask) => Some(mask.clone()),
        None if new == 1 => None, // the newest token may see everything
        None => Some(day01_attention::causal_mask(new, all - new, q.device())?),
    };
    day04_attention_block::grouped_attention(q, &k, &v, mask.as_ref())
}
