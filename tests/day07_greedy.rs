//! Day 7's checks: greedy, done right.

mod checks;
#[macro_use]
#[path = "checks/day07.rs"]
mod day;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day07_greedy.rs"]
mod day07_greedy;

checks::tests! {
    7, day07_greedy:
    task_7_1_the_largest_by_hand => day::the_largest_by_hand,
    task_7_1_ties_go_to_the_first => day::ties_go_to_the_first,
    task_7_1_argmax_refuses_nan_and_rows_without_a_valid_token => day::argmax_refuses_nan_and_rows_without_a_valid_token,
    task_7_1_argmax_of_random_logits => day::argmax_of_random_logits,
    task_7_2_log_softmax_by_hand => day::log_softmax_by_hand,
    task_7_2_large_and_distant_logits_neither_overflow_nor_underflow => day::large_and_distant_logits_neither_overflow_nor_underflow,
    task_7_2_log_softmax_equals_torch => day::log_softmax_equals_torch,
    task_7_2_log_softmax_equals_candle_nn => day::log_softmax_equals_candle_nn,
    task_7_3_the_chosen_token_has_its_logprob => day::the_chosen_token_has_its_logprob,
    task_7_3_the_logprob_comes_from_the_raw_logits => day::the_logprob_comes_from_the_raw_logits,
    task_7_3_processors_run_in_order => day::processors_run_in_order,
    task_7_3_processors_see_the_whole_sequence => day::processors_see_the_whole_sequence,
    task_7_3_masking_every_token_or_sampling_out_of_range_is_an_error => day::masking_every_token_or_sampling_out_of_range_is_an_error,
    task_7_4_a_stop_string_ends_the_text => day::a_stop_string_ends_the_text,
    task_7_4_a_stop_string_may_span_pieces => day::a_stop_string_may_span_pieces,
    task_7_4_held_back_text_is_shown_if_no_stop_string_follows => day::held_back_text_is_shown_if_no_stop_string_follows,
    task_7_4_random_stop_strings_are_found_in_random_pieces => day::random_stop_strings_are_found_in_random_pieces,
    task_7_5_top_logprobs_ignore_processors_and_accompany_each_token => day::top_logprobs_ignore_processors_and_accompany_each_token,
    task_7_5_a_token_becomes_text => day::a_token_becomes_text,
    task_7_5_eos_never_appears_in_the_text => day::eos_never_appears_in_the_text,
    task_7_5_max_new_tokens_ends_the_text => day::max_new_tokens_ends_the_text,
    task_7_5_a_stop_string_may_span_tokens => day::a_stop_string_may_span_tokens,
    task_7_5_nothing_is_held_back_at_the_end => day::nothing_is_held_back_at_the_end,
    task_7_6_every_pass_sees_the_whole_sequence => day::every_pass_sees_the_whole_sequence,
    task_7_6_the_context_limit_ends_the_text => day::the_context_limit_ends_the_text,
    task_7_6_the_loop_ends_at_eos_or_the_limit => day::the_loop_ends_at_eos_or_the_limit,
    task_7_6_tokens_and_logprobs_equal_transformers => day::generate_equals_transformers,
    task_7_6_generate_with_a_processor_equals_transformers => day::generate_with_a_processor_equals_transformers,
    task_7_6_stop_strings_equal_transformers => day::stop_strings_equal_transformers,
    task_7_7_log_probs_of_a_given_text_by_hand => day::log_probs_of_a_given_text_by_hand,
    task_7_7_score_refuses_invalid_input => day::score_refuses_invalid_input,
    task_7_7_scoring_a_story_reproduces_its_generation_logprobs => day::scoring_a_story_reproduces_its_generation_logprobs,
    task_7_8_window_by_hand => day::window_by_hand,
    task_7_8_window_of_random_lengths => day::window_of_random_lengths,
    task_7_9_the_window_moves_and_renumbers_its_positions => day::the_window_moves_and_renumbers_its_positions,
    task_7_9_gpt2_writes_600_tokens => day::gpt2_writes_600_tokens,
    task_7_9_a_stride_of_1_equals_transformers => day::a_stride_of_1_equals_transformers,
    task_7_9_rope_is_renumbered_too => day::rope_is_renumbered_too,
}
