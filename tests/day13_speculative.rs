//! Day 13's checks: speculative decoding.

mod checks;
#[macro_use]
#[path = "checks/day13.rs"]
mod day;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day13_speculative.rs"]
mod day13_speculative;

checks::tests! {
    13, day13_speculative:
    task_13_1_a_greedy_draft_is_accepted_up_to_its_first_wrong_token => day::a_greedy_draft_is_accepted_up_to_its_first_wrong_token,
    task_13_2_one_pass_returns_every_row => day::one_pass_returns_every_row,
    task_13_2_one_pass_equals_separate_passes => day::one_pass_equals_separate_passes,
    task_13_3_the_latest_earlier_match_is_proposed => day::the_latest_earlier_match_is_proposed,
    task_13_4_the_draft_leaves_room_for_the_pass_itself => day::the_draft_leaves_room_for_the_pass_itself,
    task_13_4_a_full_sequence_gets_an_empty_block => day::a_full_sequence_gets_an_empty_block,
    task_13_4_the_text_ends_inside_a_block => day::the_text_ends_inside_a_block,
    task_13_4_each_row_is_processed_in_its_own_context => day::each_row_is_processed_in_its_own_context,
    task_13_4_processors_see_the_drafted_tokens => day::processors_see_the_drafted_tokens,
    task_13_4_no_processor_runs_after_a_certain_end => day::no_processor_runs_after_a_certain_end,
    task_13_4_a_bad_draft_is_refused => day::a_bad_draft_is_refused,
    task_13_4_greedy_text_is_the_targets_own => day::greedy_text_is_the_targets_own,
    task_13_4_any_drafter_gives_the_same_text => day::any_drafter_gives_the_same_text,
    task_13_4_the_context_ends_the_text_as_without_drafts => day::the_context_ends_the_text_as_without_drafts,
    task_13_4_blocks_are_counted => day::blocks_are_counted,
    task_13_5_the_residual_by_hand => day::the_residual_by_hand,
    task_13_6_a_draft_is_accepted_with_p_over_q => day::a_draft_is_accepted_with_p_over_q,
    task_13_6_a_rejected_token_ends_the_draft => day::a_rejected_token_ends_the_draft,
    task_13_6_the_distribution_is_the_targets => day::the_distribution_is_the_targets,
    task_13_6_drafts_are_accepted_as_often_as_p_and_q_overlap => day::drafts_are_accepted_as_often_as_p_and_q_overlap,
    task_13_6_no_processor_runs_after_a_certain_end_when_sampling => day::no_processor_runs_after_a_certain_end_when_sampling,
    task_13_6_sampled_texts_follow_the_target => day::sampled_texts_follow_the_target,
    task_13_7_the_draft_comes_with_its_distributions => day::the_draft_comes_with_its_distributions,
    task_13_7_a_drafted_eos_ends_the_draft => day::a_drafted_eos_ends_the_draft,
    task_13_7_the_drafters_processors_see_the_draft => day::the_drafters_processors_see_the_draft,
    task_13_7_a_dead_end_ends_the_draft => day::a_dead_end_ends_the_draft,
    task_13_7_the_draft_ends_with_the_drafters_context => day::the_draft_ends_with_the_drafters_context,
    task_13_7_q_covers_the_targets_vocabulary => day::q_covers_the_targets_vocabulary,
    task_13_7_after_an_unreadable_token_nothing_is_drafted => day::after_an_unreadable_token_nothing_is_drafted,
    task_13_7_greedy_drafts_are_the_small_models_own_text => day::greedy_drafts_are_the_small_models_own_text,
    task_13_7_a_small_model_drafts => day::a_small_model_drafts,
    task_13_7_a_small_models_samples_follow_the_target => day::a_small_models_samples_follow_the_target,
    task_13_8_the_same_numbers_draw_the_same_text => day::the_same_numbers_draw_the_same_text,
    task_13_9_classical_rejection_by_hand => day::classical_rejection_by_hand,
    task_13_9_a_bound_that_bounds_nothing_is_refused => day::a_bound_that_bounds_nothing_is_refused,
    task_13_9_classical_rejection_draws_from_p => day::classical_rejection_draws_from_p,
}
