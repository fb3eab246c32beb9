//! The kernels of the crate `candecode-kernels`, as operations on candle's tensors. They are for the CPU;
//! who calls them is decided in `engine/operations.rs`.

use crate::kit::device::on_cpu;
use candecode_kernels::{AttentionShape, Heads, Mask, WeightSlices, TILE_ROWS};
use candle_core::{
    bail, CpuStorage, CustomOp1, CustomOp2, CustomOp3, DType, Device, Layout, Result, Shape,
    Storage, Tensor, WithDType, D,
};
use half::{bf16, f16};
use std::ops::Deref;

pub use candecode_kernels::{argmax, log_softmax};
pub use candecode_kernels::{bandwidth, bandwidth_of, bytes_read, peak_operations};
pub use candecode_kernels::{peak_integer_operations, threads, BlockType, TiledWeights};

/// What the kernels are made of on this machine, for `--stats`.
pub fn describe() -> String {
    let (lanes, threads) = (candecode_kernels::lanes(), threads());
    let set = candecode_kernels::instruction_set().name();
    format!("{lanes} numbers at a time, bytes with {set}, {threads} threads")
}

/// Sets the number of threads, unless the reader did (at most four a core). A program calls it first of
/// all, while it has one thread, because it sets variables of the environment.
///
/// Without `RAYON_NUM_THREADS` candle reads `/proc/cpuinfo` at every product, and a step takes 1.4
/// times as long.
pub fn set_threads() {
    use candecode_kernels::{default_threads, threads_asked_for};
    let products = threads_asked_for("RAYON_NUM_THREADS").unwrap_or_else(default_threads);
    std::env::set_var("RAYON_NUM_THREADS", products.to_string());
    // candle's threads for element-wise work wait in a loop, and hold up everything when a core is
    // taken: they cost a prompt half of its speed then, and save it a tenth on an idle machine.
    let elementwise = threads_asked_for("CANDLE_NUM_THREADS").unwrap_or(1);
    std::env::set_var("CANDLE_NUM_THREADS", elementwise.to_string());
}

/// Runs `program` on a thread of the pool: a caller outside of it would sleep, and be woken, at every
/// product. It is for a command, which computes on one thread. Other threads may call the kernels at the
/// same time, as long as the pool has more threads than programs that run in it.
pub fn in_pool<T: Send>(program: impl FnOnce() -> T + Send) -> T {
    // As much stack as a main thread has. An error means that a pool exists already.
    let _ = rayon::ThreadPoolBuilder::new().stack_size(8 << 20).build_global();
    rayon::scope(|_| program())
}

/// True for the weights that [`linear`] can read.
pub fn can_read(w: &Tensor) -> bool {
    w.is_contiguous() && matches!(w.dtype(), DType::F32 | DType::BF16 | DType::F16)
}

/// `x · wᵀ` for every `w` of the list: `x` is `(…, in)` of f32, and each `w` is `(out, in)`,
/// contiguous, all of f32, bf16 or f16. The results are `(rows of x, out)`, parts of one
/// allocation.
///
/// # Errors
/// If a weight is of another width or type.
pub fn linear(x: &Tensor, weights: &[&Tensor]) -> Result<Vec<Tensor>> {
    let y = on_cpu(&[x], |x| x[0].contiguous()?.apply_op1_no_bwd(&Linear(weights)))?;
    let outs = weights.iter().map(|w| w.dim(0)).collect::<Result<Vec<_>>>()?;
    parts(&y, x, &outs)
}

/// Sees that `CANDECODE_SIMD`, if it is set, names an instruction set of this machine.
///
/// # Errors
/// If it does not: in words.
pub fn check_instruction_set() -> std::result::Result<(), String> {
    candecode_kernels::InstructionSet::asked_for().map(|_| ())
}

/// `x · wᵀ` for every matrix of the list: `x` is `(…, in)` of f32, and each matrix is `(out, in)`, in
/// tiles. Activations are quantised to Q8_0. The results are `(rows of x, out)`, parts of one
/// allocation.
///
/// # Errors
/// If a matrix is of another width.
pub fn quantized_linear(x: &Tensor, weights: &[TiledWeights<'_>]) -> Result<Vec<Tensor>> {
    let y = on_cpu(&[x], |x| x[0].contiguous()?.apply_op1_no_bwd(&QuantizedLinear(weights)))?;
    let outs: Vec<usize> = weights.iter().map(|w| w.out).collect();
    parts(&y, x, &outs)
}

struct QuantizedLinear<'a>(&'a [TiledWeights<'a>]);

impl CustomOp1 for QuantizedLinear<'_> {
    fn name(&self) -> &'static str {
        "candecode-quantized-linear"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let inner = layout.dims().last().copied().unwrap_or(0);
        let x = &from_start::<f32>(storage, layout)?[..layout.shape().elem_count()];
        for w in self.0 {
            let tile = TILE_ROWS * inner / w.kind.block_size() * w.kind.bytes();
            if inner == 0 || w.tiles.len() != w.out.div_ceil(TILE_ROWS) * tile {
                let (kind, out, shape) = (w.kind, w.out, layout.shape());
                bail!("linear: {out} rows of {kind:?} cannot be multiplied with {shape:?}")
            }
        }
        let y = candecode_kernels::quantized_linear(x, inner, self.0);
        let len = y.len();
        Ok((CpuStorage::F32(y), Shape::from(len)))
    }
}

/// The products of `x` with matrices of so many rows, which lie one behind the other.
fn parts(y: &Tensor, x: &Tensor, outs: &[usize]) -> Result<Vec<Tensor>> {
    let rows = x.elem_count() / x.dim(D::Minus1)?.max(1);
    let (mut parts, mut start) = (Vec::with_capacity(outs.len()), 0);
    for out in outs {
        parts.push(y.narrow(0, start, rows * out)?.reshape((rows, *out))?);
        start += rows * out;
    }
    Ok(parts)
}

struct Linear<'a>(&'a [&'a Tensor]);

impl CustomOp1 for Linear<'_> {
    fn name(&self) -> &'static str {
        "candecode-linear"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let inner = layout.dims().last().copied().unwrap_or(0);
        if inner == 0 {
            bail!("linear: x is {:?}, which has no numbers", layout.shape())
        }
        let x = &from_start::<f32>(storage, layout)?[..layout.shape().elem_count()];
        for w in self.0 {
            if w.dim(1)? != inner || !can_read(w) || w.dtype() != self.0[0].dtype() {
                bail!(
                    "linear: a weight {:?} of {:?} cannot be multiplied with {:?}",
                    w.shape(),
                    w.dtype(),
                    layout.shape()
                )
            }
        }
        let locked: Vec<_> = self.0.iter().map(|w| w.storage_and_layout()).collect();
        let weights = match self.0.first().map(|w| w.dtype()) {
            Some(DType::F32) => WeightSlices::F32(slices::<f32>(&locked)?),
            Some(DType::BF16) => WeightSlices::Bf16(slices::<bf16>(&locked)?),
            Some(DType::F16) => WeightSlices::F16(slices::<f16>(&locked)?),
            _ => bail!("linear: no weights"),
        };
        let y = candecode_kernels::linear(x, inner, &weights);
        let len = y.len();
        Ok((CpuStorage::F32(y), Shape::from(len)))
    }
}

/// The numbers of contiguous tensors.
fn slices<'a, W: WithDType>(
    tensors: &'a [(impl Deref<Target = Storage>, &Layout)],
) -> Result<Vec<&'a [W]>> {
    let mut slices = vec![];
    for (storage, layout) in tensors {
        let Storage::Cpu(storage) = &**storage else { bail!("linear: a weight is not on the CPU") };
        slices.push(&from_start(storage, layout)?[..layout.shape().elem_count()]);
    }
    Ok(slices)
}

/// The numbers of a tensor's storage, from the tensor's first one on.
fn from_start<'a, T: WithDType>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [T]> {
    Ok(&storage.as_slice::<T>()?[layout.start_offset()..])
}

/// RMSNorm: `x / √(mean(x²) + eps) · weight`. `x` is `(…, C)`, f32, `weight` is `(C)`; the result has
/// the shape of `x`.
///
/// # Errors
/// If the widths differ.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let weight = weight.to_dtype(DType::F32)?.contiguous()?;
    on_cpu(&[x, &weight], |of| of[0].contiguous()?.apply_op2_no_bwd(of[1], &RmsNorm { eps }))
}

struct RmsNorm {
    eps: f64,
}

impl CustomOp2 for RmsNorm {
    fn name(&self) -> &'static str {
        "candecode-rms-norm"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let shape = x_layout.shape();
        let width = weight_layout.shape().dims1()?;
        if width == 0 || shape.dims().last() != Some(&width) {
            bail!("rms_norm: x is {shape:?}, the weight has {width} numbers")
        }
        let x = &from_start::<f32>(x, x_layout)?[..shape.elem_count()];
        let weight = &from_start::<f32>(weight, weight_layout)?[..width];
        let out = candecode_kernels::rms_norm(x, weight, self.eps as f32);
        Ok((CpuStorage::F32(out), shape.clone()))
    }
}

/// `silu(gate) · up`, number by number: both, and the result, are `(…, C)`, f32.
///
/// # Errors
/// If the shapes differ.
pub fn silu_and_mul(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    on_cpu(&[gate, up], |of| {
        of[0].contiguous()?.apply_op2_no_bwd(&of[1].contiguous()?, &SiluAndMul)
    })
}

struct SiluAndMul;

impl CustomOp2 for SiluAndMul {
    fn name(&self) -> &'static str {
        "candecode-silu-and-mul"
    }

    fn cpu_fwd(
        &self,
        gate: &CpuStorage,
        gate_layout: &Layout,
        up: &CpuStorage,
        up_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let shape = gate_layout.shape();
        if shape != up_layout.shape() {
            bail!("silu_and_mul: the gate is {shape:?}, up is {:?}", up_layout.shape())
        }
        let width = shape.dims().last().copied().unwrap_or(1);
        let gate = &from_start::<f32>(gate, gate_layout)?[..shape.elem_count()];
        let up = &from_start::<f32>(up, up_layout)?[..shape.elem_count()];
        Ok((CpuStorage::F32(candecode_kernels::silu_and_mul(gate, up, width)), shape.clone()))
    }
}

/// RoPE: every head of `x`, `(B, H, T, D)`, f32, turned by the angles of its token; `cos` and `sin`
/// are `(B, T, D / 2)`, f32. The `D` numbers of a head lie together, wherever they begin. The result
/// is `(B, H, T, D)`.
///
/// # Errors
/// If the shapes do not fit.
pub fn rotate(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    on_cpu(&[x, cos, sin], |of| {
        of[0].apply_op3_no_bwd(&of[1].contiguous()?, &of[2].contiguous()?, &Rotate)
    })
}

struct Rotate;

impl CustomOp3 for Rotate {
    fn name(&self) -> &'static str {
        "candecode-rotate"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        cos: &CpuStorage,
        cos_layout: &Layout,
        sin: &CpuStorage,
        sin_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (batch, heads, tokens, width) = x_layout.shape().dims4()?;
        let angles = [batch, tokens, width / 2];
        if width % 2 == 1 || cos_layout.dims() != angles || sin_layout.dims() != angles {
            let (x, cos, sin) = (x_layout.shape(), cos_layout.shape(), sin_layout.shape());
            bail!("rotate: x is {x:?}, cos is {cos:?}, sin is {sin:?}")
        }
        let out = candecode_kernels::rotate(
            whole_heads(x, x_layout)?,
            [batch, heads, tokens, width],
            from_start(cos, cos_layout)?,
            from_start(sin, sin_layout)?,
        );
        Ok((CpuStorage::F32(out), x_layout.shape().clone()))
    }
}

/// Softmax attention in groups: `q` is `(B, H, T, D)`, `k` and `v` are `(B, Hkv, S, D)`. The `D`
/// numbers of a key or value lie together, wherever they begin. The result is `(B, H, T, D)`.
///
/// `mask` is `(B or 1, 1, T, S)`, u8, 1 = may attend. Without one the `T` new tokens are the last
/// of the `S`, and each sees all up to itself.
///
/// # Errors
/// If the shapes do not fit.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
    let mask = mask.map(|mask| mask.to_device(&Device::Cpu)?.contiguous()).transpose()?;
    on_cpu(&[q, k, v], |of| of[0].contiguous()?.apply_op3_no_bwd(of[1], of[2], &Attention(mask)))
}

struct Attention(Option<Tensor>);

impl CustomOp3 for Attention {
    fn name(&self) -> &'static str {
        "candecode-attention"
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        q_layout: &Layout,
        k: &CpuStorage,
        k_layout: &Layout,
        v: &CpuStorage,
        v_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (batch, heads, new, width) = q_layout.shape().dims4()?;
        let (_, kv_heads, all, _) = k_layout.shape().dims4()?;
        let wanted = [batch, kv_heads, all, width];
        if k_layout.dims() != wanted || v_layout.dims() != wanted || all < new || width == 0 {
            bail!(
                "attention: q is {:?}, k is {:?}, v is {:?}",
                q_layout.dims(),
                k_layout.dims(),
                v_layout.dims()
            )
        }
        if kv_heads == 0 || heads % kv_heads != 0 {
            bail!("{heads} query heads cannot share {kv_heads} key/value heads evenly")
        }
        let locked = self.0.as_ref().map(Tensor::storage_and_layout);
        let mask = match &locked {
            None => None,
            Some((storage, layout)) => {
                let rows = layout.dims()[0];
                if (rows != 1 && rows != batch) || layout.dims()[1..] != [1, new, all] {
                    bail!(
                        "attention: the mask is {:?}, not ({batch} or 1, 1, {new}, {all})",
                        layout.dims()
                    )
                }
                let Storage::Cpu(storage) = &**storage else {
                    bail!("attention: the mask is not on the CPU")
                };
                let batch_stride = if rows == 1 { 0 } else { new * all };
                Some(Mask { data: from_start(storage, layout)?, batch_stride })
            }
        };
        let shape = AttentionShape { batch, heads, kv_heads, new, all, width };
        let out = candecode_kernels::attention(
            shape,
            from_start(q, q_layout)?,
            whole_heads(k, k_layout)?,
            whole_heads(v, v_layout)?,
            mask,
        );
        Ok((CpuStorage::F32(out), q_layout.shape().clone()))
    }
}

/// Heads where they lie: queries of a product, or keys and values of the cache.
fn whole_heads<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<Heads<'a>> {
    let [batch_stride, head_stride, position_stride, 1] = *layout.stride() else {
        bail!("heads must be (B, H, T, D) with whole rows, not {layout:?}")
    };
    Ok(Heads { data: from_start(storage, layout)?, batch_stride, head_stride, position_stride })
}
