//! Products of bf16 numbers with the processor's own instruction, `vdpbf16ps`: it multiplies 32
//! pairs, and adds two products to each of 16 sums in f32.

use crate::instruction_set::{instruction_set, InstructionSet};
use crate::micro_kernel::{totals_of_sixteen, MultiplyAdd};
use half::bf16;
use pulp::bytemuck::cast;
use pulp::x86::V4;
use pulp::{NullaryFnOnce, Simd as _};
use std::arch::x86_64::*;

/// Proof that this process uses AVX-512 with bf16, and that the machine has it.
#[derive(Clone, Copy)]
pub struct Bf16s(V4);

impl Bf16s {
    /// Returns None where products of bf16 numbers are computed in f32.
    pub fn here() -> Option<Self> {
        let here = instruction_set() == InstructionSet::Avx512Vnni
            && is_x86_feature_detected!("avx512bf16");
        V4::try_new().filter(|_| here).map(Self)
    }
}

impl MultiplyAdd for Bf16s {
    type Weight = bf16;
    type Number = bf16;
    type Stored = [bf16; 32];
    type Numbers = [bf16; 32];
    type Vector = [bf16; 32];
    type Sums = __m512;
    const NUMBERS: usize = 32;
    const VECTORS: usize = 1;
    const X_ROWS: usize = 8;

    #[inline(always)]
    fn stored(row: &[bf16]) -> &[[bf16; 32]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn numbers(row: &[bf16]) -> &[[bf16; 32]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn widen(self, weights: [bf16; 32], _vector: usize) -> [bf16; 32] {
        weights
    }

    #[inline(always)]
    fn vector(numbers: [bf16; 32], _vector: usize) -> [bf16; 32] {
        numbers
    }

    #[inline(always)]
    fn zeros(self) -> __m512 {
        cast(self.0.splat_f32s(0.0))
    }

    #[inline(always)]
    fn multiply_add(self, w: [bf16; 32], x: [bf16; 32], sums: __m512) -> __m512 {
        let (w, x): (__m512i, __m512i) = (cast(w), cast(x));
        // SAFETY: a `Bf16s` proves that the machine has the instruction. Both types are 512 bits
        // of any value.
        unsafe {
            let [w, x] = std::mem::transmute::<[__m512i; 2], [__m512bh; 2]>([w, x]);
            _mm512_dpbf16_ps(sums, w, x)
        }
    }

    #[inline(always)]
    fn totals(self, sums: [__m512; 4]) -> [f32; 4] {
        totals_of_sixteen(self.0, cast(sums))
    }

    #[inline(always)]
    fn vectorize<F: NullaryFnOnce>(self, f: F) -> F::Output {
        // The features of `V4`, and one more.
        #[target_feature(enable = "avx2,bmi1,bmi2,fma,fxsr,lzcnt,popcnt")]
        #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512bf16")]
        fn call<F: NullaryFnOnce>(f: F) -> F::Output {
            f.call()
        }
        // SAFETY: a `Bf16s` proves that the machine has all of these.
        unsafe { call(f) }
    }
}
