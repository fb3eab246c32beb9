//! Attention over keys and values as the cache holds them: nothing is copied, repeated or masked by a tensor of its own.

use super::awake::keep_awake;
use super::dots::{dots, softmax};
use super::memory::count;
use super::panels::{self, weighted_sums, Panels};
use super::{floats, threads};
use candle_core::{bail, CpuStorage, CustomOp3, Layout, Result, Shape, Storage, Tensor};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// Multiplications below which a second thread costs more than it saves.
const SERIAL: usize = 1 << 16;
/// Queries of one key/value head that one thread takes at a time.
const QUERIES: usize = 16;
/// Keys that they are multiplied with at a time.
const KEYS: usize = 4;

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
        // The heads that share keys and values lie one behind the other: their queries are rows of one matrix.
        let rows = heads / kv_heads * new;
        for (i, out) in out.chunks_mut((rows * width).max(1)).enumerate() {
            let (keys, values) =
                (k.of(i / kv_heads, i % kv_heads), v.of(i / kv_heads, i % kv_heads));
            for (part, out) in out.chunks_mut(QUERIES * width).enumerate() {
                let first = part * QUERIES;
                parts.push(Part {
                    q: &queries[(i * rows + first) * width..][..out.len()],
                    keys: match &many {
                        Some(panels) => Keys::Panels(&panels[i]),
                        None => Keys::Rows(keys, k.column),
                    },
                    values: (values, v.column),
                    mask: mask.map(|(mask, step)| &mask[i / kv_heads * step..]),
                    first,
                    new,
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
            keep_awake();
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

/// Some queries of the heads that share keys and values: what they are, what they see, and where their result goes.
struct Part<'a> {
    q: &'a [f32],
    keys: Keys<'a>,
    values: (&'a [f32], usize),
    /// What each of the new tokens may see, if there is a mask: `all` numbers for each.
    mask: Option<&'a [u8]>,
    /// The first query's place among all of these heads: it is of new token `first % new`.
    first: usize,
    new: usize,
    all: usize,
    width: usize,
    out: &'a mut [f32],
}

impl WithSimd for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let queries = self.q.len() / self.width;
        let mut scores = vec![0f32; panels::ROWS.min(queries) * self.all];
        let mut sums = match self.keys {
            Keys::Panels(keys) => vec![0f32; panels::ROWS * keys.most()],
            Keys::Rows(..) => vec![],
        };
        let mut at = 0;
        while at < queries {
            at += match queries - at {
                1 => self.queries::<S, 1>(simd, at, &mut scores, &mut sums),
                2 => self.queries::<S, 2>(simd, at, &mut scores, &mut sums),
                3 => self.queries::<S, 3>(simd, at, &mut scores, &mut sums),
                _ => self.queries::<S, { panels::ROWS }>(simd, at, &mut scores, &mut sums),
            };
        }
    }
}

impl Part<'_> {
    /// The result of `R` queries.
    #[inline(always)]
    fn queries<S: Simd, const R: usize>(
        &mut self,
        simd: S,
        at: usize,
        scores: &mut [f32],
        sums: &mut [f32],
    ) -> usize {
        let (width, all) = (self.width, self.all);
        let scale = 1.0 / (width as f32).sqrt();
        let (mut q, mut token, mut seen): ([&[f32]; R], _, _) = ([&[]; R], [0; R], [all; R]);
        for r in 0..R {
            q[r] = &self.q[(at + r) * width..][..width];
            token[r] = (self.first + at + r) % self.new;
            if self.mask.is_none() {
                seen[r] = all - self.new + token[r] + 1;
            }
        }
        let most = seen.into_iter().max().unwrap_or(all);
        match self.keys {
            Keys::Rows(keys, step) => {
                scores_of(simd, q, keys, step, all, &mut scores[..R * all], most)
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
            let (scores, hidden) = scores[r * all..][..most].split_at_mut(seen[r]);
            for score in scores.iter_mut() {
                *score *= scale;
            }
            if let Some(mask) = self.mask {
                let mask = &mask[token[r] * all..][..all];
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

/// The products of `R` queries with the first `most` keys, those of query `r` from `scores[r * all]` on.
#[inline(always)]
fn scores_of<S: Simd, const R: usize>(
    simd: S,
    q: [&[f32]; R],
    keys: &[f32],
    step: usize,
    all: usize,
    scores: &mut [f32],
    most: usize,
) {
    let key = |at: usize| &keys[at * step..][..q[0].len()];
    let mut at = 0;
    while at + KEYS <= most {
        let mut some: [&[f32]; KEYS] = [&[]; KEYS];
        for i in 0..KEYS {
            some[i] = key(at + i);
        }
        let sums = dots::<S, f32, KEYS, R>(simd, some, q);
        for r in 0..R {
            for i in 0..KEYS {
                scores[r * all + at + i] = sums[i][r];
            }
        }
        at += KEYS;
    }
    while at < most {
        let sums = dots::<S, f32, 1, R>(simd, [key(at)], q);
        for r in 0..R {
            scores[r * all + at] = sums[0][r];
        }
        at += 1;
    }
}
