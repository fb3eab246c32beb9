#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 17: a kernel. A product with a model's weights, by hand: several running sums, several
//! vectors for each row of weights that is read, 16-bit weights widened in registers, blocks of
//! rows over threads, and all of it as an operation on candle's tensors.
//!
//! Everything is safe Rust that the compiler turns into vector instructions. What is called inside
//! `Arch::dispatch` is `#[inline(always)]`, so that it is compiled for the processor that is found,
//! and not for the oldest one that the program may meet.

// The inner loops go by index. What an iterator does is a call, and a call that stays one is not
// compiled for the vectors of this processor.
#![allow(clippy::needless_range_loop)]

use candecode::kit::device::on_cpu;
#[cfg(feature = "metal")]
use candle_core::{backend::BackendStorage as _, metal_backend::MetalError, DType, MetalStorage};
use candle_core::{bail, CpuStorage, CustomOp1, Layout, Result, Shape, Storage, Tensor, WithDType};
use half::bf16;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;
use std::borrow::Cow;

/// A number as weights are stored: in memory as it is, in registers as f32.
pub trait Stored: Copy + Send + Sync {
    /// The same number as f32, exactly.
    fn widen(self) -> f32;
}

impl Stored for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
}

impl Stored for bf16 {
    /// bf16 is the upper half of an f32: its sign, its 8 bits of exponent, and the first 7 of its
    /// 23 bits of fraction. `to_bits` gives these 16 bits as a `u16`, and `f32::from_bits` makes a
    /// number of 32.
    #[inline(always)]
    fn widen(self) -> f32 {
        // task 17.1: the 16 bits, where an f32 has them
        todo!("day 17, task 1: the 16 bits, where an f32 has them")
    }
}

/// Running sums of [`dot`]: four vectors of AVX2, which hold 8 numbers each.
pub const SUMS: usize = 32;

/// The dot product of a row of weights and a vector of the same length. Product `i` is added to
/// running sum `i mod` [`SUMS`]. The last `len mod SUMS` numbers, which fill no whole chunk, are
/// added at the end.
///
/// With one running sum every addition waits for the one before it, and a sum of f32 may not be
/// reordered by the compiler. With several it may do many at a time.
#[inline(always)]
pub fn dot<W: Stored>(row: &[W], x: &[f32]) -> f32 {
    // task 17.2: a running sum for each place in a chunk; then the sums, and the tail
    todo!("day 17, task 2: a running sum for each place in a chunk; then the sums, and the tail")
}

/// Running sums of each vector in [`dot_pair`].
pub const PAIR_SUMS: usize = 16;

/// The dot products of a row of weights with two vectors of its length. Each weight is read and
/// widened once, and multiplied twice.
///
/// As in [`dot`] there are several running sums, [`PAIR_SUMS`] for each vector.
#[inline(always)]
pub fn dot_pair<W: Stored>(row: &[W], first: &[f32], second: &[f32]) -> [f32; 2] {
    // task 17.3: as in `dot`, with running sums for each of the two vectors
    todo!("day 17, task 3: as in `dot`, with running sums for each of the two vectors")
}

/// The products of some rows of weights with all vectors. `rows` is rows of `inner` numbers, one
/// behind the other, and so is `x` with its vectors. The product of row `r` and vector `v` becomes
/// `y[r * vectors + v]`, and `y` has room for exactly these.
///
/// Rows are taken one after the other, each for all vectors before the next: after it has been
/// read for the first of them it is in the processor's cache. Vectors are taken two at a time, and
/// the last alone where their number is odd.
#[inline(always)]
pub fn block_products<W: Stored>(rows: &[W], x: &[f32], inner: usize, y: &mut [f32]) {
    // task 17.4: for each row, its products with pairs of vectors, and with one that is left
    todo!("day 17, task 4: for each row, its products with pairs of vectors, and with one that is left")
}

/// What [`block_products`] does, compiled for every kind of vectors that pulp knows: pulp asks the
/// processor which it has, and calls that one.
struct BlockProducts<'a, W> {
    rows: &'a [W],
    x: &'a [f32],
    inner: usize,
    y: &'a mut [f32],
}

impl<W: Stored> WithSimd for BlockProducts<'_, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        block_products(self.rows, self.x, self.inner, self.y);
    }
}

/// [`block_products`] with the vectors of this processor.
pub fn vectorised<W: Stored>(rows: &[W], x: &[f32], inner: usize, y: &mut [f32]) {
    Arch::new().dispatch(BlockProducts { rows, x, inner, y });
}

/// Multiply-adds below which a second thread costs more than it saves.
pub const SERIAL: usize = 1 << 16;

/// Blocks for each thread. With more blocks than threads, one whose core is taken for a while
/// leaves its blocks to the others.
pub const BLOCKS_PER_THREAD: usize = 4;

/// How many rows of weights make a block, of `rows` with `inner` numbers each, for `vectors`
/// vectors: all of them, where there is one thread or where the whole product has fewer than
/// [`SERIAL`] multiply-adds; else so many that there are at most [`BLOCKS_PER_THREAD`] blocks for
/// each thread. Never 0.
pub fn block_rows(rows: usize, inner: usize, vectors: usize, threads: usize) -> usize {
    // task 17.5: one block, or at most four for each thread
    todo!("day 17, task 5: one block, or at most four for each thread")
}

/// `x · wᵀ`: `w` is rows of `inner` numbers, `x` is vectors of `inner` numbers. The result is one
/// row for each vector, with a number for each row of `w`: `(vectors, rows)`.
///
/// Blocks of [`block_rows`] rows are shared among rayon's threads. A block's products with all
/// vectors lie together in `(rows, vectors)`, so that every thread has a part of the memory for
/// itself. At the end they are put into the order of the result.
///
/// # Panics
/// If `inner` is 0.
pub fn multiply<W: Stored>(w: &[W], x: &[f32], inner: usize) -> Vec<f32> {
    // task 17.6: blocks over threads, `vectorised` for each; then rows and vectors change places
    todo!("day 17, task 6: blocks over threads, `vectorised` for each; then rows and vectors change places")
}

/// The numbers of a tensor in the order of its shape. Where they lie so in the storage already they
/// are borrowed, and else they are gathered.
///
/// # Errors
/// If the storage has numbers of another type.
pub fn numbers<'a, T: WithDType>(storage: &'a CpuStorage, layout: &Layout) -> Result<Cow<'a, [T]>> {
    // task 17.7: a part of the storage, or number after number where the layout says they are
    todo!("day 17, task 7: a part of the storage, or number after number where the layout says they are")
}

/// `x · wᵀ` as an operation on `x`, for [`Tensor::apply_op1_no_bwd`].
pub struct Product<'a> {
    /// The weights `(out, inner)`, f32 or bf16, on the CPU.
    pub w: &'a Tensor,
}

impl CustomOp1 for Product<'_> {
    fn name(&self) -> &'static str {
        "day17-product"
    }

    /// The storage and layout are those of `x`: f32, `(…, inner)`, with any strides. The result is
    /// contiguous, and its shape is `(…, out)`.
    ///
    /// # Errors
    /// If `w` is no matrix, is not on the CPU or is neither f32 nor bf16; if `inner` is 0; if `x`
    /// has no dimensions, a last one that is not `inner`, or numbers that are not f32.
    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        // task 17.8: refuse what does not fit, take the numbers, multiply, and say the shape
        todo!("day 17, task 8: refuse what does not fit, take the numbers, multiply, and say the shape")
    }

    /// The same on an Apple graphics processor, with the kernel of [`metal_source`]: `x` and `w`
    /// are f32 and contiguous.
    #[cfg(feature = "metal")]
    fn metal_fwd(&self, storage: &MetalStorage, layout: &Layout) -> Result<(MetalStorage, Shape)> {
        let (rows, inner) = self.w.dims2()?;
        let mut shape = layout.dims().to_vec();
        match shape.last_mut() {
            Some(last) if *last == inner && inner > 0 => *last = rows,
            _ => bail!("x is {:?}, and the weights are ({rows}, {inner})", layout.dims()),
        }
        if storage.dtype() != DType::F32 || self.w.dtype() != DType::F32 {
            bail!("on Metal, x and the weights must be f32")
        }
        if !layout.is_contiguous() || !self.w.is_contiguous() {
            bail!("on Metal, x and the weights must be contiguous")
        }
        let (w_storage, w_layout) = self.w.storage_and_layout();
        let Storage::Metal(w) = &*w_storage else { bail!("the weights are not on Metal") };

        let device = storage.device();
        let vectors = layout.shape().elem_count() / inner;
        let y = device.new_buffer_builder().with_size_for(rows * vectors, DType::F32);
        let y = y.with_label("day17").build()?;
        let pipeline = metal_pipeline(device.metal_device()).map_err(MetalError::from)?;
        let bytes = DType::F32.size_in_bytes();
        let guard = device.command_encoder()?;
        let encoder = guard.as_ref();
        encoder.set_compute_pipeline_state(&pipeline);
        encoder.set_input_buffer(0, Some(w.buffer()), w_layout.start_offset() * bytes);
        encoder.set_input_buffer(1, Some(storage.buffer()), layout.start_offset() * bytes);
        encoder.set_output_buffer(2, Some(&y), 0);
        encoder.set_bytes(3, &(inner as u32));
        encoder.set_bytes(4, &(rows as u32));
        let size = |width, height| objc2_metal::MTLSize { width, height, depth: 1 };
        encoder.dispatch_thread_groups(size(rows, vectors), size(METAL_LANES, 1));
        let y = MetalStorage::new(y, device.clone(), rows * vectors, DType::F32);
        Ok((y, Shape::from(shape)))
    }
}

/// Threads of a threadgroup of the Metal kernel: one simdgroup, which is 32 threads on every Apple
/// graphics processor.
pub const METAL_LANES: usize = 32;

/// The product as a program in the Metal shading language: `kernel void products`, with the
/// arguments
///
/// - `device const float *w [[buffer(0)]]`, the weights, rows of `inner` numbers;
/// - `device const float *x [[buffer(1)]]`, the vectors, of `inner` numbers each;
/// - `device float *y [[buffer(2)]]`, where vector `v`'s product with row `r` goes to
///   `v * rows + r`;
/// - `constant uint &inner [[buffer(3)]]` and `constant uint &rows [[buffer(4)]]`;
/// - `uint2 group [[threadgroup_position_in_grid]]`: the row is `group.x`, the vector `group.y`;
/// - `uint lane [[thread_index_in_threadgroup]]`, 0 to 31.
///
/// A threadgroup of [`METAL_LANES`] threads computes one product.
pub fn metal_source() -> &'static str {
    // task 17.9 (further): every 32nd number for each thread, then one sum of all threads' sums
    todo!("day 17, task 9: every 32nd number for each thread, then one sum of all threads' sums")
}

/// [`metal_source`], compiled once: a process has one GPU, and compiling takes longer than a pass.
#[cfg(feature = "metal")]
fn metal_pipeline(
    device: &candle_metal_kernels::metal::Device,
) -> std::result::Result<
    candle_metal_kernels::metal::ComputePipeline,
    candle_metal_kernels::MetalKernelError,
> {
    static COMPILED: std::sync::OnceLock<candle_metal_kernels::metal::ComputePipeline> =
        std::sync::OnceLock::new();
    if let Some(pipeline) = COMPILED.get() {
        return Ok(pipeline.clone());
    }
    let library = device.new_library_with_source(metal_source(), None)?;
    let function = library.get_function("products", None)?;
    let pipeline = device.new_compute_pipeline_state_with_function(&function)?;
    Ok(COMPILED.get_or_init(|| pipeline).clone())
}

/// `x · wᵀ` (torch `linear` without a bias) with the kernel of this day: `x` is `(…, inner)`, `w`
/// is `(out, inner)`, the result is `(…, out)`.
///
/// # Errors
/// As [`Product::cpu_fwd`].
pub fn linear(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    let product = |of: &[&Tensor]| of[0].apply_op1_no_bwd(&Product { w: of[1] });
    if x.device().is_metal() {
        return product(&[x, w]); // a kernel of its own: `metal_fwd`
    }
    on_cpu(&[x, w], product)
}
