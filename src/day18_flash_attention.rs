#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 18: flash attention. The softmax of a row of scores is computed piece by piece, so that the
//! scores of a tile of keys are all that is ever kept; and keys and values are read where the cache
//! holds them.
//!
//! Everything is safe Rust on slices of f32. What runs inside `Arch::dispatch` is
//! `#[inline(always)]`, so that it is compiled for the processor that was found (day 17). Its inner
//! loops go by index, for an iterator's `zip` may stay a call there.

#![allow(clippy::needless_range_loop)]

use candecode::kit::device::on_cpu;
use candle_core::{bail, CpuStorage, CustomOp3, Layout, Result, Shape, Tensor};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;
use std::ops::Range;

/// Keys of a tile. 64 keys of 64 numbers are 16 KB, and so are their values: half of a core's first
/// cache.
pub const TILE: usize = 64;

/// Tokens of a prompt whose queries go over the tiles together.
pub const BLOCK: usize = 16;

/// Columns that one thread takes when a single token looks back at a long context.
pub const SPLIT: usize = 512;

// part 1: a softmax in pieces

/// Keys or values of one head as the cache holds them: `width` numbers for each position, and
/// whatever lies between them is not this head's.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// Numbers, from the first one of position 0 on.
    pub data: &'a [f32],
    /// From the first number of one position to the first of the next.
    pub stride: usize,
    /// Numbers of a key or a value: D.
    pub width: usize,
}

impl<'a> Head<'a> {
    /// The key or value at `position`, `(D)`.
    #[inline(always)]
    pub fn at(&self, position: usize) -> &'a [f32] {
        // task 18.1: `width` numbers, `stride` after `stride`
        todo!("day 18, task 1: `width` numbers, `stride` after `stride`")
    }
}

/// What a query has gathered from the keys that it has met so far: the online softmax (Milakov and
/// Gimelshein 2018; m, l and O in the paper on FlashAttention, Dao et al. 2022).
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
    /// Of a query that has met no key: the maximum of nothing is -inf, and both sums are 0.
    #[inline(always)]
    pub fn new(width: usize) -> Self {
        Self { max: f32::NEG_INFINITY, sum: 0.0, acc: vec![0.0; width] }
    }

    /// Takes in some more keys: `scores[i]` is the score with the key whose value is at position
    /// `first + i` of `values`. A score of -inf is that of a key which the query may not attend to.
    ///
    /// If all scores are -inf, nothing changes. A score of NaN or +inf makes the sums NaN, as
    /// torch's softmax does.
    #[inline(always)]
    pub fn update(&mut self, scores: &[f32], values: &Head, first: usize) {
        // task 18.2: a new maximum rescales both sums; then every score adds to them
        todo!("day 18, task 2: a new maximum rescales both sums; then every score adds to them")
    }

    /// Takes in what the same query has gathered from other keys. What has met no key, or only keys
    /// that it may not attend to, changes nothing.
    #[inline(always)]
    pub fn merge(&mut self, other: &Self) {
        // task 18.3: the larger maximum rescales both sides; mind two that have met nothing
        todo!("day 18, task 3: the larger maximum rescales both sides; mind two that have met nothing")
    }

    /// The attention of the query, `(D)`, into `out`: the mean of the values, weighted by softmax.
    /// NaN if it has met nothing that it may attend to.
    #[inline(always)]
    pub fn finish(&self, out: &mut [f32]) {
        // task 18.4: what is still missing of a softmax?
        todo!("day 18, task 4: what is still missing of a softmax?")
    }
}

/// `acc += weight · row`, number for number.
#[inline(always)]
fn add_scaled(acc: &mut [f32], weight: f32, row: &[f32]) {
    let row = &row[..acc.len()]; // so that the loop need not look whether there is a number
    for i in 0..acc.len() {
        acc[i] = weight.mul_add(row[i], acc[i]);
    }
}

/// The dot product of two rows of one length, with eight running sums (day 17).
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

/// What the T new tokens of one row of the batch may attend to: some of its S columns. (A column is
/// a position of the cache, padding included.)
#[derive(Debug, Clone, Copy)]
pub struct RowMask<'a> {
    /// `(T, S)`, row after row, 1 = may attend. None: the new tokens are the last of the columns,
    /// and each may attend to all columns up to its own.
    pub mask: Option<&'a [u8]>,
    /// T: new tokens.
    pub new: usize,
    /// S: columns, those of the new tokens included; at least `new`.
    pub all: usize,
}

impl RowMask<'_> {
    /// Whether new token `token` may attend to a column.
    #[inline(always)]
    pub fn sees(&self, token: usize, column: usize) -> bool {
        match self.mask {
            Some(mask) => mask[token * self.all + column] != 0,
            None => column <= self.all - self.new + token,
        }
    }

    /// The columns of new token `token`, from the first that it may attend to up to and with the
    /// last: there may be holes between them. Without any it is `0..0`.
    #[inline(always)]
    pub fn columns(&self, token: usize) -> Range<usize> {
        // task 18.5: the first and the last column that it sees
        todo!("day 18, task 5: the first and the last column that it sees")
    }

    /// The new tokens in blocks of [`BLOCK`], in order. Those of padding come first, in blocks of
    /// their own, so that the row's own blocks begin at its own first token, as they do in the row
    /// alone. Its own first token is the first whose column the newest token may attend to.
    pub fn blocks(&self) -> Vec<Range<usize>> {
        // task 18.9: padding, then the rest, BLOCK tokens at a time
        todo!("day 18, task 9: padding, then the rest, BLOCK tokens at a time")
    }
}

/// One head's query of one new token.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// Its numbers, `(D)`.
    pub numbers: &'a [f32],
    /// Which of the new tokens it belongs to.
    pub token: usize,
}

/// The scores of all queries with the keys of a tile of columns, into `scores`, `(queries,
/// columns)` row after row: `q · k / √D`, or -inf where the query's token may not attend.
///
/// Each key is fetched once, and multiplied with all of the queries.
#[inline(always)]
pub fn tile_scores(
    queries: &[Query],
    keys: &Head,
    mask: &RowMask,
    columns: Range<usize>,
    scores: &mut [f32],
) {
    // task 18.6: key after key, and for each all queries; scaled and masked
    todo!("day 18, task 6: key after key, and for each all queries; scaled and masked")
}

/// What each query gathers from these columns, [`TILE`] of them at a time, from `columns.start` on.
/// A tile that no query may attend to is not read: neither its keys nor its values.
///
/// The queries share keys and values: they are those of a group of heads, of one token or several.
#[inline(always)]
pub fn attend_tiles(
    queries: &[Query],
    keys: &Head,
    values: &Head,
    mask: &RowMask,
    columns: Range<usize>,
) -> Vec<Partial> {
    // task 18.7: tile after tile: skip it, or its scores and an update of every query
    todo!("day 18, task 7: tile after tile: skip it, or its scores and an update of every query")
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

/// [`attend_tiles`], compiled for the vectors of this machine.
fn attend_tiles_on_vectors(
    queries: &[Query],
    keys: &Head,
    values: &Head,
    mask: &RowMask,
    columns: Range<usize>,
) -> Vec<Partial> {
    Arch::new().dispatch(Tiles { queries, keys, values, mask, columns })
}

/// [`attend_tiles`] with the columns cut into chunks of [`SPLIT`], from `columns.start` on, which
/// threads take side by side; what they gather is merged in the order of the columns
/// (Flash-Decoding, Dao et al. 2023).
///
/// Where a chunk begins depends on the columns alone, and on no number of threads: so the result is
/// the same, bit for bit, on every machine and beside any other rows.
pub fn attend_split(
    queries: &[Query],
    keys: &Head,
    values: &Head,
    mask: &RowMask,
    columns: Range<usize>,
) -> Vec<Partial> {
    // task 18.8: chunks, `into_par_iter`, and a merge in order
    todo!("day 18, task 8: chunks, `into_par_iter`, and a merge in order")
}

/// How many of what an attention has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// B: rows of the batch.
    pub rows: usize,
    /// H: query heads.
    pub heads: usize,
    /// Hkv: key/value heads; H is a multiple of it.
    pub kv_heads: usize,
    /// T: new tokens of each row.
    pub new: usize,
    /// D: numbers of a query, a key and a value.
    pub width: usize,
}

impl Sizes {
    /// Where the query of a row's head and token begins in `(B, H, T, D)`, and its result too.
    pub fn place(&self, row: usize, head: usize, token: usize) -> usize {
        ((row * self.heads + head) * self.new + token) * self.width
    }
}

/// Attention of a batch: `q` is `(B, H, T, D)`, row after row, and so is the result. `keys` and
/// `values` have B · Hkv heads: head `h` of row `b` is number `b · Hkv + h`. There is a mask for
/// each row.
///
/// Query head `h` uses key/value head `h / (H / Hkv)` (HF `repeat_kv`). The queries of a group of
/// heads and a block of tokens go over the tiles together; blocks run side by side. In decoding (T
/// is 1) the columns are split too.
///
/// A block's tiles begin at the first column that its first token may attend to.
pub fn flash_attention(
    sizes: &Sizes,
    q: &[f32],
    keys: &[Head],
    values: &[Head],
    masks: &[RowMask],
) -> Vec<f32> {
    // task 18.10: a list of blocks; each attends; finish every query where it belongs
    todo!("day 18, task 10: a list of blocks; each attends; finish every query where it belongs")
}

// part 3: an operation on candle's tensors

/// The heads of keys or values `(B, Hkv, S, D)`, B · Hkv of them, row after row, where they lie:
/// candle's `layout` says how far it is in `data` from one row, head and position to the next, and
/// where the first number is. Nothing is copied.
///
/// # Errors
/// If there are not four dimensions, or the D numbers of a position do not lie together.
pub fn heads_of<'a>(data: &'a [f32], layout: &Layout) -> Result<Vec<Head<'a>>> {
    // task 18.11: a head for each row and head; its data begins after two strides and an offset
    todo!("day 18, task 11: a head for each row and head; its data begins after two strides and an offset")
}

/// Day 4's `grouped_attention` in tiles, on the CPU and in f32: `q` is `(B, H, T, D)`, `k` and `v`
/// are `(B, Hkv, S, D)`, as the cache gives them; the result is `(B, H, T, D)`.
///
/// `mask` is `(B or 1, 1, T, S)`, u8, 1 = may attend. Without one the T new tokens are the last of
/// the S, and each may attend to all up to itself.
///
/// # Errors
/// If `Hkv` does not divide `H`, or the shapes do not fit.
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

/// The operation: what candle calls with the numbers of q, k and v.
struct FlashAttention {
    /// `(B or 1, 1, T, S)`, row after row, and its shape.
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
                let first = row % shape[0] * new * all; // one mask may be for all rows
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

impl Partial {
    /// `ln Σ exp(score)` over all scores that were taken in; -inf if there were none.
    pub fn log_sum_exp(&self) -> f32 {
        self.max + self.sum.ln()
    }
}

/// Merges two finished attentions of the same query over different keys: what each of them is,
/// `(D)`, and the logarithm of the sum of its exponentials. The attention over all these keys, and
/// its logarithm (vLLM `merge_attn_states`; it is how a prefix that many requests share is attended
/// to once for all of them).
///
/// Whose logarithm is -inf has met no key. Its numbers are NaN, and count for nothing.
pub fn merge_finished(a: (&[f32], f32), b: (&[f32], f32)) -> (Vec<f32>, f32) {
    // task 18.12 (further): each side weighs its share of the sum of all exponentials
    todo!("day 18, task 12: each side weighs its share of the sum of all exponentials")
}
