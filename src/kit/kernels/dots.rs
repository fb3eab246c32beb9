//! The innermost loops: dot products of a few rows with a few rows, a weighted sum of rows, and a softmax.

use half::{bf16, f16};
use pulp::{bytemuck, Arch, Simd, WithSimd};

/// A number as weights are stored: f32, bf16 or f16. Weights are read as they are and widened in registers.
pub trait Stored: Copy + Send + Sync + 'static {
    /// What one step of the loop reads: two vectors' worth of numbers.
    type Chunk<S: Simd>: Copy;
    /// True if [`Stored::widen`] yields the even numbers first, then the odd ones.
    const SPLIT: bool;

    /// False if pairs of numbers do not lie at multiples of four bytes.
    fn in_pairs(row: &[Self]) -> bool;
    /// A row as chunks; what is left over is for [`Stored::single`].
    fn chunks<S: Simd>(row: &[Self]) -> &[Self::Chunk<S>];
    /// A chunk as two vectors.
    fn widen<S: Simd>(simd: S, chunk: Self::Chunk<S>) -> [S::f32s; 2];
    /// One number.
    fn single(self) -> f32;
}

impl Stored for f32 {
    type Chunk<S: Simd> = [S::f32s; 2];
    const SPLIT: bool = false;

    fn in_pairs(_row: &[Self]) -> bool {
        true
    }

    #[inline(always)]
    fn chunks<S: Simd>(row: &[Self]) -> &[Self::Chunk<S>] {
        pulp::as_arrays::<2, _>(S::as_simd_f32s(row).0).0
    }

    #[inline(always)]
    fn widen<S: Simd>(_simd: S, chunk: Self::Chunk<S>) -> [S::f32s; 2] {
        chunk
    }

    #[inline(always)]
    fn single(self) -> f32 {
        self
    }
}

impl Stored for bf16 {
    type Chunk<S: Simd> = S::u32s;
    const SPLIT: bool = true;

    fn in_pairs(row: &[Self]) -> bool {
        (row.as_ptr() as usize).is_multiple_of(4)
    }

    #[inline(always)]
    fn chunks<S: Simd>(row: &[Self]) -> &[Self::Chunk<S>] {
        pairs::<S, Self>(row)
    }

    /// bf16 is the upper half of an f32: the lower of a pair is shifted up, the upper one is freed of the lower.
    #[inline(always)]
    fn widen<S: Simd>(simd: S, pair: S::u32s) -> [S::f32s; 2] {
        let low = simd.wrapping_dyn_shl_u32s(pair, simd.splat_u32s(16));
        let high = simd.and_u32s(pair, simd.splat_u32s(0xffff_0000));
        [simd.transmute_f32s_u32s(low), simd.transmute_f32s_u32s(high)]
    }

    #[inline(always)]
    fn single(self) -> f32 {
        self.to_f32()
    }
}

impl Stored for f16 {
    type Chunk<S: Simd> = S::u32s;
    const SPLIT: bool = true;

    fn in_pairs(row: &[Self]) -> bool {
        (row.as_ptr() as usize).is_multiple_of(4)
    }

    #[inline(always)]
    fn chunks<S: Simd>(row: &[Self]) -> &[Self::Chunk<S>] {
        pairs::<S, Self>(row)
    }

    /// f16 has 5 bits of exponent where f32 has 8: moved into their place, they mean 2^-112 of what they meant. If all 5 are
    /// set, which means infinity or NaN, all 8 must be.
    #[inline(always)]
    fn widen<S: Simd>(simd: S, pair: S::u32s) -> [S::f32s; 2] {
        let scale = simd.splat_f32s(f32::from_bits((127 + 112) << 23));
        let up = simd.wrapping_dyn_shl_u32s(pair, simd.splat_u32s(16));
        let mut wide = [simd.splat_f32s(0.0); 2];
        for (wide, half) in wide.iter_mut().zip([up, pair]) {
            let sign = simd.and_u32s(half, simd.splat_u32s(0x8000_0000));
            let size = simd.and_u32s(half, simd.splat_u32s(0x7fff_0000));
            let size = simd.wrapping_dyn_shr_u32s(size, simd.splat_u32s(3));
            let full = simd.greater_than_or_equal_u32s(size, simd.splat_u32s(0x0f80_0000));
            let none = simd.splat_u32s(0);
            let rest = simd.select_u32s(full, simd.splat_u32s(0x7000_0000), none);
            let size = simd.or_u32s(size, rest);
            *wide = simd.mul_f32s(simd.transmute_f32s_u32s(simd.or_u32s(sign, size)), scale);
        }
        wide
    }

    #[inline(always)]
    fn single(self) -> f32 {
        self.to_f32()
    }
}

/// Pairs of 16-bit numbers, in vectors; none if they are not [`Stored::in_pairs`].
#[inline(always)]
fn pairs<S: Simd, H: bytemuck::NoUninit>(row: &[H]) -> &[S::u32s] {
    match bytemuck::try_cast_slice::<H, u32>(&row[..row.len() / 2 * 2]) {
        Ok(words) => S::as_simd_u32s(words).0,
        Err(_) => &[],
    }
}

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

/// Dot products of `R` rows of weights with `M` rows of `x`. Where `W` splits pairs, `x` must come as [`arrange`] makes it.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // by index, so that every sum stays in a register of its own
pub fn dots<S: Simd, W: Stored, const R: usize, const M: usize>(
    simd: S,
    w: [&[W]; R],
    x: [&[f32]; M],
) -> [[f32; M]; R] {
    let mut w_chunks: [&[W::Chunk<S>]; R] = [&[]; R];
    let mut x_chunks: [&[[S::f32s; 2]]; M] = [&[]; M];
    let mut steps = usize::MAX;
    for r in 0..R {
        w_chunks[r] = W::chunks::<S>(w[r]);
        steps = steps.min(w_chunks[r].len());
    }
    for m in 0..M {
        x_chunks[m] = f32::chunks::<S>(x[m]);
        steps = steps.min(x_chunks[m].len());
    }
    for r in 0..R {
        w_chunks[r] = &w_chunks[r][..steps];
    }
    for m in 0..M {
        x_chunks[m] = &x_chunks[m][..steps];
    }
    let mut sums = [[simd.splat_f32s(0.0); M]; R];
    for i in 0..steps {
        let mut wide = [[simd.splat_f32s(0.0); 2]; R];
        for r in 0..R {
            wide[r] = W::widen(simd, w_chunks[r][i]);
        }
        for m in 0..M {
            let x = x_chunks[m][i];
            for r in 0..R {
                sums[r][m] = simd.mul_add_e_f32s(wide[r][0], x[0], sums[r][m]);
            }
            for r in 0..R {
                sums[r][m] = simd.mul_add_e_f32s(wide[r][1], x[1], sums[r][m]);
            }
        }
    }
    let done = steps * 2 * S::F32_LANES;
    let mut out = [[0.0; M]; R];
    for r in 0..R {
        for m in 0..M {
            out[r][m] = simd.reduce_sum_f32s(sums[r][m]);
            for (w, x) in w[r][done..].iter().zip(&x[m][done..]) {
                out[r][m] += w.single() * x;
            }
        }
    }
    out
}

/// Brings a row of `x` into the order in which [`Stored::widen`] yields pairs: of every `2 * lanes` numbers the even ones, then
/// the odd ones. What is left over stays.
pub fn arrange(row: &[f32], lanes: usize, out: &mut Vec<f32>) {
    let chunks = row.chunks_exact(2 * lanes);
    let rest = chunks.remainder();
    for chunk in chunks {
        out.extend(chunk.iter().step_by(2));
        out.extend(chunk.iter().skip(1).step_by(2));
    }
    out.extend(rest);
}

/// `out = Σ weights[j] · rows[j]`; row `j` is `rows[j * stride..]`, as long as `out`.
#[inline(always)]
pub fn weighted_sum<S: Simd>(
    simd: S,
    weights: &[f32],
    rows: &[f32],
    stride: usize,
    out: &mut [f32],
) {
    let (width, lanes) = (out.len(), S::F32_LANES);
    let mut column = 0;
    for block in out.chunks_mut(4 * lanes) {
        if block.len() == 4 * lanes {
            let mut sums = [simd.splat_f32s(0.0); 4];
            for (j, weight) in weights.iter().enumerate() {
                let weight = simd.splat_f32s(*weight);
                let row = S::as_simd_f32s(&rows[j * stride + column..][..4 * lanes]).0;
                for (sum, part) in sums.iter_mut().zip(row) {
                    *sum = simd.mul_add_e_f32s(weight, *part, *sum);
                }
            }
            for (part, sum) in S::as_mut_simd_f32s(block).0.iter_mut().zip(sums) {
                *part = sum;
            }
        } else {
            for part in block.chunks_mut(lanes) {
                let mut sum = simd.splat_f32s(0.0);
                for (j, weight) in weights.iter().enumerate() {
                    let row = &rows[j * stride + column..][..part.len()];
                    let weight = simd.splat_f32s(*weight);
                    sum = simd.mul_add_e_f32s(weight, simd.partial_load_f32s(row), sum);
                }
                simd.partial_store_f32s(part, sum);
                column += part.len();
            }
            continue;
        }
        column += block.len();
    }
    debug_assert_eq!(column, width);
}

/// Turns scores into probabilities, in place: `e^(s - max) / Σ`. A score of -inf becomes 0; NaN makes all of them NaN.
#[inline(always)]
pub fn softmax<S: Simd>(simd: S, scores: &mut [f32]) {
    let mut max = f32::NEG_INFINITY;
    let mut nan = false;
    for score in scores.iter() {
        nan |= score.is_nan();
        max = if *score > max { *score } else { max };
    }
    if nan || max == f32::NEG_INFINITY {
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
