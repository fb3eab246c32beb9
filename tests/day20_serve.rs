//! Day 20's checkers: the protocol, and the loop that serves.

mod checks;
#[macro_use]
#[path = "checks/day20.rs"]
mod day;
#[cfg(feature = "mistakes")]
include!(concat!(env!("OUT_DIR"), "/day20.rs"));

checks::tests! {
    20, day20_serve:
    task_20_1_stop_in_three_forms => day::stop_in_three_forms,
    task_20_1_other_stops_are_refused => day::stop_is_refused,
    task_20_2_regex_and_choice => day::regex_and_choice,
    task_20_2_other_formats_are_refused => day::other_formats_are_refused,
    task_20_3_the_defaults_are_openais => day::defaults_are_openais,
    task_20_3_every_parameter_arrives => day::every_parameter_arrives,
    task_20_3_out_of_range_is_refused => day::out_of_range_is_refused,
    task_20_4_a_prompt_in_four_forms => day::a_prompt_in_four_forms,
    task_20_4_other_prompts_are_refused => day::other_prompts_are_refused,
    task_20_5_messages_by_role => day::messages_by_role,
    task_20_5_other_messages_are_refused => day::other_messages_are_refused,
    task_20_6_logprobs_are_asked_for_in_two_ways => day::logprobs_are_asked_in_two_ways,
    task_20_6_a_whole_request => day::a_whole_request,
    task_20_7_prompts_become_tokens => day::prompts_become_tokens,
    task_20_7_prompts_that_do_not_fit => day::prompts_that_do_not_fit,
    task_20_8_an_event_is_a_line_and_an_empty_line => day::an_event_is_a_line_and_an_empty_line,
    task_20_9_three_reasons_two_words => day::three_reasons_two_words,
    task_20_10_logprobs_in_two_shapes => day::logprobs_in_two_shapes,
    task_20_11_usage_counts_tokens => day::usage_counts_tokens,
    task_20_12_pieces_are_taken_by_their_choice => day::pieces_are_taken_by_their_choice,
    task_20_13_a_completion_in_chunks => day::a_completion_in_chunks,
    task_20_13_a_chat_in_chunks => day::a_chat_in_chunks,
    task_20_13_logprobs_wait_for_an_event => day::logprobs_wait_for_an_event,
    task_20_14_a_stream_ends => day::a_stream_ends,
    task_20_15_a_whole_answer => day::a_whole_answer,
    task_20_15_as_the_official_client_has_it => day::as_the_official_client_has_it,
    task_20_16_the_likeliest_by_hand => day::the_likeliest_by_hand,
    task_20_17_an_observer_changes_nothing => day::an_observer_changes_nothing,
    task_20_17_the_models_own_logits_are_seen => day::the_model_s_own_logits_are_seen,
    task_20_17_a_row_that_fails_goes_on => day::a_row_that_fails_goes_on,
    task_20_18_a_queue_has_an_end => day::a_queue_has_an_end,
    task_20_19_a_cancelled_row_computes_no_more => day::a_cancelled_row_computes_no_more,
    task_20_20_whose_client_has_gone => day::whose_client_has_gone,
    task_20_21_every_start_has_a_number_of_its_own => day::every_start_has_a_number_of_its_own,
    task_20_21_eos_may_be_ignored => day::eos_may_be_ignored,
    task_20_22_places_go_in_order_of_arrival => day::places_go_in_order_of_arrival,
    task_20_22_what_cannot_start_fails_alone => day::what_cannot_start_fails_alone,
    task_20_23_a_token_finds_its_client => day::a_token_finds_its_client,
    task_20_23_an_event_for_every_token => day::an_event_for_every_token,
    task_20_23_logprobs_belong_to_their_token => day::logprobs_belong_to_their_token,
    task_20_23_a_row_without_a_token_fails_alone => day::a_row_without_a_token_fails_alone,
    task_20_24_a_failed_pass_ends_whom_it_was_for => day::a_failed_pass_ends_whom_it_was_for,
    task_20_24_a_turn_notices_who_has_gone => day::a_turn_notices_who_has_gone,
    task_20_25_what_has_begun_is_finished => day::what_has_begun_is_finished,
    task_20_25_a_place_before_the_queue => day::a_place_before_the_queue,
    task_20_25_who_comes_later_joins => day::who_comes_later_joins,
    task_20_25_with_nothing_to_do_it_waits => day::with_nothing_to_do_it_waits,
    task_20_25_the_same_at_any_load => day::the_same_at_any_load,
}
