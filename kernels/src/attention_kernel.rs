//! Attention over keys and values as the cache holds them: nothing is copied, repeated or masked by
//! a tensor of its own.

use crate::bandwidth::count;
use crate::dot_products::dot_products;
use crate::keep_awake::keep_awake;
use crate::panels::{self, weighted_sums, Panels, GEMM_MIN_ROWS};
use crate::softmax::softmax;
use crate::threads;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// Multiplications below which a second thread costs more than it saves.
const SERIAL: usize = 1 << 16;
/// Queries of one key/value head that one thread takes at a time.
const QUERIES: usize = 16;
/// Keys that they are multiplied with at a time.
const KEYS: usize = 4;

/// The sizes of an attention.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape {
    /// Rows of the batch, `B`.
    pub batch: usize,
    /// Heads of the queries, `H`: a multiple of `kv_heads`.
    pub heads: usize,
    /// Heads of the keys and values, `Hkv`.
    pub kv_heads: usize,
    /// Queries of each head, `T`: the new tokens are the last of all.
    pub new: usize,
    /// Keys of each head, `S`: at least `new`.
    pub all: usize,
    /// Numbers of a query, a key and a value, `D`: at least 1.
    pub width: usize,
}

/// Keys or values, `(B, Hkv, S, D)`: the `D` numbers at position `s` of head `h` of batch row `b`
/// begin at `b * batch_stride + h * head_stride + s * position_stride`.
#[derive(Clone, Copy, Debug)]
pub struct Heads<'a> {
    /// All numbers.
    pub data: &'a [f32],
    /// From one row of the batch to the next.
    pub batch_stride: usize,
    /// From one head to the next.
    pub head_stride: usize,
    /// From one position to the next.
    pub position_stride: usize,
}

/// Who may attend to what: `(B, T, S)`, 1 = may attend.
#[derive(Clone, Copy, Debug)]
pub struct Mask<'a> {
    /// All numbers, row after row.
    pub data: &'a [u8],
    /// From one row of the batch to the next; 0 if one mask is for all of them.
    pub batch_stride: usize,
}

impl<'a> Heads<'a> {
    /// The numbers of head `i`, counted through the whole batch.
    fn head(&self, i: usize, kv_heads: usize) -> &'a [f32] {
        let (row, head) = (i / kv_heads, i % kv_heads);
        &self.data[row * self.batch_stride + head * self.head_stride..]
    }
}

/// Softmax attention in groups: `q` is `(B, H, T, D)`, row after row, and so is the result.
///
/// Without a mask each of the `T` new tokens sees all tokens up to itself.
///
/// # Panics
/// If a slice is shorter than the shape says.
pub fn attention(
    shape: AttentionShape,
    q: &[f32],
    k: Heads<'_>,
    v: Heads<'_>,
    mask: Option<Mask<'_>>,
) -> Vec<f32> {
    let AttentionShape { batch, heads, kv_heads, new, all, width } = shape;
    count(2 * batch * kv_heads * all * width * size_of::<f32>());
    let packed: Option<Vec<Panels>> = (new >= GEMM_MIN_ROWS).then(|| {
        let pack = |i: usize| {
            let keys = k.head(i, kv_heads);
            Panels::new(all, width, false, move |s| &keys[s * k.position_stride..][..width])
        };
        (0..batch * kv_heads).map(pack).collect()
    });

    let mut out = vec![0f32; batch * heads * new * width];
    let mut parts: Vec<Part<'_>> = vec![];
    // The heads that share keys and values lie one behind the other: their queries are rows of one
    // matrix.
    let rows = heads / kv_heads * new;
    for (i, out) in out.chunks_mut((rows * width).max(1)).enumerate() {
        for (part, out) in out.chunks_mut(QUERIES * width).enumerate() {
            let first = part * QUERIES;
            parts.push(Part {
                q: &q[(i * rows + first) * width..][..out.len()],
                keys: match &packed {
                    Some(panels) => Keys::Panels(&panels[i]),
                    None => Keys::Rows(k.head(i, kv_heads), k.position_stride),
                },
                values: (v.head(i, kv_heads), v.position_stride),
                mask: mask.map(|mask| &mask.data[i / kv_heads * mask.batch_stride..]),
                first,
                new,
                all,
                width,
                out,
            });
        }
    }

    let arch = Arch::new();
    if threads() == 1 || batch * heads * new * all * width < SERIAL {
        for part in parts {
            arch.dispatch(part);
        }
    } else {
        keep_awake();
        parts.into_par_iter().for_each(|part| arch.dispatch(part));
    }
    out
}

/// The keys of a head: as they lie, or packed where many queries want them.
#[derive(Clone, Copy)]
enum Keys<'a> {
    Rows(&'a [f32], usize),
    Panels(&'a Panels),
}

/// Some queries of the heads that share keys and values: what they are, what they see, and where
/// their result goes.
struct Part<'a> {
    q: &'a [f32],
    keys: Keys<'a>,
    /// Where the values begin, and how far it is from one position to the next.
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
        let mut scores = vec![0f32; panels::PANEL_W_ROWS.min(queries) * self.all];
        let mut sums = match self.keys {
            Keys::Panels(keys) => vec![0f32; panels::PANEL_W_ROWS * keys.group_rows()],
            Keys::Rows(..) => vec![],
        };
        let mut at = 0;
        while at < queries {
            at += match queries - at {
                1 => self.queries::<S, 1>(simd, at, &mut scores, &mut sums),
                2 => self.queries::<S, 2>(simd, at, &mut scores, &mut sums),
                3 => self.queries::<S, 3>(simd, at, &mut scores, &mut sums),
                _ => self.queries::<S, { panels::PANEL_W_ROWS }>(simd, at, &mut scores, &mut sums),
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
        let (mut q, mut token, mut visible): ([&[f32]; R], _, _) = ([&[]; R], [0; R], [all; R]);
        for r in 0..R {
            q[r] = &self.q[(at + r) * width..][..width];
            token[r] = (self.first + at + r) % self.new;
            if self.mask.is_none() {
                visible[r] = all - self.new + token[r] + 1;
            }
        }
        let most = visible.into_iter().max().unwrap_or(all);
        match self.keys {
            Keys::Rows(keys, stride) => {
                scores_of_rows(simd, q, keys, stride, all, &mut scores[..R * all], most)
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
            let (scores, hidden) = scores[r * all..][..most].split_at_mut(visible[r]);
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
        let (values, stride) = self.values;
        weighted_sums(simd, weights, values, stride, &mut self.out[at * width..][..R * width]);
        R
    }
}

/// The products of `R` queries with the first `most` keys, those of query `r` from
/// `scores[r * all]` on.
#[inline(always)]
fn scores_of_rows<S: Simd, const R: usize>(
    simd: S,
    q: [&[f32]; R],
    keys: &[f32],
    stride: usize,
    all: usize,
    scores: &mut [f32],
    most: usize,
) {
    let key = |at: usize| &keys[at * stride..][..q[0].len()];
    let mut at = 0;
    while at + KEYS <= most {
        let mut some: [&[f32]; KEYS] = [&[]; KEYS];
        for i in 0..KEYS {
            some[i] = key(at + i);
        }
        let sums = dot_products::<S, f32, KEYS, R>(simd, some, q);
        for r in 0..R {
            for i in 0..KEYS {
                scores[r * all + at + i] = sums[i][r];
            }
        }
        at += KEYS;
    }
    while at < most {
        let sums = dot_products::<S, f32, 1, R>(simd, [key(at)], q);
        for r in 0..R {
            scores[r * all + at] = sums[0][r];
        }
        at += 1;
    }
}
