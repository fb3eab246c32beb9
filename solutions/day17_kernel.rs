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
        // <solution>
        f32::from_bits(u32::from(self.to_bits()) << 16)
        // </solution>
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
    // <solution>
    let (row_chunks, row_tail) = row.as_chunks::<SUMS>();
    let (x_chunks, x_tail) = x.as_chunks::<SUMS>();
    let mut sums = [0.0; SUMS];
    for chunk in 0..row_chunks.len() {
        let w = &row_chunks[chunk];
        let x = &x_chunks[chunk];
        for i in 0..SUMS {
            sums[i] = w[i].widen().mul_add(x[i], sums[i]);
        }
    }
    let mut total = 0.0;
    for i in 0..SUMS {
        total += sums[i];
    }
    for i in 0..row_tail.len() {
        total += row_tail[i].widen() * x_tail[i];
    }
    total
    // </solution>
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
    // <solution>
    let (row_chunks, row_tail) = row.as_chunks::<PAIR_SUMS>();
    let (first_chunks, first_tail) = first.as_chunks::<PAIR_SUMS>();
    let (second_chunks, second_tail) = second.as_chunks::<PAIR_SUMS>();
    let mut first_sums = [0.0; PAIR_SUMS];
    let mut second_sums = [0.0; PAIR_SUMS];
    for chunk in 0..row_chunks.len() {
        let w = &row_chunks[chunk];
        let a = &first_chunks[chunk];
        let b = &second_chunks[chunk];
        for i in 0..PAIR_SUMS {
            let wide = w[i].widen();
            first_sums[i] = wide.mul_add(a[i], first_sums[i]);
            second_sums[i] = wide.mul_add(b[i], second_sums[i]);
        }
    }
    let mut totals = [0.0, 0.0];
    for i in 0..PAIR_SUMS {
        totals[0] += first_sums[i];
        totals[1] += second_sums[i];
    }
    for i in 0..row_tail.len() {
        let wide = row_tail[i].widen();
        totals[0] += wide * first_tail[i];
        totals[1] += wide * second_tail[i];
    }
    totals
    // </solution>
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
    // <solution>
    let vectors = x.len() / inner;
    let products = y.chunks_exact_mut(vectors);
    for (row, products) in rows.chunks_exact(inner).zip(products) {
        for (vectors, products) in x.chunks(2 * inner).zip(products.chunks_mut(2)) {
            match products {
                [first, second] => {
                    let (a, b) = vectors.split_at(inner);
                    [*first, *second] = dot_pair(row, a, b);
                }
                [alone] => *alone = dot(row, vectors),
                _ => {} // chunks of 2 have 1 or 2
            }
        }
    }
    // </solution>
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
    // <solution>
    let serial = threads == 1 || rows * inner * vectors < SERIAL;
    let blocks = if serial { 1 } else { threads * BLOCKS_PER_THREAD };
    rows.div_ceil(blocks).max(1)
    // </solution>
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
    // <solution>
    let rows = w.len() / inner;
    let vectors = x.len() / inner;
    let mut by_row = vec![0.0; rows * vectors];
    if by_row.is_empty() {
        return by_row;
    }
    let size = block_rows(rows, inner, vectors, rayon::current_num_threads());
    w.par_chunks(size * inner)
        .zip(by_row.par_chunks_mut(size * vectors))
        .with_max_len(1)
        .for_each(|(rows, y)| vectorised(rows, x, inner, y));
    if vectors == 1 {
        return by_row; // one column and one row are the same numbers in the same order
    }
    let mut by_vector = Vec::with_capacity(by_row.len());
    for vector in 0..vectors {
        for row in 0..rows {
            by_vector.push(by_row[row * vectors + vector]);
        }
    }
    by_vector
    // </solution>
}

/// The numbers of a tensor in the order of its shape. Where they lie so in the storage already they
/// are borrowed, and else they are gathered.
///
/// # Errors
/// If the storage has numbers of another type.
pub fn numbers<'a, T: WithDType>(storage: &'a CpuStorage, layout: &Layout) -> Result<Cow<'a, [T]>> {
    // task 17.7: a part of the storage, or number after number where the layout says they are
    // <solution>
    let all = storage.as_slice::<T>()?;
    if let Some((start, end)) = layout.contiguous_offsets() {
        return Ok(Cow::Borrowed(&all[start..end]));
    }
    let count = layout.shape().elem_count();
    let mut gathered = Vec::with_capacity(count);
    for number in 0..count {
        let mut place = layout.start_offset();
        let mut rest = number; // its index in the last dimension and those before it, from the end
        for (size, stride) in layout.dims().iter().zip(layout.stride()).rev() {
            place += rest % size * stride;
            rest /= size;
        }
        gathered.push(all[place]);
    }
    Ok(Cow::Owned(gathered))
    // </solution>
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
        // <solution>
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
        // </solution>
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
    // <solution>
    r#"
#include <metal_stdlib>
using namespace metal;

kernel void products(
    device const float *w [[buffer(0)]],
    device const float *x [[buffer(1)]],
    device float *y [[buffer(2)]],
    constant uint &inner [[buffer(3)]],
    constant uint &rows [[buffer(4)]],
    uint2 group [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_threadgroup]])
{
    device const float *row = w + group.x * inner;
    device const float *vector = x + group.y * inner;
    float sum = 0.0;
    for (uint i = lane; i < inner; i += 32) {
        sum = fma(row[i], vector[i], sum);
    }
    sum = simd_sum(sum);
    if (lane == 0) {
        y[group.y * rows + group.x] = sum;
    }
}
"#
    // </solution>
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
