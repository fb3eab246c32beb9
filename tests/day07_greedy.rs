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
    task_7_1_nan_and_rows_without_a_choice_are_refused => day::nan_and_rows_without_a_choice_are_refused,
    task_7_1_argmax_of_random_logits => day::argmax_of_random_logits,
    task_7_2_log_softmax_by_hand => day::log_softmax_by_hand,
    task_7_2_large_and_distant_logits_neither_overflow_nor_underflow => day::large_and_distant_logits_neither_overflow_nor_underflow,
    task_7_2_log_softmax_equals_torch => day::log_softmax_equals_torch,
    task_7_2_log_softmax_equals_candle_nn => day::log_softmax_equals_candle_nn,
    task_7_3_the_chosen_token_has_its_logprob => day::the_chosen_token_has_its_logprob,
    task_7_3_the_logprob_is_the_models_own => day::the_logprob_is_the_models_own,
    task_7_3_processors_run_in_order => day::processors_run_in_order,
    task_7_3_processors_see_the_whole_sequence => day::processors_see_the_whole_sequence,
    task_7_3_no_valid_choice_is_an_error => day::no_valid_choice_is_an_error,
    task_7_4_a_stop_string_ends_the_text => day::a_stop_string_ends_the_text,
    task_7_4_a_stop_string_across_pieces => day::a_stop_string_across_pieces,
    task_7_4_held_back_text_is_shown_if_no_stop_string_follows => day::held_back_text_is_shown_if_no_stop_string_follows,
    task_7_4_random_stop_strings_in_random_pieces => day::random_stop_strings_in_random_pieces,
    task_7_5_the_most_likely_tokens_travel_with_the_token => day::the_most_likely_tokens_travel_with_the_token,
    task_7_5_a_token_becomes_text => day::a_token_becomes_text,
    task_7_5_eos_never_enters_the_text => day::eos_never_enters_the_text,
    task_7_5_the_limit_ends_the_text => day::the_limit_ends_the_text,
    task_7_5_a_stop_string_crosses_tokens => day::a_stop_string_crosses_tokens,
    task_7_5_nothing_is_held_back_at_the_end => day::nothing_is_held_back_at_the_end,
    task_7_6_every_pass_sees_the_whole_sequence => day::every_pass_sees_the_whole_sequence,
    task_7_6_the_context_ends_the_text => day::the_context_ends_the_text,
    task_7_6_the_loop_ends_at_eos_or_the_limit => day::the_loop_ends_at_eos_or_the_limit,
    task_7_6_tokens_and_logprobs_equal_transformers => day::generate_equals_transformers,
    task_7_6_with_a_processor_it_equals_transformers => day::with_a_processor_it_equals_transformers,
    task_7_6_stop_strings_equal_transformers => day::stop_strings_equal_transformers,
    task_7_7_a_given_text_is_scored_by_hand => day::a_given_text_is_scored_by_hand,
    task_7_7_what_cannot_be_scored_is_refused => day::what_cannot_be_scored_is_refused,
    task_7_7_a_story_gets_the_score_it_was_written_with => day::a_story_gets_the_score_it_was_written_with,
    task_7_8_window_by_hand => day::window_by_hand,
    task_7_8_window_of_random_lengths => day::window_of_random_lengths,
    task_7_9_the_window_moves_and_renumbers => day::the_window_moves_and_renumbers,
    task_7_9_gpt2_writes_600_tokens => day::gpt2_writes_600_tokens,
    task_7_9_a_stride_of_1_equals_transformers => day::a_stride_of_1_equals_transformers,
    task_7_9_rope_is_renumbered_too => day::rope_is_renumbered_too,
}
