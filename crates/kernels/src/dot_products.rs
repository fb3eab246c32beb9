//! The micro-kernel of products with few rows of `x`: dot products of rows of weights with rows of
//! `x`.

use crate::prefetch::{prefetch, AHEAD, GROUP_AHEAD};
use crate::unrolled::unrolled;
use crate::vectors::many_registers;
use crate::weight_types::WeightType;
use pulp::Simd;

/// Maximum number of rows of `x` for which rows of weights are read one after another, in memory
/// order. Memory is the bottleneck there.
pub const GEMV_ROWS: usize = 4;
/// Rows of weights at a time when there are more rows of `x`: `3 x 8` sums and their operands fill
/// 32 registers, and `3 x 4` fill 16.
pub const DOT_W_ROWS: usize = 3;

/// Returns the maximum number of rows of `x` that a micro-kernel multiplies with `w_rows` rows of
/// weights.
pub const fn max_x_rows(lanes: usize, w_rows: usize) -> usize {
    if w_rows == DOT_W_ROWS && many_registers(lanes) {
        8
    } else {
        GEMV_ROWS
    }
}

/// Returns the dot products of `R` rows of weights with `M` rows of `x`. If `W` splits pairs, `x`
/// must be in the order of [`Deinterleave`](crate::weight_types::Deinterleave).
///
/// The rows of weights are contiguous. Meanwhile, the weights after them are prefetched.
#[inline(always)]
pub fn dot_products<S: Simd, W: WeightType, const R: usize, const M: usize>(
    simd: S,
    w: [&[W]; R],
    x: [&[f32]; M],
) -> [[f32; M]; R] {
    let mut w_chunks: [&[W::Chunk<S>]; R] = [&[]; R];
    let mut x_chunks: [&[[S::f32s; 2]]; M] = [&[]; M];
    let mut steps = usize::MAX;
    unrolled!(r in R => {
        w_chunks[r] = W::chunks::<S>(w[r]);
        steps = steps.min(w_chunks[r].len());
    });
    unrolled!(m in M => {
        x_chunks[m] = f32::chunks::<S>(x[m]);
        steps = steps.min(x_chunks[m].len());
    });
    unrolled!(r in R => { w_chunks[r] = &w_chunks[r][..steps]; });
    unrolled!(m in M => { x_chunks[m] = &x_chunks[m][..steps]; });

    let mut sums = [[simd.splat_f32s(0.0); M]; R];
    // Prefetch in memory order, because requests that alternate between rows are slower. Rows that
    // are read in parallel have already been prefetched, one group earlier.
    let group_step = R * size_of::<W::Chunk<S>>();
    let ahead = if R == 1 { AHEAD } else { GROUP_AHEAD.max(R * size_of_val(w[0])) };
    for i in 0..steps {
        prefetch(w[0], ahead + i * group_step, group_step);
        let mut wide = [[simd.splat_f32s(0.0); 2]; R];
        unrolled!(r in R => { wide[r] = W::widen(simd, w_chunks[r][i]); });
        unrolled!(m in M => {
            let x = x_chunks[m][i];
            unrolled!(r in R => {
                sums[r][m] = simd.mul_add_e_f32s(wide[r][0], x[0], sums[r][m]);
            });
            unrolled!(r in R => {
                sums[r][m] = simd.mul_add_e_f32s(wide[r][1], x[1], sums[r][m]);
            });
        });
    }

    let done = steps * 2 * S::F32_LANES;
    let mut out = [[0.0; M]; R];
    unrolled!(r in R => {
        unrolled!(m in M => { out[r][m] = simd.reduce_sum_f32s(sums[r][m]); });
    });
    if done < x[0].len() {
        for r in 0..R {
            for m in 0..M {
                for i in done..x[m].len() {
                    let w: f32 = w[r][i].into();
                    out[r][m] += w * x[m][i];
                }
            }
        }
    }
    out
}
