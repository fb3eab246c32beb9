//! Day 22's checks: shared prefixes.

#[path = "../frame/mod.rs"]
mod frame;

#[cfg(not(feature = "mine"))]
use candecode::day22_shared_prefixes;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day22_shared_prefixes.rs"]
mod day22_shared_prefixes;

use candecode::day07_greedy::argmax;
use candecode::day10_kv_cache::{generate_cached, Cached, DynamicCache};
use candecode::kit::{named, Model, Request, Token, Tokenizer};
use candecode_engine::load::load_transformer;
use candle_core::{DType, Error, Result};
use frame::{device, ensure, equal, models_dir, ops, tokenizer, Likely, Outcome, Random};
use std::collections::BTreeMap;

/// One operation on a cache and its index of cached blocks. A sequence is a list of tokens and a
/// salt.
#[derive(Debug, Clone, PartialEq)]
pub enum Do {
    /// Sequence `.0` runs with this text: it starts with the cached blocks, takes its other blocks
    /// (evicting their contents), and then caches all its full blocks.
    Run(usize, Vec<u32>, &'static str),
    /// Like `Run`, but nothing is evicted or cached. A sequence that already holds positions
    /// only grows.
    Hold(usize, Vec<u32>, &'static str),
    /// Records that blocks 0, 1, 2, … hold the full blocks of a text.
    Know(Vec<u32>, &'static str),
    /// Removes a block from the cached ones.
    Forget(u32),
    /// Sequence `.0` starts with these blocks.
    Attach(usize, Vec<u32>),
    /// Remembers sequence `.0`, which has this text.
    CacheFullBlocks(usize, Vec<u32>, &'static str),
    Release(usize),
    Evict(usize),
    /// Looks a text up.
    Lookup(Vec<u32>, &'static str),
    /// Replaces the tokens that are recorded for block `.0`, as if another text had its hash.
    Forge(u32, Vec<u32>),
    /// Replaces the salt that is recorded for block `.0`.
    ForgeSalt(u32, &'static str),
    /// Replaces the parent that is recorded for block `.0`.
    ForgeParent(u32),
}

/// The state after an operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// The blocks that a lookup found, or those that a sequence started with.
    pub found: Vec<u32>,
    /// Each sequence, its blocks and its positions.
    pub tables: Vec<(usize, Vec<u32>, usize)>,
    pub counts: Vec<u32>,
    pub free: Vec<u32>,
    /// The cached blocks, in order of number, each with its tokens.
    pub cached: Vec<(u32, Vec<u32>)>,
}

/// A prompt, the most new tokens, and a salt.
pub type Ask = (Vec<u32>, usize, &'static str);

/// Requests that run together, and the step before which each arrives; the number of blocks, and
/// their size.
pub struct Served<'a> {
    pub model: &'a dyn Model,
    pub tokenizer: &'a Tokenizer,
    pub asks: &'a [(usize, Ask)],
    pub blocks: usize,
    pub block_size: usize,
}

/// Every token, the number of positions computed, the number of blocks cached at the end, and the
/// prompt tokens looked up and found.
pub type Texts = (Vec<Token>, usize, usize, (usize, usize));

/// The day 22 functions under test.
#[derive(Clone, Copy)]
pub struct Day {
    pub hashes: fn(&[u32], usize, &str) -> Vec<u64>,
    /// Runs a script on a cache with this many blocks of this many positions.
    pub run: fn(usize, usize, &[Do]) -> Result<Vec<Seen>>,
    pub serve: fn(&Served) -> Result<Texts>,
    /// The order of the waiting sequences, after the texts in the first list have run.
    pub order: fn(&[Vec<u32>], &[(Vec<u32>, &'static str)], usize) -> Result<Vec<usize>>,
}

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        use candecode::day21_pages::PagedCache;
        crate::Day {
            hashes: code::block_hashes,
            run: |blocks, block_size, script| {
                let mut cache = PagedCache::new(1, blocks, block_size)?;
                let mut prefixes = code::PrefixCache::new();
                let mut all = Vec::new();
                for what in script {
                    let mut found = Vec::new();
                    match what {
                        crate::Do::Run(id, tokens, salt) => {
                            found = prefixes.lookup(tokens, block_size, salt);
                            code::attach_prefix(&mut cache, *id, found.clone());
                            let new = tokens.len() - cache.len_of(*id);
                            prefixes.evict(&cache.pool, cache.blocks_needed(*id, new));
                            cache.reserve(*id, new)?;
                            prefixes.cache_full_blocks(&cache, *id, tokens, salt);
                        }
                        crate::Do::Hold(id, tokens, salt) => {
                            if cache.len_of(*id) == 0 {
                                found = prefixes.lookup(tokens, block_size, salt);
                                code::attach_prefix(&mut cache, *id, found.clone());
                            }
                            cache.reserve(*id, tokens.len() - cache.len_of(*id))?;
                        }
                        crate::Do::Know(tokens, salt) => {
                            let hashes = code::block_hashes(tokens, block_size, salt);
                            let chunks = tokens.chunks_exact(block_size);
                            let mut parent = None;
                            for ((hash, tokens), block) in hashes.into_iter().zip(chunks).zip(0..) {
                                let (tokens, salt) = (tokens.to_vec(), salt.to_string());
                                let cached = code::CachedBlock { block, tokens, parent, salt };
                                prefixes.cached.insert(hash, cached);
                                prefixes.hash_of.insert(block, hash);
                                parent = Some(hash);
                            }
                        }
                        crate::Do::Forget(block) => {
                            if let Some(hash) = prefixes.hash_of.remove(block) {
                                prefixes.cached.remove(&hash);
                            }
                        }
                        crate::Do::Attach(id, blocks) => {
                            code::attach_prefix(&mut cache, *id, blocks.clone())
                        }
                        crate::Do::CacheFullBlocks(id, tokens, salt) => {
                            prefixes.cache_full_blocks(&cache, *id, tokens, salt);
                        }
                        crate::Do::Release(id) => cache.release(*id),
                        crate::Do::Evict(n) => prefixes.evict(&cache.pool, *n),
                        crate::Do::Lookup(tokens, salt) => {
                            found = prefixes.lookup(tokens, block_size, salt);
                        }
                        crate::Do::ForgeSalt(block, salt) => {
                            for cached in prefixes.cached.values_mut() {
                                if cached.block == *block {
                                    cached.salt = salt.to_string();
                                }
                            }
                        }
                        crate::Do::ForgeParent(block) => {
                            for cached in prefixes.cached.values_mut() {
                                if cached.block == *block {
                                    cached.parent = Some(7);
                                }
                            }
                        }
                        crate::Do::Forge(block, tokens) => {
                            for cached in prefixes.cached.values_mut() {
                                if cached.block == *block {
                                    cached.tokens = tokens.clone();
                                }
                            }
                        }
                    }
                    let tables = cache.tables.iter();
                    let tables = tables.map(|(id, table)| (*id, table.blocks.clone(), table.len));
                    let mut cached: Vec<_> =
                        prefixes.cached.values().map(|k| (k.block, k.tokens.clone())).collect();
                    cached.sort();
                    all.push(crate::Seen {
                        found,
                        tables: tables.collect(),
                        counts: cache.pool.ref_counts.clone(),
                        free: cache.pool.free.iter().copied().collect(),
                        cached,
                    });
                }
                Ok(all)
            },
            serve: |served| {
                use candecode::day07_greedy::Sequence;
                let layers = served.model.config().num_hidden_layers;
                let cache = PagedCache::new(layers, served.blocks, served.block_size)?;
                let mut batch = code::PrefixBatch::new(served.model, cache);
                let mut tokens = Vec::new();
                let last = served.asks.iter().map(|(at, _)| *at).max().unwrap_or(0);
                for step in 0.. {
                    for (id, (at, ask)) in served.asks.iter().enumerate() {
                        if *at == step {
                            let mut request = crate::request(served.model, ask);
                            request.id = id;
                            batch.add(Sequence::new(request, served.tokenizer));
                        }
                    }
                    if batch.running.is_empty() && step >= last {
                        break;
                    }
                    if !batch.running.is_empty() {
                        tokens.extend(batch.step()?);
                    }
                }
                let code::PrefixCache { cached, queries, hits, .. } = batch.prefixes;
                Ok((tokens, batch.computed, cached.len(), (queries, hits)))
            },
            order: |texts, waiting, block_size| {
                let mut cache = PagedCache::new(1, 100, block_size)?;
                let mut prefixes = code::PrefixCache::new();
                for (id, tokens) in texts.iter().enumerate() {
                    cache.reserve(id, tokens.len())?;
                    prefixes.cache_full_blocks(&cache, id, tokens, "");
                }
                let waiting: Vec<(&[u32], &str)> =
                    waiting.iter().map(|(tokens, salt)| (&tokens[..], *salt)).collect();
                Ok(code::longest_prefix_first(&prefixes, &waiting, block_size))
            },
        }
    }};
}

frame::checks! {
    day22_shared_prefixes:
    22.1: only_full_blocks_have_a_hash, a_block_hash_covers_the_whole_prefix;
    22.2: the_longest_prefix_by_hand, a_lookup_leaves_at_least_one_token_to_compute,
        a_gap_ends_the_prefix, equal_hashes_prove_nothing, salts_keep_texts_apart;
    22.3: blocks_in_use_are_shared, adopted_blocks_leave_the_free_list;
    22.4: full_blocks_become_known, a_known_hash_keeps_its_block, the_block_after_a_copy_is_found,
        blocks_after_a_hash_collision_are_not_remembered;
    22.5: blocks_about_to_be_reused_are_forgotten, evicting_a_copy_forgets_nothing,
        a_sequence_only_reuses_blocks_that_match_its_prefix;
    22.6: a_shared_prompt_is_computed_once, sequences_in_a_small_pool_equal_their_solo_runs;
    22.7: the_longest_cached_prefix_runs_first;
}

/// Builds a greedy request.
fn request<'a>(model: &dyn Model, (prompt, most, salt): &Ask) -> Request<'a> {
    let mut request = Request::new(model.config(), prompt, *most, Box::new(argmax));
    request.eos_token_ids = vec![0];
    request.cache_salt = salt.to_string();
    request.processors.push(named("no multiples of 3 but EOS", |_, logits| {
        let multiples = logits.iter_mut().step_by(3).skip(1);
        multiples.for_each(|logit| *logit = f32::NEG_INFINITY);
        Ok(())
    }));
    request
}

/// Returns the tokens `from`, `from + 1`, ….
fn text(from: u32, len: u32) -> Vec<u32> {
    (from..from + len).collect()
}

/// Runs a script on blocks of 4 and returns the last state.
fn last(day: &Day, blocks: usize, script: &[Do]) -> Result<Seen> {
    let mut seen = (day.run)(blocks, 4, script)?;
    seen.pop().ok_or_else(|| Error::Msg("an empty script".into()))
}

// 22.1

fn only_full_blocks_have_a_hash(day: &Day) -> Outcome {
    for (len, want) in [(0, 0), (3, 0), (4, 1), (7, 1), (8, 2), (9, 2)] {
        let got = (day.hashes)(&text(10, len), 4, "").len();
        equal(&format!("a text of {len} tokens, blocks of 4: hashes"), Ok(got), &want)
            .likely("a block that isn't full has no hash yet")?;
    }
    Ok(())
}

fn a_block_hash_covers_the_whole_prefix(day: &Day) -> Outcome {
    let one = [text(1, 4), text(50, 4), text(9, 2)].concat();
    let longer = [text(1, 4), text(50, 4), text(70, 8)].concat();
    let other = [text(2, 4), text(50, 4)].concat();
    let hashes = |tokens: &[u32], salt: &str| (day.hashes)(tokens, 4, salt);
    let (a, b) = (hashes(&one, ""), hashes(&longer, ""));
    equal(
        "two texts that start with the same 8 tokens: the same hashes of two blocks",
        Ok(a.len() == 2 && a[..] == b[..2]),
        &true,
    )?;
    let c = hashes(&other, "");
    ensure(
        "blocks 50 51 52 53, after 1 2 3 4 and after 2 3 4 5: their hashes",
        a[1] != c[1],
        "they are equal; a key depends on all tokens before it, so the hash must, too",
    )?;
    ensure("blocks 1 2 3 4 and 50 51 52 53 of one text", a[0] != a[1], "both have the same hash")?;
    let d = hashes(&one, "key");
    ensure(
        "the same text with another salt",
        a[0] != d[0] && a[1] != d[1],
        "one of the hashes is the same",
    )?;
    let ends = [text(50, 4), text(60, 4)].map(|middle| [text(1, 4), middle, text(9, 4)].concat());
    let [e, f] = ends.map(|tokens| hashes(&tokens, ""));
    ensure(
        "blocks 9 10 11 12, after 1 2 3 4 50 51 52 53 and after 1 2 3 4 60 61 62 63: their hashes",
        e.len() == 3 && f.len() == 3 && e[2] != f[2],
        "they are equal; a hash depends on all tokens before its block",
    )
}

// 22.2

fn the_longest_prefix_by_hand(day: &Day) -> Outcome {
    for (tokens, want) in [
        (text(1, 13), vec![0, 1, 2]),
        ([text(1, 8), text(90, 9)].concat(), vec![0, 1]),
        ([text(1, 6), text(90, 9)].concat(), vec![0]),
        (text(90, 9), vec![]),
        (text(5, 9), vec![]),
        (vec![], vec![]),
    ] {
        let script = [Do::Know(text(1, 14), ""), Do::Lookup(tokens.clone(), "")];
        let input =
            format!("blocks of 4; 1 to 14 is cached in blocks 0 to 2; lookup of {tokens:?}");
        equal(&input, last(day, 8, &script).map(|seen| seen.found), &want)
            .likely("follow the chain of hashes from the start, as far as it is cached")?;
    }
    Ok(())
}

fn a_lookup_leaves_at_least_one_token_to_compute(day: &Day) -> Outcome {
    for (len, want) in
        [(12, vec![0, 1]), (13, vec![0, 1, 2]), (8, vec![0]), (4, vec![]), (1, vec![])]
    {
        let script = [Do::Know(text(1, 13), ""), Do::Lookup(text(1, len), "")];
        let input =
            format!("blocks of 4; 1 to 13 is cached in blocks 0 to 2; lookup of 1 to {len}");
        equal(&input, last(day, 8, &script).map(|seen| seen.found), &want).likely(
            "if every token came from the cache, no logits would be computed for the next one",
        )?;
    }
    Ok(())
}

fn a_gap_ends_the_prefix(day: &Day) -> Outcome {
    for (gone, want) in [(0, vec![]), (1, vec![0]), (2, vec![0, 1])] {
        let script = [Do::Know(text(1, 13), ""), Do::Forget(gone), Do::Lookup(text(1, 13), "")];
        let input = format!(
            "blocks of 4; 1 to 13 was cached in blocks 0 to 2, and block {gone} no longer is: \
             lookup of 1 to 13"
        );
        equal(&input, last(day, 8, &script).map(|seen| seen.found), &want)
            .likely("a block is of no use without the ones before it")?;
    }
    Ok(())
}

fn equal_hashes_prove_nothing(day: &Day) -> Outcome {
    for (block, want) in [(0, vec![]), (1, vec![0])] {
        let script = [
            Do::Know(text(1, 13), ""),
            Do::Forge(block, text(200, 4)),
            Do::Lookup(text(1, 13), ""),
        ];
        let input = format!(
            "blocks of 4; 1 to 13 is cached in blocks 0 to 2, but the tokens recorded for block \
             {block} are 200 201 202 203: lookup of 1 to 13"
        );
        equal(&input, last(day, 8, &script).map(|seen| seen.found), &want).likely(
            "compare the tokens, too: others can have the same hash, by accident or on purpose",
        )?;
    }
    let script = [Do::Know(text(1, 13), ""), Do::ForgeParent(1), Do::Lookup(text(1, 13), "")];
    let input =
        "blocks of 4; 1 to 13 is cached in blocks 0 to 2, but the parent recorded for block 1 \
                 isn't block 0's hash: lookup of 1 to 13";
    equal(input, last(day, 8, &script).map(|seen| seen.found), &vec![0])
        .likely("compare the parent, too: after other tokens, the same ones are a different block")
}

fn salts_keep_texts_apart(day: &Day) -> Outcome {
    let script = [Do::Know(text(1, 13), "anna"), Do::Lookup(text(1, 13), "ben")];
    let seen = last(day, 8, &script)?;
    equal("1 to 13 is cached with anna's salt; lookup with ben's", Ok(seen.found), &vec![])?;
    let script = [Do::Know(text(1, 13), "anna"), Do::Lookup(text(1, 13), "anna")];
    equal("… and with anna's", Ok(last(day, 8, &script)?.found), &vec![0, 1, 2])
}

// 22.3

fn blocks_in_use_are_shared(day: &Day) -> Outcome {
    let script = [Do::Hold(1, text(1, 9), ""), Do::Attach(2, vec![0, 1])];
    let seen = last(day, 5, &script)?;
    let want = (vec![2, 2, 1, 0, 0], vec![3, 4], vec![(1, vec![0, 1, 2], 9), (2, vec![0, 1], 8)]);
    let input = "5 blocks of 4; 1 holds 9 positions, 2 attaches blocks 0 and 1";
    equal(
        &format!("{input}: holders, free, (sequence, blocks, positions)"),
        Ok((seen.counts, seen.free, seen.tables)),
        &want,
    )
}

fn adopted_blocks_leave_the_free_list(day: &Day) -> Outcome {
    let script = [
        Do::Hold(1, text(1, 8), ""),
        Do::Hold(2, text(50, 4), ""),
        Do::Release(1),
        Do::Release(2),
        Do::Attach(3, vec![0, 1]),
    ];
    let seen = last(day, 5, &script)?;
    let input =
        "5 blocks of 4; 1 held blocks 0 and 1, 2 held block 2, both ended; 3 attaches 0 and 1";
    equal(
        &format!("{input}: holders, free"),
        Ok((seen.counts, seen.free)),
        &(vec![1, 1, 0, 0, 0], vec![3, 4, 2]),
    )
    .likely("a free block that is attached must not be handed out again")?;
    let script = [&script[..], &[Do::Release(3), Do::Attach(4, vec![])]].concat();
    let seen = last(day, 5, &script)?;
    equal(
        &format!("{input}, and ends; 4 attaches nothing: free, sequences"),
        Ok((seen.free, seen.tables)),
        &(vec![3, 4, 2, 1, 0], vec![]),
    )
}

// 22.4

fn full_blocks_become_known(day: &Day) -> Outcome {
    let script = [Do::Hold(1, text(1, 10), ""), Do::CacheFullBlocks(1, text(1, 10), "")];
    let want = vec![(0, text(1, 4)), (1, text(5, 4))];
    let input = "blocks of 4; sequence 1 holds 1 to 10: cached blocks and their tokens";
    equal(input, last(day, 5, &script).map(|seen| seen.cached), &want)
        .likely("every full block becomes cached, but not one that is still being filled")?;
    // The text is longer than what the cache holds: its newest token has not been fed.
    let script = [Do::Hold(1, text(1, 7), ""), Do::CacheFullBlocks(1, text(1, 8), "")];
    let input = "blocks of 4; sequence 1 holds 7 positions of 1 to 8: cached blocks";
    equal(input, last(day, 5, &script).map(|seen| seen.cached), &vec![(0, text(1, 4))])?;
    let script = [
        Do::Hold(1, text(1, 5), ""),
        Do::CacheFullBlocks(1, text(1, 5), ""),
        Do::Hold(1, text(1, 9), ""),
        Do::CacheFullBlocks(1, text(1, 9), ""),
        Do::Lookup(text(1, 9), ""),
    ];
    let input = "blocks of 4; sequence 1 is cached with 1 to 5, and again with 1 to 9: its \
                 cached blocks";
    equal(input, last(day, 9, &script).map(|seen| seen.found), &vec![0, 1])
        .likely("a block that is cached already is still the parent of the next one")
}

/// Two sequences that hold the same text in blocks of their own, both cached.
fn the_same_text_twice() -> Vec<Do> {
    let hold = |id| Do::Hold(id, text(1, 5), "");
    let cache_full_blocks = |id| Do::CacheFullBlocks(id, text(1, 5), "");
    vec![hold(1), hold(2), cache_full_blocks(1), cache_full_blocks(2)]
}

fn a_known_hash_keeps_its_block(day: &Day) -> Outcome {
    let input = "5 blocks of 4; 1 and 2 hold the same text in blocks of their own; both are cached";
    let cached = last(day, 5, &the_same_text_twice()).map(|seen| seen.cached);
    equal(&format!("{input}: cached blocks"), cached, &vec![(0, text(1, 4))])
        .likely("one block for each hash: the first one stays")
}

fn the_block_after_a_copy_is_found(day: &Day) -> Outcome {
    let other = [text(1, 4), text(50, 5)].concat();
    let script = [
        Do::Hold(1, text(1, 9), ""),
        Do::Hold(2, other.clone(), ""),
        Do::CacheFullBlocks(1, text(1, 9), ""),
        Do::CacheFullBlocks(2, other.clone(), ""),
        Do::Lookup(other, ""),
        Do::Lookup(text(50, 5), ""),
    ];
    let input = "9 blocks of 4; 1 holds 1 to 9 in blocks 0 to 2, 2 holds 1 to 4 and 50 to 54 in \
                 blocks 3 to 5; both are cached; lookup of 2's text, and of 50 to 54";
    let seen = (day.run)(9, 4, &script)?;
    let found = (seen[4].found.clone(), seen[5].found.clone());
    equal(input, Ok(found), &(vec![0, 4], vec![]))
        .likely("a block whose hash is cached for another block is still the parent of the next")
}

fn blocks_after_a_hash_collision_are_not_remembered(day: &Day) -> Outcome {
    for tokens in [text(200, 4), text(1, 4)] {
        // The first block's entry belongs to another text: to other tokens, or to another salt.
        let (holds, forged) = (tokens.clone(), tokens == text(200, 4));
        let salt = if forged { "" } else { "x" };
        let mut script = vec![Do::Hold(9, text(200, 4), ""), Do::Know(text(1, 4), "")];
        script.push(if forged { Do::Forge(0, tokens) } else { Do::ForgeSalt(0, salt) });
        script.extend([Do::Hold(1, text(1, 9), ""), Do::CacheFullBlocks(1, text(1, 9), "")]);
        let cached = last(day, 9, &script).map(|seen| seen.cached);
        let what = if forged { "holds other tokens" } else { "belongs to another salt" };
        let input = format!(
            "blocks of 4; the first block's hash is cached, and its entry {what}; 1 to 9 is held \
             and cached: cached blocks"
        );
        equal(&input, cached, &vec![(0, holds)]).likely(
            "a text that begins like the other one would find what comes after this collision",
        )?;
    }
    Ok(())
}

// 22.5

fn blocks_about_to_be_reused_are_forgotten(day: &Day) -> Outcome {
    let script = [
        Do::Run(1, text(1, 8), ""),
        Do::Run(2, text(50, 8), ""),
        Do::Release(2),
        Do::Release(1),
        Do::Evict(2),
    ];
    // Free, from the front: 4 (never used), 3, 2 (text 2), 1, 0 (text 1).
    let seen = last(day, 5, &script)?;
    let input =
        "5 blocks of 4; 1 held blocks 0 and 1, 2 held blocks 2 and 3, and ended first; two \
                 blocks are evicted: cached blocks";
    equal(input, Ok(seen.cached), &vec![(0, text(1, 4)), (1, text(5, 4)), (2, text(50, 4))])
        .likely("the blocks at the front of the free list are the next to be handed out")?;
    let script =
        [Do::Run(1, text(1, 8), ""), Do::Release(1), Do::Run(2, text(50, 8), ""), Do::Release(2)];
    // Both blocks are used again, from the last to the first.
    let input = "2 blocks of 4; 1 held both and ended, then 2 held both: cached blocks";
    let want = vec![(0, text(54, 4)), (1, text(50, 4))];
    equal(input, last(day, 2, &script).map(|seen| seen.cached), &want)
        .likely("a block that is forgotten has no hash, or its new text never becomes cached")
}

fn evicting_a_copy_forgets_nothing(day: &Day) -> Outcome {
    // Free, from the front: 4 (never used), 1, 0 (sequence 1). Sequence 2 still holds 2 and 3.
    for (n, want) in [(2, vec![(0, text(1, 4))]), (3, vec![])] {
        let script = [the_same_text_twice(), vec![Do::Release(1), Do::Evict(n)]].concat();
        let input = format!(
            "5 blocks of 4; 1 and 2 hold the same text, which is cached in block 0; 1 ends, and \
             {n} blocks are evicted: cached blocks"
        );
        equal(&input, last(day, 5, &script).map(|seen| seen.cached), &want)?;
    }
    // Free, from the front: 4 (never used), 3, 2 (sequence 2). Sequence 1 still holds 0 and 1.
    let script = [the_same_text_twice(), vec![Do::Release(2), Do::Evict(3)]].concat();
    let input =
        "5 blocks of 4; 1 and 2 hold the same text, which is cached in block 0; 2 ends, and 3 \
                 blocks are evicted: cached blocks";
    equal(input, last(day, 5, &script).map(|seen| seen.cached), &vec![(0, text(1, 4))])
        .likely("the hash names another block, which is still there")
}

/// Random texts over two tokens, so that prefixes repeat. Any block that a text starts with must
/// hold that text's tokens, and must have been filled after the same preceding tokens.
fn a_sequence_only_reuses_blocks_that_match_its_prefix(day: &Day) -> Outcome {
    let mut random = Random::new(225);
    for round in 0..20 {
        let blocks = 6 + random.below(6);
        let (mut script, mut running): (Vec<Do>, BTreeMap<usize, Vec<u32>>) = Default::default();
        for id in 0..40 {
            while !running.is_empty() && (running.len() > 1 || random.below(2) == 0) {
                let ids: Vec<usize> = running.keys().copied().collect();
                let id = ids[random.below(ids.len())];
                running.remove(&id);
                script.push(Do::Release(id));
            }
            let len = 1 + random.below(4 * blocks / 2 - 1);
            let tokens: Vec<u32> = (0..len).map(|_| random.below(2) as u32).collect();
            let tokens: Vec<u32> =
                tokens.iter().enumerate().map(|(i, t)| if i < 3 { 0 } else { *t }).collect();
            running.insert(id, tokens.clone());
            script.push(Do::Run(id, tokens, ""));
        }
        let seen = (day.run)(blocks, 4, &script)?;
        // The contents of each block as the script fills it: the whole text up to the block's end.
        let mut holds: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (i, (what, seen)) in script.iter().zip(&seen).enumerate() {
            let Do::Run(id, tokens, _) = what else { continue };
            for (place, block) in seen.found.iter().enumerate() {
                let want = &tokens[..4 * (place + 1)];
                let input = format!(
                    "{blocks} blocks of 4, round {round}, operation {i}: text {tokens:?} starts \
                     with block {block}, which holds the end of"
                );
                equal(&input, Ok(holds.get(block).cloned().unwrap_or_default()), &want.to_vec())
                    .likely("a block must be forgotten before it's overwritten")?;
            }
            let table = seen.tables.iter().find(|(other, ..)| other == id);
            for (place, block) in table.iter().flat_map(|(_, blocks, _)| blocks).enumerate() {
                if place >= seen.found.len() {
                    let end = tokens.len().min(4 * (place + 1));
                    holds.insert(*block, tokens[..end].to_vec());
                }
            }
            let twice = seen
                .counts
                .iter()
                .zip(0u32..)
                .any(|(count, block)| *count > 0 && seen.free.contains(&block));
            ensure(&format!("round {round}, operation {i}"), !twice, "a block in use is free")?;
        }
    }
    Ok(())
}

// 22.6

fn model(name: &str) -> Result<impl Model> {
    load_transformer(&models_dir()?.join(name), DType::F32, &device()?, &ops()?)
        .map_err(|e| Error::Msg(format!("{e:#}")))
}

/// Decodes one request alone, with day 10's loop.
fn alone(model: &dyn Model, tokenizer: &Tokenizer, ask: &Ask) -> Result<Vec<u32>> {
    let cache = DynamicCache::new(model.config().num_hidden_layers);
    let cached = Cached::new(model, Box::new(cache));
    let tokens: Result<Vec<Token>> =
        generate_cached(cached, tokenizer, request(model, ask))?.collect();
    Ok(tokens?.iter().map(|token| token.id).collect())
}

/// Serves the requests, checks that each text is the one generated alone, and returns the positions
/// computed, the blocks cached, and the tokens looked up and found.
fn as_alone(
    day: &Day,
    input: &str,
    served: &Served,
) -> std::result::Result<(usize, usize, (usize, usize)), frame::Failure> {
    let (tokens, computed, cached, found) = (day.serve)(served)?;
    for (id, (_, ask)) in served.asks.iter().enumerate() {
        let got = tokens.iter().filter(|token| token.row == id).map(|token| token.id).collect();
        let want = alone(served.model, served.tokenizer, ask)?;
        equal(&format!("{input}: the tokens of request {id}"), Ok(got), &want)?;
    }
    Ok((computed, cached, found))
}

fn a_shared_prompt_is_computed_once(day: &Day) -> Outcome {
    let (model, tokenizer) = (model("story-230k")?, tokenizer()?);
    let system = text(300, 40);
    let ask = |end: u32, salt| -> Ask { ([&system[..], &[end, end + 1]].concat(), 6, salt) };
    let asks = [(0, ask(430, "")), (1, ask(500, "")), (3, ask(612, "x")), (8, ask(430, "x"))];
    let served =
        Served { model: &model, tokenizer: &tokenizer, asks: &asks, blocks: 40, block_size: 4 };
    let input =
        "4 prompts of 42 tokens, two with another salt, the first 40 the same, 6 new tokens each, \
                 blocks of 4";
    let got = as_alone(day, input, &served)?;
    // The first of each salt computes 42, the other 2. Each feeds all its new tokens but the last.
    let fed: usize = asks
        .iter()
        .map(|(_, ask)| alone(&model, &tokenizer, ask).map_or(0, |ids| ids.len() - 1))
        .sum();
    // Ten blocks of the system prompt for each salt, and what each text adds.
    let cached = got.1;
    let input = format!(
        "{input}: positions computed, blocks cached at the end, prompt tokens (looked up, found)"
    );
    equal(&input, Ok(got), &(2 * (42 + 2) + fed, cached.max(20), (4 * 42, 2 * 40))).likely(
        "cache the blocks after the step that fills them, and start with the cached ones",
    )?;
    let asks = [(0, (text(300, 9), 1, "")), (0, (text(400, 9), 1, "x"))];
    let served = Served { asks: &asks, ..served };
    let input = "2 prompts of 9 tokens in one step, 1 new token each, blocks of 4";
    let (_, cached, _) = as_alone(day, input, &served)?;
    equal(&format!("{input}: blocks cached at the end"), Ok(cached), &4)
        .likely("every block that the pass has filled is cached, those of all sequences")
}

fn sequences_in_a_small_pool_equal_their_solo_runs(day: &Day) -> Outcome {
    let (model, tokenizer) = (model("story-230k")?, tokenizer()?);
    let mut random = Random::new(226);
    for blocks in [8, 6, 5, 4] {
        let mut asks: Vec<(usize, Ask)> = Vec::new();
        for i in 0..12 {
            let (family, own) = (random.below(4) as u32, 1 + random.below(4) as u32);
            let prompt = [text(300 + 40 * family, 8), text(500 + family, own)].concat();
            asks.push((4 * i, (prompt, 4, ["", "x"][i / 6])));
        }
        let served =
            Served { model: &model, tokenizer: &tokenizer, asks: &asks, blocks, block_size: 4 };
        let input = format!("12 prompts with common prefixes, {blocks} blocks of 4");
        as_alone(day, &input, &served)
            .map(drop)
            .likely("if 22.5 passes: is evict asked for as many blocks as the step will take?")?;
    }
    let (first, end) = (text(300, 8), text(500, 1));
    let again = [&first[..], &end].concat();
    let asks: [(usize, Ask); 3] =
        [(0, (first.clone(), 1, "")), (1, (text(340, 12), 1, "")), (2, (again, 4, ""))];
    let served =
        Served { model: &model, tokenizer: &tokenizer, asks: &asks, blocks: 3, block_size: 4 };
    let input = "3 blocks of 4; a prompt of 8 tokens, then one of 12, then the first one and a \
                 token more";
    as_alone(day, input, &served)
        .map(drop)
        .likely("what a block held is forgotten before the pass overwrites it")?;
    let asks: [(usize, Ask); 4] = [
        (0, (first.clone(), 1, "")),
        (1, (text(340, 8), 1, "")),
        (1, (text(380, 8), 1, "")),
        (2, ([first, end].concat(), 4, "")),
    ];
    let served =
        Served { model: &model, tokenizer: &tokenizer, asks: &asks, blocks: 4, block_size: 4 };
    let input = "4 blocks of 4; a prompt of 8 tokens, then two others in one step, then the first \
                 one and a token more";
    as_alone(day, input, &served)
        .map(drop)
        .likely("evict as many blocks as the step takes, those of all sequences together")
}

// 22.7

fn the_longest_cached_prefix_runs_first(day: &Day) -> Outcome {
    let cached = [text(1, 16), text(50, 8)];
    let waiting = [
        (text(90, 12), ""),
        ([text(1, 4), text(90, 4)].concat(), ""),
        (text(50, 12), ""),
        (text(1, 14), ""),
        (text(1, 14), "x"),
        ([text(50, 8), text(70, 2)].concat(), ""),
    ];
    let input = "blocks of 4; 1 to 16 and 50 to 57 are cached; six prompts wait: their order";
    equal(input, (day.order)(&cached, &waiting, 4), &vec![3, 2, 5, 1, 0, 4])
        .likely("more cached blocks first; ties in order of arrival")
}
