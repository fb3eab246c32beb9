//! Wraps the kernels of the crate `candecode-kernels` as operations on candle's tensors. They run
//! on the CPU, and `operations.rs` decides when they are called.

use candecode::kit::device::on_cpu;
use candecode::kit::Pages;
use candecode_kernels::{AttentionShape, Heads, Mask, PagedRow, PagedShape};
use candecode_kernels::{WeightSlices, TILE_ROWS};
use candle_core::{bail, DType, Device, Layout, Result, Storage, StorageRef, Tensor, WithDType, D};

pub use candecode::kit::write_slots;
pub use candecode_kernels::{argmax, log_softmax};
pub use candecode_kernels::{bandwidth, bandwidth_of, bytes_read, peak_operations};
pub use candecode_kernels::{bytes_gathered, count_gathered};
pub use candecode_kernels::{peak_integer_operations, threads, QuantType, TiledWeights};

/// Describes the kernels on this machine, for `--stats`.
pub fn describe() -> String {
    let (lanes, threads) = (candecode_kernels::lanes(), threads());
    let set = candecode_kernels::instruction_set().name();
    format!("{lanes} numbers at a time, bytes with {set}, {threads} threads")
}

/// Sets the number of threads, unless the environment already does (at most four per core). Call it
/// first, while the program has a single thread, because it sets environment variables.
///
/// Without `RAYON_NUM_THREADS`, candle reads `/proc/cpuinfo` for every product, and a step takes
/// 1.4 times as long.
pub fn set_threads() {
    use candecode_kernels::{default_threads, threads_asked_for};
    let products = threads_asked_for("RAYON_NUM_THREADS").unwrap_or_else(default_threads);
    std::env::set_var("RAYON_NUM_THREADS", products.to_string());
    // candle's element-wise threads spin while they wait, and delay everything when a core is busy
    // with other work. That halves prefill speed; on an idle machine, they gain only a tenth.
    let elementwise = threads_asked_for("CANDLE_NUM_THREADS").unwrap_or(1);
    std::env::set_var("CANDLE_NUM_THREADS", elementwise.to_string());
}

/// Runs `program` on a thread of the pool, because a caller outside the pool would sleep and be
/// woken at every product. Meant for a command that computes on one thread. Other threads can call
/// the kernels at the same time, as long as the pool has more threads than programs running in it.
pub fn in_pool<T: Send>(program: impl FnOnce() -> T + Send) -> T {
    // The same stack size as a main thread. An error means that a pool already exists.
    let _ = rayon::ThreadPoolBuilder::new().stack_size(8 << 20).build_global();
    rayon::scope(|_| program())
}

/// Checks that `CANDECODE_SIMD`, if set, names an instruction set that this machine has.
///
/// # Errors
/// An error message, if the machine doesn't have it.
pub fn check_instruction_set() -> std::result::Result<(), String> {
    candecode_kernels::InstructionSet::asked_for().map(|_| ())
}

/// A tensor on the CPU, held while a kernel reads its numbers.
struct Held<'a>(StorageRef<'a>, &'a Layout);

impl<'a> Held<'a> {
    fn new(tensor: &'a Tensor) -> Self {
        let (storage, layout) = tensor.storage_and_layout();
        Self(storage, layout)
    }

    /// Returns the values in its storage, starting at the tensor's first one.
    fn slice_from_start<T: WithDType>(&self) -> Result<&[T]> {
        let Storage::Cpu(storage) = &*self.0 else { bail!("a kernel's tensor must be on the CPU") };
        Ok(&storage.as_slice::<T>()?[self.1.start_offset()..])
    }

    /// The numbers of a contiguous tensor.
    fn all<T: WithDType>(&self) -> Result<&[T]> {
        Ok(&self.slice_from_start()?[..self.1.shape().elem_count()])
    }

    /// Heads read where they are: the queries that a product computed, or the cache's keys and
    /// values.
    fn heads(&self) -> Result<Heads<'_>> {
        let [batch_stride, head_stride, position_stride, 1] = *self.1.stride() else {
            bail!("heads must be (B, H, T, D) with contiguous rows, not {:?}", self.1)
        };
        Ok(Heads { data: self.slice_from_start()?, batch_stride, head_stride, position_stride })
    }
}

/// Returns true for weights that [`linear`] can read.
pub fn can_read(w: &Tensor) -> bool {
    w.is_contiguous() && matches!(w.dtype(), DType::F32 | DType::BF16 | DType::F16)
}

/// Computes `x · wᵀ` for every `w` in the list: `x` is `(…, in)`, f32, and each `w` is `(out, in)`,
/// contiguous, all f32, bf16 or f16. The results are `(rows of x, out)`, parts of one allocation.
///
/// # Errors
/// If a weight has the wrong width or type.
pub fn linear(x: &Tensor, weights: &[&Tensor]) -> Result<Vec<Tensor>> {
    let inner = width(x)?;
    let dtype = weights.first().map(|w| w.dtype());
    for w in weights {
        if w.dim(1)? != inner || !can_read(w) || Some(w.dtype()) != dtype {
            let (w, of, x) = (w.shape(), w.dtype(), x.shape());
            bail!("linear: a weight {w:?} of {of:?} cannot be multiplied with {x:?}")
        }
    }
    let held: Vec<Held<'_>> = weights.iter().map(|w| Held::new(w)).collect();
    let weights = match dtype {
        Some(DType::F32) => WeightSlices::F32(slices(&held)?),
        Some(DType::BF16) => WeightSlices::Bf16(slices(&held)?),
        Some(DType::F16) => WeightSlices::F16(slices(&held)?),
        _ => bail!("linear: no weights"),
    };
    let outs: Vec<usize> = held.iter().map(|w| w.1.dims()[0]).collect();
    products(x, &outs, |x| candecode_kernels::linear(x, inner, &weights))
}

fn slices<'a, W: WithDType>(weights: &'a [Held<'_>]) -> Result<Vec<&'a [W]>> {
    weights.iter().map(Held::all).collect()
}

/// Computes `x · wᵀ` for every matrix in the list: `x` is `(…, in)`, f32, and each matrix is
/// `(out, in)`, in tiles. Activations are quantized to Q8_0. The results are `(rows of x, out)`,
/// parts of one allocation.
///
/// # Errors
/// If a matrix has the wrong width.
pub fn quantized_linear(x: &Tensor, weights: &[TiledWeights<'_>]) -> Result<Vec<Tensor>> {
    let inner = width(x)?;
    for w in weights {
        let tile = TILE_ROWS * inner / w.kind.block_size() * w.kind.bytes();
        if w.tiles.len() != w.out.div_ceil(TILE_ROWS) * tile {
            let (kind, out, shape) = (w.kind, w.out, x.shape());
            bail!("linear: {out} rows of {kind:?} cannot be multiplied with {shape:?}")
        }
    }
    let outs: Vec<usize> = weights.iter().map(|w| w.out).collect();
    products(x, &outs, |x| candecode_kernels::quantized_linear(x, inner, weights))
}

/// Returns the length of the rows of `x`.
fn width(x: &Tensor) -> Result<usize> {
    match x.dim(D::Minus1)? {
        0 => bail!("linear: x has shape {:?}, which has no elements", x.shape()),
        width => Ok(width),
    }
}

/// Returns the products of `x` with several matrices as tensors. `outs` is each matrix's number of
/// rows, and `compute` returns all products in one vector, one after another.
fn products(
    x: &Tensor,
    outs: &[usize],
    compute: impl FnOnce(&[f32]) -> Vec<f32>,
) -> Result<Vec<Tensor>> {
    let rows = x.elem_count() / x.dim(D::Minus1)?;
    let y = on_cpu(&[x], |x| {
        let y = compute(Held::new(&x[0].contiguous()?).all()?);
        let len = y.len();
        Tensor::from_vec(y, len, &Device::Cpu)
    })?;
    let (mut parts, mut start) = (Vec::with_capacity(outs.len()), 0);
    for out in outs {
        parts.push(y.narrow(0, start, rows * out)?.reshape((rows, *out))?);
        start += rows * out;
    }
    Ok(parts)
}

/// Computes RMSNorm: `x / √(mean(x²) + eps) · weight`. `x` is `(…, C)`, f32, and `weight` is `(C)`.
/// The result has the shape of `x`.
///
/// # Errors
/// If the widths differ.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let (shape, width) = (x.shape(), weight.dims1()?);
    if width == 0 || x.dims().last() != Some(&width) {
        bail!("rms_norm: x has shape {shape:?}, but the weight has {width} numbers")
    }
    let weight = weight.to_dtype(DType::F32)?.contiguous()?;
    on_cpu(&[x, &weight], |of| {
        let x = of[0].contiguous()?;
        let (x, weight) = (Held::new(&x), Held::new(of[1]));
        let out = candecode_kernels::rms_norm(x.all()?, weight.all()?, eps as f32);
        Tensor::from_vec(out, shape, &Device::Cpu)
    })
}

/// Computes `silu(gate) · up` elementwise. Both inputs and the result are `(…, C)`, f32.
///
/// # Errors
/// If the shapes differ.
pub fn silu_and_mul(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    let shape = gate.shape();
    if shape != up.shape() {
        bail!("silu_and_mul: the gate is {shape:?}, up is {:?}", up.shape())
    }
    let width = shape.dims().last().copied().unwrap_or(1);
    on_cpu(&[gate, up], |of| {
        let (gate, up) = (of[0].contiguous()?, of[1].contiguous()?);
        let (gate, up) = (Held::new(&gate), Held::new(&up));
        let out = candecode_kernels::silu_and_mul(gate.all()?, up.all()?, width);
        Tensor::from_vec(out, shape, &Device::Cpu)
    })
}

/// Computes RoPE: rotates every head of `x`, `(B, H, T, D)`, f32, by its token's angles. `cos` and
/// `sin` are `(B, T, D / 2)`, f32. The `D` values of a head must be contiguous, wherever they
/// begin. The result is `(B, H, T, D)`.
///
/// # Errors
/// If the shapes don't match.
pub fn rotate(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    let (batch, heads, tokens, width) = x.dims4()?;
    let angles = [batch, tokens, width / 2];
    if width % 2 == 1 || cos.dims() != angles || sin.dims() != angles {
        let (x, cos, sin) = (x.shape(), cos.shape(), sin.shape());
        bail!("rotate: x is {x:?}, cos is {cos:?}, sin is {sin:?}")
    }
    on_cpu(&[x, cos, sin], |of| {
        let (cos, sin) = (of[1].contiguous()?, of[2].contiguous()?);
        let (x, cos, sin) = (Held::new(of[0]), Held::new(&cos), Held::new(&sin));
        let dims = [batch, heads, tokens, width];
        let out = candecode_kernels::rotate(x.heads()?, dims, cos.all()?, sin.all()?);
        Tensor::from_vec(out, &dims, &Device::Cpu)
    })
}

/// Computes grouped softmax attention: `q` is `(B, H, T, D)`, `k` and `v` are `(B, Hkv, S, D)`. The
/// `D` values of a key or value must be contiguous, wherever they begin. The result is
/// `(B, H, T, D)`.
///
/// `mask` is `(B or 1, 1, T, S)`, u8, 1 = may attend. Without one, the `T` new tokens are the last
/// of the `S`, and each attends to all up to and including itself.
///
/// # Errors
/// If the shapes don't match.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
    let (batch, heads, new, width) = q.dims4()?;
    let (_, kv_heads, all, _) = k.dims4()?;
    let wanted = [batch, kv_heads, all, width];
    if k.dims() != wanted || v.dims() != wanted || all < new || width == 0 {
        bail!("attention: q is {:?}, k is {:?}, v is {:?}", q.dims(), k.dims(), v.dims())
    }
    if kv_heads == 0 || heads % kv_heads != 0 {
        bail!("{heads} query heads cannot share {kv_heads} key/value heads evenly")
    }
    let shape = AttentionShape { batch, heads, kv_heads, new, all, width };
    let on_the_cpu = match mask {
        Some(mask) => Some(mask.to_device(&Device::Cpu)?.contiguous()?),
        None => None,
    };
    let held = on_the_cpu.as_ref().map(Held::new);
    let mask = match &held {
        Some(held) => Some(read_mask(held, &shape)?),
        None => None,
    };
    on_cpu(&[q, k, v], |of| {
        let q = of[0].contiguous()?;
        let (q, k, v) = (Held::new(&q), Held::new(of[1]), Held::new(of[2]));
        let out = candecode_kernels::attention(shape, q.all()?, k.heads()?, v.heads()?, mask);
        Tensor::from_vec(out, (batch, heads, new, width), &Device::Cpu)
    })
}

/// Computes grouped softmax attention over a paged cache, whose blocks are read where they are.
/// `q` is `(1, H, N, D)`: the N new tokens of all sequences, one sequence after another. `k` and
/// `v` are `(blocks, Hkv, block size, D)`, the whole pools. Each token attends to its own sequence,
/// up to and including itself. The result is `(1, H, N, D)`.
///
/// Every token's result is bit-identical to what [`attention`] computes from a cache without
/// blocks.
///
/// # Errors
/// Same as [`check_pages`], or if the D numbers of a position aren't contiguous.
pub fn paged_attention(q: &Tensor, k: &Tensor, v: &Tensor, pages: &Pages) -> Result<Tensor> {
    check_pages(q, k, v, pages)?;
    let (_, heads, tokens, width) = q.dims4()?;
    let shape = PagedShape { heads, kv_heads: k.dim(1)?, width, block_size: pages.block_size };
    let mut rows = Vec::new();
    for of in &pages.sequences {
        rows.push(PagedRow { block_table: &of.block_table, all: of.len, new: of.new });
    }
    if tokens == 0 {
        return q.contiguous();
    }
    on_cpu(&[q, k, v], |of| {
        let q = of[0].contiguous()?;
        let (q, k, v) = (Held::new(&q), Held::new(of[1]), Held::new(of[2]));
        let out =
            candecode_kernels::paged_attention(shape, q.all()?, k.heads()?, v.heads()?, &rows);
        Tensor::from_vec(out, (1, heads, tokens, width), &Device::Cpu)
    })
}

/// Checks that queries `(1, H, N, D)` can attend to pools of blocks `(blocks, Hkv, block size, D)`.
///
/// # Errors
/// If the shapes don't match, a sequence has more new tokens than positions, its block table is too
/// short, or a block is not in the pool.
pub fn check_pages(q: &Tensor, k: &Tensor, v: &Tensor, pages: &Pages) -> Result<()> {
    let (_, heads, _, width) = q.dims4()?;
    let (blocks, kv_heads, block_size, _) = k.dims4()?;
    let wanted = [blocks, kv_heads, pages.block_size, width];
    if k.dims() != wanted || v.dims() != wanted {
        let (q, k, v, size) = (q.dims(), k.dims(), v.dims(), pages.block_size);
        bail!("paged attention: q is {q:?}, k is {k:?}, v is {v:?}, in blocks of {size}")
    }
    if block_size == 0 || width == 0 {
        bail!("paged attention: blocks of {block_size} positions of {width} numbers hold nothing")
    }
    if kv_heads == 0 || heads % kv_heads != 0 {
        bail!("{heads} query heads cannot share {kv_heads} key/value heads evenly")
    }
    for (i, of) in pages.sequences.iter().enumerate() {
        if of.new > of.len {
            bail!("paged attention: sequence {i} has {} new tokens of {}", of.new, of.len)
        }
        let needed = of.len.div_ceil(block_size);
        let Some(table) = of.block_table.get(..needed) else {
            bail!(
                "paged attention: sequence {i} holds {} positions, which need {needed} blocks of \
                 {block_size}; its block table has {}",
                of.len,
                of.block_table.len()
            )
        };
        if let Some(block) = table.iter().find(|block| **block as usize >= blocks) {
            bail!("paged attention: block {block} of sequence {i} is past the pool of {blocks}")
        }
    }
    let tokens = pages.num_new();
    if q.dims() != [1, heads, tokens, width] {
        bail!("paged attention: q is {:?}, for {tokens} new tokens", q.dims())
    }
    Ok(())
}

fn read_mask<'a>(mask: &'a Held<'_>, shape: &AttentionShape) -> Result<Mask<'a>> {
    let (batch, new, all) = (shape.batch, shape.new, shape.all);
    match *mask.1.dims() {
        [1, 1, t, s] if (t, s) == (new, all) => Ok(Mask { data: mask.all()?, batch_stride: 0 }),
        [rows, 1, t, s] if (rows, t, s) == (batch, new, all) => {
            Ok(Mask { data: mask.all()?, batch_stride: new * all })
        }
        ref dims => bail!("attention: the mask is {dims:?}, not ({batch} or 1, 1, {new}, {all})"),
    }
}
