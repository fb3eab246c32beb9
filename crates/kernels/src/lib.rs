//! Kernels for the CPU: products with a model's weights ([`linear`], [`quantized_linear`]),
//! attention over a KV cache ([`attention`]), what a layer computes between them ([`rms_norm`],
//! [`silu_and_mul`], [`rotate`]), and what is computed over the vocabulary ([`log_softmax`],
//! [`argmax`]). Slices go in and slices come out. Nothing here knows candle's tensors, so that this
//! crate compiles beside candle, fully optimised, while the rest of the course need not be.
//!
//! The vectors are pulp's: one source for AVX2, AVX-512 and NEON, chosen at run time. The threads
//! are rayon's: they leave a core that another program has taken. (Threads that wait for each other
//! at a barrier do not, and decoding falls from 79 tokens a second to 5.)
//!
//! Every sum of a product has one order, whatever the number of rows: a row gets, bit for bit, what
//! it gets alone. Many rows, as a prompt has, go through the caches in blocks: see
//! `blocked_products.rs`.
//!
//! Products with quantised weights are of integers, which pulp has no products for: they are
//! written for AVX2, AVX-512 VNNI and NEON by `std::arch`, and in plain code that each of them
//! equals bit for bit. See `quantized_kernel.rs`.
//!
//! `unsafe` are a prefetch, which reads nothing that the program sees, the calls of functions for
//! an instruction set that was looked for before, and on Arm loads, stores and one instruction.

#![warn(missing_docs)]
// The inner loops go by index: an iterator's `zip` or an array's `map` may stay a call, and then
// the sums of a micro-kernel live in memory and not in registers.
#![allow(clippy::needless_range_loop)]

mod attention_kernel;
mod bandwidth;
mod blocked_products;
mod dot_products;
mod elementwise;
mod instruction_set;
mod keep_awake;
mod linear_kernel;
mod panels;
mod peak_operations;
mod prefetch;
#[cfg(target_arch = "x86_64")]
mod quantized_avx2;
#[cfg(target_arch = "x86_64")]
mod quantized_avx512;
mod quantized_kernel;
#[cfg(target_arch = "aarch64")]
mod quantized_neon;
mod quantized_rows;
mod quantized_scalar;
mod shared_columns;
mod softmax;
mod thread_count;
mod unrolled;
mod weight_types;

pub use attention_kernel::{attention, AttentionShape, Heads, Mask};
pub use bandwidth::{bandwidth, bandwidth_of, bytes_read};
pub use elementwise::{rms_norm, rotate, silu_and_mul};
pub use instruction_set::{instruction_set, InstructionSet};
pub use linear_kernel::{linear, WeightSlices};
pub use peak_operations::peak_operations;
pub use quantized_kernel::{
    peak_integer_operations, quantized_linear, quantized_linear_by, BlockType, TiledWeights,
    TILE_ROWS,
};
pub use softmax::{argmax, log_softmax};
pub use thread_count::{default_threads, threads_asked_for};

use instruction_set::arch;
use pulp::{Simd, WithSimd};

/// Threads that products are shared among.
pub fn threads() -> usize {
    rayon::current_num_threads().max(1)
}

/// How many f32 a vector of this machine holds: 4 for NEON, 8 for AVX2, 16 for AVX-512.
pub fn lanes() -> usize {
    arch().dispatch(Lanes)
}

struct Lanes;

impl WithSimd for Lanes {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> usize {
        S::F32_LANES
    }
}

/// True for instruction sets with 32 vector registers. AVX2 has 16, and so has plain code without
/// vectors; their micro-kernels are half as large.
const fn many_registers(lanes: usize) -> bool {
    lanes != 8 && lanes != 1
}
