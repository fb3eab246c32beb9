//! The types that weights are stored in, and the code that widens them to f32 vectors.

use half::{bf16, f16};
use pulp::{bytemuck, Simd};

/// A stored weight: f32, bf16 or f16. Weights are read as stored and widened in registers.
pub trait WeightType: Copy + Into<f32> + Send + Sync + 'static {
    /// The input of one step of the micro-kernel: two vectors' worth of numbers.
    type Chunk<S: Simd>: Copy;
    /// True if only processors without vectors need this code. Then it isn't compiled for others.
    const PLAIN: bool = false;

    /// Splits a row into chunks, without the remainder.
    fn chunks<S: Simd>(row: &[Self]) -> &[Self::Chunk<S>];
    /// Widens vector 0 or 1 of a chunk. If the chunk consists of pairs, the even numbers are in the
    /// first, and the odd ones in the second.
    fn widen<S: Simd>(simd: S, chunk: Self::Chunk<S>, vector: usize) -> S::f32s;

    /// Returns true if pairs of 16-bit numbers are aligned to four bytes.
    fn pairs_are_aligned(row: &[Self]) -> bool {
        (row.as_ptr() as usize).is_multiple_of(4)
    }
}

impl WeightType for f32 {
    type Chunk<S: Simd> = [S::f32s; 2];

    #[inline(always)]
    fn chunks<S: Simd>(row: &[Self]) -> &[Self::Chunk<S>] {
        pulp::as_arrays::<2, _>(S::as_simd_f32s(row).0).0
    }

    #[inline(always)]
    fn widen<S: Simd>(_simd: S, chunk: [S::f32s; 2], vector: usize) -> S::f32s {
        chunk[vector]
    }
}

impl WeightType for bf16 {
    type Chunk<S: Simd> = S::u32s;

    #[inline(always)]
    fn chunks<S: Simd>(row: &[Self]) -> &[Self::Chunk<S>] {
        pairs::<S, Self>(row)
    }

    /// bf16 is the upper half of an f32. The lower number of a pair is shifted up; in the upper
    /// one, the lower half is cleared.
    #[inline(always)]
    fn widen<S: Simd>(simd: S, pair: S::u32s, vector: usize) -> S::f32s {
        simd.transmute_f32s_u32s(match vector {
            0 => simd.wrapping_dyn_shl_u32s(pair, simd.splat_u32s(16)),
            _ => simd.and_u32s(pair, simd.splat_u32s(0xffff_0000)),
        })
    }
}

impl WeightType for f16 {
    type Chunk<S: Simd> = S::u32s;
    const PLAIN: bool = cfg!(target_arch = "x86_64"); // see `f16_x86.rs`

    #[inline(always)]
    fn chunks<S: Simd>(row: &[Self]) -> &[Self::Chunk<S>] {
        pairs::<S, Self>(row)
    }

    /// f16 has 5 exponent bits where f32 has 8. Moved into position, they represent 2^-112 of the
    /// value, so the result is scaled back up. If all 5 are set (infinity or NaN), all 8 have to
    /// be.
    #[inline(always)]
    fn widen<S: Simd>(simd: S, pair: S::u32s, vector: usize) -> S::f32s {
        let scale = simd.splat_f32s(f32::from_bits((127 + 112) << 23));
        let half = match vector {
            0 => simd.wrapping_dyn_shl_u32s(pair, simd.splat_u32s(16)),
            _ => pair,
        };
        let sign = simd.and_u32s(half, simd.splat_u32s(0x8000_0000));
        let size = simd.and_u32s(half, simd.splat_u32s(0x7fff_0000));
        let size = simd.wrapping_dyn_shr_u32s(size, simd.splat_u32s(3));
        let full = simd.greater_than_or_equal_u32s(size, simd.splat_u32s(0x0f80_0000));
        let none = simd.splat_u32s(0);
        let rest = simd.select_u32s(full, simd.splat_u32s(0x7000_0000), none);
        let size = simd.or_u32s(size, rest);
        simd.mul_f32s(simd.transmute_f32s_u32s(simd.or_u32s(sign, size)), scale)
    }
}

/// Returns a row as vectors of 16-bit pairs. Empty unless [`WeightType::pairs_are_aligned`].
#[inline(always)]
fn pairs<S: Simd, H: bytemuck::NoUninit>(row: &[H]) -> &[S::u32s] {
    match bytemuck::try_cast_slice::<H, u32>(&row[..row.len() / 2 * 2]) {
        Ok(words) => S::as_simd_u32s(words).0,
        Err(_) => &[],
    }
}
