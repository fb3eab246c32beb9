//! Day 12's checks: batching.

mod checks;
#[macro_use]
#[path = "checks/day12.rs"]
mod day;
#[path = "checks/day12_cache.rs"]
mod cache;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day12_batching.rs"]
mod day12_batching;

checks::tests! {
    12, day12_batching:
    task_12_1_left_padding_by_hand => day::left_padding_by_hand,
    task_12_1_left_padding_of_anything => day::left_padding_of_anything,
    task_12_2_the_ragged_mask_by_hand => day::the_ragged_mask_by_hand,
    task_12_2_the_ragged_mask_includes_past_columns => day::the_ragged_mask_includes_past_columns,
    task_12_2_the_ragged_mask_equals_transformers => day::the_ragged_mask_equals_hf,
    task_12_2_every_query_sees_at_least_one_key => day::every_query_sees_at_least_one_key,
    task_12_2_padding_changes_nothing => day::padding_changes_nothing,
    task_12_2_the_prefill_by_hand => day::the_prefill_by_hand,
    task_12_3_the_decode_step_by_hand => day::the_decode_step_by_hand,
    task_12_3_a_row_inconsistent_with_the_cache_is_refused =>
        day::a_row_inconsistent_with_the_cache_is_refused,
    task_12_4_retiring_by_hand => day::retiring_by_hand,
    task_12_5_two_steps_by_hand => day::two_steps_by_hand,
    task_12_5_any_batch_equals_its_rows_run_alone => day::any_batch_equals_its_rows_run_alone,
    task_12_5_any_batch_without_a_cache_equals_its_rows_run_alone => day::any_batch_without_a_cache_equals_its_rows_run_alone,
    task_12_5_rows_end_at_the_context_limit => day::rows_end_at_the_context_limit,
    task_12_5_finished_rows_do_not_grow_the_cache => day::finished_rows_do_not_grow_the_cache,
    task_12_5_the_loop_ends => day::the_loop_ends,
    task_12_5_story_model_batches_equal_each_row_alone => day::story_model_batches_equal_each_row_alone,
    task_12_5_gpt2_generates_to_the_end_of_its_context => day::gpt2_generates_to_the_end_of_its_context,
    task_12_5_rows_draw_from_their_own_streams => day::rows_draw_from_their_own_streams,
    task_12_5_rows_have_their_own_parameters => day::rows_have_their_own_parameters,
    task_12_5_tokens_equal_transformers => day::tokens_equal_transformers,
    task_12_5_a_failing_row_does_not_end_the_others => day::a_failing_row_does_not_end_the_others,
    task_12_6_selecting_by_hand => cache::selecting_by_hand,
    task_12_6_beams_that_fork => cache::beams_that_fork,
    task_12_6_any_order_of_operations => cache::any_order_of_operations,
    task_12_7_trimming_by_hand => cache::trimming_by_hand,
    task_12_7_a_trimmed_cache_keeps_its_capacity => cache::a_trimmed_cache_keeps_its_capacity,
    task_12_8_a_line_by_hand => day::a_line_by_hand,
    task_12_8_packed_rows_equal_each_row_alone => day::packed_rows_equal_each_row_alone,
    task_12_8_an_empty_row_in_a_line_is_refused => day::an_empty_row_in_a_line_is_refused,
    task_12_9_stacked_rows_are_padded_on_the_left => cache::stacked_rows_are_padded_on_the_left,
    task_12_10_joining_by_hand => cache::joining_by_hand,
    task_12_10_rows_can_join_an_empty_cache => cache::rows_can_join_an_empty_cache,
    task_12_10_joined_caches_share_no_memory => cache::joined_caches_share_no_memory,
    task_12_10_a_joined_cache_keeps_its_capacity => cache::a_joined_cache_keeps_its_capacity,
    task_12_10_joins_and_trims_work_in_any_order => cache::joins_and_trims_work_in_any_order,
}
