//! The kernels of the crate `candecode-kernels`, as operations on candle's tensors, and the switch
//! between them and plain tensor code. They are for the CPU: every other device takes the plain
//! path.

use candecode_kernels::{AttentionShape, Heads, Mask, Weights};
use candle_core::{
    bail, CpuStorage, CustomOp1, CustomOp3, DType, Layout, Result, Shape, Storage, Tensor,
    WithDType, D,
};
use half::{bf16, f16};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};

pub use candecode_kernels::{bandwidth, bandwidth_of, bytes_read, peak_operations};

/// What multiplies and attends on the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Kernels {
    /// Tensor operations of candle: `matmul` for products, and the attention of days 1 and 4,
    /// operation for operation.
    Plain,
    /// Kernels that read each weight once, and the cache as it lies.
    Fast,
}

impl std::fmt::Display for Kernels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Fast => "fast",
        })
    }
}

impl Default for Kernels {
    /// Fast where the code that it replaces, of days 1 and 4, is the reference's: your own code is
    /// what you see running.
    fn default() -> Self {
        if cfg!(feature = "ref-day01") && cfg!(feature = "ref-day04") {
            Self::Fast
        } else {
            Self::Plain
        }
    }
}

static FAST: AtomicBool = AtomicBool::new(false);

/// Sets which kernels run from now on, in the whole process. Until then it is the plain ones.
pub fn choose(kernels: Kernels) {
    FAST.store(kernels == Kernels::Fast, Ordering::Relaxed);
}

/// Which kernels run.
pub fn chosen() -> Kernels {
    if cfg!(target_arch = "wasm32") {
        Kernels::Plain // the page carries no kernels: a model that is small enough for it needs none
    } else if FAST.load(Ordering::Relaxed) {
        Kernels::Fast
    } else {
        Kernels::Plain
    }
}

/// What `--stats` says of the kernels.
pub fn in_use(cpu: bool) -> String {
    match chosen() {
        Kernels::Fast if cpu => {
            let (lanes, threads) = (candecode_kernels::lanes(), candecode_kernels::threads());
            format!("fast ({lanes} numbers at a time, {threads} threads)")
        }
        Kernels::Fast => "plain (the fast ones are for the CPU)".to_string(),
        Kernels::Plain => "plain".to_string(),
    }
}

/// Sets the number of threads, unless the reader did, and makes the pool of threads: the caller is
/// one of them. A program calls it first of all, while it has one thread: it sets variables of the
/// environment.
///
/// Without `RAYON_NUM_THREADS` candle reads `/proc/cpuinfo` at every product, and a step takes 1.4
/// times as long.
pub fn set_threads() {
    let given = std::env::var("RAYON_NUM_THREADS").ok().and_then(|n| n.parse::<usize>().ok());
    if given.unwrap_or(0) == 0 {
        std::env::set_var("RAYON_NUM_THREADS", candecode_kernels::default_threads().to_string());
    }
    // candle's threads for element-wise work wait in a loop, and hold up everything when a core is
    // taken: they cost a prompt half of its speed then, and save it a tenth on an idle machine.
    if std::env::var_os("CANDLE_NUM_THREADS").is_none() {
        std::env::set_var("CANDLE_NUM_THREADS", "1");
    }
    // A caller outside the pool would sleep, and be woken, at every product. An error means that a
    // pool exists already.
    let _ = rayon::ThreadPoolBuilder::new().use_current_thread().build_global();
}

/// True if the kernels are chosen and can take these activations: f32, on the CPU.
pub(crate) fn chosen_for(x: &Tensor) -> bool {
    chosen() == Kernels::Fast && x.device().is_cpu() && x.dtype() == DType::F32
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
    let y = x.contiguous()?.apply_op1_no_bwd(&Linear(weights))?;
    let rows = x.elem_count() / x.dim(D::Minus1)?.max(1);
    let (mut parts, mut start) = (Vec::with_capacity(weights.len()), 0);
    for w in weights {
        let out = w.dim(0)?;
        parts.push(y.narrow(0, start, rows * out)?.reshape((rows, out))?);
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
            Some(DType::F32) => Weights::F32(slices::<f32>(&locked)?),
            Some(DType::BF16) => Weights::Bf16(slices::<bf16>(&locked)?),
            Some(DType::F16) => Weights::F16(slices::<f16>(&locked)?),
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

/// Softmax attention in groups: `q` is `(B, H, T, D)`, `k` and `v` are `(B, Hkv, S, D)`. The `D`
/// numbers of a key or value lie together, wherever they begin. The result is `(B, H, T, D)`.
///
/// `mask` is `(B or 1, 1, T, S)`, u8, 1 = may attend. Without one the `T` new tokens are the last
/// of the `S`, and each sees all up to itself.
///
/// # Errors
/// If the shapes do not fit.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
    let mask = mask.map(Tensor::contiguous).transpose()?;
    q.contiguous()?.apply_op3_no_bwd(k, v, &Attention(mask))
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
            cached_heads(k, k_layout)?,
            cached_heads(v, v_layout)?,
            mask,
        );
        Ok((CpuStorage::F32(out), q_layout.shape().clone()))
    }
}

/// Keys or values where the cache holds them.
fn cached_heads<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<Heads<'a>> {
    let [batch_stride, head_stride, position_stride, 1] = *layout.stride() else {
        bail!("attention: keys and values must be (B, Hkv, S, D) with whole rows, not {layout:?}")
    };
    Ok(Heads { data: from_start(storage, layout)?, batch_stride, head_stride, position_stride })
}
