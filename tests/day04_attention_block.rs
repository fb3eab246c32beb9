//! Day 4's checks: the attention block.

mod checks;
#[macro_use]
#[path = "checks/day04.rs"]
mod day;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day04_attention_block.rs"]
mod day04_attention_block;

checks::tests! {
    4, day04_attention_block:
    task_4_1_two_query_heads_share_a_kv_head => day::two_query_heads_share_a_kv_head,
    task_4_1_the_mask_applies_to_every_head_of_a_group => day::the_mask_applies_to_every_head_of_a_group,
    task_4_1_grouped_attention_equals_transformers => day::grouped_attention_equals_hf,
    task_4_1_groups_may_have_any_size => day::groups_of_every_size,
    task_4_1_uneven_groups_are_refused => day::uneven_groups_are_refused,
    task_4_2_projections_by_hand => day::projections_by_hand,
    task_4_2_projections_equal_transformers => day::projections_equal_hf,
    task_4_2_nothing_is_rotated_without_angles => day::without_angles_nothing_is_rotated,
    task_4_2_projections_equal_candle_nn => day::projections_equal_candle_nn,
    task_4_3_the_block_equals_transformers => day::the_block_equals_hf,
    task_4_3_the_block_and_its_attention_equal_transformers => day::the_block_and_its_attention_equal_hf,
    task_4_3_the_block_appends_to_its_layer_of_the_cache => day::the_block_appends_to_its_layer_of_the_cache,
    task_4_3_padding_changes_nothing => day::padding_changes_nothing,
    task_4_4_the_window_slides => day::the_window_slides,
}
