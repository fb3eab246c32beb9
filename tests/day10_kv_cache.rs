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
    task_10_1_the_formula_matches_the_bytes_a_model_caches => day::the_formula_matches_the_bytes_a_model_caches,
    task_10_2_growing_by_hand => day::growing_by_hand,
    task_10_2_growing_anything => day::growing_anything,
    task_10_2_rows_can_be_selected_after_growing => day::rows_can_be_selected_after_growing,
    task_10_2_an_append_copies_the_old_positions_once => day::an_append_copies_the_old_positions_once,
    task_10_3_appending_by_hand => day::appending_by_hand,
    task_10_3_strided_keys_and_values_are_stored_contiguously => day::strided_keys_and_values_are_stored_contiguously,
    task_10_3_len_grows_only_with_the_last_layer => day::len_grows_only_with_the_last_layer,
    task_10_3_pieces_equal_the_whole => day::pieces_equal_the_whole,
    task_10_3_logits_equal_transformers => day::logits_equal_transformers,
    task_10_4_only_new_tokens_are_fed => day::only_new_tokens_are_fed,
    task_10_4_what_differs_is_forgotten => day::what_differs_is_forgotten,
    task_10_4_the_last_token_is_fed_even_if_it_is_cached => day::the_last_token_is_fed_even_if_it_is_cached,
    task_10_4_logits_are_returned_for_the_last_n_tokens => day::logits_are_returned_for_the_last_n_tokens,
    task_10_4_without_a_cache_every_token_is_fed => day::without_a_cache_every_token_is_fed,
    task_10_4_calls_in_any_order_reuse_the_common_prefix => day::calls_in_any_order_reuse_the_common_prefix,
    task_10_4_no_logits_of_nothing => day::no_logits_of_nothing,
    task_10_4_after_an_error_the_whole_text_is_recomputed => day::after_an_error_the_whole_text_is_recomputed,
    task_10_4_a_moved_window_is_recomputed => day::a_moved_window_is_recomputed,
    task_10_5_cached_equals_uncached => day::cached_equals_uncached,
    task_10_5_a_moving_window_generates_past_the_context => day::a_moving_window_generates_past_the_context,
    task_10_5_a_10_token_prompt_and_20_new_compute_29_positions => day::a_10_token_prompt_and_20_new_compute_29_positions,
    task_10_5_the_loop_ends => day::the_loop_ends,
    task_10_5_tokens_equal_transformers => day::tokens_equal_transformers,
    task_10_6_writing_in_place_by_hand => day::writing_in_place_by_hand,
    task_10_6_a_write_past_the_end_of_the_buffer_is_refused => day::a_write_past_the_end_of_the_buffer_is_refused,
    task_10_6_writing_strided_positions => day::writing_strided_positions,
    task_10_7_appending_in_place => day::appending_in_place,
    task_10_7_later_appends_stay_in_place => day::later_appends_stay_in_place,
    task_10_7_static_len_grows_only_with_the_last_layer => day::static_len_grows_only_with_the_last_layer,
    task_10_7_pieces_appended_in_place_equal_the_whole => day::pieces_appended_in_place_equal_the_whole,
    task_10_7_a_full_static_cache_refuses_more_positions => day::a_full_static_cache_refuses_more_positions,
    task_10_7_in_place_equals_uncached => day::in_place_equals_uncached,
    task_10_7_tokens_from_a_static_cache_equal_transformers => day::tokens_from_a_static_cache_equal_transformers,
    task_10_7_half_precision_stays_near => day::half_precision_stays_near,
    task_10_8_truncate_keeps_the_first_positions => day::truncate_keeps_the_first_positions,
    task_10_8_an_emptied_cache_can_be_refilled => day::an_emptied_cache_can_be_refilled,
    task_10_8_truncated_tokens_do_not_affect_later_logits => day::truncated_tokens_do_not_affect_later_logits,
    task_10_8_any_order_of_operations => day::any_order_of_operations,
    task_10_9_picking_a_cache_by_hand => day::picking_a_cache_by_hand,
    task_10_9_pick_cache_minimizes_computed_positions => day::pick_cache_minimizes_computed_positions,
    task_10_10_sliding_by_hand => day::sliding_by_hand,
    task_10_10_a_sliding_sequence_sees_only_its_last_tokens => day::a_sliding_sequence_sees_only_its_last_tokens,
    task_10_10_sliding_equals_a_banded_mask => day::sliding_equals_a_banded_mask,
    task_10_10_sliding_tokens_equal_transformers => day::sliding_tokens_equal_transformers,
    task_10_10_a_sliding_cache_differs_from_a_recomputed_window => day::a_sliding_cache_differs_from_a_recomputed_window,
    task_10_10_gpt2_does_not_slide => day::gpt2_does_not_slide,
    task_10_11_a_sliding_cache_cannot_be_shortened_after_it_evicts => day::a_sliding_cache_cannot_be_shortened_after_it_evicts,
    task_10_11_a_cache_that_has_evicted_can_only_be_extended => day::a_cache_that_has_evicted_can_only_be_extended,
}

/// Prints the numbers on half precision for the book. Not a check.
#[test]
#[ignore = "prints the numbers of day 10's chapter"]
fn measure_halves() -> candle_core::Result<()> {
    measure::halves(&yours())
}
