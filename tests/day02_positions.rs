//! Day 2's checks: positions.

mod checks;
#[macro_use]
#[path = "checks/day02.rs"]
mod day;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day02_positions.rs"]
mod day02_positions;

checks::tests! {
    2, day02_positions:
    task_2_1_a_position_picks_a_row => day::a_position_picks_a_row,
    task_2_1_learned_positions_equal_gpt2 => day::learned_positions_equal_gpt2,
    task_2_1_a_position_past_the_context_is_refused => day::a_position_past_the_context_is_refused,
    task_2_2_frequencies_by_hand => day::frequencies_by_hand,
    task_2_2_frequencies_equal_transformers => day::frequencies_equal_transformers,
    task_2_2_an_odd_head_dim_is_refused => day::an_odd_head_dim_is_refused,
    task_2_3_angles_by_hand => day::angles_by_hand,
    task_2_3_angles_equal_transformers => day::angles_equal_transformers,
    task_2_3_stretched_angles_equal_transformers => day::stretched_angles_equal_transformers,
    task_2_4_one_turn_by_hand => day::one_turn_by_hand,
    task_2_4_rope_equals_transformers => day::rope_equals_transformers,
    task_2_4_the_type_stays => day::the_type_stays,
    task_2_4_position_0_changes_nothing => day::position_0_changes_nothing,
    task_2_4_a_turn_keeps_lengths => day::a_turn_keeps_lengths,
    task_2_4_scores_depend_only_on_distance => day::scores_depend_only_on_distance,
    task_2_4_each_row_has_its_own_positions => day::each_row_has_its_own_positions,
    task_2_4_rotate_equals_candle_nn => day::rotate_equals_candle_nn,
    task_2_5_even_rows_come_first => day::even_rows_come_first,
    task_2_5_reordering_equals_transformers => day::reordering_equals_transformers,
    task_2_5_reordered_weights_give_the_same_scores => day::reordered_weights_give_the_same_scores,
    task_2_5_reordering_equals_candle_nn => day::reordering_equals_candle_nn,
}
