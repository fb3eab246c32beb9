//! The innermost loops: dot products of a few rows with a few rows, and a softmax.

use super::prefetch::{ask, AHEAD};
use super::stored::Stored;
use pulp::{Arch, Simd, WithSimd};

/// A loop up to a constant, at most 8, written out before the compiler sees it: what is indexed by it stays in registers. The
/// compiler unrolls larger loops itself, but so late that their sums are already in memory.
macro_rules! unrolled {
    ($i:ident in $n:expr => $body:block) => {
        unrolled!(@ $i $n, $body, 0 1 2 3 4 5 6 7)
    };
    (@ $i:ident $n:expr, $body:block, $($at:literal)*) => {
        $(if $at < $n {
            let $i = $at;
            $body
        })*
    };
}
pub(super) use unrolled;

/// Numbers of f32 in a vector of this machine.
pub fn lanes() -> usize {
    Arch::new().dispatch(Lanes)
}

struct Lanes;

impl WithSimd for Lanes {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> usize {
        S::F32_LANES
    }
}

/// Dot products of `R` rows of weights with `M` rows of `x`. Where `W` splits pairs, `x` must come as `stored::arrange` makes it.
/// Memory is asked meanwhile for what lies behind `w`, whose rows lie one behind the other.
#[inline(always)]
pub fn dots<S: Simd, W: Stored, const R: usize, const M: usize>(
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
    let ahead = size_of_val(w[0]) * (R - 1) + AHEAD;
    for i in 0..steps {
        unrolled!(r in R => { ask(&w_chunks[r][i], ahead); });
        let mut wide = [[simd.splat_f32s(0.0); 2]; R];
        unrolled!(r in R => { wide[r] = W::widen(simd, w_chunks[r][i]); });
        unrolled!(m in M => {
            let x = x_chunks[m][i];
            unrolled!(r in R => { sums[r][m] = simd.mul_add_e_f32s(wide[r][0], x[0], sums[r][m]); });
            unrolled!(r in R => { sums[r][m] = simd.mul_add_e_f32s(wide[r][1], x[1], sums[r][m]); });
        });
    }
    let done = steps * 2 * S::F32_LANES;
    let mut out = [[0.0; M]; R];
    unrolled!(r in R => {
        unrolled!(m in M => {
            out[r][m] = simd.reduce_sum_f32s(sums[r][m]);
        });
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

/// Turns scores into probabilities, in place: `e^(s - max) / Σ`. A score of -inf becomes 0; NaN makes all of them NaN.
#[inline(always)]
pub fn softmax<S: Simd>(simd: S, scores: &mut [f32]) {
    let (one, lowest) = (simd.splat_f32s(1.0), f32::NEG_INFINITY);
    let (mut maxima, mut nans) = (simd.splat_f32s(lowest), simd.splat_f32s(0.0));
    let (head, tail) = S::as_simd_f32s(scores);
    for part in head {
        maxima = simd.max_f32s(maxima, *part);
        nans = simd.select_f32s(simd.equal_f32s(*part, *part), nans, one);
    }
    let (mut max, mut nan) = (simd.reduce_max_f32s(maxima), simd.reduce_sum_f32s(nans) > 0.0);
    for score in tail {
        nan |= score.is_nan();
        max = max.max(*score);
    }
    if nan || max == lowest {
        scores.fill(f32::NAN);
        return;
    }
    let shift = simd.splat_f32s(max);
    let mut total = simd.splat_f32s(0.0);
    let (head, tail) = S::as_mut_simd_f32s(scores);
    for part in head.iter_mut() {
        *part = exp(simd, simd.sub_f32s(*part, shift));
        total = simd.add_f32s(total, *part);
    }
    let mut total = simd.reduce_sum_f32s(total);
    for score in tail.iter_mut() {
        *score = (*score - max).exp();
        total += *score;
    }
    let share = simd.splat_f32s(1.0 / total);
    for part in head {
        *part = simd.mul_f32s(*part, share);
    }
    for score in tail {
        *score /= total;
    }
}

/// `e^x` for `x <= 0`, to 2 units in the last place; 0 below -87. `x = n ln 2 + f`: a polynomial for `e^f` (Cephes `expf`, Moshier),
/// and `n` goes into the exponent's bits.
#[inline(always)]
fn exp<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let number = |c: f32| simd.splat_f32s(c);
    let clamped = simd.max_f32s(x, number(-87.0));
    // 1.5 * 2^23: adding it rounds to a whole number, which then stands in the lowest bits.
    let magic = number(12_582_912.0);
    let shifted = simd.mul_add_f32s(clamped, number(std::f32::consts::LOG2_E), magic);
    let n = simd.sub_f32s(shifted, magic);
    let f = simd.mul_add_f32s(n, number(-0.693_359_4), clamped);
    let f = simd.mul_add_f32s(n, number(2.121_944_4e-4), f);
    let mut p = number(1.987_569_1e-4);
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = simd.mul_add_f32s(p, f, number(c));
    }
    let p = simd.add_f32s(simd.mul_add_f32s(p, simd.mul_f32s(f, f), f), number(1.0));
    let bits = simd.wrapping_dyn_shl_u32s(simd.transmute_u32s_f32s(shifted), simd.splat_u32s(23));
    let scaled = simd.add_u32s(simd.transmute_u32s_f32s(p), bits);
    let below = simd.less_than_f32s(x, number(-87.0));
    simd.select_f32s(below, number(0.0), simd.transmute_f32s_u32s(scaled))
}
