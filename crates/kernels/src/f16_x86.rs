//! Products with f16 weights in f32. The processor widens them with an instruction of its own.

use crate::micro_kernel::{totals, x_rows, MultiplyAdd};
use half::f16;
use pulp::bytemuck::cast;
use pulp::x86::{V3, V4};
use pulp::{NullaryFnOnce, Simd};
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

impl F16s<V4> {
    /// AVX-512 includes the instruction.
    pub fn avx512(simd: V4) -> Self {
        Self(simd)
    }
}

/// What differs between the instruction sets.
pub trait Widen: Simd {
    /// The numbers of a vector, as they are stored.
    type Stored: Copy + 'static;

    /// Splits a row into pairs of vectors, without the remainder.
    fn stored(row: &[f16]) -> &[[Self::Stored; 2]];
    /// Widens a vector. Only [`F16s`] calls it.
    fn widen(self, stored: Self::Stored) -> Self::f32s;
    /// Calls a function that is compiled for this instruction set. Only [`F16s`] calls it.
    fn call<F: NullaryFnOnce>(self, f: F) -> F::Output;
}

impl Widen for V3 {
    type Stored = [f16; 8];

    #[inline(always)]
    fn stored(row: &[f16]) -> &[[[f16; 8]; 2]] {
        row.as_chunks().0.as_chunks().0
    }

    #[inline(always)]
    fn widen(self, stored: [f16; 8]) -> Self::f32s {
        // SAFETY: an `F16s` proves that the machine has the instruction.
        cast(unsafe { _mm256_cvtph_ps(cast(stored)) })
    }

    #[inline(always)]
    fn call<F: NullaryFnOnce>(self, f: F) -> F::Output {
        // The features of `V3`, and one more.
        #[target_feature(enable = "avx2,bmi1,bmi2,fma,fxsr,lzcnt,popcnt,f16c")]
        fn call<F: NullaryFnOnce>(f: F) -> F::Output {
            f.call()
        }
        // SAFETY: an `F16s` proves that the machine has all of these.
        unsafe { call(f) }
    }
}

impl Widen for V4 {
    type Stored = [f16; 16];

    #[inline(always)]
    fn stored(row: &[f16]) -> &[[[f16; 16]; 2]] {
        row.as_chunks().0.as_chunks().0
    }

    #[inline(always)]
    fn widen(self, stored: [f16; 16]) -> Self::f32s {
        cast(self.avx512f._mm512_cvtph_ps(cast(stored)))
    }

    #[inline(always)]
    fn call<F: NullaryFnOnce>(self, f: F) -> F::Output {
        self.vectorize(f)
    }
}

impl<S: Widen> MultiplyAdd for F16s<S> {
    type Weight = f16;
    type Number = f32;
    type Stored = [S::Stored; 2];
    type Numbers = [S::f32s; 2];
    type Vector = S::f32s;
    type Sums = S::f32s;
    const NUMBERS: usize = 2 * S::F32_LANES;
    const VECTORS: usize = 2;
    const X_ROWS: usize = x_rows(S::F32_LANES);

    #[inline(always)]
    fn stored(row: &[f16]) -> &[[S::Stored; 2]] {
        S::stored(row)
    }

    #[inline(always)]
    fn numbers(row: &[f32]) -> &[[S::f32s; 2]] {
        pulp::as_arrays::<2, _>(S::as_simd_f32s(row).0).0
    }

    #[inline(always)]
    fn widen(self, weights: [S::Stored; 2], vector: usize) -> S::f32s {
        self.0.widen(weights[vector])
    }

    #[inline(always)]
    fn vector(numbers: [S::f32s; 2], vector: usize) -> S::f32s {
        numbers[vector]
    }

    #[inline(always)]
    fn zeros(self) -> S::f32s {
        self.0.splat_f32s(0.0)
    }

    #[inline(always)]
    fn multiply_add(self, w: S::f32s, x: S::f32s, sums: S::f32s) -> S::f32s {
        self.0.mul_add_e_f32s(w, x, sums)
    }

    #[inline(always)]
    fn totals(self, sums: [S::f32s; 4]) -> [f32; 4] {
        totals(self.0, sums)
    }

    #[inline(always)]
    fn vectorize<F: NullaryFnOnce>(self, f: F) -> F::Output {
        self.0.call(f)
    }
}
