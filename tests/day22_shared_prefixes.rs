//! Day 22's checks: shared prefixes.

mod checks;
#[macro_use]
#[path = "checks/day22.rs"]
mod day;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day22_shared_prefixes.rs"]
mod day22_shared_prefixes;

checks::tests! {
    22, day22_shared_prefixes:
    task_22_1_only_full_blocks_have_a_hash => day::only_full_blocks_have_a_hash,
    task_22_1_a_block_hash_covers_the_whole_prefix => day::a_block_hash_covers_the_whole_prefix,
    task_22_2_the_longest_prefix_by_hand => day::the_longest_prefix_by_hand,
    task_22_2_a_lookup_leaves_at_least_one_token_to_compute => day::a_lookup_leaves_at_least_one_token_to_compute,
    task_22_2_a_gap_ends_the_prefix => day::a_gap_ends_the_prefix,
    task_22_2_equal_hashes_prove_nothing => day::equal_hashes_prove_nothing,
    task_22_2_salts_keep_texts_apart => day::salts_keep_texts_apart,
    task_22_3_blocks_in_use_are_shared => day::blocks_in_use_are_shared,
    task_22_3_adopted_blocks_leave_the_free_list => day::adopted_blocks_leave_the_free_list,
    task_22_4_full_blocks_become_known => day::full_blocks_become_known,
    task_22_4_a_known_hash_keeps_its_block => day::a_known_hash_keeps_its_block,
    task_22_4_blocks_after_a_hash_collision_are_not_remembered =>
        day::blocks_after_a_hash_collision_are_not_remembered,
    task_22_5_blocks_about_to_be_reused_are_forgotten => day::blocks_about_to_be_reused_are_forgotten,
    task_22_5_evicting_a_copy_forgets_nothing => day::evicting_a_copy_forgets_nothing,
    task_22_5_a_sequence_only_reuses_blocks_that_match_its_prefix => day::a_sequence_only_reuses_blocks_that_match_its_prefix,
    task_22_6_a_shared_prompt_is_computed_once => day::a_shared_prompt_is_computed_once,
    task_22_6_sequences_in_a_small_pool_equal_their_solo_runs => day::sequences_in_a_small_pool_equal_their_solo_runs,
    task_22_7_the_longest_cached_prefix_runs_first => day::the_longest_cached_prefix_runs_first,
}
