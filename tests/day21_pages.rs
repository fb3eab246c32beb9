//! Day 21's checks: pages.

mod checks;
#[macro_use]
#[path = "checks/day21.rs"]
mod day;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day21_pages.rs"]
mod day21_pages;

checks::tests! {
    21, day21_pages:
    task_21_1_blocks_are_allocated_from_the_front => day::blocks_are_allocated_from_the_front,
    task_21_1_allocating_from_an_empty_pool_is_an_error => day::allocating_from_an_empty_pool_is_an_error,
    task_21_2_the_longest_free_block_is_allocated_first => day::the_longest_free_block_is_allocated_first,
    task_21_2_the_last_holder_frees_a_block => day::the_last_holder_frees_a_block,
    task_21_2_no_block_in_use_is_allocated_again => day::no_block_in_use_is_allocated_again,
    task_21_3_slots_by_hand => day::slots_by_hand,
    task_21_4_only_the_missing_blocks_are_taken => day::only_the_missing_blocks_are_taken,
    task_21_4_a_refused_reservation_changes_nothing => day::a_refused_reservation_changes_nothing,
    task_21_4_keys_and_values_are_read_back_in_order => day::keys_and_values_are_read_back_in_order,
    task_21_5_a_line_by_hand => day::a_line_by_hand,
    task_21_5_lines_that_are_none => day::lines_that_are_none,
    task_21_6_blocks_by_hand => day::blocks_by_hand,
    task_21_6_any_block_table_equals_contiguous_keys_and_values => day::any_block_table_equals_contiguous_keys_and_values,
    task_21_6_unused_slots_are_never_read => day::unused_slots_are_never_read,
    task_21_6_every_sequence_equals_transformers => day::every_sequence_equals_hf,
    task_21_6_attend_pages_refuses_inconsistent_arguments => day::attend_pages_refuses_inconsistent_arguments,
    task_21_7_a_fork_allocates_no_blocks => day::a_fork_allocates_no_blocks,
    task_21_7_a_fork_replaces_an_old_sequence => day::a_fork_replaces_an_old_sequence,
    task_21_8_diverging_forks_do_not_overwrite_each_other => day::diverging_forks_do_not_overwrite_each_other,
    task_21_8_full_blocks_stay_shared => day::full_blocks_stay_shared,
    task_21_8_samples_share_their_prompt => day::samples_share_their_prompt,
    task_21_8_beams_are_forks => day::beams_are_forks,
    task_21_9_truncating_frees_blocks_past_the_new_end => day::truncating_frees_blocks_past_the_new_end,
    task_21_9_the_last_block_is_reused_first => day::the_last_block_is_reused_first,
    task_21_9_a_fork_survives_what_the_other_forgets => day::a_fork_survives,
    task_21_9_each_row_of_a_rectangular_batch_is_a_sequence => day::each_row_of_a_rectangular_batch_is_a_sequence,
    task_21_9_an_unshared_block_is_not_copied => day::an_unshared_block_is_not_copied,
    task_21_9_any_order_of_operations => day::any_order_of_operations,
    task_21_10_reserved_and_used => day::reserved_and_used,
}
