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
    task_22_1_a_hash_stands_for_the_whole_text => day::a_hash_stands_for_the_whole_text,
    task_22_2_the_longest_prefix_by_hand => day::the_longest_prefix_by_hand,
    task_22_2_a_token_is_left_to_compute => day::a_token_is_left_to_compute,
    task_22_2_a_gap_ends_the_prefix => day::a_gap_ends_the_prefix,
    task_22_2_equal_hashes_prove_nothing => day::equal_hashes_prove_nothing,
    task_22_2_salts_keep_texts_apart => day::salts_keep_texts_apart,
    task_22_3_blocks_in_use_are_shared => day::blocks_in_use_are_shared,
    task_22_3_free_blocks_leave_the_free_list => day::free_blocks_leave_the_free_list,
    task_22_4_full_blocks_become_known => day::full_blocks_become_known,
    task_22_4_a_known_hash_keeps_its_block => day::a_known_hash_keeps_its_block,
    task_22_4_what_follows_a_collision_is_not_remembered =>
        day::what_follows_a_collision_is_not_remembered,
    task_22_5_what_will_be_overwritten_is_forgotten => day::what_will_be_overwritten_is_forgotten,
    task_22_5_evicting_a_copy_forgets_nothing => day::evicting_a_copy_forgets_nothing,
    task_22_5_no_text_gets_another_ones_blocks => day::no_text_gets_another_ones_blocks,
    task_22_6_a_shared_prompt_is_computed_once => day::a_shared_prompt_is_computed_once,
    task_22_6_in_few_blocks_every_text_is_its_own => day::in_few_blocks_every_text_is_its_own,
    task_22_7_the_longest_prefix_runs_first => day::the_longest_prefix_runs_first,
}
