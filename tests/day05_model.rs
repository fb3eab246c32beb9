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
    task_5_1_norms_by_hand => day::norms_by_hand,
    task_5_1_norms_equal_candle_nn => day::norms_equal_candle_nn,
    task_5_2_attention_equals_transformers => day::attention_equals_hf,
    task_5_3_mlp_equals_transformers => day::mlp_equals_hf,
    task_5_4_a_silent_attention_adds_nothing => day::a_silent_attention_adds_nothing,
    task_5_4_attend_by_hand => day::attend_by_hand,
    task_5_4_each_half_has_its_norm_by_hand => day::each_half_has_its_norm_by_hand,
    task_5_4_attend_equals_transformers => day::attend_equals_hf,
    task_5_4_a_silent_mlp_adds_nothing => day::a_silent_mlp_adds_nothing,
    task_5_4_feed_forward_equals_transformers => day::feed_forward_equals_hf,
    task_5_5_embed_by_hand => day::embed_by_hand,
    task_5_5_embed_equals_transformers => day::embed_equals_hf,
    task_5_5_embed_widens_a_half_table => day::embed_widens_a_half_table,
    task_5_6_head_by_hand => day::head_by_hand,
    task_5_6_head_equals_transformers => day::head_equals_hf,
    task_5_6_head_equals_candle_nn => day::head_equals_candle_nn,
    task_5_7_logits_equal_transformers => day::logits_equal_hf,
    task_5_7_a_long_text_equals_transformers => day::a_long_text_equals_hf,
    task_5_7_only_the_logits_asked_for => day::only_the_logits_asked_for,
    task_5_7_pieces_equal_the_whole => day::pieces_equal_the_whole,
    task_5_7_padding_changes_nothing => day::padding_changes_nothing,
    task_5_8_fused_attention_by_hand => day::fused_attention_by_hand,
    task_5_8_layers_equal_transformers => day::gpt2_layers_equal_hf,
    task_5_8_logits_equal_transformers => day::gpt2_logits_equal_hf,
    task_5_8_a_long_text_equals_transformers => day::gpt2_long_text_equals_hf,
    task_5_8_pieces_and_padding_change_nothing => day::gpt2_pieces_and_padding,
}
