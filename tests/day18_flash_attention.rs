//! Day 18's checks: flash attention.

mod checks;
#[macro_use]
#[path = "checks/day18.rs"]
mod day;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day18_flash_attention.rs"]
mod day18_flash_attention;

checks::tests! {
    18, day18_flash_attention:
    task_18_1_a_new_maximum_rescales_both_sums => day::a_new_maximum_rescales_both_sums,
    task_18_1_values_start_at_first => day::values_start_at_first,
    task_18_1_masked_keys_weigh_nothing => day::masked_keys_weigh_nothing,
    task_18_1_a_masked_tile_changes_nothing => day::a_masked_tile_changes_nothing,
    task_18_1_large_scores_do_not_overflow => day::large_scores_do_not_overflow,
    task_18_1_nan_and_infinity_make_the_sum_nan => day::nan_and_infinity_make_the_sum_nan,
    task_18_2_attention_is_accumulator_over_sum => day::attention_is_accumulator_over_sum,
    task_18_2_any_tiling_gives_the_softmax => day::any_tiling_gives_the_softmax,
    task_18_3_the_smaller_maximum_is_rescaled => day::the_smaller_maximum_is_rescaled,
    task_18_3_merging_nothing_changes_nothing => day::merging_nothing_changes_nothing,
    task_18_3_merging_is_associative => day::merging_is_associative,
    task_18_4_scores_are_scaled_and_masked => day::scores_are_scaled_and_masked,
    task_18_4_scores_of_any_width_are_right => day::scores_of_any_width_are_right,
    task_18_5_many_tiles_equal_one_softmax => day::many_tiles_equal_one_softmax,
    task_18_5_columns_outside_the_range_are_ignored => day::columns_outside_the_range_are_ignored,
    task_18_5_a_partly_masked_tile_is_not_skipped => day::a_partly_masked_tile_is_not_skipped,
    task_18_5_an_unseen_tile_is_not_read => day::an_unseen_tile_is_not_read,
    task_18_6_split_columns_equal_one_softmax => day::split_columns_equal_one_softmax,
    task_18_6_chunks_start_at_the_first_visible_column => day::chunks_start_at_the_first_visible_column,
    task_18_6_results_are_bit_identical_for_any_thread_count => day::results_are_bit_identical_for_any_thread_count,
    task_18_6_each_query_group_shares_one_kv_head => day::each_query_group_shares_one_kv_head,
    task_18_6_batches_equal_one_softmax_per_query => day::batches_equal_one_softmax_per_query,
    task_18_6_decoding_splits_the_columns => day::decoding_splits_the_columns,
    task_18_6_mismatched_shapes_are_rejected => day::mismatched_shapes_are_rejected,
    task_18_6_the_operation_equals_torch => day::the_operation_equals_torch,
    task_18_6_padding_changes_no_bit => day::padding_changes_no_bit,
    task_18_7_entropy_matches_the_hand_worked_cases => day::entropy_matches_the_hand_worked_cases,
    task_18_7_masked_keys_add_no_entropy => day::masked_keys_add_no_entropy,
    task_18_7_entropy_is_correct_for_any_tiling => day::entropy_is_correct_for_any_tiling,
    task_18_8_merging_weights_each_side_by_its_sum => day::merging_weights_each_side_by_its_sum,
    task_18_8_a_side_without_keys_is_ignored => day::a_side_without_keys_is_ignored,
}
