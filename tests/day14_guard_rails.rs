//! Day 14's checks: guard rails.

mod checks;
#[macro_use]
#[path = "checks/day14.rs"]
mod day;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day14_guard_rails.rs"]
mod day14_guard_rails;

checks::tests! {
    14, day14_guard_rails:
    task_14_1_pieces_lead_where_the_text_leads => day::pieces_lead_where_the_text_leads,
    task_14_2_a_block_is_violated_with_its_last_byte => day::violated_with_its_last_byte,
    task_14_2_a_whole_word_once_it_stands_alone => day::violated_once_it_stands_alone,
    task_14_3_a_blocked_word_is_no_end => day::a_blocked_word_is_no_end,
    task_14_4_a_word_may_end_inside_a_piece => day::inside_a_piece,
    task_14_4_the_text_goes_on_behind_a_word => day::the_text_goes_on_behind_a_word,
    task_14_5_words_are_not_patterns => day::words_are_not_patterns,
    task_14_5_letter_case_is_ignored => day::letter_case_is_ignored,
    task_14_5_both_normal_forms_are_found => day::both_normal_forms,
    task_14_5_whole_words_have_borders => day::whole_words_have_borders,
    task_14_5_an_empty_word_is_refused => day::an_empty_word_is_refused,
    task_14_6_a_word_may_begin_in_the_prompt => day::begins_in_the_prompt,
    task_14_6_every_token_is_read => day::every_token_is_read,
    task_14_7_every_state_has_its_own_answer => day::every_state_has_its_own_answer,
    task_14_7_an_answer_is_kept => day::an_answer_is_kept,
    task_14_7_masks_are_bounded => day::masks_are_bounded,
    task_14_7_the_first_token_behind_the_prompt => day::the_first_token_behind_the_prompt,
    task_14_7_special_tokens_are_no_text => day::special_tokens_are_no_text,
    task_14_8_every_spelling_is_refused_at_its_last_piece => day::every_spelling,
    task_14_8_a_model_that_wants_a_spelling_never_gets_it => day::a_model_that_wants_a_spelling,
    task_14_8_the_end_of_the_text_ends_a_word => day::the_end_ends_a_word,
    task_14_8_the_last_token_is_legal_too => day::the_last_token_is_legal_too,
    task_14_8_the_prompt_ends_in_the_word => day::the_prompt_ends_in_the_word,
    task_14_8_a_stop_string_ends_a_word => day::a_stop_string_ends_a_word,
    task_14_8_an_empty_stop_string_is_none => day::an_empty_stop_string_is_none,
    task_14_8_ids_without_a_piece_are_not_legal => day::ids_without_a_piece_are_not_legal,
    task_14_8_legal_tokens_keep_their_logits => day::legal_tokens_keep_their_logits,
    task_14_8_every_loop_keeps_the_rail => day::every_loop,
    task_14_9_sequences_of_ids => day::sequences_of_ids,
    task_14_9_sequences_as_transformers => day::sequences_as_transformers,
    task_14_10_states_that_lead_to_a_match => day::states_that_lead_to_a_match,
    task_14_10_live_agrees_with_trying_everything => day::live_agrees_with_trying,
    task_14_10_a_loop_may_lead_nowhere => day::a_loop_may_lead_nowhere,
    task_14_11_violated_when_nothing_can_match => day::violated_when_nothing_can_match,
    task_14_11_a_format_is_read_as_it_is => day::a_format_is_read_as_it_is,
    task_14_12_a_format_ends_where_it_matches => day::a_format_ends_where_it_matches,
    task_14_13_what_must_match_begins_after_the_prompt => day::the_prompt_need_not_match,
    task_14_14_eos_only_where_the_text_may_end => day::eos_only_where_it_may_end,
    task_14_14_the_bound_prefers_what_may_end => day::the_bound_prefers_what_may_end,
    task_14_14_random_models_match_the_pattern => day::random_models_match,
    task_14_14_an_impossible_constraint_says_so => day::impossible,
    task_14_14_formats_leave_logits_alone => day::formats_leave_logits_alone,
    task_14_14_the_pattern_is_compiled_as_written => day::the_pattern_is_compiled_as_written,
}
