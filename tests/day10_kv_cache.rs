//! Day 10's checks: the KV cache.

mod checks;
#[macro_use]
#[path = "checks/day10.rs"]
mod day;
#[path = "checks/day10_measure.rs"]
mod measure;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day10_kv_cache.rs"]
mod day10_kv_cache;

checks::tests! {
    10, day10_kv_cache:
    task_10_1_memory_by_hand => day::memory_by_hand,
    task_10_1_the_formula_is_what_a_model_leaves => day::the_formula_is_what_a_model_leaves,
    task_10_2_growing_by_hand => day::growing_by_hand,
    task_10_2_growing_anything => day::growing_anything,
    task_10_2_grown_rows_can_be_selected => day::grown_rows_can_be_selected,
    task_10_2_an_append_copies_the_old_positions_once => day::an_append_copies_the_old_positions_once,
    task_10_3_appending_by_hand => day::appending_by_hand,
    task_10_3_a_strided_prompt_is_stored_in_order => day::a_strided_prompt_is_stored_in_order,
    task_10_3_len_moves_with_the_last_layer => day::len_moves_with_the_last_layer,
    task_10_3_pieces_equal_the_whole => day::pieces_equal_the_whole,
    task_10_3_logits_equal_transformers => day::logits_equal_transformers,
    task_10_4_only_what_is_new_is_fed => day::only_what_is_new_is_fed,
    task_10_4_what_differs_is_forgotten => day::what_differs_is_forgotten,
    task_10_4_the_last_token_is_fed_again => day::the_last_token_is_fed_again,
    task_10_4_logits_after_the_last_n => day::logits_after_the_last_n,
    task_10_4_no_cache_is_fed_everything => day::no_cache_is_fed_everything,
    task_10_4_any_calls_in_any_order => day::any_calls_in_any_order,
    task_10_4_no_logits_of_nothing => day::no_logits_of_nothing,
    task_10_4_after_an_error_it_starts_again => day::after_an_error_it_starts_again,
    task_10_4_a_window_that_moves_is_recomputed => day::a_window_that_moves_is_recomputed,
    task_10_5_cached_equals_uncached => day::cached_equals_uncached,
    task_10_5_a_window_past_the_context => day::a_window_past_the_context,
    task_10_5_ten_and_twenty_compute_29 => day::ten_and_twenty_compute_29,
    task_10_5_the_loop_ends => day::the_loop_ends,
    task_10_5_tokens_equal_transformers => day::tokens_equal_transformers,
    task_10_6_writing_in_place_by_hand => day::writing_in_place_by_hand,
    task_10_6_a_full_buffer_is_refused => day::a_full_buffer_is_refused,
    task_10_6_writing_strided_positions => day::writing_strided_positions,
    task_10_7_appending_in_place => day::appending_in_place,
    task_10_7_later_appends_stay_in_place => day::later_appends_stay_in_place,
    task_10_7_len_moves_with_the_last_layer_in_place => day::len_moves_with_the_last_layer_in_place,
    task_10_7_pieces_in_place_equal_the_whole => day::pieces_in_place_equal_the_whole,
    task_10_7_a_static_cache_is_full_once => day::a_static_cache_is_full_once,
    task_10_7_in_place_equals_uncached => day::in_place_equals_uncached,
    task_10_7_tokens_in_place_equal_transformers => day::tokens_in_place_equal_transformers,
    task_10_7_half_precision_stays_near => day::half_precision_stays_near,
    task_10_8_truncate_keeps_the_first_positions => day::truncate_keeps_the_first_positions,
    task_10_8_an_emptied_cache_starts_again => day::an_emptied_cache_starts_again,
    task_10_8_what_was_taken_back_leaves_no_trace => day::what_was_taken_back_leaves_no_trace,
    task_10_8_any_order_of_operations => day::any_order_of_operations,
    task_10_9_picking_a_cache_by_hand => day::picking_a_cache_by_hand,
    task_10_9_the_picked_cache_computes_least => day::the_picked_cache_computes_least,
    task_10_10_sliding_by_hand => day::sliding_by_hand,
    task_10_10_a_sliding_text_sees_its_last_tokens => day::a_sliding_text_sees_its_last_tokens,
    task_10_10_sliding_equals_a_banded_mask => day::sliding_equals_a_banded_mask,
    task_10_10_sliding_tokens_equal_transformers => day::sliding_tokens_equal_transformers,
    task_10_10_a_slid_cache_is_not_a_window => day::a_slid_cache_is_not_a_window,
    task_10_10_gpt2_does_not_slide => day::gpt2_does_not_slide,
    task_10_11_what_has_slid_is_not_truncated => day::what_has_slid_is_not_truncated,
    task_10_11_what_has_evicted_is_only_extended => day::what_has_evicted_is_only_extended,
}

/// Prints the numbers on half precision for the book. Not a check.
#[test]
#[ignore = "prints the numbers of day 10's chapter"]
fn measure_halves() -> candle_core::Result<()> {
    measure::halves(&yours())
}
