//! Attention over keys and values as the cache holds them: nothing is copied, repeated or masked by
//! a tensor of its own.
//!
//! A row that is padded on the left gets, bit for bit, what it gets alone. Its softmax begins at
//! its own first column, for a sum of vectors depends on where the vectors begin; and whether its
//! keys are packed is decided by its own number of tokens, for the two ways sum in another order.

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

/// Multiplications below which a second thread costs more than it saves.
const SERIAL: usize = 1 << 16;
/// Queries of one key/value head that one thread takes at a time.
const QUERIES: usize = 16;
/// How many of them are computed together.
const TOGETHER: usize = 4;
/// Keys that they are multiplied with at a time: `2 x 4` sums and what they are made of fill 16
/// registers.
const KEYS: usize = 2;

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

/// Heads, of keys, values, or of what RoPE turns, `(B, H, S, D)`: the `D` numbers at position `s`
/// of head `h` of batch row `b` begin at `b * batch_stride + h * head_stride + s *
/// position_stride`.
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
    /// Head `i`, counted through the whole batch.
    fn head(&self, i: usize, kv_heads: usize) -> Head<'a> {
        let (row, head) = (i / kv_heads, i % kv_heads);
        let data = &self.data[row * self.batch_stride + head * self.head_stride..];
        Head { data, stride: self.position_stride }
    }
}

/// The keys or values of one head, as they lie.
#[derive(Clone, Copy)]
struct Head<'a> {
    data: &'a [f32],
    /// From one position to the next.
    stride: usize,
}

impl<'a> Head<'a> {
    /// The key or value at a position.
    fn at(&self, position: usize, width: usize) -> &'a [f32] {
        &self.data[position * self.stride..][..width]
    }
}

impl<'a> Mask<'a> {
    /// What the new tokens of one row of the batch may see: `all` numbers for each.
    fn row(&self, row: usize) -> &'a [u8] {
        &self.data[row * self.batch_stride..]
    }

    /// How many new tokens of a row are its own. The padding before them is what the next token
    /// does not see.
    fn own_tokens(&self, row: usize, new: usize, all: usize) -> usize {
        let mask = self.row(row);
        let last = new.saturating_sub(1);
        let next_sees = |token: usize| mask[(token + 1) * all + all - new + token] != 0;
        new - (0..last).position(next_sees).unwrap_or(last)
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
    let pack = |i: usize| {
        let own = mask.map_or(new, |mask| mask.own_tokens(i / kv_heads, new, all));
        let keys = k.head(i, kv_heads);
        (own >= PACKED_MIN_ROWS).then(|| Panels::new(all, width, move |s| keys.at(s, width)))
    };
    let packed: Vec<Option<Panels>> = (0..batch * kv_heads).map(pack).collect();

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

/// The keys of a head: as they lie, or packed where many queries want them.
#[derive(Clone, Copy)]
enum Keys<'a> {
    Rows(Head<'a>),
    Panels(&'a Panels),
}

/// Some queries of the heads that share keys and values: what they are, what they see, and where
/// their result goes.
struct Part<'a> {
    q: &'a [f32],
    keys: Keys<'a>,
    values: Head<'a>,
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
        let (mut q, mut token): ([&[f32]; R], _) = ([&[]; R], [0; R]);
        // The columns that each query sees go from its first to before its end.
        let (mut first, mut end) = ([0; R], [all; R]);
        for r in 0..R {
            q[r] = &self.q[(at + r) * width..][..width];
            token[r] = (self.first + at + r) % self.new;
            match self.mask {
                None => end[r] = all - self.new + token[r] + 1,
                Some(mask) => {
                    let mask = &mask[token[r] * all..][..all];
                    // A query that sees nothing has a softmax over nothing but -inf: NaN.
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

/// The products of `R` queries with the keys of these columns, those of query `r` with key `at` in
/// `scores[r * all + at]`. Memory is asked for the values meanwhile: they are read next.
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
