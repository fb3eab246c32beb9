#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 18: flash attention. The softmax is computed one tile of keys at a time, so attention never
//! stores more than a tile's scores. Keys and values are read directly from the cache.
//!
//! Everything is safe Rust on `f32` slices. The functions that run inside `Arch::dispatch` are
//! `#[inline(always)]`, so they are compiled for the detected CPU (day 17). Their inner loops use
//! indices, because an iterator's `zip` isn't always inlined there.

#![allow(clippy::needless_range_loop)]

use candecode::kit::device::on_cpu;
use candle_core::{bail, CpuStorage, CustomOp3, Layout, Result, Shape, Tensor};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;
use std::ops::Range;

/// Keys per tile. 64 keys of 64 numbers are 16 KB, and so are their values:
/// together, about the size of a core's L1 cache.
pub const TILE: usize = 64;

/// Number of prompt tokens per block. The queries of a block go over the tiles
/// together.
pub const BLOCK: usize = 16;

/// Columns per chunk when a single token's attention is split among threads.
pub const SPLIT: usize = 512;

// part 1: a softmax in pieces

/// The keys or the values of one head, in place in the cache: `width` numbers per
/// position. Numbers between one position and the next belong to something else.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// The numbers, starting at position 0.
    pub data: &'a [f32],
    /// Distance between the starts of neighboring positions.
    pub stride: usize,
    /// D: numbers per key or value.
    pub width: usize,
}

impl<'a> Head<'a> {
    /// Returns the key or value at `position`, `(D)`.
    #[inline(always)]
    pub fn at(&self, position: usize) -> &'a [f32] {
        &self.data[position * self.stride..][..self.width]
    }
}

/// The state of a query's online softmax after the keys it has met so far (Milakov
/// and Gimelshein 2018; called m, l and O in the FlashAttention paper, Dao et al.
/// 2022).
#[derive(Debug, Clone, PartialEq)]
pub struct Partial {
    /// The largest score.
    pub max: f32,
    /// `Σ exp(score - max)`.
    pub sum: f32,
    /// `Σ exp(score - max) · value`, `(D)`.
    pub acc: Vec<f32>,
}

impl Partial {
    /// Returns the state before the first key: a maximum of -inf, and sums of 0.
    #[inline(always)]
    pub fn new(width: usize) -> Self {
        Self { max: f32::NEG_INFINITY, sum: 0.0, acc: vec![0.0; width] }
    }

    /// Adds some keys: `scores[i]` is the query's score with the key whose value is
    /// `values.at(first + i)`. A score of -inf means that the query must not attend to
    /// that key.
    ///
    /// If all scores are -inf, nothing changes. A score of NaN or +inf makes the sums
    /// NaN, as in torch's softmax.
    #[inline(always)]
    pub fn update(&mut self, scores: &[f32], values: &Head, first: usize) {
        // task 18.1: Add the scores and their values to the running softmax
        todo!("day 18, task 1: Add the scores and their values to the running softmax")
    }

    /// Writes the query's attention, `(D)`, to `out`: the mean of the values, weighted
    /// by softmax. NaN if the query has met no visible key.
    #[inline(always)]
    pub fn finish(&self, out: &mut [f32]) {
        // task 18.2: Turn the accumulator into the attention
        todo!("day 18, task 2: Turn the accumulator into the attention")
    }

    /// Adds the state that the same query gathered from other keys. A state without any
    /// visible key changes nothing.
    #[inline(always)]
    pub fn merge(&mut self, other: &Self) {
        // task 18.3: Merge two states that were gathered from different keys
        todo!("day 18, task 3: Merge two states that were gathered from different keys")
    }
}

/// Adds `weight · row` to `acc`, element by element.
#[inline(always)]
fn add_scaled(acc: &mut [f32], weight: f32, row: &[f32]) {
    let row = &row[..acc.len()]; // removes the bounds checks from the loop
    for i in 0..acc.len() {
        acc[i] = weight.mul_add(row[i], acc[i]);
    }
}

/// Returns the dot product of two rows of equal length, using eight running sums
/// (day 17).
#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a_chunks, a_tail) = a.as_chunks::<8>();
    let (b_chunks, b_tail) = b.as_chunks::<8>();
    let mut sums = [0f32; 8];
    for chunk in 0..a_chunks.len().min(b_chunks.len()) {
        let (a, b) = (&a_chunks[chunk], &b_chunks[chunk]);
        for i in 0..8 {
            sums[i] = a[i].mul_add(b[i], sums[i]);
        }
    }
    let mut total = 0.0;
    for i in 0..8 {
        total += sums[i];
    }
    for i in 0..a_tail.len().min(b_tail.len()) {
        total += a_tail[i] * b_tail[i];
    }
    total
}

// part 2: attention in tiles

/// The attention mask of one row of the batch: which of the row's S columns each of
/// its T new tokens may attend to. (A column is a position in the cache, padding
/// included.)
#[derive(Debug, Clone, Copy)]
pub struct RowMask<'a> {
    /// `(T, S)`, row-major, 1 = may attend. None: causal; the new tokens are the last T
    /// columns.
    pub mask: Option<&'a [u8]>,
    /// T: new tokens.
    pub new: usize,
    /// S: columns, including those of the new tokens.
    pub all: usize,
}

impl RowMask<'_> {
    /// Returns whether new token `token` may attend to a column.
    #[inline(always)]
    pub fn sees(&self, token: usize, column: usize) -> bool {
        match self.mask {
            Some(mask) => mask[token * self.all + column] != 0,
            None => column <= self.all - self.new + token,
        }
    }

    /// Returns the range from the first to the last column that new token `token` may
    /// attend to. There may be gaps inside. A token that may attend to nothing gets
    /// `0..0`.
    #[inline(always)]
    pub fn columns(&self, token: usize) -> Range<usize> {
        let first = (0..self.all).find(|column| self.sees(token, *column));
        let last = (0..self.all).rev().find(|column| self.sees(token, *column));
        match (first, last) {
            (Some(first), Some(last)) => first..last + 1,
            _ => 0..0,
        }
    }

    /// Divides the new tokens into blocks of at most [`BLOCK`], in order. Padding comes
    /// first, in blocks of its own, so a row's real blocks start at its first real
    /// token whether or not it is padded. The first real token is the first one that
    /// the newest token may attend to.
    pub fn blocks(&self) -> Vec<Range<usize>> {
        let past = self.all - self.new;
        let newest = self.new - 1;
        let first_real = (0..self.new).find(|token| self.sees(newest, past + token));
        let padding = first_real.unwrap_or(0);
        let mut blocks = Vec::new();
        for part in [0..padding, padding..self.new] {
            let mut first = part.start;
            while first < part.end {
                let end = part.end.min(first + BLOCK);
                blocks.push(first..end);
                first = end;
            }
        }
        blocks
    }
}

/// One head's query for one new token.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// The query's numbers, `(D)`.
    pub numbers: &'a [f32],
    /// Index of its token among the new tokens.
    pub token: usize,
}

/// Computes the scores of every query with the keys in `columns` and writes them to
/// `scores`, `(queries, columns)`, row-major: `q · k / √D`, or -inf where the
/// query's token may not attend.
///
/// Fetches each key once and multiplies it by all queries.
#[inline(always)]
pub fn tile_scores(
    queries: &[Query],
    keys: &Head,
    mask: &RowMask,
    columns: Range<usize>,
    scores: &mut [f32],
) {
    // task 18.4: Compute the scaled and masked scores of a tile
    todo!("day 18, task 4: Compute the scaled and masked scores of a tile")
}

/// Takes every query over the keys in `columns` and returns the queries' states.
/// Goes tile by tile: a tile has [`TILE`] columns (the last one may have fewer), and
/// the first starts at `columns.start`. If no query may attend to anything in a tile,
/// the tile's keys and values are not read.
///
/// All queries share these keys and values: they come from one group of heads, and
/// from one or more tokens.
#[inline(always)]
pub fn attend_tiles(
    queries: &[Query],
    keys: &Head,
    values: &Head,
    mask: &RowMask,
    columns: Range<usize>,
) -> Vec<Partial> {
    // task 18.5: Go over the columns in tiles, and skip tiles that no query sees
    todo!("day 18, task 5: Go over the columns in tiles, and skip tiles that no query sees")
}

/// The arguments of [`attend_tiles`], for [`attend_tiles_on_vectors`].
struct Tiles<'a> {
    queries: &'a [Query<'a>],
    keys: &'a Head<'a>,
    values: &'a Head<'a>,
    mask: &'a RowMask<'a>,
    columns: Range<usize>,
}

impl WithSimd for Tiles<'_> {
    type Output = Vec<Partial>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> Vec<Partial> {
        attend_tiles(self.queries, self.keys, self.values, self.mask, self.columns)
    }
}

/// Runs [`attend_tiles`], compiled for this CPU's vector instructions.
fn attend_tiles_on_vectors(
    queries: &[Query],
    keys: &Head,
    values: &Head,
    mask: &RowMask,
    columns: Range<usize>,
) -> Vec<Partial> {
    Arch::new().dispatch(Tiles { queries, keys, values, mask, columns })
}

/// Computes the same as [`attend_tiles`], on several threads: the columns are
/// divided into chunks of [`SPLIT`], starting at `columns.start`, and the chunks'
/// states are merged in column order (Flash-Decoding, Dao et al. 2023).
///
/// The chunks depend only on `columns`, so the result has the same bits for any number
/// of threads, and in every batch.
pub fn attend_split(
    queries: &[Query],
    keys: &Head,
    values: &Head,
    mask: &RowMask,
    columns: Range<usize>,
) -> Vec<Partial> {
    // task 18.6: Attend to chunks of columns in parallel, and merge their states in order
    todo!(
        "day 18, task 6: Attend to chunks of columns in parallel, and merge their states in order"
    )
}

/// The dimensions of an attention operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// B: rows of the batch.
    pub rows: usize,
    /// H: query heads.
    pub heads: usize,
    /// Hkv: key/value heads. H is a multiple of it.
    pub kv_heads: usize,
    /// T: new tokens per row.
    pub new: usize,
    /// D: numbers per query, key and value.
    pub width: usize,
}

impl Sizes {
    /// Returns the offset of a query, and of its result, in `(B, H, T, D)`.
    pub fn offset(&self, row: usize, head: usize, token: usize) -> usize {
        ((row * self.heads + head) * self.new + token) * self.width
    }
}

/// Computes the attention of a batch. `q` and the result are `(B, H, T, D)`,
/// row-major. `keys` and `values` have B · Hkv heads: head `h` of row `b` is at
/// index `b · Hkv + h`. Each row has a mask.
///
/// Query head `h` uses key/value head `h / (H / Hkv)` (HF `repeat_kv`). The queries
/// of a group of heads and a block of tokens go over the tiles together, and blocks
/// run in parallel. In decoding (T = 1) the columns are split as well.
///
/// A block's tiles start at the first column that its first token may attend to. So
/// a padded row's keys are summed in the same order as without padding, and its
/// result has the same bits.
pub fn flash_attention(
    sizes: &Sizes,
    q: &[f32],
    keys: &[Head],
    values: &[Head],
    masks: &[RowMask],
) -> Vec<f32> {
    let group = sizes.heads / sizes.kv_heads;
    let mut blocks = Vec::new();
    for (row, mask) in masks.iter().enumerate() {
        for tokens in mask.blocks() {
            for kv_head in 0..sizes.kv_heads {
                blocks.push((row, kv_head, tokens.clone()));
            }
        }
    }
    let attend = |(row, kv_head, tokens): &(usize, usize, Range<usize>)| {
        let mask = &masks[*row];
        let shared = row * sizes.kv_heads + kv_head;
        let mut offsets = Vec::new();
        let mut queries = Vec::new();
        for head in kv_head * group..(kv_head + 1) * group {
            for token in tokens.clone() {
                let offset = sizes.offset(*row, head, token);
                offsets.push(offset);
                queries.push(Query { numbers: &q[offset..][..sizes.width], token });
            }
        }
        let columns = mask.columns(tokens.start).start..mask.all;
        let attend = if sizes.new == 1 { attend_split } else { attend_tiles_on_vectors };
        let partials = attend(&queries, &keys[shared], &values[shared], mask, columns);
        (offsets, partials)
    };
    let done: Vec<(Vec<usize>, Vec<Partial>)> = blocks.par_iter().map(attend).collect();
    let mut out = vec![0.0; q.len()];
    for (offsets, partials) in &done {
        for (offset, partial) in offsets.iter().zip(partials) {
            partial.finish(&mut out[*offset..][..sizes.width]);
        }
    }
    out
}

/// Returns the heads of keys or values `(B, Hkv, S, D)`, row by row, without
/// copying them. `data` is the tensor's storage; `layout` has its strides and
/// offset.
///
/// # Errors
/// If there aren't four dimensions, or a position's D numbers aren't contiguous.
pub fn heads_of<'a>(data: &'a [f32], layout: &Layout) -> Result<Vec<Head<'a>>> {
    let (rows, heads, _, width) = layout.shape().dims4()?;
    let strides = layout.stride();
    if width > 1 && strides[3] != 1 {
        bail!("attention: a position's {width} numbers must be contiguous, and aren't: {layout:?}")
    }
    let mut all = Vec::new();
    for row in 0..rows {
        for head in 0..heads {
            let start = layout.start_offset() + row * strides[0] + head * strides[1];
            all.push(Head { data: &data[start..], stride: strides[2], width });
        }
    }
    Ok(all)
}

/// Computes day 4's `grouped_attention` in tiles, on the CPU and in f32: `q` is
/// `(B, H, T, D)`, `k` and `v` are `(B, Hkv, S, D)`, as returned by the cache. The
/// result is `(B, H, T, D)`.
///
/// `mask` is `(B or 1, 1, T, S)`, u8, 1 = may attend. Without a mask, attention is
/// causal, and the T new tokens are the last of the S.
///
/// # Errors
/// If `H` isn't a multiple of `Hkv`, or the shapes don't match.
pub fn tiled_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
) -> Result<Tensor> {
    let mask = match mask {
        Some(mask) => {
            mask.dims4()?;
            Some((mask.flatten_all()?.to_vec1()?, mask.dims().to_vec()))
        }
        None => None,
    };
    on_cpu(&[q, k, v], |of| {
        of[0].contiguous()?.apply_op3_no_bwd(of[1], of[2], &FlashAttention { mask })
    })
}

/// The custom operation that candle calls with the storage of q, k and v.
struct FlashAttention {
    /// The mask, `(B or 1, 1, T, S)`, row-major, and its shape.
    mask: Option<(Vec<u8>, Vec<usize>)>,
}

impl CustomOp3 for FlashAttention {
    fn name(&self) -> &'static str {
        "flash-attention"
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
        let (rows, heads, new, width) = q_layout.shape().dims4()?;
        let (_, kv_heads, all, _) = k_layout.shape().dims4()?;
        let wanted = [rows, kv_heads, all, width];
        if k_layout.dims() != wanted || v_layout.dims() != wanted || all < new || new * width == 0 {
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
        let mut masks = vec![RowMask { mask: None, new, all }; rows];
        if let Some((mask, shape)) = &self.mask {
            if ![[rows, 1, new, all], [1, 1, new, all]]
                .contains(&[shape[0], shape[1], shape[2], shape[3]])
            {
                bail!("attention: the mask is {shape:?}, not ({rows} or 1, 1, {new}, {all})")
            }
            for (row, row_mask) in masks.iter_mut().enumerate() {
                let first = row % shape[0] * new * all; // all rows may share one mask
                row_mask.mask = Some(&mask[first..][..new * all]);
            }
        }
        let sizes = Sizes { rows, heads, kv_heads, new, width };
        let q = &q.as_slice::<f32>()?[q_layout.start_offset()..][..q_layout.shape().elem_count()];
        let keys = heads_of(k.as_slice()?, k_layout)?;
        let values = heads_of(v.as_slice()?, v_layout)?;
        let out = flash_attention(&sizes, q, &keys, &values, &masks);
        Ok((CpuStorage::F32(out), q_layout.shape().clone()))
    }
}

// part 3: after the end

impl Partial {
    /// Returns `ln Σ exp(score)` over all scores so far, or -inf if there were none.
    pub fn log_sum_exp(&self) -> f32 {
        self.max + self.sum.ln()
    }
}

/// Returns the entropy of a query's attention, `-Σ p · ln p` in nats, where `p` are
/// the probabilities that softmax assigns to the query's keys. The scores come in
/// tiles of any length, and no tile is kept. A masked key has a score of -inf and
/// contributes 0.
///
/// NaN if no key is visible.
pub fn attention_entropy(tiles: impl Iterator<Item = Vec<f32>>) -> f32 {
    // task 18.7 (challenge): Compute the entropy of attention without keeping its scores
    todo!("day 18, task 7: Compute the entropy of attention without keeping its scores")
}

/// Merges two finished attentions of the same query over different keys. Each is
/// the result of [`Partial::finish`], `(D)`, and its [`Partial::log_sum_exp`].
/// Returns the attention over all of these keys and its log-sum-exp (vLLM
/// `merge_attn_states`).
///
/// If a log-sum-exp is -inf, that side has met no key: its numbers are NaN and must
/// be ignored. If both are -inf, returns either side unchanged.
pub fn merge_finished(a: (&[f32], f32), b: (&[f32], f32)) -> (Vec<f32>, f32) {
    // task 18.8 (optional): Merge two finished attentions, given their log-sum-exps
    todo!("day 18, task 8: Merge two finished attentions, given their log-sum-exps")
}
