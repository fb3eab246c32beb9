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
    task_16_2_the_count_matches_the_models_files => day::the_count_matches_the_files,
    task_16_3_bytes_by_hand => day::bytes_by_hand,
    task_16_3_rows_share_only_the_weights => day::rows_share_the_weights,
    task_16_3_a_weight_can_take_a_fraction_of_a_byte => day::a_q4_0_weight_takes_a_fraction_of_a_byte,
    task_16_4_operations_by_hand => day::operations_by_hand,
    task_16_4_the_count_matches_a_loop => day::the_count_matches_a_loop,
    task_16_5_a_pass_by_hand => day::a_pass_by_hand,
    task_16_5_products_and_attention_run_in_turn => day::product_and_attention_times_add_up,
    task_16_5_the_rate_counts_all_rows => day::the_rate_counts_all_rows,
    task_16_5_llama_on_three_machines => day::llama_on_three_machines,
    task_16_5_a_pass_agrees_with_the_roofline => day::a_pass_agrees_with_the_roofline,
    task_16_6_verifying_by_hand => day::verifying_by_hand,
    task_16_6_zero_drafted_tokens_cost_one_step => day::zero_drafted_tokens_cost_one_step,
    task_16_7_the_critical_batch_by_hand => day::the_critical_batch_by_hand,
    task_16_7_llama_in_batches => day::llama_in_batches,
    task_16_7_one_row_fewer_is_memory_bound => day::one_row_fewer,
    task_16_8_rows_fill_the_memory_left_by_the_weights => day::rows_fill_the_memory_left_by_the_weights,
    task_16_8_llama_in_memory => day::llama_in_memory,
    task_16_9_the_largest_batch_by_hand => day::the_largest_batch_by_hand,
    task_16_9_llama_for_readers_in_a_hurry => day::llama_in_a_hurry,
    task_16_9_one_row_more_breaks_a_limit => day::one_row_more,
    task_16_10_a_request_by_hand => day::a_request_by_hand,
    task_16_10_prefill_needs_one_position_of_logits => day::one_position_of_logits,
    task_16_10_a_single_new_token_has_no_tpot => day::a_single_new_token_has_no_tpot,
    task_16_10_an_empty_request_is_refused => day::an_empty_request_is_refused,
    task_16_11_the_best_draft_length => day::the_best_draft_length,
    task_16_11_the_best_draft_length_between_two_bounds => day::drafts_between_two_bounds,
    task_16_11_an_invalid_acceptance_is_refused => day::an_invalid_acceptance,
    task_16_12_three_requests_by_hand => day::three_requests_by_hand,
    task_16_12_no_requests_are_refused => day::no_requests_are_refused,
    task_16_12_one_request_by_hand => day::one_request_by_hand,
    task_16_12_percentiles_equal_numpy => day::percentiles_equal_numpy,
    task_16_12_percentiles_are_in_order => day::percentiles_are_in_order,
}
