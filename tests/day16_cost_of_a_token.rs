//! Day 16's checks: the cost of a token.

mod checks;
#[macro_use]
#[path = "checks/day16.rs"]
mod day;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day16_cost_of_a_token.rs"]
mod day16_cost_of_a_token;

checks::tests! {
    16, day16_cost_of_a_token:
    task_16_1_a_layer_by_hand => day::a_layer_by_hand,
    task_16_1_gpt2_has_two_matrices_in_its_mlp => day::gpt2_by_hand,
    task_16_2_the_head_counts_and_the_table_does_not => day::the_head_counts,
    task_16_2_as_many_as_the_files_have => day::as_many_as_the_files_have,
    task_16_3_bytes_by_hand => day::bytes_by_hand,
    task_16_3_rows_share_the_weights_alone => day::rows_share_the_weights,
    task_16_3_a_fraction_of_a_byte => day::a_fraction_of_a_byte,
    task_16_4_operations_by_hand => day::operations_by_hand,
    task_16_4_as_many_as_loops_count => day::as_many_as_loops_count,
    task_16_5_operations_a_byte => day::operations_a_byte,
    task_16_6_a_slope_and_a_flat_roof => day::a_slope_and_a_flat_roof,
    task_16_7_the_longer_of_two_times => day::the_longer_of_two_times,
    task_16_7_time_and_roofline_agree => day::time_and_roofline_agree,
    task_16_7_llama_on_three_machines => day::llama_on_three_machines,
    task_16_7_parts_one_after_the_other => day::parts_one_after_the_other,
    task_16_8_where_two_times_meet => day::where_two_times_meet,
    task_16_8_llama_in_batches => day::llama_in_batches,
    task_16_8_rows_next_to_the_weights => day::rows_next_to_the_weights,
    task_16_8_one_row_fewer_is_bound_by_memory => day::one_row_fewer,
    task_16_9_tokens_of_all_rows => day::tokens_of_all_rows,
    task_16_10_a_request_by_hand => day::a_request_by_hand,
    task_16_10_one_position_of_logits => day::one_position_of_logits,
    task_16_10_one_token_has_no_gap => day::one_token_has_no_gap,
    task_16_10_nothing_asked_is_refused => day::nothing_asked_is_refused,
    task_16_11_verifying_by_hand => day::verifying_by_hand,
    task_16_11_no_draft_costs_one_step => day::no_draft_costs_one_step,
    task_16_12_the_best_number_of_drafts => day::the_best_number_of_drafts,
    task_16_12_where_two_bounds_meet => day::drafts_where_two_bounds_meet,
    task_16_12_no_probability_is_refused => day::no_probability_is_refused,
    task_16_13_a_trace_by_hand => day::a_trace_by_hand,
    task_16_13_a_trace_without_tokens_is_refused => day::a_trace_without_tokens,
    task_16_14_percentiles_equal_numpy => day::percentiles_equal_numpy,
    task_16_14_percentiles_are_in_order => day::percentiles_are_in_order,
    task_16_14_nonsense_is_refused => day::percentiles_of_nonsense,
    task_16_15_three_requests_by_hand => day::three_requests_by_hand,
    task_16_15_no_request_is_refused => day::no_request_is_refused,
}
