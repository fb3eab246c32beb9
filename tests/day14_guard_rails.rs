//! Day 14's checkers: guard rails.

mod checks;
#[macro_use]
#[path = "checks/day14.rs"]
mod day;
include!(concat!(env!("OUT_DIR"), "/day14.rs"));

checks::tests! {
    14, day14_guard_rails:
    task_14_1_pieces_lead_where_the_text_leads => day::pieces_lead_where_the_text_leads,
    task_14_1_letter_case_is_folded_for_block_lists_only => day::letter_case,
    task_14_2_a_block_is_dead_with_its_last_byte => day::dead_with_its_last_byte,
    task_14_2_a_whole_word_is_dead_once_sure => day::dead_once_sure,
    task_14_2_what_must_match_is_dead_when_no_way_is_left => day::dead_when_no_way_is_left,
    task_14_3_where_the_text_may_end => day::where_the_text_may_end,
    task_14_4_a_word_may_end_inside_a_piece => day::inside_a_piece,
    task_14_5_words_are_not_patterns => day::words_are_not_patterns,
    task_14_5_whole_words_have_borders => day::whole_words_have_borders,
    task_14_5_an_empty_word_is_refused => day::an_empty_word_is_refused,
    task_14_6_a_word_may_begin_in_the_prompt => day::begins_in_the_prompt,
    task_14_6_what_must_match_begins_after_the_prompt => day::the_prompt_need_not_match,
    task_14_7_every_state_has_its_own_answer => day::every_state_has_its_own_answer,
    task_14_7_an_answer_is_kept => day::an_answer_is_kept,
    task_14_7_special_tokens_are_no_text => day::special_tokens_are_no_text,
    task_14_8_every_spelling_is_refused_at_its_last_piece => day::every_spelling,
    task_14_8_a_model_that_wants_a_spelling_never_gets_it => day::a_model_that_wants_a_spelling,
    task_14_8_the_end_of_the_text_ends_a_word => day::the_end_ends_a_word,
    task_14_8_a_stop_string_ends_a_word => day::a_stop_string_ends_a_word,
    task_14_8_eos_only_where_the_text_may_end => day::eos_only_where_it_may_end,
    task_14_8_the_bound_prefers_what_may_end => day::the_bound_prefers_what_may_end,
    task_14_8_legal_tokens_keep_their_logits => day::legal_tokens_keep_their_logits,
    task_14_8_random_models_match_the_pattern => day::random_models_match,
    task_14_8_an_impossible_constraint_says_so => day::impossible,
    task_14_8_every_loop_keeps_the_rail => day::every_loop,
    task_14_9_sequences_of_ids => day::sequences_of_ids,
}
