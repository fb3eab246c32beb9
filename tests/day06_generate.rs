//! Day 6's checks: prefill and decode.

mod checks;
#[macro_use]
#[path = "checks/day06.rs"]
mod day;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day06_generate.rs"]
mod day06_generate;

checks::tests! {
    6, day06_generate:
    task_6_1_the_last_position_is_kept => day::the_last_position,
    task_6_1_every_row_keeps_its_own_last_position => day::each_row_keeps_its_last_position,
    task_6_2_next_logits_runs_one_pass_from_position_0 => day::next_logits_runs_one_pass_from_position_0,
    task_6_2_an_empty_or_oversized_sequence_is_refused => day::an_empty_or_oversized_sequence_is_refused,
    task_6_2_logits_equal_transformers => day::next_logits_equal_transformers,
    task_6_3_the_loop_equals_the_hand_computed_one => day::the_loop_by_hand,
    task_6_3_every_pass_sees_the_whole_text => day::every_pass_sees_the_whole_text,
    task_6_3_eos_ends_the_text_and_is_kept => day::eos_ends_the_text_and_is_kept,
    task_6_3_max_new_tokens_is_never_exceeded => day::the_bound_holds,
    task_6_3_every_pass_counts_its_positions => day::positions_are_counted,
    task_6_3_on_token_is_called_as_each_token_is_made => day::on_token_is_called_as_each_token_is_chosen,
    task_6_3_the_caller_chooses_the_token => day::the_caller_chooses_the_token,
    task_6_3_an_error_ends_the_loop => day::an_error_ends_the_loop,
    task_6_3_a_10_token_prompt_and_20_new_compute_390_positions => day::a_10_token_prompt_and_20_new_compute_390_positions,
    task_6_3_tokens_equal_transformers => day::tokens_equal_transformers,
    task_6_4_a_whole_token_is_shown_at_once => day::a_whole_token_is_shown_at_once,
    task_6_4_a_partial_character_is_held_back => day::a_partial_character_is_held_back,
    task_6_4_pieces_equal_the_librarys => day::pieces_equal_the_librarys,
    task_6_4_a_stray_byte_does_not_hide_the_text_after_it => day::a_stray_byte_does_not_hide_the_text_after_it,
    task_6_4_a_stray_byte_does_not_hide_whole_characters => day::a_stray_byte_does_not_hide_whole_characters,
    task_6_5_finish_returns_the_text_held_back => day::finish_returns_the_text_held_back,
    task_6_5_no_text_is_lost_for_any_ids => day::no_text_is_lost_for_any_ids,
    task_6_6_the_space_after_the_prompt_is_kept => day::the_space_after_the_prompt_is_kept,
    task_6_6_without_a_prompt_the_text_starts_fresh => day::without_a_prompt_the_first_space_is_dropped,
    task_6_6_a_prompt_can_end_inside_a_character => day::a_prompt_can_end_inside_a_character,
    task_6_6_a_long_prompt_can_end_inside_a_character => day::a_long_prompt_can_end_inside_a_character,
    task_6_6_pieces_do_not_repeat_the_prompt => day::pieces_do_not_repeat_the_prompt,
    task_6_6_letters_before_the_half_belong_to_the_prompt => day::text_before_a_partial_character_belongs_to_the_prompt,
    task_6_6_pieces_after_any_prompt_concatenate_to_the_text => day::pieces_after_any_prompt_concatenate_to_the_text,
    task_6_6_any_bytes_can_follow_any_prompt => day::any_bytes_can_follow_any_prompt,
    task_6_7_one_pass_equals_the_hand_computed_choices => day::one_pass_by_hand,
    task_6_7_an_impossible_prompt_length_is_refused => day::an_invalid_prompt_length_is_refused,
    task_6_7_one_pass_picks_the_same_tokens_as_transformers => day::one_pass_picks_the_same_tokens_as_transformers,
    task_6_7_one_pass_equals_many => day::one_pass_equals_many,
    task_6_8_drafted_tokens_are_accepted_up_to_the_first_wrong_one => day::drafted_tokens_are_accepted_up_to_the_first_mismatch,
}
