//! Measures how many operations per second this machine does when no data has to be fetched.

use crate::bandwidth::best_rate;
use crate::instruction_set::arch;
use crate::unrolled::unrolled;
use pulp::{Simd, WithSimd};

/// Vectors of sums updated in parallel. A multiply-add takes about four cycles, and two can start
/// in each: with fewer sums, the processor waits for its own results.
const SUMS: usize = 8;

/// Multiply-adds to each sum in one try, which takes a few milliseconds.
const STEPS: usize = 1 << 21;

/// Returns the f32 operations per second that all threads do together, the best of `tries`:
/// multiply-adds of vectors that stay in registers, each lane counting as two operations. This rate
/// limits prefill.
pub fn peak_operations(tries: usize) -> f64 {
    best_rate(tries, || {
        let lanes = rayon::broadcast(|_| arch().dispatch(MultiplyAdds));
        2 * lanes.iter().sum::<usize>() * SUMS * STEPS
    })
}

/// The work of one thread. Returns the number of lanes in its vectors.
struct MultiplyAdds;

impl WithSimd for MultiplyAdds {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> usize {
        // The inputs are hidden from the compiler, which would otherwise compute the sums itself.
        // The sums stay finite.
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
