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
    task_14_1_a_token_must_leave_a_choice => day::a_token_must_leave_a_choice,
    task_14_1_a_token_can_end_inside_a_character_of_a_choice => day::a_token_can_end_inside_a_character_of_a_choice,
    task_14_1_a_token_without_bytes_is_not_a_choice => day::a_token_without_bytes_is_not_a_choice,
    task_14_2_live_states_lead_to_a_match => day::live_states_lead_to_a_match,
    task_14_2_live_agrees_with_trying_everything => day::live_agrees_with_trying,
    task_14_2_a_loop_that_never_matches_is_not_live => day::a_loop_that_never_matches_is_not_live,
    task_14_2_a_format_is_broken_when_nothing_can_match => day::must_match_is_violated_when_no_match_is_possible,
    task_14_2_letter_case_counts_in_a_format => day::a_format_is_case_sensitive,
    task_14_2_text_may_end_only_where_the_format_matches => day::text_may_end_only_where_the_format_matches,
    task_14_2_a_pattern_without_matches_is_refused => day::a_pattern_without_matches_is_refused,
    task_14_3_a_format_starts_after_the_prompt => day::only_the_generated_text_must_match,
    task_14_3_a_block_list_reads_the_prompt => day::begins_in_the_prompt,
    task_14_3_every_token_is_read => day::every_token_is_read,
    task_14_4_every_token_is_judged => day::every_token_is_judged,
    task_14_4_special_tokens_are_not_text => day::special_tokens_are_not_text,
    task_14_4_a_mask_is_computed_once => day::an_answer_is_kept,
    task_14_4_stored_masks_are_bounded => day::masks_are_bounded,
    task_14_5_eos_is_legal_only_where_the_text_may_end => day::eos_is_legal_only_after_a_complete_match,
    task_14_5_the_last_token_ends_the_text_if_one_can => day::the_last_token_ends_the_text_if_one_can,
    task_14_5_random_models_match_the_pattern => day::random_models_match,
    task_14_5_legal_tokens_keep_their_logits => day::formats_leave_logits_alone,
    task_14_5_ids_without_a_piece_are_illegal => day::ids_without_a_piece_are_not_legal,
    task_14_5_the_pattern_is_compiled_as_written => day::the_pattern_is_compiled_as_written,
    task_14_6_a_substring_is_blocked_at_its_last_byte => day::block_substring_is_violated_at_the_last_byte_of_a_match,
    task_14_6_a_whole_word_is_blocked_once_it_stands_alone => day::block_word_is_violated_once_the_next_byte_ends_the_word,
    task_14_6_a_text_may_not_end_in_a_blocked_word => day::a_text_may_not_end_in_a_blocked_word,
    task_14_6_words_are_not_patterns => day::words_are_not_patterns,
    task_14_6_letter_case_is_ignored_in_a_list => day::letter_case_is_ignored,
    task_14_6_composed_and_decomposed_letters_are_found => day::both_normal_forms,
    task_14_6_whole_words_stand_alone => day::whole_words_stand_alone,
    task_14_7_a_word_can_end_inside_a_token => day::inside_a_piece,
    task_14_7_the_text_may_continue_after_a_blocked_word => day::the_text_may_continue_after_a_blocked_word,
    task_14_7_walking_a_text_in_two_parts_reaches_the_same_state => day::walking_a_text_in_two_parts_reaches_the_same_state,
    task_14_7_every_state_has_its_own_mask => day::each_state_has_its_own_legal_tokens,
    task_14_8_the_first_token_is_not_blamed_for_the_prompt => day::a_word_in_the_prompt_does_not_block_the_first_token,
    task_14_8_the_first_token_can_complete_a_word => day::the_first_token_is_still_checked_for_blocked_words,
    task_14_8_the_prompt_may_end_in_the_word => day::a_blocked_word_at_the_end_of_the_prompt_is_allowed,
    task_14_8_every_spelling_is_refused_at_its_last_piece => day::every_spelling,
    task_14_8_no_spelling_of_a_blocked_word_gets_through => day::no_spelling_of_a_blocked_word_gets_through,
    task_14_8_the_end_of_the_text_ends_a_word => day::the_end_of_the_text_ends_a_word,
    task_14_8_the_last_token_is_legal_byte_by_byte => day::the_block_list_applies_to_the_last_token_too,
    task_14_8_a_stop_string_ends_a_word => day::a_stop_string_ends_a_word,
    task_14_8_an_empty_stop_string_ends_nothing => day::an_empty_stop_string_ends_nothing,
    task_14_8_a_block_list_keeps_the_other_logits => day::legal_tokens_keep_their_logits,
    task_14_8_every_loop_keeps_the_rail => day::every_loop,
    task_14_8_two_rails_can_contradict_each_other => day::two_rails_can_contradict,
    task_14_9_bytes_are_forced_up_to_a_choice => day::bytes_are_forced_up_to_the_next_choice,
    task_14_9_many_bytes_can_lead_to_one_state => day::many_bytes_can_lead_to_one_state,
    task_14_9_nothing_is_forced_where_the_text_may_end => day::nothing_is_forced_where_the_text_may_end,
    task_14_9_nothing_is_forced_in_a_dead_state => day::nothing_is_forced_in_a_dead_state,
    task_14_9_forced_bytes_agree_with_all_matches => day::forced_bytes_are_the_common_prefix_of_all_matches,
    task_14_10_the_last_id_of_a_sequence_is_forbidden => day::sequences_of_ids,
    task_14_10_sequences_agree_with_transformers => day::sequences_as_transformers,
}
