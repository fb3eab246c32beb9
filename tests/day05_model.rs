//! Day 5's checks: the model.

mod checks;
#[macro_use]
#[path = "checks/day05.rs"]
mod day;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day05_model.rs"]
mod day05_model;

checks::tests! {
    5, day05_model:
    task_5_1_zero_attention_output_leaves_x_unchanged => day::zero_attention_output_leaves_x_unchanged,
    task_5_1_the_attention_half_by_hand => day::attend_by_hand,
    task_5_1_each_half_has_its_norm => day::attention_and_mlp_each_apply_their_norm,
    task_5_1_zero_mlp_output_leaves_x_unchanged => day::zero_mlp_output_leaves_x_unchanged,
    task_5_1_the_attention_half_equals_transformers => day::attend_equals_hf,
    task_5_1_the_mlp_half_equals_transformers => day::feed_forward_equals_hf,
    task_5_2_embed_by_hand => day::embed_by_hand,
    task_5_2_embed_equals_transformers => day::embed_equals_hf,
    task_5_2_a_bf16_table_is_widened => day::embed_widens_a_bf16_table,
    task_5_3_head_by_hand => day::head_by_hand,
    task_5_3_head_equals_transformers => day::head_equals_hf,
    task_5_3_head_equals_candle_nn => day::head_equals_candle_nn,
    task_5_4_logits_equal_transformers => day::logits_equal_hf,
    task_5_4_a_long_text_equals_transformers => day::a_long_text_equals_hf,
    task_5_4_forward_returns_only_the_requested_logits => day::forward_returns_only_the_requested_logits,
    task_5_4_pieces_equal_the_whole => day::pieces_equal_the_whole,
    task_5_4_padding_changes_nothing => day::padding_changes_nothing,
    task_5_5_the_lens_equals_a_model_truncated_at_each_depth => day::the_lens_equals_a_model_truncated_at_each_depth,
    task_5_6_fused_attention_by_hand => day::fused_attention_by_hand,
    task_5_6_layers_equal_transformers => day::gpt2_layers_equal_hf,
    task_5_6_logits_equal_transformers => day::gpt2_logits_equal_hf,
    task_5_6_a_long_text_equals_transformers => day::gpt2_long_text_equals_hf,
    task_5_6_pieces_and_padding_change_nothing => day::gpt2_pieces_and_padding,
}
