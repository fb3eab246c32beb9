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
    task_21_1_blocks_are_taken_in_order => day::blocks_are_taken_in_order,
    task_21_1_an_empty_pool_is_an_error => day::an_empty_pool_is_an_error,
    task_21_2_the_last_holder_frees_a_block => day::the_last_holder_frees_a_block,
    task_21_2_no_block_is_ever_held_twice => day::no_block_is_ever_held_twice,
    task_21_3_slots_by_hand => day::slots_by_hand,
    task_21_4_only_the_missing_blocks_are_taken => day::only_the_missing_blocks_are_taken,
    task_21_4_too_few_blocks_change_nothing => day::too_few_blocks_change_nothing,
    task_21_4_keys_and_values_come_back_in_order => day::keys_and_values_come_back_in_order,
    task_21_5_a_line_by_hand => day::a_line_by_hand,
    task_21_5_lines_that_are_none => day::lines_that_are_none,
    task_21_6_blocks_by_hand => day::blocks_by_hand,
    task_21_6_any_table_equals_one_piece => day::any_table_equals_one_piece,
    task_21_6_unused_slots_are_never_read => day::unused_slots_are_never_read,
    task_21_6_every_sequence_equals_transformers => day::every_sequence_equals_hf,
    task_21_6_what_does_not_fit_is_refused => day::what_does_not_fit_is_refused,
    task_21_6_rows_of_a_rectangle_are_sequences => day::rows_of_a_rectangle_are_sequences,
    task_21_7_a_fork_takes_no_block => day::a_fork_takes_no_block,
    task_21_7_a_fork_replaces_an_old_sequence => day::a_fork_replaces_an_old_sequence,
    task_21_8_forks_that_differ_do_not_meet => day::forks_that_differ_do_not_meet,
    task_21_8_full_blocks_stay_shared => day::full_blocks_stay_shared,
    task_21_8_a_block_of_ones_own_is_not_copied => day::a_block_of_ones_own_is_not_copied,
    task_21_8_samples_share_their_prompt => day::samples_share_their_prompt,
    task_21_8_beams_are_forks => day::beams_are_forks,
    task_21_9_blocks_after_the_end_are_free => day::blocks_after_the_end_are_free,
    task_21_9_the_last_block_is_reused_first => day::the_last_block_is_reused_first,
    task_21_9_a_fork_survives_what_the_other_forgets => day::a_fork_survives,
    task_21_9_any_order_of_operations => day::any_order_of_operations,
    task_21_10_reserved_and_used => day::reserved_and_used,
}
