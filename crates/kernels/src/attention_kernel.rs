//! Attention over keys and values in the cache's own layout, without copying, repeating, or
//! building a mask tensor. The cache is one buffer per row of the batch ([`attention`]), or blocks
//! anywhere in a pool ([`paged_attention`]).
//!
//! A token gets bit for bit the same result in every pass that computes it: alone, in a batch, with
//! more or fewer tokens of its own sequence, from a buffer or from blocks. A score adds its
//! products one by one, first to last (`panels.rs`). A softmax starts at the first column that its
//! token sees, because a vector sum depends on where the vectors start. Values are added one by
//! one, in the order of their positions.

use crate::bandwidth::count;
use crate::instruction_set::arch;
use crate::keep_awake::keep_awake;
use crate::panels::{group_rows, pack_group, weighted_sums, Group, Panels, STRETCH};
use crate::rows::{Rows, AHEAD};
use crate::softmax::softmax;
use crate::threads;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;
use std::cell::Cell;

/// Number of multiplications below which a second thread costs more than it saves.
const SERIAL: usize = 1 << 16;
/// Queries of one KV head that a thread takes at a time.
const QUERIES: usize = 16;
/// Number of those queries that the thread computes together.
const TOGETHER: usize = 4;
/// Minimum number of queries per KV head for which all keys are packed once. With fewer, each
/// thread packs them for the queries it takes.
const PACKED_MIN_QUERIES: usize = 4 * QUERIES;

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
///
/// A paged cache has a block in place of a batch row: `(blocks, Hkv, block size, D)`.
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
    /// Returns the numbers starting with the first one of a head.
    fn head(&self, row: usize, head: usize) -> &'a [f32] {
        &self.data[row * self.batch_stride + head * self.head_stride..]
    }
}

impl<'a> Mask<'a> {
    /// Returns the mask of one batch row's new tokens: `all` values for each.
    fn row(&self, row: usize) -> &'a [u8] {
        &self.data[row * self.batch_stride..]
    }
}

/// The sizes of attention over blocks.
#[derive(Clone, Copy, Debug)]
pub struct PagedShape {
    /// Query heads, `H`: a multiple of `kv_heads`.
    pub heads: usize,
    /// KV heads, `Hkv`.
    pub kv_heads: usize,
    /// Length of a query, a key and a value, `D`: at least 1.
    pub width: usize,
    /// Positions in a block: at least 1.
    pub block_size: usize,
}

/// One sequence in a paged cache.
#[derive(Clone, Copy, Debug)]
pub struct PagedRow<'a> {
    /// The blocks of the sequence: position `p` is in block `block_table[p / block_size]`.
    pub block_table: &'a [u32],
    /// Positions held, including the new ones.
    pub all: usize,
    /// New tokens: the last of the positions.
    pub new: usize,
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
    // A row's buffer counts as a single block.
    let rows = |of: Heads<'_>, data| {
        let (block_size, stride) = (all.max(1), of.position_stride);
        Rows { data, table: &[0], block_size, block_stride: 0, stride, width }
    };
    let keys = |row, head| rows(k, k.head(row, head));
    let values = |row, head| rows(v, v.head(row, head));
    let sequence = |row: usize| Sequence {
        q: &q[row * heads * new * width..],
        head_stride: new * width,
        heads: (0..kv_heads).map(|head| (keys(row, head), values(row, head))).collect(),
        mask: mask.map(|mask| mask.row(row)),
        new,
        all,
    };
    let sequences: Vec<_> = (0..batch).map(sequence).collect();
    attend(&sequences, heads, width)
}

/// Computes softmax attention over a paged cache, whose blocks are read in place. `q` is
/// `(H, N, D)` in row-major order, and so is the result: the `N` new tokens of all sequences, one
/// sequence after another. Each token sees its own sequence, up to itself.
///
/// If a block doesn't exist, the result is NaN.
///
/// # Panics
/// If `q` or `k` is shorter than the sizes require, or a table is too short.
pub fn paged_attention(
    shape: PagedShape,
    q: &[f32],
    k: Heads<'_>,
    v: Heads<'_>,
    rows: &[PagedRow<'_>],
) -> Vec<f32> {
    let PagedShape { heads, kv_heads, width, block_size } = shape;
    let tokens: usize = rows.iter().map(|row| row.new).sum();
    let mut sequences = Vec::with_capacity(rows.len());
    let mut first = 0;
    for row in rows {
        let table = &row.block_table[..row.all.div_ceil(block_size)];
        let part = |of: Heads<'_>, data| {
            let (block_stride, stride) = (of.batch_stride, of.position_stride);
            Rows { data, table, block_size, block_stride, stride, width }
        };
        sequences.push(Sequence {
            q: &q[first * width..],
            head_stride: tokens * width,
            heads: (0..kv_heads)
                .map(|head| (part(k, k.head(0, head)), part(v, v.head(0, head))))
                .collect(),
            mask: None,
            new: row.new,
            all: row.all,
        });
        first += row.new;
    }
    let by_sequence = attend(&sequences, heads, width);
    if rows.len() == 1 {
        return by_sequence;
    }
    // (sequences, H, new tokens, D) -> (H, N, D)
    let mut out = vec![0f32; by_sequence.len()];
    let (mut rest, mut first) = (&by_sequence[..], 0);
    for row in rows {
        for head in 0..heads {
            let (numbers, after) = rest.split_at(row.new * width);
            out[(head * tokens + first) * width..][..numbers.len()].copy_from_slice(numbers);
            rest = after;
        }
        first += row.new;
    }
    out
}

/// The queries, keys and values of one sequence.
struct Sequence<'a> {
    /// The queries, starting with the first token of the first head. Those of one head are
    /// contiguous.
    q: &'a [f32],
    /// Distance from one query head to the next.
    head_stride: usize,
    /// The keys and values of each KV head.
    heads: Vec<(Rows<'a>, Rows<'a>)>,
    /// The mask, if there is one: `all` values for each new token.
    mask: Option<&'a [u8]>,
    new: usize,
    all: usize,
}

/// Computes the attention of every sequence with `heads` query heads. Returns `(H, T, D)` for each,
/// one after another.
fn attend(sequences: &[Sequence<'_>], heads: usize, width: usize) -> Vec<f32> {
    let of_all = |size: fn(&Sequence<'_>) -> usize| sequences.iter().map(size).sum::<usize>();
    count(2 * size_of::<f32>() * width * of_all(|of| of.heads.len() * of.all));
    // Heads that share keys and values are contiguous, so their queries are rows of one matrix.
    let pack = |of: &Sequence<'_>| {
        if heads / of.heads.len() * of.new < PACKED_MIN_QUERIES {
            return vec![];
        }
        of.heads.par_iter().map(|head| Panels::new(head.0, of.all)).collect()
    };
    let packed: Vec<Vec<Panels>> = sequences.iter().map(pack).collect();

    let mut out = vec![0f32; heads * width * of_all(|of| of.new)];
    let mut parts: Vec<Part<'_>> = vec![];
    let mut rest = &mut out[..];
    for (of, packed) in sequences.iter().zip(&packed) {
        let group = heads / of.heads.len();
        for (i, head) in of.heads.iter().enumerate() {
            let (out, after) = rest.split_at_mut(group * of.new * width);
            rest = after;
            for (part, out) in out.chunks_mut(QUERIES * width).enumerate() {
                parts.push(Part {
                    q: &of.q[i * group * of.head_stride..],
                    head_stride: of.head_stride,
                    keys: packed.get(i).map_or(Keys::Rows(head.0), Keys::Packed),
                    values: head.1,
                    mask: of.mask,
                    first: part * QUERIES,
                    new: of.new,
                    all: of.all,
                    width,
                    out,
                });
            }
        }
    }

    let arch = arch();
    if threads() == 1 || heads * width * of_all(|of| of.new * of.all) < SERIAL {
        for part in parts {
            arch.dispatch(part);
        }
    } else {
        keep_awake();
        parts.into_par_iter().for_each(|part| arch.dispatch(part));
    }
    out
}

/// The keys of a head: where the cache holds them, or packed if many queries need them.
#[derive(Clone, Copy)]
enum Keys<'a> {
    Rows(Rows<'a>),
    Packed(&'a Panels),
}

/// Some queries of the heads that share keys and values, with their inputs and output.
struct Part<'a> {
    /// The queries of all of these heads.
    q: &'a [f32],
    /// Distance from one query head to the next.
    head_stride: usize,
    keys: Keys<'a>,
    values: Rows<'a>,
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
        let (queries, group) = (self.out.len() / self.width, group_rows(S::F32_LANES));
        let mut room = ROOM.take();
        at_least(&mut room.scores, queries * self.all);
        at_least(&mut room.sums, TOGETHER * group);
        if let Keys::Rows(_) = self.keys {
            at_least(&mut room.keys, group * self.width);
        }
        let mut seen = [(0, 0); QUERIES];
        let (mut least, mut most) = (self.all, 0);
        for at in 0..queries {
            seen[at] = self.columns_seen(at);
            least = least.min(seen[at].0);
            most = most.max(seen[at].1);
        }
        let Room { scores, sums, keys: packed } = &mut room;
        for i in least / group..most.div_ceil(group) {
            let group = match self.keys {
                Keys::Rows(keys) => {
                    pack_group(simd, keys, i * group..most.min((i + 1) * group), packed)
                }
                Keys::Packed(keys) => keys.group(i),
            };
            let mut at = 0;
            while at < queries {
                at += match queries - at {
                    1 => self.write_scores::<S, 1>(simd, at, &group, sums, scores),
                    2 => self.write_scores::<S, 2>(simd, at, &group, sums, scores),
                    3 => self.write_scores::<S, 3>(simd, at, &group, sums, scores),
                    _ => self.write_scores::<S, { TOGETHER }>(simd, at, &group, sums, scores),
                };
            }
        }
        self.values.prefetch(least..least + AHEAD);
        let mut at = 0;
        while at < queries {
            at += match queries - at {
                1 => self.write_results::<S, 1>(simd, at, &seen, scores),
                2 => self.write_results::<S, 2>(simd, at, &seen, scores),
                3 => self.write_results::<S, 3>(simd, at, &seen, scores),
                _ => self.write_results::<S, { TOGETHER }>(simd, at, &seen, scores),
            };
        }
        ROOM.set(room);
    }
}

thread_local! {
    /// A thread's scratch memory, reused from one part of the work to the next. Clearing it each
    /// time would take as long as a short sequence's products.
    static ROOM: Cell<Room> = const { Cell::new(Room::new()) };
}

/// Makes a vector at least this long.
fn at_least(numbers: &mut Vec<f32>, len: usize) {
    if numbers.len() < len {
        numbers.resize(len, 0.0);
    }
}

/// Scratch memory for intermediate results. Its initial contents don't matter.
#[derive(Default)]
struct Room {
    /// Scores of a few queries with all keys.
    scores: Vec<f32>,
    /// Scores of a few queries with one group of keys.
    sums: Vec<f32>,
    /// A packed group of keys.
    keys: Vec<f32>,
}

impl Room {
    const fn new() -> Self {
        Self { scores: vec![], sums: vec![], keys: vec![] }
    }
}

impl Part<'_> {
    /// Returns the new token that a query belongs to.
    fn token(&self, at: usize) -> usize {
        (self.first + at) % self.new
    }

    /// Returns the first column that a query sees, and the one after the last.
    fn columns_seen(&self, at: usize) -> (usize, usize) {
        let (token, all) = (self.token(at), self.all);
        let Some(mask) = self.mask else { return (0, all - self.new + token + 1) };
        let mask = &mask[token * all..][..all];
        // A query that sees nothing gets a softmax over nothing but -inf, which is NaN.
        let first = mask.iter().position(|may| *may != 0).unwrap_or(0);
        (first, mask.iter().rposition(|may| *may != 0).map_or(all, |last| last + 1))
    }

    /// Computes the products of `N` queries with a group of keys. The product of query `at` with
    /// the key at `position` goes to `scores[at * all + position]`. Returns `N`.
    #[inline(always)]
    fn write_scores<S: Simd, const N: usize>(
        &self,
        simd: S,
        at: usize,
        group: &Group<'_>,
        sums: &mut [f32],
        scores: &mut [f32],
    ) -> usize {
        let mut q: [&[f32]; N] = [&[]; N];
        for r in 0..N {
            let head = (self.first + at + r) / self.new;
            let start = head * self.head_stride + self.token(at + r) * self.width;
            q[r] = &self.q[start..][..self.width];
        }
        let step = group.panels * S::F32_LANES;
        let sums = &mut sums[..N * step];
        group.products(simd, q, sums);
        for r in 0..N {
            let count = group.rows.min(self.all - group.first);
            scores[(at + r) * self.all + group.first..][..count]
                .copy_from_slice(&sums[r * step..][..count]);
        }
        N
    }

    /// Computes the results of `N` queries from their scores. Returns `N`.
    #[inline(always)]
    fn write_results<S: Simd, const N: usize>(
        &mut self,
        simd: S,
        at: usize,
        seen: &[(usize, usize); QUERIES],
        scores: &mut [f32],
    ) -> usize {
        let (width, all) = (self.width, self.all);
        let scale = 1.0 / (width as f32).sqrt();
        let seen: &[(usize, usize)] = &seen[at..][..N];
        let least = seen.iter().map(|seen| seen.0).min().unwrap_or(0);
        let most = seen.iter().map(|seen| seen.1).max().unwrap_or(all);
        let scores = &mut scores[at * all..][..N * all];
        for r in 0..N {
            let (first, end) = seen[r];
            let scores = &mut scores[r * all..][..most];
            scores[least..first].fill(0.0);
            scores[end..].fill(0.0);
            let seen = &mut scores[first..end];
            for score in seen.iter_mut() {
                *score *= scale;
            }
            if let Some(mask) = self.mask {
                let mask = &mask[self.token(at + r) * all..][first..end];
                for i in 0..seen.len() {
                    seen[i] = if mask[i] == 0 { f32::NEG_INFINITY } else { seen[i] };
                }
            }
            softmax(simd, seen);
        }
        let mut weights: [&[f32]; N] = [&[]; N];
        for r in 0..N {
            weights[r] = &scores[r * all..][least..most];
        }
        let out = &mut self.out[at * width..][..N * width];
        let ahead = if at == 0 { STRETCH } else { 0 }; // the first queries' values serve all
        weighted_sums(simd, weights, self.values, least, ahead, out);
        N
    }
}
