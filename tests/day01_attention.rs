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
    task_1_3_hidden_keys_get_no_weight => day::hidden_keys_get_no_weight,
    task_1_3_later_tokens_change_nothing => day::later_tokens_change_nothing,
    task_1_4_heads_are_split => day::heads_are_split,
    task_1_4_any_heads_are_split => day::any_heads_are_split,
    task_1_5_heads_are_merged => day::heads_are_merged,
    task_1_5_any_heads_are_merged => day::any_heads_are_merged,
    task_1_5_heads_equal_torchs_multihead_attention => day::heads_equal_torchs_multihead_attention,
    task_1_6_a_sink_takes_its_share => day::a_sink_takes_its_share,
    task_1_6_a_query_with_no_visible_key_returns_zeros => day::a_query_with_no_visible_key_returns_zeros,
    task_1_6_large_scores_and_sinks_do_not_overflow => day::large_scores_and_sinks_do_not_overflow,
    task_1_6_sinks_equal_the_formula => day::sinks_equal_the_formula,
}
