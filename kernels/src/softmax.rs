//! The softmax of attention scores, in place.

use pulp::Simd;

/// Turns scores into probabilities, in place: `e^(s - max) / Σ`.
///
/// A score of -inf becomes 0. A score of NaN or +inf, and a row of nothing but -inf, make all of
/// them NaN, as they do in torch: the trace of NaN must see them.
#[inline(always)]
pub fn softmax<S: Simd>(simd: S, scores: &mut [f32]) {
    let one = simd.splat_f32s(1.0);
    let mut maxima = simd.splat_f32s(f32::NEG_INFINITY);
    let mut nans = simd.splat_f32s(0.0);
    let (head, tail) = S::as_simd_f32s(scores);
    for part in head {
        maxima = simd.max_f32s(maxima, *part);
        nans = simd.select_f32s(simd.equal_f32s(*part, *part), nans, one);
    }
    let mut max = simd.reduce_max_f32s(maxima);
    let mut any_nan = simd.reduce_sum_f32s(nans) > 0.0;
    for score in tail {
        any_nan |= score.is_nan();
        max = max.max(*score);
    }
    if any_nan || max.is_infinite() {
        scores.fill(f32::NAN);
        return;
    }

    let shift = simd.splat_f32s(max);
    let mut totals = simd.splat_f32s(0.0);
    let (head, tail) = S::as_mut_simd_f32s(scores);
    for part in head.iter_mut() {
        *part = exp(simd, simd.sub_f32s(*part, shift));
        totals = simd.add_f32s(totals, *part);
    }
    let mut total = simd.reduce_sum_f32s(totals);
    for score in tail.iter_mut() {
        *score = (*score - max).exp();
        total += *score;
    }

    let scale = simd.splat_f32s(1.0 / total);
    for part in head {
        *part = simd.mul_f32s(*part, scale);
    }
    for score in tail {
        *score /= total;
    }
}

/// `e^x` for `x <= 0`, to 2 units in the last place; 0 below -87. `x = n ln 2 + f`: a polynomial
/// gives `e^f` (Cephes' `expf`, Moshier), and `n` is added to the exponent's bits.
#[inline(always)]
pub fn exp<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let splat = |c: f32| simd.splat_f32s(c);
    let clamped = simd.max_f32s(x, splat(-87.0));
    // 1.5 * 2^23: to add it rounds to a whole number, which is then in the lowest bits.
    let magic = splat(12_582_912.0);
    let shifted = simd.mul_add_f32s(clamped, splat(std::f32::consts::LOG2_E), magic);
    let n = simd.sub_f32s(shifted, magic);
    let f = simd.mul_add_f32s(n, splat(-0.693_359_4), clamped);
    let f = simd.mul_add_f32s(n, splat(2.121_944_4e-4), f);
    let mut p = splat(1.987_569_1e-4);
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = simd.mul_add_f32s(p, f, splat(c));
    }
    let p = simd.add_f32s(simd.mul_add_f32s(p, simd.mul_f32s(f, f), f), splat(1.0));
    let exponent =
        simd.wrapping_dyn_shl_u32s(simd.transmute_u32s_f32s(shifted), simd.splat_u32s(23));
    let scaled = simd.add_u32s(simd.transmute_u32s_f32s(p), exponent);
    let too_small = simd.less_than_f32s(x, splat(-87.0));
    simd.select_f32s(too_small, splat(0.0), simd.transmute_f32s_u32s(scaled))
}
