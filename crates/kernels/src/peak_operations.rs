//! How many operations this machine does in a second, if nothing has to be fetched.

use crate::bandwidth::best_rate;
use crate::instruction_set::arch;
use crate::unrolled::unrolled;
use pulp::{Simd, WithSimd};

/// Vectors that are added to side by side. A multiply-add takes about four cycles and two may begin
/// in each: with fewer, the processor waits for its own results.
const SUMS: usize = 8;

/// Multiply-adds to each of them in one try: some milliseconds.
const STEPS: usize = 1 << 21;

/// Floating-point operations of f32 that all threads together do in a second, the best of `tries`:
/// multiply-adds of vectors that stay in registers, each lane of which counts as two. It is the
/// roof over a prefill.
pub fn peak_operations(tries: usize) -> f64 {
    best_rate(tries, || {
        let lanes = rayon::broadcast(|_| arch().dispatch(MultiplyAdds));
        2 * lanes.iter().sum::<usize>() * SUMS * STEPS
    })
}

/// The work of one thread; returns the lanes of its vectors.
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
