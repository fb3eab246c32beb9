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
    task_18_1_positions_lie_a_stride_apart => day::positions_lie_a_stride_apart,
    task_18_2_two_tiles_by_hand => day::two_tiles_by_hand,
    task_18_2_values_begin_where_the_tile_does => day::values_begin_where_the_tile_does,
    task_18_2_masked_keys_weigh_nothing => day::masked_keys_weigh_nothing,
    task_18_2_a_tile_of_masked_keys_changes_nothing => day::a_masked_tile_changes_nothing,
    task_18_2_large_scores_do_not_overflow => day::large_scores_do_not_overflow,
    task_18_2_nan_is_passed_on => day::nan_is_passed_on,
    task_18_3_two_parts_by_hand => day::two_parts_by_hand,
    task_18_3_nothing_changes_nothing => day::nothing_changes_nothing,
    task_18_3_merging_is_associative => day::merging_is_associative,
    task_18_4_a_mean_by_hand => day::a_mean_by_hand,
    task_18_4_any_tiles_give_the_softmax => day::any_tiles_give_the_softmax,
    task_18_5_the_columns_of_a_token => day::the_columns_of_a_token,
    task_18_6_scores_by_hand => day::scores_by_hand,
    task_18_6_scores_of_any_width => day::scores_of_any_width,
    task_18_7_many_tiles_equal_one_softmax => day::many_tiles_equal_one_softmax,
    task_18_7_only_these_columns_count => day::only_these_columns_count,
    task_18_7_a_tile_that_is_partly_masked_counts => day::a_partly_masked_tile_counts,
    task_18_7_a_tile_that_nobody_sees_is_not_read => day::an_unseen_tile_is_not_read,
    task_18_8_split_keys_equal_one_softmax => day::split_keys_equal_one_softmax,
    task_18_8_chunks_begin_with_the_columns => day::chunks_begin_with_the_columns,
    task_18_8_any_number_of_threads => day::any_number_of_threads,
    task_18_9_blocks_of_tokens => day::blocks_of_tokens,
    task_18_10_four_heads_by_hand => day::four_heads_by_hand,
    task_18_10_batches_of_every_shape => day::batches_of_every_shape,
    task_18_10_decoding_splits_the_columns => day::decoding_splits_the_columns,
    task_18_11_heads_where_the_cache_has_them => day::heads_where_the_cache_has_them,
    task_18_11_numbers_that_lie_apart_are_refused => day::scattered_numbers_are_refused,
    task_18_11_shapes_that_do_not_fit_are_refused => day::shapes_that_do_not_fit_are_refused,
    task_18_11_the_operation_equals_torch => day::the_operation_equals_torch,
    task_18_11_a_padded_row_gets_what_it_gets_alone => day::a_padded_row_is_as_alone,
    task_18_12_finished_parts_are_merged => day::finished_parts_are_merged,
    task_18_12_a_part_of_nothing_counts_for_nothing => day::a_finished_part_of_nothing,
}
