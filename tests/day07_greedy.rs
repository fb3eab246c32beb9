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
    task_7_1_the_first_of_equals => day::the_first_of_equals,
    task_7_1_nonsense_is_refused => day::nonsense_is_refused,
    task_7_1_argmax_of_anything => day::argmax_of_anything,
    task_7_2_log_softmax_by_hand => day::log_softmax_by_hand,
    task_7_2_log_softmax_of_large_and_far => day::log_softmax_of_large_and_far,
    task_7_2_log_softmax_equals_torch => day::log_softmax_equals_torch,
    task_7_2_log_softmax_equals_candle_nn => day::log_softmax_equals_candle_nn,
    task_7_3_a_stop_string_ends_the_text => day::a_stop_string_ends_the_text,
    task_7_3_a_stop_string_across_pieces => day::a_stop_string_across_pieces,
    task_7_3_what_was_held_back_is_shown => day::what_was_held_back_is_shown,
    task_7_3_any_stops_in_any_pieces => day::any_stops_in_any_pieces,
    task_7_4_what_a_processor_may_know => day::what_a_processor_may_know,
    task_7_5_the_choice_and_its_worth => day::the_choice_and_its_worth,
    task_7_5_the_logprob_is_the_models_own => day::the_logprob_is_the_models_own,
    task_7_5_processors_run_in_order => day::processors_run_in_order,
    task_7_5_processors_see_the_context => day::processors_see_the_context,
    task_7_5_no_choice_is_an_error => day::no_choice_is_an_error,
    task_7_6_the_likeliest_tokens_go_with_the_token => day::the_likeliest_tokens_go_with_the_token,
    task_7_6_a_token_becomes_text => day::a_token_becomes_text,
    task_7_6_eos_never_enters_the_text => day::eos_never_enters_the_text,
    task_7_6_the_bound_ends_the_text => day::the_bound_ends_the_text,
    task_7_6_a_stop_string_crosses_tokens => day::a_stop_string_crosses_tokens,
    task_7_6_nothing_stays_held_back => day::nothing_stays_held_back,
    task_7_7_every_pass_sees_the_whole_sequence => day::every_pass_sees_the_whole_sequence,
    task_7_7_the_context_ends_the_text => day::the_context_ends_the_text,
    task_7_7_the_loop_ends => day::the_loop_ends,
    task_7_7_tokens_and_logprobs_equal_transformers => day::generate_equals_transformers,
    task_7_7_with_a_processor_it_equals_transformers => day::with_a_processor_it_equals_transformers,
    task_7_7_stop_strings_equal_transformers => day::stop_strings_equal_transformers,
    task_7_8_window_by_hand => day::window_by_hand,
    task_7_8_window_of_anything => day::window_of_anything,
    task_7_9_the_window_moves_and_renumbers => day::the_window_moves_and_renumbers,
    task_7_9_gpt2_writes_600_tokens => day::gpt2_writes_600_tokens,
    task_7_9_a_stride_of_1_equals_transformers => day::a_stride_of_1_equals_transformers,
    task_7_9_rope_is_renumbered_too => day::rope_is_renumbered_too,
}
