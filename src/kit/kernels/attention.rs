//! Attention over keys and values as the cache holds them: nothing is copied, repeated or masked by a tensor of its own.

use super::dots::{dots, softmax};
use super::memory::count;
use super::panels::{self, weighted_sums, Panels};
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
        if k_layout.dims() != wanted || v_layout.dims() != wanted || all < new || width == 0 {
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
        let many = (new >= panels::MANY).then(|| {
            let key = |i: usize| {
                let keys = k.of(i / kv_heads, i % kv_heads);
                Panels::new(all, width, false, move |s| &keys[s * k.column..][..width])
            };
            (0..b * kv_heads).map(key).collect::<Vec<_>>()
        });
        let mut out = vec![0f32; b * heads * new * width];
        let mut parts: Vec<Part<'_>> = vec![];
        for (row_head, out) in out.chunks_mut((new * width).max(1)).enumerate() {
            let (row, head) = (row_head / heads, row_head % heads);
            let kv_head = head * kv_heads / heads;
            let (keys, values) = (k.of(row, kv_head), v.of(row, kv_head));
            for (i, out) in out.chunks_mut(TOKENS * width).enumerate() {
                let first = i * TOKENS;
                parts.push(Part {
                    q: &queries[(row_head * new + first) * width..][..out.len()],
                    keys: match &many {
                        Some(panels) => Keys::Panels(&panels[row * kv_heads + kv_head]),
                        None => Keys::Rows(keys, k.column),
                    },
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

/// The keys of a head: as they lie, or side by side where many queries want them.
#[derive(Clone, Copy)]
enum Keys<'a> {
    Rows(&'a [f32], usize),
    Panels(&'a Panels),
}

/// Some queries of one head: what they are, what they see, and where their result goes.
struct Part<'a> {
    q: &'a [f32],
    keys: Keys<'a>,
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
    fn with_simd<S: Simd>(mut self, simd: S) {
        let tokens = self.q.len() / self.width;
        let mut scores = vec![0f32; panels::ROWS.min(tokens) * self.all];
        let mut sums = match self.keys {
            Keys::Panels(keys) => vec![0f32; panels::ROWS * keys.most()],
            Keys::Rows(..) => vec![],
        };
        let mut at = 0;
        while at < tokens {
            at += match tokens - at {
                0..panels::ROWS => self.tokens::<S, 1>(simd, at, &mut scores, &mut sums),
                _ => self.tokens::<S, { panels::ROWS }>(simd, at, &mut scores, &mut sums),
            };
        }
    }
}

impl Part<'_> {
    /// The result of `R` queries.
    #[inline(always)]
    fn tokens<S: Simd, const R: usize>(
        &mut self,
        simd: S,
        at: usize,
        scores: &mut [f32],
        sums: &mut [f32],
    ) -> usize {
        let (width, all) = (self.width, self.all);
        let scale = 1.0 / (width as f32).sqrt();
        let seen = |r: usize| if self.mask.is_some() { all } else { self.seen + at + r + 1 };
        let most = seen(R - 1);
        let mut q: [&[f32]; R] = [&[]; R];
        for r in 0..R {
            q[r] = &self.q[(at + r) * width..][..width];
        }
        match self.keys {
            Keys::Rows(keys, step) => {
                for r in 0..R {
                    scores_of(simd, q[r], keys, step, &mut scores[r * all..][..most]);
                }
            }
            Keys::Panels(keys) => {
                for group in (0..keys.groups()).map(|i| keys.group(i)) {
                    if group.first >= most {
                        break;
                    }
                    group.products(simd, q, sums);
                    let step = group.panels * S::F32_LANES;
                    for r in 0..R {
                        scores[r * all + group.first..][..group.rows]
                            .copy_from_slice(&sums[r * step..][..group.rows]);
                    }
                }
            }
        }
        for r in 0..R {
            let (scores, hidden) = scores[r * all..][..most].split_at_mut(seen(r));
            for score in scores.iter_mut() {
                *score *= scale;
            }
            if let Some(mask) = self.mask {
                let mask = &mask[(at + r) * all..][..all];
                for i in 0..all {
                    scores[i] = if mask[i] == 0 { f32::NEG_INFINITY } else { scores[i] };
                }
            }
            softmax(simd, scores);
            hidden.fill(0.0);
        }
        let mut weights: [&[f32]; R] = [&[]; R];
        for r in 0..R {
            weights[r] = &scores[r * all..][..most];
        }
        let (values, step) = self.values;
        weighted_sums(simd, weights, values, step, &mut self.out[at * width..][..R * width]);
        R
    }
}

/// The products of one query with the first keys.
#[inline(always)]
fn scores_of<S: Simd>(simd: S, q: &[f32], keys: &[f32], step: usize, scores: &mut [f32]) {
    let key = |at: usize| &keys[at * step..][..q.len()];
    let mut at = 0;
    while at + 4 <= scores.len() {
        let four = [key(at), key(at + 1), key(at + 2), key(at + 3)];
        let sums = dots::<S, f32, 4, 1>(simd, four, [q], [&[]; 4]);
        for r in 0..4 {
            scores[at + r] = sums[r][0];
        }
        at += 4;
    }
    while at < scores.len() {
        scores[at] = dots::<S, f32, 1, 1>(simd, [key(at)], [q], [&[]])[0][0];
        at += 1;
    }
}
