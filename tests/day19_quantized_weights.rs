//! Day 19's checks: quantised weights.

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
    task_19_1_a_block_by_hand => day::q8_0_by_hand,
    task_19_1_the_largest_may_be_negative => day::q8_0_of_a_negative_largest,
    task_19_1_a_block_of_zeros => day::q8_0_of_zeros,
    task_19_1_the_blocks_of_llamacpp => day::q8_0_equals_llamacpp,
    task_19_1_nan_and_infinity_are_refused => day::q8_0_refuses_what_is_no_number,
    task_19_2_back_by_hand => day::back_from_q8_0_by_hand,
    task_19_2_back_as_llamacpp => day::back_from_q8_0_equals_llamacpp,
    task_19_3_half_a_step => day::error_of_q8_0_by_hand,
    task_19_3_no_number_is_further_off => day::no_number_is_further_off_q8_0,
    task_19_4_a_block_by_hand => day::q4_0_by_hand,
    task_19_4_the_largest_may_be_positive => day::q4_0_of_a_positive_largest,
    task_19_4_two_integers_in_a_byte => day::two_integers_a_byte,
    task_19_4_a_block_of_zeros => day::q4_0_of_zeros,
    task_19_4_the_blocks_of_llamacpp => day::q4_0_equals_llamacpp,
    task_19_4_nan_and_infinity_are_refused => day::q4_0_refuses_what_is_no_number,
    task_19_5_back_by_hand => day::back_from_q4_0_by_hand,
    task_19_5_back_as_llamacpp => day::back_from_q4_0_equals_llamacpp,
    task_19_6_a_whole_step => day::error_of_q4_0_by_hand,
    task_19_6_no_number_is_further_off => day::no_number_is_further_off_q4_0,
    task_19_7_every_block_has_its_scale => day::every_block_has_its_scale,
    task_19_7_rows_that_are_refused => day::rows_that_are_refused,
    task_19_8_activations_by_hand => day::activations_by_hand,
    task_19_8_activations_that_are_refused => day::activations_that_are_refused,
    task_19_9_a_product_by_hand => day::dot_of_8_bits_by_hand,
    task_19_9_integers_give_what_numbers_give => day::integers_give_what_numbers_give,
    task_19_10_a_product_by_hand => day::dot_of_4_bits_by_hand,
    task_19_10_sums_that_are_large => day::sums_that_are_large,
    task_19_10_integers_give_what_numbers_give => day::integers_of_4_bits_give_what_numbers_give,
    task_19_11_a_row_by_hand => day::a_row_by_hand,
    task_19_11_rows_of_other_lengths_are_refused => day::rows_of_other_lengths,
    task_19_12_a_layer_by_hand => day::a_linear_layer_by_hand,
    task_19_12_a_layer_at_random => day::a_linear_layer_at_random,
    task_19_12_rows_do_not_see_each_other => day::rows_do_not_see_each_other,
    task_19_12_near_the_layer_of_f32 => day::near_the_layer_of_f32,
    task_19_12_layers_that_are_refused => day::layers_that_are_refused,
    task_19_13_bytes_of_a_weight => day::bytes_of_a_weight,
    task_19_14_how_much_faster_by_hand => day::how_much_faster_by_hand,
    task_19_15_back_from_q4_1_by_hand => day::back_from_q4_1_by_hand,
    task_19_15_back_as_llamacpp => day::back_from_q4_1_equals_llamacpp,
    task_19_16_a_product_with_a_minimum => day::dot_of_q4_1,
    task_19_17_perplexity_by_hand => day::perplexity_by_hand,
    task_19_17_a_fair_die => day::perplexity_of_a_fair_die,
    task_19_17_perplexity_equals_torch => day::perplexity_equals_torch,
    task_19_17_texts_that_are_refused => day::texts_that_are_refused,
    task_19_18_kl_by_hand => day::kl_by_hand,
    task_19_18_kl_equals_torch => day::kl_equals_torch,
    task_19_18_what_is_impossible_counts_as_nothing => day::kl_of_the_impossible,
    task_19_18_pairs_that_are_refused => day::pairs_that_are_refused,
    task_19_19_best_tokens_by_hand => day::best_tokens_by_hand,
    task_19_19_pairs_that_are_refused => day::pairs_without_best_tokens,
    task_19_20_where_two_texts_part => day::where_texts_part,
    task_19_21_lists_of_blocks_by_hand => day::lists_of_blocks_by_hand,
    task_19_21_what_the_cache_gives_back => day::what_the_cache_gives_back,
    task_19_21_keys_that_are_refused => day::keys_that_are_refused,
    task_19_22_the_error_of_a_score_by_hand => day::error_of_a_score_by_hand,
    task_19_22_no_score_is_further_off => day::no_score_is_further_off,
}
