#![allow(unused_variables, unused_mut, unused_imports, dead_code)] // remove when the day is done
//! Day 22: shared prefixes. A sequence finds the blocks that an earlier one has filled with the
//! same tokens, and uses them again.

use candecode::day07_greedy::Sequence;
use candecode::day21_pages::{varlen_step, BlockPool, BlockTable, NewTokens, PagedCache};
use candecode::kit::{FreeBlocks as _, Model, Token};
use candle_core::Result;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

// part 1: find

/// The name of a full block: a hash of its tokens and of all tokens before them.
pub type BlockHash = u64;

/// Hashes a block: its tokens, the hash of the block before it (None for the
/// first), and a salt. Sequences with different salts have different hashes (vLLM
/// `hash_block_tokens`, `cache_salt`).
pub fn hash_block(parent: Option<BlockHash>, tokens: &[u32], salt: &str) -> BlockHash {
    let mut hasher = DefaultHasher::new();
    (parent, tokens, salt).hash(&mut hasher);
    hasher.finish()
}

/// Returns the hash of every full block of a sequence, in order. Tokens at the end that
/// don't fill a block have no hash.
pub fn block_hashes(tokens: &[u32], block_size: usize, salt: &str) -> Vec<BlockHash> {
    // task 22.1: Hash every full block, with the hash of the block before it
    todo!("day 22, task 1: Hash every full block, with the hash of the block before it")
}

/// A cached block: its number, and the sequence that filled it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedBlock {
    /// The block's number.
    pub block: u32,
    /// Its tokens. Other tokens, another parent or salt can have the same hash.
    pub tokens: Vec<u32>,
    /// The hash of the block before it.
    pub parent: Option<BlockHash>,
    /// The salt of the sequence that it belongs to.
    pub salt: String,
}

/// The cached blocks of a paged cache, by their hashes (vLLM: automatic prefix
/// caching). A block is still cached after its last holder has released it. It is
/// forgotten when it's about to be overwritten.
#[derive(Debug, Default)]
pub struct PrefixCache {
    /// The cached blocks.
    pub cached: HashMap<BlockHash, CachedBlock>,
    /// The hash of each cached block, and of its copies: blocks that other sequences
    /// have filled with the same text.
    pub hash_of: HashMap<u32, BlockHash>,
    /// The number of prompt tokens looked up so far. (vLLM counts tokens here, not
    /// requests, and calls them queries.)
    pub queries: usize,
    /// The number of prompt tokens found in the cache.
    pub hits: usize,
}

impl PrefixCache {
    /// Creates an empty prefix cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the cached blocks that a sequence begins with, in order: the longest run
    /// from its start. At least one of its tokens is left to compute, because the next
    /// token needs the logits of the last one.
    ///
    /// A block counts only if its tokens, its parent and its salt are those of the
    /// sequence: equal hashes alone prove nothing.
    pub fn lookup(&self, tokens: &[u32], block_size: usize, salt: &str) -> Vec<u32> {
        let hashes = block_hashes(tokens, block_size, salt);
        // task 22.2: Follow the chain of cached blocks, and leave a token to compute
        todo!("day 22, task 2: Follow the chain of cached blocks, and leave a token to compute")
    }

    // part 2: keep and evict

    /// Records the full blocks of a sequence, as far as the cache holds them. `tokens`
    /// is the whole sequence. Blocks that have a hash from an earlier call aren't hashed
    /// again, so a step costs what is new in it. A hash that is already cached keeps its
    /// block. If it is cached for another sequence (other tokens, another parent or
    /// salt), nothing from there on is recorded.
    pub fn cache_full_blocks(
        &mut self,
        cache: &PagedCache,
        sequence: usize,
        tokens: &[u32],
        salt: &str,
    ) {
        let Some(table) = cache.tables.get(&sequence) else { return };
        let full = table.len.min(tokens.len()) / cache.block_size;
        let blocks = &table.blocks[..full];
        let named = blocks.iter().rposition(|block| self.hash_of.contains_key(block));
        let mut parent = named.map(|last| self.hash_of[&blocks[last]]);
        let new = named.map_or(0, |last| last + 1)..full;
        // task 22.4: Hash each new full block, and record it unless its hash is cached
        todo!("day 22, task 4: Hash each new full block, and record it unless its hash is cached")
    }

    /// Forgets the next `n` blocks that the pool will hand out, because they are about
    /// to be overwritten. The block at the front of the free list has been free for
    /// longest, so the least recently used one goes first (LRU). Call it before blocks
    /// are taken.
    pub fn evict(&mut self, pool: &BlockPool, n: usize) {
        // task 22.5: Forget the contents of the first n free blocks
        todo!("day 22, task 5: Forget the contents of the first n free blocks")
    }

    /// Counts a prompt of `tokens` tokens, of which the first `found` were in the
    /// cache.
    pub fn count(&mut self, tokens: usize, found: usize) {
        self.queries += tokens;
        self.hits += found;
    }
}

/// Starts a sequence that holds these full blocks, each of which is in use or free.
/// Afterwards the sequence is one of each block's holders. Does nothing if there are
/// no blocks.
pub fn attach_prefix(cache: &mut PagedCache, sequence: usize, blocks: Vec<u32>) {
    if blocks.is_empty() {
        return;
    }
    // task 22.3: Make the sequence a holder of every block, and give it a table
    todo!("day 22, task 3: Make the sequence a holder of every block, and give it a table")
}

/// Sequences that run together and share the prefixes of all that ran before.
pub struct PrefixBatch<'a> {
    model: &'a dyn Model,
    /// The sequences that run. Their request's `id` is their id in the cache.
    pub running: Vec<Sequence<'a>>,
    /// The cache.
    pub cache: PagedCache,
    /// The cached blocks.
    pub prefixes: PrefixCache,
    /// The number of positions computed so far.
    pub computed: usize,
}

impl<'a> PrefixBatch<'a> {
    /// Creates an idle batch.
    pub fn new(model: &'a dyn Model, cache: PagedCache) -> Self {
        let prefixes = PrefixCache::new();
        Self { model, running: Vec::new(), cache, prefixes, computed: 0 }
    }

    /// Adds a sequence, which starts with the longest cached prefix of its prompt.
    pub fn add(&mut self, sequence: Sequence<'a>) {
        let Sequence { tokens, request, .. } = &sequence;
        let blocks = self.prefixes.lookup(tokens, self.cache.block_size, &request.cache_salt);
        attach_prefix(&mut self.cache, request.id, blocks);
        self.prefixes.count(tokens.len(), self.cache.len_of(request.id));
        self.running.push(sequence);
    }

    /// Runs one pass over all sequences and records their full blocks. Every sequence
    /// gets one more token. Those that end release their blocks.
    ///
    /// # Errors
    /// If the model fails, or the blocks run out.
    pub fn step(&mut self) -> Result<Vec<Token>> {
        // task 22.6: Run one pass, and keep the dictionary correct
        todo!("day 22, task 6: Run one pass, and keep the dictionary correct")
    }
}

/// Returns the order in which waiting prompts should run, as indices: those with
/// the longest cached prefix first, so that their blocks are used before they are
/// evicted. Ties go in order of arrival (SGLang: longest prefix match). `waiting`
/// has each prompt with its salt.
pub fn longest_prefix_first(
    prefixes: &PrefixCache,
    waiting: &[(&[u32], &str)],
    block_size: usize,
) -> Vec<usize> {
    // task 22.7 (challenge): Put the prompts with the longest cached prefix first
    todo!("day 22, task 7: Put the prompts with the longest cached prefix first")
}
