//! The operations between a layer's products, each in a single pass over the numbers: RMSNorm, SiLU
//! with its gate, and RoPE. As tensor operations, these take six, five and ten passes, each
//! producing a tensor.
//!
//! Every row is computed independently and in a fixed order, so no other row affects it.

use crate::attention_kernel::Heads;
use crate::instruction_set::arch;
use crate::softmax::exp;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

/// Numbers per piece of work. Anything smaller is done before another thread has even started.
const PART: usize = 1 << 14;

/// RMSNorm: `x / √(mean(x²) + eps) · weight`. `x` holds rows as long as `weight`, and so does the
/// result.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    let width = weight.len();
    by_rows(x.len(), width, |first, out| {
        arch().dispatch(RmsNorm { x: &x[first..][..out.len()], weight, eps, out });
    })
}

struct RmsNorm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
    out: &'a mut [f32],
}

impl WithSimd for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let width = self.weight.len();
        let (weights, weights_tail) = S::as_simd_f32s(self.weight);
        for (x, out) in self.x.chunks_exact(width).zip(self.out.chunks_exact_mut(width)) {
            let (head, tail) = S::as_simd_f32s(x);
            let mut squares = simd.splat_f32s(0.0);
            for x in head {
                squares = simd.mul_add_f32s(*x, *x, squares);
            }
            let rest: f32 = tail.iter().map(|x| x * x).sum();
            let mean = (simd.reduce_sum_f32s(squares) + rest) / width as f32;
            let root = (mean + self.eps).sqrt();

            let roots = simd.splat_f32s(root);
            let (out, out_tail) = S::as_mut_simd_f32s(out);
            for i in 0..head.len() {
                out[i] = simd.mul_f32s(simd.div_f32s(head[i], roots), weights[i]);
            }
            for i in 0..tail.len() {
                out_tail[i] = tail[i] / root * weights_tail[i];
            }
        }
    }
}

/// Computes `silu(gate) · up` elementwise, where `silu(x) = x / (1 + e⁻ˣ)`. Both are rows of
/// `width` numbers.
///
/// # Panics
/// If the lengths differ.
pub fn silu_and_mul(gate: &[f32], up: &[f32], width: usize) -> Vec<f32> {
    assert_eq!(gate.len(), up.len(), "silu_and_mul");
    by_rows(gate.len(), width, |first, out| {
        let (gate, up) = (&gate[first..][..out.len()], &up[first..][..out.len()]);
        arch().dispatch(SiluAndMul { gate, up, width, out });
    })
}

struct SiluAndMul<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    width: usize,
    out: &'a mut [f32],
}

impl WithSimd for SiluAndMul<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (zero, one) = (simd.splat_f32s(0.0), simd.splat_f32s(1.0));
        let rows = self.gate.chunks_exact(self.width).zip(self.up.chunks_exact(self.width));
        for ((gate, up), out) in rows.zip(self.out.chunks_exact_mut(self.width)) {
            let (gate, gate_tail) = S::as_simd_f32s(gate);
            let (up, up_tail) = S::as_simd_f32s(up);
            let (out, out_tail) = S::as_mut_simd_f32s(out);
            for i in 0..gate.len() {
                // e^-|x| never overflows. Below 0, 1 / (1 + e⁻ˣ) equals e^-|x| / (1 + e^-|x|).
                let small = exp(simd, simd.min_f32s(gate[i], simd.sub_f32s(zero, gate[i])));
                let negative = simd.less_than_f32s(gate[i], zero);
                let above = simd.select_f32s(negative, small, one);
                let sigmoid = simd.div_f32s(above, simd.add_f32s(one, small));
                out[i] = simd.mul_f32s(simd.mul_f32s(gate[i], sigmoid), up[i]);
            }
            for i in 0..gate_tail.len() {
                out_tail[i] = gate_tail[i] / (1.0 + (-gate_tail[i]).exp()) * up_tail[i];
            }
        }
    }
}

/// RoPE: rotates element `i` of a head together with element `i + D / 2`, by the cosines and sines
/// of its token, each `(B, T, D / 2)`. `x` is `(B, H, T, D)`, and `dims` are these four sizes. The
/// result has the same shape and is contiguous.
pub fn rotate(x: Heads<'_>, dims: [usize; 4], cos: &[f32], sin: &[f32]) -> Vec<f32> {
    let [batch, heads, tokens, width] = dims;
    let arch = arch();
    by_rows(batch * heads * tokens * width, width, |first, out| {
        for (row, out) in (first / width..).zip(out.chunks_exact_mut(width)) {
            let (b, head, token) = (row / tokens / heads, row / tokens % heads, row % tokens);
            let at = b * x.batch_stride + head * x.head_stride + token * x.position_stride;
            let angles = (b * tokens + token) * (width / 2);
            let (cos, sin) = (&cos[angles..][..width / 2], &sin[angles..][..width / 2]);
            arch.dispatch(Rotate { x: &x.data[at..][..width], cos, sin, out });
        }
    })
}

struct Rotate<'a> {
    x: &'a [f32],
    cos: &'a [f32],
    sin: &'a [f32],
    out: &'a mut [f32],
}

impl WithSimd for Rotate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let half = self.cos.len();
        let (a, b) = self.x.split_at(half);
        let (first, second) = self.out.split_at_mut(half);
        // The order of products and sums matches day 2's `rotate`, so the results are
        // bit-identical.
        for i in 0..half {
            first[i] = a[i] * self.cos[i] - b[i] * self.sin[i];
            second[i] = b[i] * self.cos[i] + a[i] * self.sin[i];
        }
    }
}

/// Returns a vector of `len` numbers in rows of `width`. Threads share the rows: `compute` receives
/// the index of its first number, and the slice to write its rows to.
fn by_rows(len: usize, width: usize, compute: impl Fn(usize, &mut [f32]) + Sync) -> Vec<f32> {
    let mut out = vec![0f32; len];
    let part = (PART / width.max(1)).max(1) * width.max(1);
    if len <= part {
        compute(0, &mut out);
    } else {
        let parts = out.par_chunks_mut(part).enumerate();
        parts.for_each(|(i, out)| compute(i * part, out));
    }
    out
}
