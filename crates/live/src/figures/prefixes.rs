//! Day 22, shared prefixes: texts that arrive one after another, looked up in the reader's own
//! dictionary.

use super::Answer;
use candecode::day21_pages::PagedCache;
use candecode::day22_shared_prefixes::{attach_prefix, BlockHash, PrefixCache};
use serde::Deserialize;
use serde_json::{json, Value};
use std::collections::BTreeMap;

/// One text.
#[derive(Deserialize)]
pub struct Asked {
    /// The text's tokens: the prompt, then the answer.
    tokens: Vec<u32>,
    /// The number of tokens in the prompt.
    prompt: usize,
    salt: String,
}

/// The parameters that the page sends.
#[derive(Deserialize)]
pub struct Question {
    texts: Vec<Asked>,
    blocks: usize,
    block_size: usize,
}

/// The number of texts that hold blocks at a time.
const RUNNING: usize = 2;

/// Returns, for each text, the number of tokens found and computed, and the state of the pool while
/// the text holds its blocks.
pub fn answer(q: Question) -> Answer {
    let mut cache = PagedCache::new(1, q.blocks, q.block_size)?;
    let mut prefixes = PrefixCache::new();
    let mut steps = Vec::new();
    for (id, text) in q.texts.iter().enumerate() {
        if id >= RUNNING {
            cache.release(id - RUNNING);
        }
        let Some(prompt) = text.tokens.get(..text.prompt) else {
            return Err(super::Failure("a prompt is longer than its text".into()));
        };
        let attached = prefixes.lookup(prompt, q.block_size, &text.salt);
        attach_prefix(&mut cache, id, attached.clone());
        let found = cache.len_of(id);
        let new = text.tokens.len().saturating_sub(found);
        let needed = cache.blocks_needed(id, new);
        let free = cache.pool.num_free();
        let before: BTreeMap<u32, BlockHash> =
            prefixes.hash_of.iter().map(|(block, hash)| (*block, *hash)).collect();
        prefixes.count(prompt.len(), found);
        if needed <= free {
            prefixes.evict(&cache.pool, needed);
            cache.reserve(id, new)?;
            prefixes.cache_full_blocks(&cache, id, &text.tokens, &text.salt);
        } else {
            cache.release(id);
        }
        let is_gone =
            |(block, hash): &(&u32, &BlockHash)| prefixes.hash_of.get(block) != Some(hash);
        let evicted: Vec<&u32> = before.iter().filter(is_gone).map(|(block, _)| block).collect();
        let block = |block: u32| {
            let hash = prefixes.hash_of.get(&block).map(|hash| format!("{hash:016x}"));
            json!({ "holders": cache.pool.ref_counts[block as usize], "hash": hash })
        };
        let blocks: Vec<Value> = (0..q.blocks as u32).map(block).collect();
        let free_list: Vec<&u32> = cache.pool.free.iter().collect();
        let table = |id| cache.tables.get(&id).map(|table| &table.blocks);
        steps.push(json!({
            "found": found, "computed": prompt.len() - found, "attached": attached,
            "evicted": evicted, "blocks": blocks, "table": table(id), "free": free_list,
            "lacks": needed.saturating_sub(free),
            "hits": prefixes.hits, "queries": prefixes.queries,
        }));
    }
    Ok(json!({ "steps": steps }))
}
