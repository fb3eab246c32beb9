//! Day 1's checks: attention.

mod checks;
#[macro_use]
#[path = "checks/day01.rs"]
mod day;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day01_attention.rs"]
mod day01_attention;

checks::tests! {
    1, day01_attention:
    task_1_1_softmax_by_hand => day::softmax_by_hand,
    task_1_1_softmax_equals_torch => day::softmax_equals_torch,
    task_1_1_softmax_does_not_overflow => day::softmax_does_not_overflow,
    task_1_1_softmax_sums_in_f32 => day::softmax_sums_in_f32,
    task_1_1_softmax_equals_candle_nn => day::softmax_equals_candle_nn,
    task_1_2_the_mask_is_causal => day::the_mask_is_causal,
    task_1_3_attention_by_hand => day::attention_by_hand,
    task_1_3_attention_equals_torch => day::attention_equals_torch,
    task_1_3_masked_attention_equals_torch => day::masked_attention_equals_torch,
    task_1_3_a_trained_head_equals_transformers => day::a_trained_head_equals_transformers,
    task_1_3_views_are_taken => day::views_are_taken,
    task_1_3_each_row_has_its_own_mask => day::each_row_has_its_own_mask,
    task_1_3_attention_works_in_bf16 => day::attention_works_in_bf16,
    task_1_3_what_is_hidden_has_no_weight => day::what_is_hidden_has_no_weight,
    task_1_4_heads_are_split => day::heads_are_split,
    task_1_4_any_heads_are_split => day::any_heads_are_split,
    task_1_5_heads_are_merged => day::heads_are_merged,
    task_1_5_any_heads_are_merged => day::any_heads_are_merged,
    task_1_6_multi_head_equals_torch => day::multi_head_equals_torch,
    task_1_6_the_future_changes_nothing => day::the_future_changes_nothing,
}
