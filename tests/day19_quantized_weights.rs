//! Day 19's checks: quantized weights.

mod checks;
#[macro_use]
#[path = "checks/day19.rs"]
mod day;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day19_quantized_weights.rs"]
mod day19_quantized_weights;

checks::tests! {
    19, day19_quantized_weights:
    task_19_1_numbers_become_steps_of_the_largest => day::q8_0_by_hand,
    task_19_1_the_largest_magnitude_may_be_negative => day::q8_0_handles_a_negative_extreme,
    task_19_1_zeros_stay_zeros => day::q8_0_of_zeros,
    task_19_1_blocks_equal_those_of_llamacpp => day::q8_0_equals_llamacpp,
    task_19_1_nan_and_infinity_are_refused => day::q8_0_refuses_nan_infinity_and_scale_overflow,
    task_19_1_activations_are_quantized_block_by_block => day::activations_by_hand,
    task_19_1_activations_that_fill_no_block_are_refused => day::activations_that_are_refused,
    task_19_2_numbers_become_steps_of_the_extreme => day::q4_0_by_hand,
    task_19_2_the_extreme_may_be_positive => day::q4_0_handles_a_positive_extreme,
    task_19_2_a_byte_holds_two_integers => day::two_integers_a_byte,
    task_19_2_zeros_become_eights => day::q4_0_of_zeros,
    task_19_2_blocks_equal_those_of_llamacpp => day::q4_0_equals_llamacpp,
    task_19_2_nan_and_infinity_are_refused => day::q4_0_refuses_nan_infinity_and_scale_overflow,
    task_19_2_every_block_of_a_row_has_its_own_scale => day::every_block_has_its_own_scale,
    task_19_2_rows_that_fill_no_block_are_refused => day::rows_that_are_refused,
    task_19_3_low_halves_come_first => day::dequantize_q4_0_by_hand,
    task_19_3_numbers_equal_those_of_llamacpp => day::dequantized_q4_0_equals_llamacpp,
    task_19_4_the_bound_of_8_bits_is_as_by_hand => day::largest_q8_0_error_by_hand,
    task_19_4_the_bound_of_4_bits_is_as_by_hand => day::largest_q4_0_error_by_hand,
    task_19_4_q8_0_errors_stay_within_the_bound => day::q8_0_errors_stay_within_the_bound,
    task_19_4_q4_0_errors_stay_within_the_bound => day::q4_0_errors_stay_within_the_bound,
    task_19_5_both_scales_multiply_the_sum => day::q8_0_dot_product_by_hand,
    task_19_5_integers_agree_with_restored_numbers => day::q8_0_dot_equals_the_dequantized_dot_product,
    task_19_6_integers_stand_for_8_less => day::q4_0_dot_product_by_hand,
    task_19_6_large_sums_do_not_overflow => day::sums_that_are_large,
    task_19_6_integers_agree_with_restored_numbers => day::q4_0_dot_equals_the_dequantized_dot_product,
    task_19_7_each_block_uses_its_own_scales => day::a_row_by_hand,
    task_19_7_rows_of_different_lengths_are_refused => day::rows_of_other_lengths,
    task_19_8_a_small_layer_is_as_by_hand => day::a_linear_layer_by_hand,
    task_19_8_random_layers_equal_the_exact_sums => day::a_linear_layer_on_random_inputs,
    task_19_8_rows_do_not_affect_each_other => day::rows_do_not_affect_each_other,
    task_19_8_a_layer_stays_close_to_f32 => day::a_layer_stays_close_to_f32,
    task_19_8_wrong_widths_and_nan_are_refused => day::layers_that_are_refused,
    task_19_9_bytes_per_weight_include_scales => day::bytes_of_a_weight,
    task_19_9_only_steps_bound_by_memory_gain => day::predicted_speedup_by_hand,
    task_19_10_each_entry_predicts_the_next_token => day::perplexity_by_hand,
    task_19_10_a_fair_die_has_a_perplexity_of_6 => day::a_fair_die_has_a_perplexity_of_6,
    task_19_10_perplexity_equals_that_of_torch => day::perplexity_equals_torch,
    task_19_10_texts_that_do_not_fit_are_refused => day::texts_that_are_refused,
    task_19_11_differences_are_weighted_by_the_reference => day::kl_by_hand,
    task_19_11_the_divergence_equals_that_of_torch => day::kl_equals_torch,
    task_19_11_impossible_tokens_contribute_nothing => day::kl_of_the_impossible,
    task_19_11_models_that_do_not_match_are_refused => day::pairs_that_are_refused,
    task_19_11_the_given_measures_agree_by_hand => day::the_given_measures,
    task_19_12_the_error_is_never_larger => day::never_a_larger_error,
    task_19_12_the_error_is_a_tenth_smaller => day::a_tenth_less_error,
    task_19_12_nan_and_infinity_are_refused => day::closer_q4_0_refuses_the_same_inputs,
    task_19_13_integers_count_up_from_the_minimum => day::dequantize_q4_1_by_hand,
    task_19_13_numbers_equal_those_of_llamacpp => day::dequantized_q4_1_equals_llamacpp,
    task_19_14_the_minimum_meets_every_activation => day::dot_of_q4_1,
    task_19_15_each_head_has_its_own_list => day::append_quantized_by_hand,
    task_19_15_the_cache_returns_what_it_was_given => day::cached_keys_and_values_are_close_to_the_originals,
    task_19_15_keys_that_do_not_fit_are_refused => day::keys_that_are_refused,
    task_19_16_the_error_of_a_score_is_as_by_hand => day::largest_score_error_by_hand,
    task_19_16_score_errors_stay_within_the_bound => day::score_errors_stay_within_the_bound,
}
