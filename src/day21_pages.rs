#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 21: pages. Keys and values are stored in blocks of a few positions, taken from one pool.
//! Each sequence has a list of its blocks, so it holds what it needs, wherever there is room, and
//! sequences that begin alike share blocks.

use candecode::day07_greedy::Sequence;
use candecode::day18_flash_attention::{attend_tiles, Head, Partial, Query, RowMask, Sizes};
use candecode::kit::device::on_cpu;
use candecode::kit::{write_slots, Batch, Cache, Chunk, FreeList, Logits, Model, PagedSequence};
use candecode::kit::{Pages, Request, Step, Token, TokenIter, Tokenizer, View};
use candle_core::{bail, CpuStorage, CustomOp3, Layout, Result, Shape, Tensor};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

// part 1: blocks

/// The blocks that are free, and the number of sequences that use each of the others
/// (vLLM `BlockPool`).
#[derive(Debug)]
pub struct BlockPool {
    /// For each block, how many sequences hold it. 0: it is free.
    pub ref_counts: Vec<u32>,
    /// The free blocks. The one at the front has been free the longest.
    pub free: FreeList,
}

impl BlockPool {
    /// Creates a pool in which all blocks are free.
    pub fn new(num_blocks: usize) -> Self {
        Self { ref_counts: vec![0; num_blocks], free: FreeList::new(num_blocks) }
    }

    /// Returns the number of free blocks.
    pub fn num_free(&self) -> usize {
        self.free.len()
    }

    /// Takes the block that has been free the longest. One sequence holds it now.
    ///
    /// # Errors
    /// If no block is free.
    pub fn allocate(&mut self) -> Result<u32> {
        // task 21.1: Take a block out of the pool
        todo!("day 21, task 1: Take a block out of the pool")
    }

    /// Adds a holder to a block that is in use.
    pub fn share(&mut self, block: u32) {
        self.ref_counts[block as usize] += 1;
    }

    /// Removes one holder of a block. After its last holder, the block is free.
    pub fn release(&mut self, block: u32) {
        // task 21.2: Remove one holder, and free the block after the last one
        todo!("day 21, task 2: Remove one holder, and free the block after the last one")
    }
}

/// The blocks of one sequence, in order, and how many positions they hold (vLLM: its
/// block table).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockTable {
    /// The blocks. The first holds positions 0 to `block_size - 1`, and so on.
    pub blocks: Vec<u32>,
    /// The number of positions held. The last block may have room for more.
    pub len: usize,
}

impl BlockTable {
    /// Returns the number of the slot in which a position's key and value are stored
    /// (vLLM `slot_mapping`).
    pub fn slot(&self, position: usize, block_size: usize) -> u32 {
        // task 21.3: Translate a position into a slot
        todo!("day 21, task 3: Translate a position into a slot")
    }
}

/// Keys and values of many sequences, in blocks from one pool.
///
/// A sequence is identified by an id. The varlen batches of task 21.5 name their sequences
/// (`Chunk::sequence`). The loops of days 10 and 11 send plain rows instead, without
/// padding. Row `i` then belongs to sequence `rows[i]`, and those loops never notice
/// the pages.
pub struct PagedCache {
    /// The free blocks.
    pub pool: BlockPool,
    /// The sequences that hold blocks, by id.
    pub tables: BTreeMap<usize, BlockTable>,
    /// The number of positions in a block.
    pub block_size: usize,
    /// All blocks of each layer, `(blocks, Hkv, block size, D)`; None before its first
    /// append.
    layers: Vec<Option<View>>,
    /// The sequences of the rows of a rectangle.
    rows: Vec<usize>,
    /// The slots of the running step's keys and values, and the tables to attend over.
    step: Option<(Vec<u32>, Arc<Pages>)>,
}

impl PagedCache {
    /// Creates an empty cache for a model of `layers` layers. Memory for all blocks of
    /// a layer is taken at its first append.
    ///
    /// # Errors
    /// If there are no blocks, or their size doesn't divide 64.
    pub fn new(layers: usize, num_blocks: usize, block_size: usize) -> Result<Self> {
        if num_blocks == 0 {
            bail!("a paged cache needs at least one block")
        }
        if block_size == 0 || 64 % block_size != 0 {
            bail!("a block holds 1, 2, 4, 8, 16, 32 or 64 positions, not {block_size}")
        }
        Ok(Self {
            pool: BlockPool::new(num_blocks),
            tables: BTreeMap::new(),
            block_size,
            layers: vec![None; layers],
            rows: Vec::new(),
            step: None,
        })
    }

    /// Returns the number of positions that a sequence holds: 0 if the cache doesn't
    /// know it.
    pub fn len_of(&self, sequence: usize) -> usize {
        self.tables.get(&sequence).map_or(0, |table| table.len)
    }

    /// Makes room for `new` more positions of a sequence, which need not exist yet: its
    /// table gets the blocks that are missing, and its `len` grows by `new`. The new
    /// positions are written next, so a block that they share with another sequence is
    /// replaced by a copy first ([`PagedCache::copy_on_write`]).
    ///
    /// # Errors
    /// If too few blocks are free. Then nothing has changed.
    pub fn reserve(&mut self, sequence: usize, new: usize) -> Result<()> {
        self.require_free(self.blocks_needed(sequence, new))?;
        self.copy_on_write(sequence)?;
        let table = self.tables.entry(sequence).or_default();
        // task 21.4: Take the missing blocks, and count the new positions
        todo!("day 21, task 4: Take the missing blocks, and count the new positions")
    }

    /// Returns the number of blocks that [`PagedCache::reserve`] would take from the
    /// pool, a copy included.
    pub fn blocks_needed(&self, sequence: usize, new: usize) -> usize {
        let held = self.tables.get(&sequence);
        let blocks = held.map_or(0, |table| table.blocks.len());
        let end = self.len_of(sequence) + new;
        end.div_ceil(self.block_size).saturating_sub(blocks)
            + usize::from(self.shared_last(sequence).is_some())
    }

    /// Fails if fewer than `needed` blocks are free.
    fn require_free(&self, needed: usize) -> Result<()> {
        let (free, all) = (self.pool.num_free(), self.pool.ref_counts.len());
        if needed > free {
            bail!(
                "too few free blocks of {} positions: {needed} needed, {free} of {all} free; \
                 raise --num-gpu-blocks-override",
                self.block_size
            )
        }
        Ok(())
    }

    /// Returns the block that the next position of a sequence goes to, if another
    /// sequence holds it, too.
    fn shared_last(&self, sequence: usize) -> Option<u32> {
        let table = self.tables.get(&sequence)?;
        let block = *table.blocks.get(table.len / self.block_size)?; // None: its blocks are full
        (self.pool.ref_counts[block as usize] > 1).then_some(block)
    }

    /// Ends a sequence: releases all its blocks, the last one first, so that its first
    /// block is reused last. An unknown id is ignored.
    pub fn release(&mut self, sequence: usize) {
        for block in self.tables.remove(&sequence).unwrap_or_default().blocks.into_iter().rev() {
            self.pool.release(block);
        }
    }

    /// The sequences of a step's new tokens: those of its chunks, or those of the rows
    /// of a rectangle.
    fn chunks_of(&mut self, step: &Step) -> Result<Vec<Chunk>> {
        if let Some(chunks) = &step.chunks {
            return Ok(chunks.clone());
        }
        if step.mask.is_some() {
            bail!("a paged cache has no padding and takes no mask; use a varlen batch")
        }
        let (rows, new) = step.ids.dims2()?;
        if self.tables.is_empty() {
            self.rows = (0..rows).collect();
        }
        if rows != self.rows.len() {
            bail!("{rows} rows cannot follow the {} that the cache holds", self.rows.len())
        }
        let chunk =
            |sequence: &usize| Chunk { sequence: *sequence, start: self.len_of(*sequence), new };
        Ok(self.rows.iter().map(chunk).collect())
    }
}

impl Cache for PagedCache {
    /// Reserves the blocks that the new tokens of the step still need. A scheduler may
    /// have reserved them already. If there are too few for all sequences of the step,
    /// no sequence gets any.
    fn begin(&mut self, step: &Step) -> Result<()> {
        let chunks = self.chunks_of(step)?;
        let missing =
            |chunk: &Chunk| (chunk.start + chunk.new).saturating_sub(self.len_of(chunk.sequence));
        let more: Vec<usize> = chunks.iter().map(missing).collect();
        let (mut needed, mut writers) = (0, BTreeMap::<u32, u32>::new());
        for (Chunk { sequence, .. }, more) in
            chunks.iter().zip(&more).filter(|(_, more)| **more > 0)
        {
            needed += self.blocks_needed(*sequence, *more);
            if let Some(block) = self.shared_last(*sequence) {
                *writers.entry(block).or_default() += 1;
            }
        }
        // If every holder of a block writes to it, the last of them needs no copy.
        let all_write =
            |(block, writers): &(&u32, &u32)| self.pool.ref_counts[**block as usize] == **writers;
        self.require_free(needed - writers.iter().filter(all_write).count())?;
        let (mut slots, mut sequences) = (Vec::new(), Vec::new());
        for (Chunk { sequence, start, new }, more) in chunks.into_iter().zip(more) {
            if start > self.len_of(sequence) {
                let held = self.len_of(sequence);
                bail!("sequence {sequence} holds {held} positions, but new ones start at {start}")
            }
            if more > 0 {
                self.reserve(sequence, more)?;
            }
            let BlockTable { blocks, .. } = &self.tables[&sequence];
            let table = BlockTable { blocks: blocks.clone(), len: start + new };
            slots.extend((start..start + new).map(|at| table.slot(at, self.block_size)));
            sequences.push(PagedSequence { block_table: table.blocks, len: table.len, new });
        }
        self.step = Some((slots, Arc::new(Pages { block_size: self.block_size, sequences })));
        Ok(())
    }

    /// Writes the new keys and values into their slots. The view holds all blocks, and
    /// the tables.
    fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<View> {
        let (num_blocks, block_size) = (self.pool.ref_counts.len(), self.block_size);
        let Some(stored) = self.layers.get_mut(layer) else {
            bail!("layer {layer} of a cache for {} layers", self.layers.len())
        };
        let Some((slots, pages)) = &self.step else {
            bail!("a paged cache appends within a step: call begin first")
        };
        if stored.is_none() {
            let (_, heads, _, width) = k.dims4()?;
            let shape = (num_blocks, heads, block_size, width);
            let zeros = || Tensor::zeros(shape, k.dtype(), k.device());
            *stored = Some(View::new(zeros()?, zeros()?));
        }
        let Some(View { k: all_k, v: all_v, .. }) = stored else { unreachable!() };
        write_slots(all_k, &in_line(k)?, slots)?;
        write_slots(all_v, &in_line(v)?, slots)?;
        Ok(View { k: all_k.clone(), v: all_v.clone(), pages: Some(pages.clone()) })
    }

    /// The number of positions that the first row holds. Only the loops that send plain
    /// rows ask for it.
    fn len(&self) -> usize {
        self.rows.first().map_or(0, |sequence| self.len_of(*sequence))
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        for sequence in self.rows.clone() {
            self.truncate_to(sequence, len)?;
        }
        Ok(())
    }
}

/// The rows of a rectangle one after the other: `(B, H, T, D)` to `(1, H, B · T, D)`.
///
/// # Errors
/// If it has other dimensions.
pub fn in_line(x: &Tensor) -> Result<Tensor> {
    let (rows, heads, new, width) = x.dims4()?;
    match rows {
        1 => Ok(x.clone()),
        _ => x.transpose(0, 1)?.reshape((1, heads, rows * new, width)),
    }
}

// part 2: one line of tokens

/// The new tokens of one sequence in a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTokens<'a> {
    /// The sequence's id.
    pub sequence: usize,
    /// The position of the first of them: how many positions the cache holds already.
    pub start: usize,
    /// Their ids, at least one.
    pub ids: &'a [u32],
}

/// Makes a varlen batch: the new tokens of all sequences in one row, one sequence after
/// the other, each token at its own position. Returns logits for the last token of each
/// sequence, `(1, sequences, V)`.
///
/// # Errors
/// If there are no tokens, an id or a position doesn't fit the model, or a sequence
/// occurs twice.
pub fn varlen_step(model: &dyn Model, sequences: &[NewTokens]) -> Result<Step> {
    // task 21.5: Build one row, with every sequence's own positions
    todo!("day 21, task 5: Build one row, with every sequence's own positions")
}

/// The shape of a layer's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockShape {
    /// Hkv: key/value heads.
    pub kv_heads: usize,
    /// Positions in a block.
    pub block_size: usize,
    /// D: numbers of a key or a value.
    pub width: usize,
}

/// Attends with one token's queries over the first `visible` positions of its sequence.
/// Returns a running softmax (day 18's [`Partial`]) for each query.
///
/// `keys` and `values` are all blocks of a layer, `(blocks, Hkv, block_size, D)`,
/// row-major. The queries are those of the heads that share key/value head `kv_head`.
#[inline(always)]
pub fn attend_blocks(
    queries: &[Query],
    keys: &[f32],
    values: &[f32],
    block_table: &[u32],
    visible: usize,
    kv_head: usize,
    shape: &BlockShape,
) -> Vec<Partial> {
    // task 21.6: Merge day 18's partial results, block after block
    todo!("day 21, task 6: Merge day 18's partial results, block after block")
}

/// The arguments of [`attend_blocks`], which pulp compiles for every set of vector instructions.
struct Blocks<'a> {
    queries: &'a [Query<'a>],
    keys: &'a [f32],
    values: &'a [f32],
    block_table: &'a [u32],
    visible: usize,
    kv_head: usize,
    shape: &'a BlockShape,
}

impl WithSimd for Blocks<'_> {
    type Output = Vec<Partial>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) -> Vec<Partial> {
        let Self { queries, keys, values, block_table, visible, kv_head, shape } = self;
        attend_blocks(queries, keys, values, block_table, visible, kv_head, shape)
    }
}

/// Attention of a line of tokens over pages: `q` is `(H, N, D)`, the result too. Keys
/// and values are all blocks of a layer, `(blocks, Hkv, block size, D)`.
///
/// # Panics
/// If a table names a block that doesn't exist, or has too few of them.
pub fn paged_attention(
    sizes: &Sizes,
    q: &[f32],
    keys: &[f32],
    values: &[f32],
    pages: &Pages,
) -> Vec<f32> {
    let group = sizes.heads / sizes.kv_heads;
    let shape =
        BlockShape { kv_heads: sizes.kv_heads, block_size: pages.block_size, width: sizes.width };
    let mut work = Vec::new(); // (token in the line, key/value head, its table, visible positions)
    let mut first = 0;
    for sequence in &pages.sequences {
        for token in 0..sequence.new {
            let visible = sequence.len - sequence.new + token + 1;
            for kv_head in 0..sizes.kv_heads {
                work.push((first + token, kv_head, &sequence.block_table[..], visible));
            }
        }
        first += sequence.new;
    }
    let attend = |(token, kv_head, block_table, visible): (usize, usize, &[u32], usize)| {
        let heads = kv_head * group..(kv_head + 1) * group;
        let offsets: Vec<usize> = heads.map(|head| sizes.offset(0, head, token)).collect();
        let query = |offset: &usize| Query { numbers: &q[*offset..][..sizes.width], token: 0 };
        let queries: Vec<Query> = offsets.iter().map(query).collect();
        // Compiled for this CPU's vector instructions, as on day 18.
        let (queries, shape) = (&queries[..], &shape);
        let blocks = Blocks { queries, keys, values, block_table, visible, kv_head, shape };
        (offsets, Arch::new().dispatch(blocks))
    };
    let done: Vec<_> = work.into_par_iter().map(attend).collect();
    let mut out = vec![0.0; q.len()];
    for (offsets, gathered) in done {
        for (offset, partial) in offsets.into_iter().zip(gathered) {
            partial.finish(&mut out[offset..offset + sizes.width]);
        }
    }
    out
}

/// Attention over pages, on the CPU and in f32: `q` and the result are `(B, H, T, D)`,
/// and the `B · T` tokens are in the order of the sequences in `pages`.
///
/// # Errors
/// If the shapes don't fit, or a table doesn't hold the positions that it should.
pub fn attend_pages(q: &Tensor, view: &View, pages: &Pages) -> Result<Tensor> {
    let (rows, heads, new, width) = q.dims4()?;
    let (blocks, kv_heads, block_size, _) = view.k.dims4()?;
    let tokens = pages.num_new();
    if tokens != rows * new || block_size != pages.block_size || view.v.dims() != view.k.dims() {
        bail!("q is {:?}, the blocks are {:?}, for {tokens} tokens", q.dims(), view.k.dims())
    }
    if kv_heads == 0 || heads % kv_heads != 0 {
        bail!("{heads} query heads cannot share {kv_heads} key/value heads evenly")
    }
    for PagedSequence { block_table, len, new } in &pages.sequences {
        let missing = block_table.iter().any(|block| *block as usize >= blocks);
        if missing || block_table.len() * block_size < *len || len < new {
            bail!("{block_table:?} cannot hold {len} positions, {new} of them new")
        }
    }
    let sizes = Sizes { rows: 1, heads, kv_heads, new: tokens, width };
    let operation = PagedAttention { sizes, pages: pages.clone() };
    let out = on_cpu(&[&in_line(q)?, &view.k, &view.v], |of| {
        of[0].contiguous()?.apply_op3_no_bwd(of[1], of[2], &operation)
    })?;
    out.reshape((heads, rows, new, width))?.transpose(0, 1) // back to rows
}

/// The operation that candle calls with the numbers of the queries and of all blocks.
struct PagedAttention {
    sizes: Sizes,
    pages: Pages,
}

impl CustomOp3 for PagedAttention {
    fn name(&self) -> &'static str {
        "paged-attention"
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
        let q = &q.as_slice::<f32>()?[q_layout.start_offset()..][..q_layout.shape().elem_count()];
        let keys = &k.as_slice::<f32>()?[k_layout.start_offset()..];
        let values = &v.as_slice::<f32>()?[v_layout.start_offset()..];
        let out = paged_attention(&self.sizes, q, keys, values, &self.pages);
        Ok((CpuStorage::F32(out), q_layout.shape().clone()))
    }
}

// part 3: sharing

impl PagedCache {
    /// Copies all keys and values of a block into another one, in every layer.
    fn copy_block(&self, from: u32, to: u32) -> Result<()> {
        for View { k, v, .. } in self.layers.iter().flatten() {
            for numbers in [k, v] {
                let block = numbers.narrow(0, from as usize, 1)?.force_contiguous()?;
                numbers.slice_set(&block, 0, to as usize)?;
            }
        }
        Ok(())
    }

    /// Starts a sequence `new` that holds the same positions as `old`, in the same
    /// blocks. No key or value is copied (PagedAttention: a fork). `old` has at least one
    /// position. If `new` exists, it is replaced and releases the blocks that it held.
    /// The two may be the same sequence: then nothing changes.
    pub fn fork(&mut self, old: usize, new: usize) {
        // task 21.7: Share every block of the old sequence
        todo!("day 21, task 7: Share every block of the old sequence")
    }

    /// Makes sure that a sequence can write its next position without changing another
    /// one: if the block of that position is shared, the table names a copy from
    /// now on (copy-on-write).
    ///
    /// # Errors
    /// If no block is free.
    pub fn copy_on_write(&mut self, sequence: usize) -> Result<()> {
        if self.shared_last(sequence).is_none() {
            return Ok(());
        }
        // task 21.8: Replace the shared block with a copy
        todo!("day 21, task 8: Replace the shared block with a copy")
    }

    /// Forgets the positions of a sequence from `len` on. Blocks that hold none of its
    /// positions anymore are released, the last one first.
    ///
    /// # Errors
    /// If it holds fewer positions.
    pub fn truncate_to(&mut self, sequence: usize, len: usize) -> Result<()> {
        let held = self.len_of(sequence);
        if len > held {
            bail!("sequence {sequence} of {held} positions cannot be truncated to {len}")
        }
        let Some(table) = self.tables.get_mut(&sequence) else { return Ok(()) };
        // task 21.9: Cut the sequence to `len` positions
        todo!("day 21, task 9: Cut the sequence to `len` positions")
    }

    /// Returns how many positions the blocks in use could hold, and how many they do
    /// hold. A block that several sequences hold counts once, with the positions of the
    /// holder that uses most of it.
    pub fn usage(&self) -> (usize, usize) {
        // task 21.10 (challenge): Count reserved and used positions, shared ones once
        todo!("day 21, task 10: Count reserved and used positions, shared ones once")
    }
}

/// Beams are forks.
impl Batch for PagedCache {
    fn layer(&self, _layer: usize) -> Result<View> {
        bail!("a paged cache has no rectangle to copy")
    }

    fn select(&mut self, rows: &[u32]) -> Result<()> {
        if let Some(row) = rows.iter().find(|row| **row as usize >= self.rows.len()) {
            bail!("row {row} of a cache of {} rows", self.rows.len())
        }
        let old = self.rows.clone();
        let first_new = self.tables.keys().next_back().map_or(0, |last| last + 1);
        self.rows = (first_new..first_new + rows.len()).collect();
        for (new, row) in self.rows.clone().into_iter().zip(rows) {
            self.fork(old[*row as usize], new);
        }
        for sequence in old {
            self.release(sequence);
        }
        Ok(())
    }

    fn join(&mut self, _other: &dyn Batch) -> Result<()> {
        bail!("a paged cache needs no join: put the new sequence into the next varlen batch")
    }

    fn trim(&mut self, front: usize) -> Result<()> {
        if front > 0 {
            bail!("a paged cache has no padding to trim")
        }
        Ok(())
    }
}

/// Sequences that run together, and the cache that holds them.
pub struct PagedBatch<'a> {
    model: &'a dyn Model,
    /// The sequences that run. Their request's `id` is their id in the cache.
    pub running: Vec<Sequence<'a>>,
    /// The cache.
    pub cache: PagedCache,
}

impl<'a> PagedBatch<'a> {
    /// Starts a batch. No prompt has been computed yet.
    pub fn new(model: &'a dyn Model, running: Vec<Sequence<'a>>, cache: PagedCache) -> Self {
        Self { model, running, cache }
    }

    /// Runs one pass over all running sequences. The tokens that the cache doesn't hold
    /// yet are in one line. Every sequence gets one more token, and those that end
    /// release their blocks.
    ///
    /// # Errors
    /// If the model fails, or the blocks run out.
    pub fn step(&mut self) -> Result<Vec<Token>> {
        let mut line = Vec::new();
        for sequence in &self.running {
            let (id, tokens) = (sequence.request.id, &sequence.tokens);
            let start = self.cache.len_of(id);
            line.push(NewTokens { sequence: id, start, ids: &tokens[start..] });
        }
        let step = varlen_step(self.model, &line)?;
        let logits = self.model.forward(&step, &mut self.cache)?; // (1, sequences, V)
        let logits: Vec<Vec<f32>> = logits.squeeze(0)?.to_vec2()?;
        let mut tokens = Vec::new();
        for (sequence, logits) in self.running.iter_mut().zip(&logits) {
            tokens.push(sequence.advance(logits));
            if sequence.finish.is_some() {
                self.cache.release(sequence.request.id);
            }
        }
        self.running.retain(|sequence| sequence.finish.is_none());
        Ok(tokens)
    }
}

/// Generates from several requests over pages; request `i` is row `i`. Every row is
/// what it would be alone. Requests with the same prompt compute it once: the others
/// fork it, all but its last token.
///
/// # Errors
/// If there is no request, or a prompt is empty or longer than the context. Later, any
/// token can be an error.
pub fn generate_paged<'a>(
    model: &'a dyn Model,
    tokenizer: &'a Tokenizer,
    requests: Vec<Request<'a>>,
    cache: PagedCache,
) -> Result<TokenIter<'a>> {
    if requests.is_empty() {
        bail!("a batch needs at least one prompt")
    }
    let mut running: Vec<Sequence> = Vec::new();
    let mut same_prompts = Vec::new();
    for (id, mut request) in requests.into_iter().enumerate() {
        request.id = id;
        request.fit(model)?;
        let sequence = Sequence::new(request, tokenizer);
        if sequence.remaining() == 0 {
            continue;
        }
        let first = running.iter().find(|other| other.tokens == sequence.tokens);
        if let Some(first) = first.filter(|first| first.tokens.len() > 1) {
            same_prompts.push((first.request.id, id));
        }
        running.push(sequence);
    }
    let rows = running.len();
    let mut batch = PagedBatch::new(model, running, cache);
    let mut begun = false;
    Ok(TokenIter::new(rows, move || {
        if !begun {
            begun = true;
            share_prompts(&mut batch, &same_prompts)?;
        }
        batch.step()
    }))
}

/// Computes every prompt that occurs more than once, all but its last token, and forks
/// it for the sequences in `pairs`, each
/// `(the first sequence with this prompt, another one)`.
fn share_prompts(batch: &mut PagedBatch, pairs: &[(usize, usize)]) -> Result<()> {
    for (first, other) in pairs {
        if batch.cache.len_of(*first) == 0 {
            let of_first = |sequence: &&Sequence| sequence.request.id == *first;
            let Some(sequence) = batch.running.iter().find(of_first) else { continue };
            let ids = &sequence.tokens[..sequence.tokens.len() - 1];
            let prompt = NewTokens { sequence: *first, start: 0, ids };
            batch.model.forward(&varlen_step(batch.model, &[prompt])?, &mut batch.cache)?;
        }
        batch.cache.fork(*first, *other);
    }
    Ok(())
}
