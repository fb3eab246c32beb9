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
    task_0_2_embed_returns_the_row_of_each_id => day::embed_returns_the_row_of_each_id,
    task_0_2_embed_equals_candle_nn => day::embed_equals_candle_nn,
    task_0_2_an_out_of_range_id_is_refused => day::an_out_of_range_id_is_refused,
    task_0_3_scores_are_dot_products => day::scores_are_dot_products,
    task_0_3_a_token_scores_its_length_squared => day::a_token_scores_its_length_squared,
    task_0_3_score_equals_candle_nn => day::score_equals_candle_nn,
    task_0_3_most_tokens_come_back => day::most_tokens_come_back,
    task_0_4_the_best_ids_become_text => day::the_best_ids_become_text,
    task_0_4_a_model_without_layers_echoes_the_text => day::a_model_without_layers_echoes_the_text,
    task_0_5_the_last_position_is_returned => day::the_last_position_is_returned,
    task_0_5_no_positions_are_refused => day::no_positions_are_refused,
    task_0_6_direction_decides => day::direction_decides,
    task_0_6_a_cat_is_near_a_dog => day::a_cat_is_near_a_dog,
    task_0_6_nearest_equals_the_formula => day::nearest_equals_the_formula,
    task_0_6_an_out_of_range_token_is_refused => day::an_out_of_range_token_is_refused,
}

#[test]
fn teeth_the_chapters_table_is_true() -> candle_core::Result<()> {
    day::the_chapters_table()
}
