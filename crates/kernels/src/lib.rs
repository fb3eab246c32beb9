//! CPU kernels: products with a model's weights ([`linear`], [`quantized_linear`]), attention over
//! a KV cache ([`attention`], [`paged_attention`]), the steps between a layer's products
//! ([`rms_norm`], [`silu_and_mul`], [`rotate`]), and operations over the vocabulary
//! ([`log_softmax`], [`argmax`]). They take slices and return vectors. Nothing here depends on
//! candle's tensors, so this crate compiles in parallel with candle, and can be fully optimized
//! even when the rest of the course isn't.
//!
//! Vectors come from pulp: one source for AVX2, AVX-512 and NEON, selected at run time. Threads
//! come from rayon, whose work stealing copes with a core that another program has taken. (With
//! threads that wait for each other at a barrier, decoding drops from 79 tokens per second to 5.)
//!
//! Every sum in a product has a fixed order, regardless of the number of rows: a row gets bit for
//! bit the same result as on its own. One micro-kernel serves all of them, from a single token to a
//! prompt: see `linear_kernel.rs`. With bf16 weights, `x` is rounded to bf16 as well, and AVX-512's
//! own instruction multiplies the two where it exists (`bf16_avx512.rs`). x86 has an instruction
//! that widens f16 weights (`f16_x86.rs`).
//!
//! Products with quantized weights are integer products, which pulp doesn't have. They are written
//! with `std::arch` for AVX2, AVX-512 VNNI and NEON, and in plain code that each of those matches
//! bit for bit. See `quantized_kernel.rs`.
//!
//! `unsafe` is limited to a prefetch, which reads nothing that the program sees, to calls of
//! functions and two instructions for an instruction set that has been detected first, and, on Arm,
//! to loads, stores and one instruction.

#![warn(missing_docs)]
// The inner loops use indices: an iterator's `zip` or an array's `map` may end up as a call, and
// then a micro-kernel's sums live in memory instead of registers.
#![allow(clippy::needless_range_loop)]

mod attention_kernel;
mod bandwidth;
#[cfg(target_arch = "x86_64")]
mod bf16_avx512;
mod elementwise;
#[cfg(target_arch = "x86_64")]
mod f16_x86;
mod instruction_set;
mod keep_awake;
mod linear_kernel;
mod micro_kernel;
mod panels;
mod peak_operations;
mod prefetch;
#[cfg(target_arch = "x86_64")]
mod quantized_avx2;
#[cfg(target_arch = "x86_64")]
mod quantized_avx512;
mod quantized_blocks;
mod quantized_kernel;
#[cfg(target_arch = "aarch64")]
mod quantized_neon;
mod quantized_rows;
mod quantized_scalar;
mod rows;
mod shared_columns;
mod softmax;
mod transpose;
mod unrolled;
mod vectors;
mod weight_types;

pub use attention_kernel::{
    attention, paged_attention, AttentionShape, Heads, Mask, PagedRow, PagedShape,
};
pub use bandwidth::{bandwidth, bandwidth_of, bytes_gathered, bytes_read, count_gathered};
pub use candecode_threads::{default_threads, threads_asked_for};
pub use elementwise::{rms_norm, rotate, silu_and_mul};
pub use instruction_set::{instruction_set, InstructionSet};
pub use linear_kernel::{linear, WeightSlices};
pub use peak_operations::peak_operations;
pub use quantized_blocks::{QuantType, TILE_ROWS};
pub use quantized_kernel::{
    peak_integer_operations, quantized_linear, quantized_linear_by, TiledWeights,
};
pub use softmax::{argmax, log_softmax};
pub use vectors::lanes;

/// Returns the number of threads that share a product.
pub fn threads() -> usize {
    rayon::current_num_threads().max(1)
}
