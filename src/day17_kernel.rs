#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 17: a kernel. A product with a model's weights, written by hand: several running sums,
//! several vectors per row of weights, 16-bit weights widened in registers, and blocks of rows on
//! several threads, as an operation on candle's tensors.
//!
//! Everything is safe Rust that the compiler turns into vector instructions. The functions called
//! inside `Arch::dispatch` are `#[inline(always)]`, so they are compiled for the CPU that runs the
//! program instead of the oldest one it supports.

// The inner loops use indices. An iterator's `next` that isn't inlined would be a call, and would
// not be compiled for this CPU's vector instructions.
#![allow(clippy::needless_range_loop)]

use candecode::kit::device::on_cpu;
#[cfg(feature = "metal")]
use candle_core::{backend::BackendStorage as _, metal_backend::MetalError, DType, MetalStorage};
use candle_core::{bail, CpuStorage, CustomOp1, Layout, Result, Shape, Storage, Tensor, WithDType};
use half::bf16;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;
use std::borrow::Cow;

/// A type of stored weights. They stay as they are in memory and become f32 in
/// registers.
pub trait Stored: Copy + Send + Sync {
    /// Returns the same number as f32, exactly.
    fn widen(self) -> f32;
}

impl Stored for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
}

/// Number of running sums in [`dot`]: four AVX2 vectors of 8 numbers.
pub const SUMS: usize = 32;

/// Returns the dot product of a row of weights and a vector of the same length, with
/// [`SUMS`] independent running sums. Products that don't fill a chunk of [`SUMS`]
/// are added at the end.
#[inline(always)]
pub fn dot<W: Stored>(row: &[W], x: &[f32]) -> f32 {
    // task 17.1: Compute a dot product with several running sums
    todo!("day 17, task 1: Compute a dot product with several running sums")
}

impl Stored for bf16 {
    /// A bf16 has a sign bit, 8 exponent bits and 7 fraction bits.
    #[inline(always)]
    fn widen(self) -> f32 {
        // task 17.2: Turn the 16 bits of a bf16 into the f32 with the same value
        todo!("day 17, task 2: Turn the 16 bits of a bf16 into the f32 with the same value")
    }
}

/// Number of running sums per vector in [`dot_pair`].
pub const PAIR_SUMS: usize = 16;

/// Returns the dot products of a row of weights with two vectors of the same
/// length. Reads and widens each weight once, and multiplies it twice.
///
/// Uses [`PAIR_SUMS`] running sums per vector, as [`dot`] uses [`SUMS`].
#[inline(always)]
pub fn dot_pair<W: Stored>(row: &[W], first: &[f32], second: &[f32]) -> [f32; 2] {
    // task 17.3: Multiply a row by two vectors, and widen each weight once
    todo!("day 17, task 3: Multiply a row by two vectors, and widen each weight once")
}

/// Multiplies some rows of weights by all vectors. `rows` holds rows of `inner`
/// numbers, one after another, and `x` holds vectors of `inner` numbers. Writes the
/// product of row `r` and vector `v` to `y[r * vectors + v]`; `y` has exactly that
/// many elements.
///
/// However many vectors there are, each row comes from memory once. Uses [`dot_pair`]
/// wherever it can.
#[inline(always)]
pub fn block_products<W: Stored>(rows: &[W], x: &[f32], inner: usize, y: &mut [f32]) {
    // task 17.4: Multiply each row by all vectors, two at a time
    todo!("day 17, task 4: Multiply each row by all vectors, two at a time")
}

/// The arguments of [`block_products`], which pulp compiles for every set of vector
/// instructions it supports. It runs the best one that the CPU has.
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

/// Runs [`block_products`], compiled for this CPU's vector instructions.
pub fn vectorized<W: Stored>(rows: &[W], x: &[f32], inner: usize, y: &mut [f32]) {
    Arch::new().dispatch(BlockProducts { rows, x, inner, y });
}

/// Products with fewer multiply-adds than this run on one thread: a second one
/// would cost more than it saves.
pub const SERIAL: usize = 1 << 16;

/// Maximum number of blocks per thread. With several blocks each, the other threads
/// can take over if another program keeps one core busy.
pub const BLOCKS_PER_THREAD: usize = 4;

/// Returns the number of rows of weights per block, for a product of `rows` rows of
/// `inner` numbers with some vectors. It's all rows if there is one thread, or if
/// the product has fewer than [`SERIAL`] multiply-adds. Otherwise it's the smallest
/// number that makes at most [`BLOCKS_PER_THREAD`] blocks per thread. Never 0.
pub fn block_rows(rows: usize, inner: usize, vectors: usize, threads: usize) -> usize {
    // task 17.5: Choose the number of rows per block
    todo!("day 17, task 5: Choose the number of rows per block")
}

/// Computes `x · wᵀ`, where `w` holds rows of `inner` numbers and `x` holds vectors
/// of `inner` numbers. The result is `(vectors, rows)`: for each vector, its
/// product with every row. Without rows or without vectors it's empty.
///
/// Rayon's threads share blocks of [`block_rows`] rows. The result has the same
/// bits for any number of threads.
///
/// # Panics
/// If `inner` is 0.
pub fn multiply<W: Stored>(w: &[W], x: &[f32], inner: usize) -> Vec<f32> {
    // task 17.6: Multiply blocks of rows on several threads, and return them vector by vector
    todo!("day 17, task 6: Multiply blocks of rows on several threads, and return them vector by vector")
}

/// Returns the numbers of a tensor in the order of its shape. Borrows them if they
/// are contiguous in the storage, and gathers them otherwise.
///
/// # Errors
/// If the storage has numbers of another type.
pub fn numbers<'a, T: WithDType>(storage: &'a CpuStorage, layout: &Layout) -> Result<Cow<'a, [T]>> {
    let all = storage.as_slice::<T>()?;
    if let Some((start, end)) = layout.contiguous_offsets() {
        return Ok(Cow::Borrowed(&all[start..end]));
    }
    let count = layout.shape().elem_count();
    let mut gathered = Vec::with_capacity(count);
    for number in 0..count {
        let mut place = layout.start_offset();
        let mut rest = number; // the index in this dimension and the ones before it
        for (size, stride) in layout.dims().iter().zip(layout.stride()).rev() {
            place += rest % size * stride;
            rest /= size;
        }
        gathered.push(all[place]);
    }
    Ok(Cow::Owned(gathered))
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

    /// Multiplies `x`, given as storage and layout: f32, `(…, inner)`, with any
    /// strides. The result is contiguous, `(…, out)`.
    ///
    /// # Errors
    /// If `w` isn't a matrix, isn't on the CPU, or is neither f32 nor bf16; if `inner`
    /// is 0; if `x` isn't f32, or its last dimension isn't `inner`.
    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (out, inner) = self.w.dims2()?;
        let mut shape = layout.dims().to_vec();
        match shape.last_mut() {
            Some(last) if *last == inner && inner > 0 => *last = out,
            _ => bail!("x is {:?}, and the weights are ({out}, {inner})", layout.dims()),
        }
        let x = numbers::<f32>(storage, layout)?;
        let (w_storage, w_layout) = self.w.storage_and_layout();
        let Storage::Cpu(w_storage) = &*w_storage else { bail!("the weights are not on the CPU") };
        let y = match w_storage {
            CpuStorage::F32(_) => multiply(&numbers::<f32>(w_storage, w_layout)?, &x, inner),
            CpuStorage::BF16(_) => multiply(&numbers::<bf16>(w_storage, w_layout)?, &x, inner),
            _ => bail!("the weights are {:?}: this kernel reads f32 and bf16", self.w.dtype()),
        };
        Ok((CpuStorage::F32(y), Shape::from(shape)))
    }

    /// Does the same on an Apple GPU, with the kernel of [`metal_source`]. `x` and `w`
    /// must be f32 and contiguous.
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

/// Computes `x · wᵀ` (torch `linear` without a bias) with this day's kernel: `x` is
/// `(…, inner)`, `w` is `(out, inner)`, and the result is `(…, out)`.
///
/// # Errors
/// Same as [`Product::cpu_fwd`].
pub fn linear(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    let product = |of: &[&Tensor]| of[0].apply_op1_no_bwd(&Product { w: of[1] });
    if x.device().is_metal() {
        return product(&[x, w]); // `metal_fwd`
    }
    on_cpu(&[x, w], product)
}

/// Returns the index of the row of `w` that has the largest product with the vector
/// `x`. Ties go to the first row. `w` holds at least one row of `inner` numbers,
/// and all products are finite.
///
/// Rayon's threads share blocks of [`block_rows`] rows, and no more than a block's
/// products are kept. The result is the same for any number of threads.
pub fn largest_product<W: Stored>(w: &[W], x: &[f32], inner: usize) -> usize {
    // task 17.7 (challenge): Find the row with the largest product without keeping all products
    todo!("day 17, task 7: Find the row with the largest product without keeping all products")
}

/// Threads per threadgroup of the Metal kernel: one simdgroup, which has 32 threads
/// on every Apple GPU.
pub const METAL_LANES: usize = 32;

/// Returns the source of a program in the Metal shading language that computes the
/// product: a function `kernel void products` with the arguments
///
/// - `device const float *w [[buffer(0)]]`, the weights, rows of `inner` numbers;
/// - `device const float *x [[buffer(1)]]`, the vectors, of `inner` numbers each;
/// - `device float *y [[buffer(2)]]`, which receives vector `v`'s product with row
///   `r` at index `v * rows + r`;
/// - `constant uint &inner [[buffer(3)]]` and `constant uint &rows [[buffer(4)]]`;
/// - `uint2 group [[threadgroup_position_in_grid]]`: the row is `group.x`, the
///   vector `group.y`;
/// - `uint lane [[thread_index_in_threadgroup]]`, 0 to 31.
///
/// A threadgroup of [`METAL_LANES`] threads computes one product.
pub fn metal_source() -> &'static str {
    // task 17.8 (optional): Write the product as a Metal kernel in which 32 threads share a row
    todo!("day 17, task 8: Write the product as a Metal kernel in which 32 threads share a row")
}

/// Compiles [`metal_source`] once: a process has one GPU, and compiling takes
/// longer than a pass.
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
