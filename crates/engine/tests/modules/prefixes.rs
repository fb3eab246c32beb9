//! Tests of the work that cached prefixes cost.

use candecode::day21_pages::PagedCache;
use candecode::day22_shared_prefixes::{attach_prefix, PrefixCache};

/// Only what is new in a text is read. The test replaces the tokens of the blocks that already have
/// a hash: nothing that hashed or compared them again would find the new block after them.
#[test]
fn a_step_hashes_only_new_blocks() {
    let text: Vec<u32> = (1..14).collect();
    let mut cache = PagedCache::new(1, 9, 4).unwrap();
    let mut prefixes = PrefixCache::new();
    // The second sequence holds copies, whose hashes find the first one's blocks.
    for sequence in [1, 2] {
        cache.reserve(sequence, 8).unwrap();
        prefixes.cache_full_blocks(&cache, sequence, &text[..8], "");
    }
    let forged: Vec<u32> = [vec![99; 8], text[8..].to_vec()].concat();
    for sequence in [2, 1] {
        cache.reserve(sequence, 4).unwrap();
        prefixes.cache_full_blocks(&cache, sequence, &forged, "");
    }
    // Sequence 2 was the first to name the third block.
    let third = cache.tables[&2].blocks[2];
    assert_eq!(prefixes.lookup(&text, 4, ""), [0, 1, third]);
}

#[test]
fn an_attached_block_is_not_handed_out() {
    let mut cache = PagedCache::new(1, 3, 4).unwrap();
    attach_prefix(&mut cache, 1, vec![1]);
    cache.reserve(2, 8).unwrap();
    assert_eq!(cache.tables[&2].blocks, [0, 2]);
    assert_eq!(cache.pool.num_free(), 0);
}
