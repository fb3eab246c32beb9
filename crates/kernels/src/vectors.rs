//! This machine's vectors: their length, and how many of them a micro-kernel holds in registers.

use crate::instruction_set::arch;
use pulp::{Simd, WithSimd};

/// Returns the number of f32 lanes in this machine's vectors: 4 for NEON, 8 for AVX2, 16 for
/// AVX-512.
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

/// True for instruction sets with 32 vector registers. AVX2 has 16, so its micro-kernels are half
/// the size. Plain code without vectors uses the same small ones.
pub const fn many_registers(lanes: usize) -> bool {
    lanes != 8 && lanes != 1
}

/// Maximum number of vectors side by side in a group of packed rows (see `panels.rs`).
#[inline]
pub const fn max_panels(lanes: usize) -> usize {
    if many_registers(lanes) {
        4
    } else {
        2
    }
}
