//! Products with f16 weights in f32. The processor widens them with an instruction of its own.

use crate::micro_kernel::Widen;
use half::f16;
use pulp::bytemuck::cast;
use pulp::x86::{V3, V4};
use pulp::{f32x16, f32x8, NullaryFnOnce};
use std::arch::x86_64::_mm256_cvtph_ps;

/// Proof that this process uses the instruction set `S`, and that the machine has its instruction
/// for f16.
#[derive(Clone, Copy)]
pub struct F16s<S>(S);

impl F16s<V3> {
    /// Returns None if the machine lacks F16C.
    pub fn avx2(simd: V3) -> Option<Self> {
        is_x86_feature_detected!("f16c").then_some(Self(simd))
    }
}

impl Widen for F16s<V3> {
    type Simd = V3;
    type Weight = f16;
    type Stored = [[f16; 8]; 2];

    #[inline(always)]
    fn simd(self) -> V3 {
        self.0
    }

    #[inline(always)]
    fn stored(row: &[f16]) -> &[[[f16; 8]; 2]] {
        row.as_chunks().0.as_chunks().0
    }

    #[inline(always)]
    fn widen(self, weights: [[f16; 8]; 2], vector: usize) -> f32x8 {
        // SAFETY: an `F16s` proves that the machine has the instruction.
        cast(unsafe { _mm256_cvtph_ps(cast(weights[vector])) })
    }

    #[inline(always)]
    fn vectorize<F: NullaryFnOnce>(self, f: F) -> F::Output {
        // The features of `V3`, and one more.
        #[target_feature(enable = "avx2,bmi1,bmi2,fma,fxsr,lzcnt,popcnt,f16c")]
        fn call<F: NullaryFnOnce>(f: F) -> F::Output {
            f.call()
        }
        // SAFETY: an `F16s` proves that the machine has all of these.
        unsafe { call(f) }
    }
}

impl F16s<V4> {
    /// AVX-512 includes the instruction.
    pub fn avx512(simd: V4) -> Self {
        Self(simd)
    }
}

impl Widen for F16s<V4> {
    type Simd = V4;
    type Weight = f16;
    type Stored = [[f16; 16]; 2];

    #[inline(always)]
    fn simd(self) -> V4 {
        self.0
    }

    #[inline(always)]
    fn stored(row: &[f16]) -> &[[[f16; 16]; 2]] {
        row.as_chunks().0.as_chunks().0
    }

    #[inline(always)]
    fn widen(self, weights: [[f16; 16]; 2], vector: usize) -> f32x16 {
        cast(self.0.avx512f._mm512_cvtph_ps(cast(weights[vector])))
    }
}
