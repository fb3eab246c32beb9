//! Every implementation of [`Ops`], and the choice among them. This is where a model gets either
//! the days' code or the kernels.
//!
//! [`choose`] is called once, when a model is opened. Only `Yours::now` checks which days the
//! reader has written. By default, no kernel replaces those days, so the reader's code runs.

use crate::kernels::{self, TiledWeights};
use candecode::day01_attention::causal_mask;
use candecode::day03_norms_and_mlps as day03;
use candecode::day04_attention_block::grouped_attention;
use candecode::day07_greedy as day07;
use candecode::day21_pages;
use candecode::kit::ops::{Ops, SharedOps};
use candecode::kit::panics::or_unwritten;
use candecode::kit::{Pages, QuantType, QuantizedMatrix, Sampler, View, Weight};
use candecode::DAYS;
use candecode::{day00_warm_up, day02_positions};
use candecode::{day17_kernel, day18_flash_attention, day19_quantized_weights as day19};
use candle_core::{bail, DType, Device, Result, Tensor};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;
use std::sync::Arc;

/// The implementations of [`Ops`] by name: the values of `--kernels`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Kernels {
    /// The days' own code, operation by operation, with candle's `matmul` for products.
    Plain,
    /// candle-nn's fused operations. They run on every device, and are the default on Metal and
    /// CUDA.
    Candle,
    /// This repository's CPU kernels, the default on the CPU. They read each weight once, and the
    /// cache without copying it.
    Fast,
    /// Day 17's kernel for products with f32 and bf16 weights, day 19's `dot_row` for quantized
    /// ones, and day 18's attention. Everything else uses plain code.
    Mine,
}

impl std::fmt::Display for Kernels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Candle => "candle",
            Self::Fast => "fast",
            Self::Mine => "mine",
        })
    }
}

/// The days whose code a kernel could replace: true where the reader has written that day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Yours {
    /// Day 2 or 3: RoPE, norms, SiLU.
    layers: bool,
    /// Day 1 or 4: attention.
    attention: bool,
    /// Day 7: `log_softmax` and `argmax`.
    choice: bool,
    /// Day 21: attention over pages.
    pages: bool,
}

impl Yours {
    /// Determines these flags from the features that the crate was compiled with.
    fn now() -> Self {
        let yours = |days: &[usize]| days.iter().any(|day| !DAYS[*day].reference);
        Self {
            layers: yours(&[2, 3]),
            attention: yours(&[1, 4]),
            choice: yours(&[7]),
            pages: yours(&[21]),
        }
    }
}

/// Returns the operations for a model on `device`: the ones named, or else the device's default.
///
/// By default a kernel replaces only the reference's code; any day you wrote runs your code. Naming
/// kernels explicitly makes them do products and attention even if you wrote days 1 and 4. Norms,
/// SiLU, RoPE and token selection stay yours whenever days 2, 3 and 7 are.
pub fn choose(named: Option<Kernels>, device: &Device) -> SharedOps {
    if cfg!(target_arch = "wasm32") {
        return plain(); // the web build has no kernels: its models are small enough without them
    }
    let mut yours = Yours::now();
    yours.attention &= named.is_none(); // naming kernels includes their attention
    yours.pages &= named.is_none();
    let default = if device.is_cpu() { Kernels::Fast } else { Kernels::Candle };
    match named.unwrap_or(default) {
        Kernels::Plain => plain(),
        Kernels::Candle => Arc::new(CandleNn { yours }),
        Kernels::Fast => Arc::new(Fast { yours }),
        Kernels::Mine => Arc::new(Mine),
    }
}

/// Returns the days' own code and nothing else. The checks compare against it.
pub fn plain() -> SharedOps {
    Arc::new(Plain)
}

/// Returns the greedy sampler: day 7's `argmax`, or the kernel that replaces it.
pub fn greedy(ops: &SharedOps) -> Sampler<'static> {
    if ops.chooses_fast() {
        Box::new(|logits| match kernels::argmax(logits) {
            Some(best) => Ok(best as u32),
            None => day07::argmax(logits), // a bad row: day 7 returns the error
        })
    } else {
        Box::new(day07::argmax)
    }
}

/// The days' own code on candle's tensors.
#[derive(Debug, Clone, Copy)]
struct Plain;

impl Ops for Plain {
    fn rest(&self) -> &dyn Ops {
        self
    }

    fn linear(&self, x: &Tensor, weights: &[&Weight]) -> Result<Vec<Tensor>> {
        let one = |w: &&Weight| {
            let shape = product_shape(x, w)?;
            let y = match w.quantized() {
                Some(matrix) => quantized_linear(x, matrix)?,
                None => matmul(x, &w.tensor()?)?,
            };
            y.reshape(shape)
        };
        weights.iter().map(one).collect()
    }

    fn embed(&self, ids: &Tensor, table: &Weight) -> Result<Tensor> {
        let Some(matrix) = table.quantized() else {
            return day00_warm_up::embed(&table.tensor()?, ids);
        };
        let (b, t) = ids.dims2()?;
        let all: Vec<u32> = ids.flatten_all()?.to_vec1()?;
        let rows = matrix.widened_rows(all.into_iter().map(|id| id as usize))?;
        rows.reshape((b, t, ()))?.to_device(ids.device())
    }

    fn attend(&self, q: &Tensor, kv: &View, mask: Option<&Tensor>) -> Result<Tensor> {
        if let Some(pages) = &kv.pages {
            return if takes(q) && mask.is_none() {
                day21_pages::attend_pages(q, kv, pages)
            } else {
                attend_gathered(self, q, kv, pages, mask)
            };
        }
        let mask = mask_of(q, kv, mask)?;
        if q.device().is_metal() {
            return grouped_attention(q, &row_major(&kv.k)?, &row_major(&kv.v)?, mask.as_ref());
        }
        grouped_attention(q, &kv.k, &kv.v, mask.as_ref())
    }

    fn rms_norm(&self, x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
        in_parts([x], |[x]| day03::rms_norm(x, weight, eps))
    }

    fn layer_norm(&self, x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
        day03::layer_norm(x, weight, bias, eps)
    }

    fn rotate(&self, x: &Tensor, (cos, sin): &(Tensor, Tensor)) -> Result<Tensor> {
        in_parts([x], |[x]| day02_positions::rotate(x, cos, sin))
    }

    fn silu_and_mul(&self, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
        in_parts([gate, up], |[gate, up]| day03::silu(gate)? * up)
    }

    fn describe(&self, _cpu: bool) -> String {
        "plain".to_string()
    }
}

/// candle-nn's fused operations. On a GPU, a fused norm, RoPE or softmax is one command instead of
/// half a dozen or more.
#[derive(Debug, Clone, Copy)]
struct CandleNn {
    yours: Yours,
}

impl Ops for CandleNn {
    fn rest(&self) -> &dyn Ops {
        &Plain
    }

    /// Groups the heads like day 4: queries that share a key head are stacked as extra rows of one
    /// product. candle-nn's own `sdpa` isn't used, because it exists only for Metal, ignores the
    /// mask of a single query, and hasn't been tested on a Mac.
    fn attend(&self, q: &Tensor, kv: &View, mask: Option<&Tensor>) -> Result<Tensor> {
        if self.yours.attention {
            return Plain.attend(q, kv, mask);
        }
        if let Some(pages) = &kv.pages {
            return attend_gathered(self, q, kv, pages, mask);
        }
        let (b, heads, new, width) = q.dims4()?;
        let (_, kv_heads, all, _) = kv.k.dims4()?;
        if kv_heads == 0 || heads % kv_heads != 0 {
            bail!("{heads} query heads cannot share {kv_heads} key/value heads evenly")
        }
        let group = heads / kv_heads;
        let scaled = (q * (1.0 / (width as f64).sqrt()))?;
        let scaled = scaled.reshape((b, kv_heads, group * new, width))?;
        let mut scores = scaled.matmul(&row_major(&kv.k)?.t()?)?; // (B, Hkv, group * T, S)
        if let Some(mask) = mask_of(q, kv, mask)? {
            let zero = Tensor::zeros(mask.shape(), scores.dtype(), scores.device())?;
            let hidden = (&zero + f64::NEG_INFINITY)?;
            let added = mask.where_cond(&zero, &hidden)?.unsqueeze(1)?; // (B or 1, 1, 1, T, S)
            let by_head = scores.reshape((b, kv_heads, group, new, all))?;
            scores = by_head.broadcast_add(&added)?.reshape((b, kv_heads, group * new, all))?;
        }
        let weights = candle_nn::ops::softmax_last_dim(&scores)?;
        weights.matmul(&row_major(&kv.v)?)?.reshape((b, heads, new, width))
    }

    fn rms_norm(&self, x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
        if self.yours.layers {
            return Plain.rms_norm(x, weight, eps);
        }
        let weight = weight.to_dtype(x.dtype())?;
        candle_nn::ops::rms_norm(&x.contiguous()?, &weight, eps as f32)
    }

    fn layer_norm(&self, x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Tensor> {
        if self.yours.layers {
            return Plain.layer_norm(x, weight, bias, eps);
        }
        let (weight, bias) = (weight.to_dtype(x.dtype())?, bias.to_dtype(x.dtype())?);
        candle_nn::ops::layer_norm(&x.contiguous()?, &weight, &bias, eps as f32)
    }

    fn rotate(&self, x: &Tensor, (cos, sin): &(Tensor, Tensor)) -> Result<Tensor> {
        if self.yours.layers {
            return day02_positions::rotate(x, cos, sin);
        }
        let (cos, sin) = (cos.to_dtype(x.dtype())?, sin.to_dtype(x.dtype())?);
        candle_nn::rotary_emb::rope(&x.contiguous()?, &cos.contiguous()?, &sin.contiguous()?)
    }

    fn silu_and_mul(&self, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
        if self.yours.layers {
            return Plain.silu_and_mul(gate, up);
        }
        candle_nn::ops::silu(gate)? * up
    }

    fn describe(&self, _cpu: bool) -> String {
        "candle (candle-nn's fused operations)".to_string()
    }
}

/// Returns `x` in row-major order. `contiguous` accepts any stride for a dimension of size 1, and
/// candle's product on Metal takes the stride of the last batch dimension for that of the batch. So
/// with one key/value head and several rows, it would read the wrong rows.
fn row_major(x: &Tensor) -> Result<Tensor> {
    x.reshape(x.shape())
}

/// The kernels of this repository. They take f32 activations on the CPU; plain code handles the
/// rest.
#[derive(Debug, Clone, Copy)]
struct Fast {
    yours: Yours,
}

impl Fast {
    /// Returns true if the kernels compute norms, SiLU and RoPE of `x`.
    fn layers(&self, x: &Tensor) -> bool {
        !self.yours.layers && takes(x)
    }
}

impl Ops for Fast {
    fn rest(&self) -> &dyn Ops {
        &Plain
    }

    fn linear(&self, x: &Tensor, weights: &[&Weight]) -> Result<Vec<Tensor>> {
        if !takes(x) {
            return Plain.linear(x, weights);
        }
        let shapes = weights.iter().map(|w| product_shape(x, w)).collect::<Result<Vec<_>>>()?;
        let products = if weights.iter().all(|w| w.quantized().is_none()) {
            let tensors = weights.iter().map(|w| w.tensor()).collect::<Result<Vec<_>>>()?;
            let tensors: Vec<&Tensor> = tensors.iter().collect();
            let same = |t: &&Tensor| kernels::can_read(t) && t.dtype() == tensors[0].dtype();
            if tensors.iter().all(same) {
                Some(kernels::linear(x, &tensors)?)
            } else {
                None
            }
        } else {
            let tiles: Vec<_> = weights.iter().filter_map(|w| tiles_of(w.quantized()?)).collect();
            if tiles.len() == weights.len() {
                Some(kernels::quantized_linear(x, &tiles)?)
            } else {
                None
            }
        };
        match products {
            Some(all) => all.iter().zip(shapes).map(|(y, shape)| y.reshape(shape)).collect(),
            // different weight types: compute one product at a time
            None if weights.len() > 1 => {
                let each = weights.iter().map(|w| Ok(self.linear(x, &[*w])?.remove(0)));
                each.collect()
            }
            None => Plain.linear(x, weights),
        }
    }

    fn attend(&self, q: &Tensor, kv: &View, mask: Option<&Tensor>) -> Result<Tensor> {
        let yours = match kv.pages {
            Some(_) => self.yours.pages,
            None => self.yours.attention,
        };
        if yours || !takes(q) {
            return Plain.attend(q, kv, mask);
        }
        if let Some(pages) = &kv.pages {
            return in_one_line(q, mask, |q| kernels::paged_attention(q, &kv.k, &kv.v, pages));
        }
        kernels::attention(q, &kv.k, &kv.v, mask)
    }

    /// Norms over single heads (Qwen3) use plain code, because a head is too short to benefit from
    /// a kernel.
    fn rms_norm(&self, x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
        if !self.layers(x) || x.rank() > 3 {
            return Plain.rms_norm(x, weight, eps);
        }
        kernels::rms_norm(x, weight, eps)
    }

    fn rotate(&self, x: &Tensor, cos_sin: &(Tensor, Tensor)) -> Result<Tensor> {
        if !self.layers(x) {
            return Plain.rotate(x, cos_sin);
        }
        kernels::rotate(x, &cos_sin.0, &cos_sin.1)
    }

    fn silu_and_mul(&self, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
        if !self.layers(gate) {
            return Plain.silu_and_mul(gate, up);
        }
        kernels::silu_and_mul(gate, up)
    }

    fn reads_tiles(&self) -> bool {
        true
    }

    fn chooses_fast(&self) -> bool {
        !self.yours.choice
    }

    fn holds_scores(&self) -> bool {
        self.yours.attention
    }

    fn counts_bytes(&self) -> bool {
        !self.yours.attention
    }

    fn describe(&self, cpu: bool) -> String {
        if !cpu {
            return "plain (the fast kernels are for the CPU)".to_string();
        }
        let how = kernels::describe();
        if self.yours.attention {
            format!("fast for products ({how}), plain for attention")
        } else {
            format!("fast ({how})")
        }
    }
}

/// Day 17's products, day 19's for quantized weights, and day 18's attention. Plain code handles
/// everything else.
#[derive(Debug, Clone, Copy)]
struct Mine;

impl Ops for Mine {
    fn rest(&self) -> &dyn Ops {
        &Plain
    }

    fn linear(&self, x: &Tensor, weights: &[&Weight]) -> Result<Vec<Tensor>> {
        let on_metal = x.device().is_metal() && x.dtype() == DType::F32; // task 17.8
        let one = |w: &&Weight| match w.quantized() {
            None if takes(x) || on_metal => {
                let shape = product_shape(x, w)?;
                day17_kernel::linear(x, &w.tensor()?)?.reshape(shape)
            }
            Some(matrix) if takes(x) => {
                let shape = product_shape(x, w)?;
                quantized_on_vectors(x, matrix)?.reshape(shape)
            }
            _ => Ok(Plain.linear(x, &[*w])?.remove(0)),
        };
        weights.iter().map(one).collect()
    }

    fn attend(&self, q: &Tensor, kv: &View, mask: Option<&Tensor>) -> Result<Tensor> {
        if !takes(q) || kv.pages.is_some() {
            return Plain.attend(q, kv, mask);
        }
        day18_flash_attention::tiled_attention(q, &kv.k, &kv.v, mask)
    }

    fn holds_scores(&self) -> bool {
        false
    }

    fn describe(&self, cpu: bool) -> String {
        if !cpu {
            // Metal. On other devices, these kernels return an error.
            return "day 17's for products, plain for attention".to_string();
        }
        format!("from days 17 and 18 ({} threads)", kernels::threads())
    }
}

/// Runs a tiny product with day 17's kernel and tiny attention passes with day 18's, so that an
/// unfinished task is reported before anything is loaded or printed. Weights have type `dtype`.
///
/// # Errors
/// If a kernel returns an error, or a task isn't written yet.
pub fn try_mine(dtype: DType, device: &Device) -> Result<()> {
    or_unwritten(|| run_mine(dtype, device))
}

fn run_mine(dtype: DType, device: &Device) -> Result<()> {
    if device.is_metal() {
        let x = Tensor::ones((3, 70), DType::F32, device)?;
        day17_kernel::linear(&x, &Tensor::ones((5, 70), dtype, device)?)?;
        return Ok(());
    }
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

/// Returns true for activations that the CPU kernels accept: f32, on the CPU.
fn takes(activations: &Tensor) -> bool {
    activations.device().is_cpu() && activations.dtype() == DType::F32
}

/// Returns the shape of `x · wᵀ`: that of `x`, but with `out` as the last dimension.
fn product_shape(x: &Tensor, w: &Weight) -> Result<Vec<usize>> {
    let (out, inner) = w.shape();
    let mut shape = x.dims().to_vec();
    match shape.last_mut() {
        Some(last) if *last == inner => *last = out,
        _ => bail!("linear: x has shape {:?}, but its last dimension must be {inner}", x.shape()),
    }
    Ok(shape)
}

/// Computes `x · wᵀ` with candle's `matmul`: `(rows of x, out)`.
fn matmul(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    x.reshape(((), w.dim(1)?))?.matmul(&w.to_dtype(x.dtype())?.t()?)
}

/// Computes `x · wᵀ` for a quantized matrix with day 19's code: `(rows of x, out)`. On other
/// devices, and for other activation types, the matrix is dequantized first.
fn quantized_linear(x: &Tensor, matrix: &QuantizedMatrix) -> Result<Tensor> {
    if takes(x) {
        return day19::quantized_linear(&x.reshape(((), matrix.shape().1))?, matrix);
    }
    let widened = matrix.widened()?.to_device(x.device())?;
    matmul(x, &widened)
}

/// Some rows of a quantized matrix, and all rows of activations, for day 19's `dot_row`.
struct DotRows<'a> {
    matrix: &'a QuantizedMatrix,
    /// The first row of the matrix.
    first: usize,
    x: &'a [Vec<day19::BlockQ8_0>],
    /// The products, all of a row of the matrix one after another.
    y: &'a mut [f32],
}

impl WithSimd for DotRows<'_> {
    type Output = Result<()>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> Result<()> {
        for (row, products) in (self.first..).zip(self.y.chunks_exact_mut(self.x.len())) {
            let weights = self.matrix.row(row);
            for (x, product) in self.x.iter().zip(products) {
                *product = day19::dot_row(self.matrix.kind(), &weights, x)?;
            }
        }
        Ok(())
    }
}

/// Computes `x · wᵀ` for a quantized matrix with day 19's `dot_row`, in the way of day 17: compiled
/// for this CPU's vector instructions, with blocks of rows on all threads. The result is
/// `(rows of x, out)`.
fn quantized_on_vectors(x: &Tensor, matrix: &QuantizedMatrix) -> Result<Tensor> {
    let (out, inner) = matrix.shape();
    let rows = x.reshape(((), inner))?.to_vec2::<f32>()?;
    let rows: Vec<_> =
        rows.iter().map(|row| day19::quantize_activations(row)).collect::<Result<_>>()?;
    let mut by_row = vec![0.0; out * rows.len()];
    if !by_row.is_empty() {
        let size = day17_kernel::block_rows(out, inner, rows.len(), rayon::current_num_threads());
        let blocks = by_row.par_chunks_mut(size * rows.len()).enumerate();
        blocks.try_for_each(|(block, y)| {
            Arch::new().dispatch(DotRows { matrix, first: block * size, x: &rows, y })
        })?;
    }
    Tensor::from_vec(by_row, (out, rows.len()), x.device())?.t()
}

/// Returns a quantized matrix in the kernels' layout, or None if it wasn't loaded in tiles.
fn tiles_of(matrix: &QuantizedMatrix) -> Option<TiledWeights<'_>> {
    let kind = match matrix.kind() {
        QuantType::Q8_0 => kernels::QuantType::Q8_0,
        QuantType::Q4_0 => kernels::QuantType::Q4_0,
        QuantType::Q4_1 => kernels::QuantType::Q4_1,
    };
    Some(TiledWeights { kind, out: matrix.shape().0, tiles: matrix.tiles()? })
}

/// Returns the mask for plain attention: the given one, or day 1's causal mask. A single query
/// needs none, because the newest token may attend to everything.
fn mask_of(q: &Tensor, kv: &View, mask: Option<&Tensor>) -> Result<Option<Tensor>> {
    let (new, all) = (q.dim(2)?, kv.k.dim(2)?);
    match mask {
        Some(mask) => Ok(Some(mask.clone())),
        None if new == 1 => Ok(None),
        None => causal_mask(new, all - new, q.device()).map(Some),
    }
}

/// Computes attention of queries `(B, H, T, D)` over a paged cache. `attend` receives the
/// queries as `(1, H, B * T, D)`, with the rows one after another. The result is `(B, H, T, D)`.
///
/// # Errors
/// If there is a mask, which isn't supported with blocks, or `attend` fails.
fn in_one_line(
    q: &Tensor,
    mask: Option<&Tensor>,
    attend: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    if mask.is_some() {
        bail!("a paged cache takes no mask: each token attends to its own sequence")
    }
    let (rows, heads, new, width) = q.dims4()?;
    if rows == 1 {
        return attend(q);
    }
    let line = q.transpose(0, 1)?.contiguous()?.reshape((1, heads, rows * new, width))?;
    attend(&line)?.reshape((heads, rows, new, width))?.transpose(0, 1)?.contiguous()
}

/// Computes attention over a paged cache without a special kernel: copies each sequence's
/// keys and values out of the blocks, and attends to them with `ops`.
///
/// # Errors
/// Same as [`kernels::check_pages`], or if there is a mask.
fn attend_gathered(
    ops: &dyn Ops,
    q: &Tensor,
    kv: &View,
    pages: &Pages,
    mask: Option<&Tensor>,
) -> Result<Tensor> {
    in_one_line(q, mask, |q| {
        kernels::check_pages(q, &kv.k, &kv.v, pages)?;
        let (mut parts, mut first) = (vec![], 0);
        for of in pages.sequences.iter().filter(|of| of.new > 0) {
            let table = &of.block_table[..of.len.div_ceil(pages.block_size)];
            let table = Tensor::new(table, q.device())?;
            let gather = |pool: &Tensor| {
                let blocks = pool.index_select(&table, 0)?.transpose(0, 1)?.contiguous()?;
                kernels::count_gathered(blocks.elem_count() * blocks.dtype().size_in_bytes());
                let (heads, _, _, width) = blocks.dims4()?;
                blocks.reshape((1, heads, (), width))?.narrow(2, 0, of.len)
            };
            let own = View::new(gather(&kv.k)?, gather(&kv.v)?);
            let part = q.narrow(2, first, of.new)?.contiguous()?;
            parts.push(ops.attend(&part, &own, None)?);
            first += of.new;
        }
        match parts.len() {
            0 => Ok(q.clone()), // no tokens at all
            _ => Tensor::cat(&parts, 2),
        }
    })
}

/// Number of values in a part, small enough that the part and its intermediate results fit in the
/// L2 cache.
const PART: usize = 1 << 14;

/// Computes `f(x)` for an `f` that treats each index of dimension 1 (a token or a head)
/// independently. On the CPU, `f` receives a few indices at a time, so that threads share the work
/// and one operation's output is still in the processor's cache when the next one reads it. The
/// result is bit-identical.
fn in_parts<const N: usize>(
    x: [&Tensor; N],
    f: impl Fn([&Tensor; N]) -> Result<Tensor> + Sync,
) -> Result<Tensor> {
    let all = x[0].dims().get(1).copied().unwrap_or(0);
    let parts = all.min(x[0].elem_count() / PART);
    if parts < 2 || !x[0].device().is_cpu() || cfg!(target_arch = "wasm32") {
        return f(x);
    }
    let part = |i: usize| {
        let (start, end) = (all * i / parts, all * (i + 1) / parts);
        let x = x.iter().map(|x| x.narrow(1, start, end - start));
        let x = x.collect::<Result<Vec<_>>>()?;
        f(std::array::from_fn(|i| &x[i]))
    };
    let done = (0..parts).into_par_iter().map(part).collect::<Result<Vec<_>>>()?;
    Tensor::cat(&done, 1)
}
