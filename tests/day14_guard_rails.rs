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
    task_14_1_a_token_must_leave_a_choice => day::a_token_leaves_a_choice,
    task_14_1_a_choice_may_be_cut_inside_a_character => day::a_choice_may_be_cut_inside_a_character,
    task_14_1_a_token_without_bytes_is_not_a_choice => day::a_token_without_bytes_is_no_choice,
    task_14_2_live_states_lead_to_a_match => day::states_that_lead_to_a_match,
    task_14_2_live_agrees_with_trying_everything => day::live_agrees_with_trying,
    task_14_2_a_loop_may_lead_nowhere => day::a_loop_may_lead_nowhere,
    task_14_2_a_format_is_broken_when_nothing_can_match => day::violated_when_nothing_can_match,
    task_14_2_letter_case_counts_in_a_format => day::a_format_is_read_as_it_is,
    task_14_2_a_format_ends_where_it_matches => day::a_format_ends_where_it_matches,
    task_14_2_a_pattern_without_matches_is_refused => day::a_pattern_without_matches_is_refused,
    task_14_3_a_format_starts_after_the_prompt => day::the_prompt_need_not_match,
    task_14_3_a_block_list_reads_the_prompt => day::begins_in_the_prompt,
    task_14_3_every_token_is_read => day::every_token_is_read,
    task_14_4_every_token_is_judged => day::every_token_is_judged,
    task_14_4_special_tokens_are_not_text => day::special_tokens_are_no_text,
    task_14_4_a_mask_is_computed_once => day::an_answer_is_kept,
    task_14_4_stored_masks_are_bounded => day::masks_are_bounded,
    task_14_5_eos_is_legal_only_where_the_text_may_end => day::eos_only_where_it_may_end,
    task_14_5_the_last_token_ends_the_text_if_one_can => day::the_bound_prefers_what_may_end,
    task_14_5_random_models_match_the_pattern => day::random_models_match,
    task_14_5_legal_tokens_keep_their_logits => day::formats_leave_logits_alone,
    task_14_5_ids_without_a_piece_are_illegal => day::ids_without_a_piece_are_not_legal,
    task_14_5_the_pattern_is_compiled_as_written => day::the_pattern_is_compiled_as_written,
    task_14_6_a_substring_is_blocked_at_its_last_byte => day::violated_with_its_last_byte,
    task_14_6_a_whole_word_is_blocked_once_it_stands_alone => day::violated_once_it_stands_alone,
    task_14_6_a_text_may_not_end_in_a_blocked_word => day::a_text_may_not_end_in_a_blocked_word,
    task_14_6_words_are_not_patterns => day::words_are_not_patterns,
    task_14_6_letter_case_is_ignored_in_a_list => day::letter_case_is_ignored,
    task_14_6_composed_and_decomposed_letters_are_found => day::both_normal_forms,
    task_14_6_whole_words_stand_alone => day::whole_words_stand_alone,
    task_14_7_a_word_can_end_inside_a_token => day::inside_a_piece,
    task_14_7_the_text_goes_on_after_a_word => day::the_text_goes_on_after_a_word,
    task_14_7_it_does_not_matter_where_a_text_is_cut => day::it_does_not_matter_where_a_text_is_cut,
    task_14_7_every_state_has_its_own_mask => day::every_state_has_its_own_answer,
    task_14_8_the_first_token_is_not_blamed_for_the_prompt => day::the_first_token_after_the_prompt,
    task_14_8_the_first_token_can_complete_a_word => day::the_first_token_has_words_of_its_own,
    task_14_8_the_prompt_may_end_in_the_word => day::the_prompt_ends_in_the_word,
    task_14_8_every_spelling_is_refused_at_its_last_piece => day::every_spelling,
    task_14_8_a_model_that_wants_a_spelling_never_gets_it => day::a_model_that_wants_a_spelling,
    task_14_8_the_end_of_the_text_ends_a_word => day::the_end_ends_a_word,
    task_14_8_the_last_token_is_legal_byte_by_byte => day::the_last_token_is_legal_too,
    task_14_8_a_stop_string_ends_a_word => day::a_stop_string_ends_a_word,
    task_14_8_an_empty_stop_string_ends_nothing => day::an_empty_stop_string_is_none,
    task_14_8_a_block_list_keeps_the_other_logits => day::legal_tokens_keep_their_logits,
    task_14_8_every_loop_keeps_the_rail => day::every_loop,
    task_14_8_two_rails_can_contradict_each_other => day::two_rails_can_contradict,
    task_14_9_bytes_are_forced_up_to_a_choice => day::forced_up_to_a_choice,
    task_14_9_many_bytes_can_lead_to_one_state => day::one_state_may_be_many_bytes,
    task_14_9_a_possible_end_is_a_choice => day::a_possible_end_is_a_choice,
    task_14_9_nothing_is_forced_in_a_dead_state => day::nothing_is_forced_in_a_dead_state,
    task_14_9_forced_bytes_agree_with_all_matches => day::forced_agrees_with_all_matches,
    task_14_10_the_last_id_of_a_sequence_is_forbidden => day::sequences_of_ids,
    task_14_10_sequences_agree_with_transformers => day::sequences_as_transformers,
}
