//! Attention over keys and values in the cache's own layout, without copying, repeating, or
//! building a mask tensor.
//!
//! A left-padded row gets bit for bit the result it gets on its own. Its softmax starts at its own
//! first column, because a vector sum depends on where the vectors start. Packing its keys depends
//! on its own number of tokens, because the two paths sum in different orders.

use crate::bandwidth::count;
use crate::dot_products::dot_products;
use crate::instruction_set::arch;
use crate::keep_awake::keep_awake;
use crate::panels::{weighted_sums, Panels, PACKED_MIN_ROWS};
use crate::prefetch::prefetch;
use crate::softmax::softmax;
use crate::threads;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;
use std::ops::Range;

/// Number of multiplications below which a second thread costs more than it saves.
const SERIAL: usize = 1 << 16;
/// Queries of one KV head that a thread takes at a time.
const QUERIES: usize = 16;
/// Number of those queries that are computed together.
const TOGETHER: usize = 4;
/// Number of keys they are multiplied with at a time: `2 x 4` sums and their operands fill 16
/// registers.
const KEYS: usize = 2;

/// The sizes of an attention operation.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape {
    /// Batch rows, `B`.
    pub batch: usize,
    /// Query heads, `H`: a multiple of `kv_heads`.
    pub heads: usize,
    /// KV heads, `Hkv`.
    pub kv_heads: usize,
    /// Queries per head, `T`. The new tokens come last.
    pub new: usize,
    /// Keys per head, `S`: at least `new`.
    pub all: usize,
    /// Length of a query, a key and a value, `D`: at least 1.
    pub width: usize,
}

/// Heads of keys, values, or inputs to RoPE, `(B, H, S, D)`. The `D` numbers at position `s` of
/// head `h` in batch row `b` start at `b * batch_stride + h * head_stride + s * position_stride`.
#[derive(Clone, Copy, Debug)]
pub struct Heads<'a> {
    /// The underlying numbers.
    pub data: &'a [f32],
    /// Distance from one batch row to the next.
    pub batch_stride: usize,
    /// Distance from one head to the next.
    pub head_stride: usize,
    /// Distance from one position to the next.
    pub position_stride: usize,
}

/// The attention mask, `(B, T, S)`. 1 means that a token may attend to a position.
#[derive(Clone, Copy, Debug)]
pub struct Mask<'a> {
    /// The mask values, in row-major order.
    pub data: &'a [u8],
    /// Distance from one batch row to the next, or 0 if all rows share one mask.
    pub batch_stride: usize,
}

impl<'a> Heads<'a> {
    /// Returns head `i`, counted across the whole batch.
    fn head(&self, i: usize, kv_heads: usize) -> Head<'a> {
        let (row, head) = (i / kv_heads, i % kv_heads);
        let data = &self.data[row * self.batch_stride + head * self.head_stride..];
        Head { data, stride: self.position_stride }
    }
}

/// The keys or values of one head, in place.
#[derive(Clone, Copy)]
struct Head<'a> {
    data: &'a [f32],
    /// Distance from one position to the next.
    stride: usize,
}

impl<'a> Head<'a> {
    /// Returns the key or value at a position.
    fn at(&self, position: usize, width: usize) -> &'a [f32] {
        &self.data[position * self.stride..][..width]
    }
}

impl<'a> Mask<'a> {
    /// Returns the mask of one batch row's new tokens: `all` values for each.
    fn row(&self, row: usize) -> &'a [u8] {
        &self.data[row * self.batch_stride..]
    }

    /// Returns the number of a row's new tokens that aren't padding. Padding tokens come first, and
    /// the token after each one can't see it.
    fn own_tokens(&self, row: usize, new: usize, all: usize) -> usize {
        let mask = self.row(row);
        let last = new.saturating_sub(1);
        let next_sees = |token: usize| mask[(token + 1) * all + all - new + token] != 0;
        new - (0..last).position(next_sees).unwrap_or(last)
    }
}

/// Computes softmax attention with grouped heads. `q` is `(B, H, T, D)` in row-major order, and so
/// is the result.
///
/// Without a mask, each of the `T` new tokens sees all tokens up to itself.
///
/// # Panics
/// If a slice is shorter than the shape requires.
pub fn attention(
    shape: AttentionShape,
    q: &[f32],
    k: Heads<'_>,
    v: Heads<'_>,
    mask: Option<Mask<'_>>,
) -> Vec<f32> {
    let AttentionShape { batch, heads, kv_heads, new, all, width } = shape;
    count(2 * batch * kv_heads * all * width * size_of::<f32>());
    let pack = |i: usize| {
        let own = mask.map_or(new, |mask| mask.own_tokens(i / kv_heads, new, all));
        let keys = k.head(i, kv_heads);
        (own >= PACKED_MIN_ROWS).then(|| Panels::new(all, width, move |s| keys.at(s, width)))
    };
    let packed: Vec<Option<Panels>> = (0..batch * kv_heads).map(pack).collect();

    let mut out = vec![0f32; batch * heads * new * width];
    let mut parts: Vec<Part<'_>> = vec![];
    // Heads that share keys and values are contiguous, so their queries are rows of one matrix.
    let rows = heads / kv_heads * new;
    for (i, out) in out.chunks_mut((rows * width).max(1)).enumerate() {
        for (part, out) in out.chunks_mut(QUERIES * width).enumerate() {
            let first = part * QUERIES;
            parts.push(Part {
                q: &q[(i * rows + first) * width..][..out.len()],
                keys: match &packed[i] {
                    Some(panels) => Keys::Panels(panels),
                    None => Keys::Rows(k.head(i, kv_heads)),
                },
                values: v.head(i, kv_heads),
                mask: mask.map(|mask| mask.row(i / kv_heads)),
                first,
                new,
                all,
                width,
                out,
            });
        }
    }

    let arch = arch();
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

/// The keys of a head: in place, or packed if many queries need them.
#[derive(Clone, Copy)]
enum Keys<'a> {
    Rows(Head<'a>),
    Panels(&'a Panels),
}

/// Some queries of the heads that share keys and values, with their inputs and output.
struct Part<'a> {
    q: &'a [f32],
    keys: Keys<'a>,
    values: Head<'a>,
    /// The mask, if there is one: `all` values for each new token.
    mask: Option<&'a [u8]>,
    /// Index of the first query among all of these heads. It belongs to new token `first % new`.
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
        let mut scores = vec![0f32; TOGETHER.min(queries) * self.all];
        let mut sums = match self.keys {
            Keys::Panels(keys) => vec![0f32; TOGETHER * keys.group_rows()],
            Keys::Rows(..) => vec![],
        };
        let mut at = 0;
        while at < queries {
            at += match queries - at {
                1 => self.queries::<S, 1>(simd, at, &mut scores, &mut sums),
                2 => self.queries::<S, 2>(simd, at, &mut scores, &mut sums),
                3 => self.queries::<S, 3>(simd, at, &mut scores, &mut sums),
                _ => self.queries::<S, { TOGETHER }>(simd, at, &mut scores, &mut sums),
            };
        }
    }
}

impl Part<'_> {
    /// Computes the results of `R` queries.
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
        let (mut q, mut token): ([&[f32]; R], _) = ([&[]; R], [0; R]);
        // The range of columns that each query sees.
        let (mut first, mut end) = ([0; R], [all; R]);
        for r in 0..R {
            q[r] = &self.q[(at + r) * width..][..width];
            token[r] = (self.first + at + r) % self.new;
            match self.mask {
                None => end[r] = all - self.new + token[r] + 1,
                Some(mask) => {
                    let mask = &mask[token[r] * all..][..all];
                    // A query that sees nothing has a softmax over -inf only: NaN.
                    first[r] = mask.iter().position(|may| *may != 0).unwrap_or(0);
                    end[r] = mask.iter().rposition(|may| *may != 0).map_or(all, |last| last + 1);
                }
            }
        }
        let least = first.into_iter().min().unwrap_or(0);
        let most = end.into_iter().max().unwrap_or(all);
        match self.keys {
            Keys::Rows(keys) => {
                let scores = &mut scores[..R * all];
                scores_of_rows(simd, q, keys, self.values, all, scores, least..most)
            }
            Keys::Panels(keys) => {
                for group in (0..keys.groups()).map(|i| keys.group(i)) {
                    if group.first >= most {
                        break;
                    }
                    if group.first + group.rows <= least {
                        continue;
                    }
                    let step = group.panels * S::F32_LANES;
                    let sums = &mut sums[..R * step];
                    group.products(simd, q, sums);
                    for r in 0..R {
                        scores[r * all + group.first..][..group.rows]
                            .copy_from_slice(&sums[r * step..][..group.rows]);
                    }
                }
            }
        }
        for r in 0..R {
            let scores = &mut scores[r * all..][..most];
            scores[least..first[r]].fill(0.0);
            scores[end[r]..].fill(0.0);
            let seen = &mut scores[first[r]..end[r]];
            for score in seen.iter_mut() {
                *score *= scale;
            }
            if let Some(mask) = self.mask {
                let mask = &mask[token[r] * all..][first[r]..end[r]];
                for i in 0..seen.len() {
                    seen[i] = if mask[i] == 0 { f32::NEG_INFINITY } else { seen[i] };
                }
            }
            softmax(simd, seen);
        }
        let mut weights: [&[f32]; R] = [&[]; R];
        for r in 0..R {
            weights[r] = &scores[r * all..][least..most];
        }
        let Head { data: values, stride } = self.values;
        let out = &mut self.out[at * width..][..R * width];
        weighted_sums(simd, weights, &values[least * stride..], stride, out);
        R
    }
}

/// Computes the products of `R` queries with the keys in these columns. The product of query `r`
/// with key `at` goes to `scores[r * all + at]`. Prefetches the values, which are read next.
#[inline(always)]
fn scores_of_rows<S: Simd, const R: usize>(
    simd: S,
    q: [&[f32]; R],
    keys: Head<'_>,
    values: Head<'_>,
    all: usize,
    scores: &mut [f32],
    columns: Range<usize>,
) {
    let width = q[0].len();
    let mut at = columns.start;
    while at + KEYS <= columns.end {
        let mut some: [&[f32]; KEYS] = [&[]; KEYS];
        for i in 0..KEYS {
            some[i] = keys.at(at + i, width);
            prefetch(values.at(at + i, width), 0, size_of_val(q[0]));
        }
        let sums = dot_products::<S, f32, KEYS, R>(simd, some, q);
        for r in 0..R {
            for i in 0..KEYS {
                scores[r * all + at + i] = sums[i][r];
            }
        }
        at += KEYS;
    }
    while at < columns.end {
        let sums = dot_products::<S, f32, 1, R>(simd, [keys.at(at, width)], q);
        for r in 0..R {
            scores[r * all + at] = sums[0][r];
        }
        at += 1;
    }
}
