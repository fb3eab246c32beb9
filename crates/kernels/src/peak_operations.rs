//! How many operations this machine does in a second, if nothing has to be fetched.

use crate::instruction_set::arch;
use crate::unrolled::unrolled;
use pulp::{Simd, WithSimd};
use std::time::Instant;

/// Vectors that are added to side by side. A multiply-add takes about four cycles and two may begin
/// in each: with fewer, the processor waits for its own results.
const SUMS: usize = 8;

/// Multiply-adds to each of them in one try: some milliseconds.
const STEPS: usize = 1 << 21;

/// Floating-point operations of f32 that all threads together do in a second, the best of `tries`:
/// multiply-adds of vectors that stay in registers, each lane of which counts as two. It is the roof
/// over a prefill.
pub fn peak_operations(tries: usize) -> f64 {
    let mut best = 0f64;
    for _ in 0..tries.max(1) {
        let start = Instant::now();
        let lanes = rayon::broadcast(|_| arch().dispatch(MultiplyAdds));
        let seconds = start.elapsed().as_secs_f64();
        let multiply_adds = lanes.iter().sum::<usize>() * SUMS * STEPS;
        best = best.max(2.0 * multiply_adds as f64 / seconds);
    }
    best
}

/// The work of one thread; gives the lanes of its vectors.
struct MultiplyAdds;

impl WithSimd for MultiplyAdds {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> usize {
        // Hidden from the compiler, which would compute the sums itself. They stay finite.
        let x = simd.splat_f32s(std::hint::black_box(0.5));
        let y = simd.splat_f32s(std::hint::black_box(1e-3));
        let mut sums = [simd.splat_f32s(0.0); SUMS];
        for _ in 0..STEPS {
            unrolled!(i in SUMS => { sums[i] = simd.mul_add_e_f32s(x, sums[i], y); });
        }
        let mut total = 0.0;
        unrolled!(i in SUMS => { total += simd.reduce_sum_f32s(sums[i]); });
        std::hint::black_box(total);
        S::F32_LANES
    }
}
