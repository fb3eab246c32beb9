//! Attention over keys and values as the cache holds them: nothing is copied, repeated or masked by a tensor of its own.

use super::dots::{dots, softmax, weighted_sum};
use super::memory::count;
use super::{floats, threads};
use candle_core::{bail, CpuStorage, CustomOp3, Layout, Result, Shape, Storage, Tensor};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// Multiplications below which a second thread costs more than it saves.
const SERIAL: usize = 1 << 16;
/// New tokens of one head that one thread takes at a time.
const TOKENS: usize = 16;

/// Softmax attention in groups: `q` is `(B, H, T, D)`, `k` and `v` are `(B, Hkv, S, D)` with rows of `D` that lie together, wherever
/// each begins; the result is `(B, H, T, D)`.
///
/// `mask` is `(B or 1, 1, T, S)`, u8, 1 = may attend. Without one the `T` new tokens are the last of the `S`, and each sees
/// all up to itself.
///
/// # Errors
/// If the shapes do not fit.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
    let mask = mask.map(Tensor::contiguous).transpose()?;
    q.contiguous()?.apply_op3_no_bwd(k, v, &Attention(mask))
}

struct Attention(Option<Tensor>);

/// Where the rows of keys or values lie: row `s` of head `h` of batch row `b` begins at `b * row + h * head + s * column`.
#[derive(Clone, Copy)]
struct Place<'a> {
    numbers: &'a [f32],
    row: usize,
    head: usize,
    column: usize,
}

impl<'a> Place<'a> {
    fn new(storage: &'a CpuStorage, layout: &Layout) -> Result<Self> {
        let [row, head, column, 1] = *layout.stride() else {
            bail!(
                "attention: keys and values must be (B, Hkv, S, D) with whole rows, not {:?}",
                layout
            )
        };
        Ok(Self { numbers: floats(storage, layout.start_offset())?, row, head, column })
    }

    fn of(&self, row: usize, head: usize) -> &'a [f32] {
        &self.numbers[row * self.row + head * self.head..]
    }
}

impl CustomOp3 for Attention {
    fn name(&self) -> &'static str {
        "candecode-attention"
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        q_layout: &Layout,
        k: &CpuStorage,
        k_layout: &Layout,
        v: &CpuStorage,
        v_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (b, heads, new, width) = q_layout.shape().dims4()?;
        let (_, kv_heads, all, _) = k_layout.shape().dims4()?;
        let wanted = [b, kv_heads, all, width];
        if k_layout.dims() != wanted || v_layout.dims() != wanted || all < new {
            bail!(
                "attention: q is {:?}, k is {:?}, v is {:?}",
                q_layout.dims(),
                k_layout.dims(),
                v_layout.dims()
            )
        }
        if kv_heads == 0 || heads % kv_heads != 0 {
            bail!("{heads} query heads cannot share {kv_heads} key/value heads evenly")
        }
        count(2 * b * kv_heads * all * width * size_of::<f32>());
        let held = self.0.as_ref().map(Tensor::storage_and_layout);
        let mask = match &held {
            None => None,
            Some((storage, layout)) => {
                let rows = layout.dims()[0];
                if (rows != 1 && rows != b) || layout.dims()[1..] != [1, new, all] {
                    bail!(
                        "attention: the mask is {:?}, not ({b} or 1, 1, {new}, {all})",
                        layout.dims()
                    )
                }
                let Storage::Cpu(storage) = &**storage else {
                    bail!("attention: the mask is not on the CPU")
                };
                let step = if rows == 1 { 0 } else { new * all };
                Some((&storage.as_slice::<u8>()?[layout.start_offset()..], step))
            }
        };
        let queries = floats(q, q_layout.start_offset())?;
        let (k, v) = (Place::new(k, k_layout)?, Place::new(v, v_layout)?);
        let mut out = vec![0f32; b * heads * new * width];
        let mut parts: Vec<Part<'_>> = vec![];
        for (row_head, out) in out.chunks_mut((new * width).max(1)).enumerate() {
            let (row, head) = (row_head / heads, row_head % heads);
            let (keys, values) =
                (k.of(row, head * kv_heads / heads), v.of(row, head * kv_heads / heads));
            for (i, out) in out.chunks_mut(TOKENS * width).enumerate() {
                let first = i * TOKENS;
                parts.push(Part {
                    q: &queries[(row_head * new + first) * width..][..out.len()],
                    keys: (keys, k.column),
                    values: (values, v.column),
                    mask: mask.map(|(mask, step)| &mask[row * step + first * all..]),
                    seen: all - new + first,
                    all,
                    width,
                    out,
                });
            }
        }
        let arch = Arch::new();
        if threads() == 1 || b * heads * new * all * width < SERIAL {
            parts.into_iter().for_each(|part| arch.dispatch(part));
        } else {
            parts.into_par_iter().for_each(|part| arch.dispatch(part));
        }
        Ok((CpuStorage::F32(out), q_layout.shape().clone()))
    }
}

/// Some queries of one head: what they are, what they see, and where their result goes.
struct Part<'a> {
    q: &'a [f32],
    keys: (&'a [f32], usize),
    values: (&'a [f32], usize),
    mask: Option<&'a [u8]>,
    /// Columns that the first of them sees before itself, where there is no mask.
    seen: usize,
    all: usize,
    width: usize,
    out: &'a mut [f32],
}

impl WithSimd for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let width = self.width;
        let scale = 1.0 / (width as f32).sqrt();
        let (keys, step) = self.keys;
        let mut scores = vec![0f32; self.all];
        for (i, (q, out)) in self.q.chunks(width).zip(self.out.chunks_mut(width)).enumerate() {
            let mask = self.mask.map(|mask| &mask[i * self.all..][..self.all]);
            let seen = if mask.is_some() { self.all } else { self.seen + i + 1 };
            let scores = &mut scores[..seen];
            let mut fours = scores.chunks_exact_mut(4);
            let mut at = 0;
            for four in &mut fours {
                let k = [0, 1, 2, 3].map(|r| (at + r) * step);
                let k = [
                    &keys[k[0]..][..width],
                    &keys[k[1]..][..width],
                    &keys[k[2]..][..width],
                    &keys[k[3]..][..width],
                ];
                let sums = dots::<S, f32, 4, 1>(simd, k, [q]);
                for r in 0..4 {
                    four[r] = sums[r][0] * scale;
                }
                at += 4;
            }
            for score in fours.into_remainder() {
                *score =
                    dots::<S, f32, 1, 1>(simd, [&keys[at * step..][..width]], [q])[0][0] * scale;
                at += 1;
            }
            if let Some(mask) = mask {
                for (score, may) in scores.iter_mut().zip(mask) {
                    *score = if *may == 0 { f32::NEG_INFINITY } else { *score };
                }
            }
            softmax(simd, scores);
            weighted_sum(simd, scores, self.values.0, self.values.1, out);
        }
    }
}
