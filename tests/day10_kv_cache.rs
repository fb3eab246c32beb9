//! Day 10's checkers: the KV cache.

mod checks;
#[macro_use]
#[path = "checks/day10.rs"]
mod day;
#[path = "checks/day10_measure.rs"]
mod measure;
include!(concat!(env!("OUT_DIR"), "/day10.rs"));

checks::tests! {
    10, day10_kv_cache:
    task_10_1_memory_by_hand => day::memory_by_hand,
    task_10_1_the_formula_is_what_a_model_leaves => day::the_formula_is_what_a_model_leaves,
    task_10_2_growing_by_hand => day::growing_by_hand,
    task_10_2_growing_anything => day::growing_anything,
    task_10_3_writing_in_place_by_hand => day::writing_in_place_by_hand,
    task_10_3_a_full_buffer_is_refused => day::a_full_buffer_is_refused,
    task_10_3_writing_strided_columns => day::writing_strided_columns,
    task_10_4_appending_by_hand => day::appending_by_hand,
    task_10_4_len_moves_with_the_last_layer => day::len_moves_with_the_last_layer,
    task_10_4_pieces_equal_the_whole => day::pieces_equal_the_whole,
    task_10_4_a_static_cache_is_full_once => day::a_static_cache_is_full_once,
    task_10_4_a_layer_too_many_is_refused => day::a_layer_too_many_is_refused,
    task_10_5_truncate_keeps_the_first_columns => day::truncate_keeps_the_first_columns,
    task_10_5_an_emptied_cache_begins_anew => day::an_emptied_cache_begins_anew,
    task_10_5_what_was_taken_back_leaves_no_trace => day::what_was_taken_back_leaves_no_trace,
    task_10_6_clones_share_nothing => day::clones_share_nothing,
    task_10_7_selecting_by_hand => day::selecting_by_hand,
    task_10_7_a_beam_and_its_sibling_part => day::a_beam_and_its_sibling_part,
    task_10_7_any_order_of_operations => day::any_order_of_operations,
    task_10_8_the_next_step_by_hand => day::the_next_step_by_hand,
    task_10_8_without_a_cache_every_step_is_whole => day::without_a_cache_every_step_is_whole,
    task_10_8_cached_equals_uncached => day::cached_equals_uncached,
    task_10_8_ten_and_twenty_compute_29 => day::ten_and_twenty_compute_29,
    task_10_8_the_loop_ends => day::the_loop_ends,
    task_10_8_tokens_equal_transformers => day::tokens_equal_transformers,
    task_10_8_logits_equal_transformers => day::logits_equal_transformers,
    task_10_8_past_the_context_the_window_moves => day::past_the_context_the_window_moves,
    task_10_8_half_precision_stays_near => day::half_precision_stays_near,
    task_10_9_rows_are_stacked_by_hand => day::rows_are_stacked_by_hand,
    task_10_10_joining_by_hand => day::joining_by_hand,
    task_10_10_an_empty_cache_is_joined => day::an_empty_cache_is_joined,
    task_10_10_what_has_joined_shares_nothing => day::what_has_joined_shares_nothing,
    task_10_10_a_sliding_cache_does_not_join => day::a_sliding_cache_does_not_join,
    task_10_11_trimming_by_hand => day::trimming_by_hand,
    task_10_11_a_static_cache_keeps_its_capacity => day::a_static_cache_keeps_its_capacity,
    task_10_11_any_order_of_joins_and_trims => day::any_order_of_joins_and_trims,
    task_10_12_sliding_by_hand => day::sliding_by_hand,
    task_10_12_what_has_slid_is_not_truncated => day::what_has_slid_is_not_truncated,
    task_10_12_a_sliding_text_sees_its_last_tokens => day::a_sliding_text_sees_its_last_tokens,
    task_10_12_sliding_equals_a_banded_mask => day::sliding_equals_a_banded_mask,
    task_10_12_sliding_tokens_equal_transformers => day::sliding_tokens_equal_transformers,
    task_10_12_a_slid_cache_is_not_a_window => day::a_slid_cache_is_not_a_window,
    task_10_12_gpt2_does_not_slide => day::gpt2_does_not_slide,
}

/// Not a check: what half precision does, for the book.
#[test]
#[ignore = "prints the numbers of day 10's chapter"]
fn measure_halves() -> candle_core::Result<()> {
    measure::halves(&yours())
}
