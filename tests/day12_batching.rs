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
    task_12_2_the_ragged_mask_knows_the_past => day::the_ragged_mask_knows_the_past,
    task_12_2_the_ragged_mask_equals_transformers => day::the_ragged_mask_equals_hf,
    task_12_2_no_line_of_the_mask_is_empty => day::no_line_of_the_mask_is_empty,
    task_12_2_padding_changes_nothing => day::padding_changes_nothing,
    task_12_2_the_prefill_by_hand => day::the_prefill_by_hand,
    task_12_3_the_decode_step_by_hand => day::the_decode_step_by_hand,
    task_12_3_a_row_that_does_not_fit_the_cache_is_refused =>
        day::a_row_that_does_not_fit_the_cache_is_refused,
    task_12_4_retiring_by_hand => day::retiring_by_hand,
    task_12_5_two_steps_by_hand => day::two_steps_by_hand,
    task_12_5_any_mix_equals_its_rows_alone => day::any_mix_equals_its_rows_alone,
    task_12_5_any_mix_without_a_cache => day::any_mix_without_a_cache,
    task_12_5_rows_end_at_the_context => day::rows_end_at_the_context,
    task_12_5_the_cache_does_not_grow_for_the_gone => day::the_cache_does_not_grow_for_the_gone,
    task_12_5_the_loop_ends => day::the_loop_ends,
    task_12_5_story_models_equal_their_rows_alone => day::story_models_equal_their_rows_alone,
    task_12_5_gpt2_to_the_end_of_its_context => day::gpt2_to_the_end_of_its_context,
    task_12_5_rows_draw_from_their_own_streams => day::rows_draw_from_their_own_streams,
    task_12_5_rows_have_their_own_parameters => day::rows_have_their_own_parameters,
    task_12_5_tokens_equal_transformers => day::tokens_equal_transformers,
    task_12_5_a_row_that_fails_ends_alone => day::a_row_that_fails_ends_alone,
    task_12_6_selecting_by_hand => cache::selecting_by_hand,
    task_12_6_beams_that_fork => cache::beams_that_fork,
    task_12_6_any_order_of_operations => cache::any_order_of_operations,
    task_12_7_trimming_by_hand => cache::trimming_by_hand,
    task_12_7_a_trimmed_cache_keeps_its_capacity => cache::a_trimmed_cache_keeps_its_capacity,
    task_12_8_a_line_by_hand => day::a_line_by_hand,
    task_12_8_rows_in_a_line_equal_themselves_alone => day::rows_in_a_line_equal_themselves_alone,
    task_12_8_an_empty_row_has_no_place_in_a_line => day::an_empty_row_has_no_place_in_a_line,
    task_12_9_rows_are_stacked_by_hand => cache::rows_are_stacked_by_hand,
    task_12_10_joining_by_hand => cache::joining_by_hand,
    task_12_10_an_empty_cache_is_joined => cache::an_empty_cache_is_joined,
    task_12_10_joined_caches_share_no_memory => cache::joined_caches_share_no_memory,
    task_12_10_a_joined_cache_keeps_its_capacity => cache::a_joined_cache_keeps_its_capacity,
    task_12_10_any_order_of_joins_and_trims => cache::any_order_of_joins_and_trims,
}
