//! Day 0's checks: the warm-up.

mod checks;
#[macro_use]
#[path = "checks/day00.rs"]
mod day;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day00_warm_up.rs"]
mod day00_warm_up;

checks::tests! {
    0, day00_warm_up:
    task_0_1_a_text_becomes_ids => day::a_text_becomes_ids,
    task_0_1_ids_equal_transformers => day::ids_equal_transformers,
    task_0_2_ids_pick_rows_of_the_table => day::ids_pick_rows_of_the_table,
    task_0_2_any_ids_pick_their_rows => day::any_ids_pick_their_rows,
    task_0_2_embed_equals_candle_nn => day::embed_equals_candle_nn,
    task_0_2_an_id_outside_is_refused => day::an_id_outside_is_refused,
    task_0_3_scores_are_dot_products => day::scores_are_dot_products,
    task_0_3_a_token_scores_its_length_squared => day::a_token_scores_its_length_squared,
    task_0_3_score_equals_candle_nn => day::score_equals_candle_nn,
    task_0_3_most_tokens_come_back => day::most_tokens_come_back,
    task_0_4_the_best_ids_become_text => day::the_best_ids_become_text,
    task_0_4_without_layers_the_text_comes_back => day::without_layers_the_text_comes_back,
    task_0_5_a_bias_is_lent_to_every_vector => day::a_bias_is_lent_to_every_vector,
    task_0_6_heads_come_first => day::heads_come_first,
    task_0_6_heads_are_laid_out_anew => day::heads_are_laid_out_anew,
    task_0_7_rows_are_picked => day::rows_are_picked,
    task_0_8_the_last_position_is_left => day::the_last_position_is_left,
    task_0_8_no_position_is_refused => day::no_position_is_refused,
    task_0_9_a_product_is_in_f32 => day::a_product_is_in_f32,
    task_0_10_rows_are_multiplied_with_rows => day::rows_are_multiplied_with_rows,
    task_0_10_square_shapes_hide_nothing => day::square_shapes_hide_nothing,
}

#[test]
fn teeth_the_chapters_table_is_true() -> candle_core::Result<()> {
    day::the_chapters_table()
}
