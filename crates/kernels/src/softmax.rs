//! Softmax of attention scores, in place, and log-softmax and argmax of logits.

use crate::instruction_set::arch;
use pulp::{Simd, WithSimd};

/// Turns scores into probabilities, in place: `e^(s - max) / Σ`.
///
/// A score of -inf becomes 0. If any score is NaN or +inf, or all are -inf, every probability
/// becomes NaN, as in torch, so that the NaN trace can see it.
#[inline(always)]
pub fn softmax<S: Simd>(simd: S, scores: &mut [f32]) {
    let Some(max) = finite_maximum(simd, scores) else {
        scores.fill(f32::NAN);
        return;
    };

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

/// Returns the largest number. None if any number is NaN, or if the largest is infinite: there is a
/// +inf, or all numbers are -inf.
#[inline(always)]
fn finite_maximum<S: Simd>(simd: S, numbers: &[f32]) -> Option<f32> {
    let one = simd.splat_f32s(1.0);
    let mut maxima = simd.splat_f32s(f32::NEG_INFINITY);
    let mut nans = simd.splat_f32s(0.0);
    let (head, tail) = S::as_simd_f32s(numbers);
    for part in head {
        maxima = simd.max_f32s(maxima, *part);
        nans = simd.select_f32s(simd.equal_f32s(*part, *part), nans, one);
    }
    let mut max = simd.reduce_max_f32s(maxima);
    let mut any_nan = simd.reduce_sum_f32s(nans) > 0.0;
    for number in tail {
        any_nan |= number.is_nan();
        max = max.max(*number);
    }
    (!any_nan && max.is_finite()).then_some(max)
}

/// Returns the index of the largest of `(V)` logits. Ties go to the first, as in torch's `argmax`
/// on the CPU. None if a logit is NaN or +inf, or none is finite.
pub fn argmax(logits: &[f32]) -> Option<usize> {
    let max = arch().dispatch(FiniteMaximum(logits))?;
    // Compare whole parts: a loop that can exit at every number isn't vectorized.
    let has_max = |part: &[f32]| part.iter().fold(false, |has, logit| has | (*logit == max));
    let part = logits.chunks(PART).position(has_max)?;
    let within = logits[part * PART..].iter().position(|logit| *logit == max)?;
    Some(part * PART + within)
}

/// Number of logits compared with the maximum at a time.
const PART: usize = 256;

struct FiniteMaximum<'a>(&'a [f32]);

impl WithSimd for FiniteMaximum<'_> {
    type Output = Option<f32>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Option<f32> {
        finite_maximum(simd, self.0)
    }
}

/// Returns the log of the softmax, `x - ln Σ exp(x)`, of `(V)` logits (torch `log_softmax`). None
/// in the same cases as [`argmax`].
pub fn log_softmax(logits: &[f32]) -> Option<Vec<f32>> {
    let log_sum_exp = arch().dispatch(LogSumExp(logits))?;
    Some(logits.iter().map(|logit| (f64::from(*logit) - log_sum_exp) as f32).collect())
}

/// Number of vectors to sum in f32 before adding the result to an f64 total. A vocabulary has many
/// terms, and f32 alone would round most of them away.
const TERMS: usize = 8;

struct LogSumExp<'a>(&'a [f32]);

impl WithSimd for LogSumExp<'_> {
    type Output = Option<f64>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Option<f64> {
        let max = finite_maximum(simd, self.0)?;
        let shift = simd.splat_f32s(max);
        let (head, tail) = S::as_simd_f32s(self.0);
        let mut total = 0f64;
        for part in head.chunks(TERMS) {
            let mut terms = simd.splat_f32s(0.0);
            for logits in part {
                terms = simd.add_f32s(terms, exp(simd, simd.sub_f32s(*logits, shift)));
            }
            total += f64::from(simd.reduce_sum_f32s(terms));
        }
        for logit in tail {
            total += f64::from((*logit - max).exp());
        }
        Some(f64::from(max) + total.ln())
    }
}

/// Computes `e^x` for `x <= 0`, to 2 units in the last place, and 0 below -87. With
/// `x = n ln 2 + f`, a polynomial yields `e^f` (Cephes' `expf`, Moshier), and `n` is added to the
/// exponent bits.
#[inline(always)]
pub fn exp<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let splat = |c: f32| simd.splat_f32s(c);
    let clamped = simd.max_f32s(x, splat(-87.0));
    // 1.5 * 2^23: adding it rounds to an integer, which is then in the lowest bits.
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
