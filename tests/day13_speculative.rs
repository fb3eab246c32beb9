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
    task_13_1_n_grams_are_looked_up => day::n_grams_are_looked_up,
    task_13_2_the_room_for_drafts_by_hand => day::the_room_for_drafts_by_hand,
    task_13_3_one_pass_gives_every_row => day::one_pass_gives_every_row,
    task_13_3_one_pass_equals_passes_one_by_one => day::one_pass_equals_passes_one_by_one,
    task_13_4_each_row_from_its_own_context => day::each_row_from_its_own_context,
    task_13_4_behind_a_certain_end_nothing_is_processed => day::behind_a_certain_end_nothing_is_processed,
    task_13_5_greedy_tokens_are_verified => day::greedy_tokens_are_verified,
    task_13_6_processors_see_the_drafted_tokens => day::processors_see_the_drafted_tokens,
    task_13_6_the_text_ends_inside_a_block => day::the_text_ends_inside_a_block,
    task_13_6_nothing_more_is_nothing_more => day::nothing_more_is_nothing_more,
    task_13_6_greedy_text_is_the_targets_own => day::greedy_text_is_the_targets_own,
    task_13_6_any_drafter_gives_the_same_text => day::any_drafter_gives_the_same_text,
    task_13_6_the_context_ends_the_text_as_without_drafts => day::the_context_ends_the_text_as_without_drafts,
    task_13_6_blocks_are_counted => day::blocks_are_counted,
    task_13_7_the_residual_by_hand => day::the_residual_by_hand,
    task_13_8_a_draft_is_accepted_with_p_over_q => day::a_draft_is_accepted_with_p_over_q,
    task_13_8_the_draft_behind_a_rejected_token_is_dropped => day::the_draft_behind_a_rejected_token_is_dropped,
    task_13_8_numbers_that_do_not_fit_are_refused => day::numbers_that_do_not_fit_are_refused,
    task_13_8_the_distribution_is_the_targets => day::the_distribution_is_the_targets,
    task_13_8_drafts_are_accepted_as_often_as_the_overlap_says => day::drafts_are_accepted_as_often_as_the_overlap_says,
    task_13_8_a_bad_draft_is_refused => day::a_bad_draft_is_refused,
    task_13_8_sampled_texts_follow_the_target => day::sampled_texts_follow_the_target,
    task_13_9_the_overlap_by_hand => day::the_overlap_by_hand,
    task_13_10_the_draft_comes_with_its_distributions => day::the_draft_comes_with_its_distributions,
    task_13_10_a_drafted_eos_ends_the_draft => day::a_drafted_eos_ends_the_draft,
    task_13_10_the_drafters_processors_see_the_draft => day::the_drafters_processors_see_the_draft,
    task_13_10_at_its_contexts_end_the_drafter_stops => day::at_its_contexts_end_the_drafter_stops,
    task_13_10_another_padding_of_the_vocabulary => day::another_padding_of_the_vocabulary,
    task_13_10_after_a_token_that_it_lacks_nothing_is_drafted => day::after_a_token_that_it_lacks_nothing_is_drafted,
    task_13_10_greedy_drafts_are_the_small_models_own_text => day::greedy_drafts_are_the_small_models_own_text,
    task_13_10_a_small_model_drafts => day::a_small_model_drafts,
    task_13_10_a_small_models_samples_follow_the_target => day::a_small_models_samples_follow_the_target,
    task_13_11_classical_rejection_by_hand => day::classical_rejection_by_hand,
    task_13_11_a_bound_that_bounds_nothing_is_refused => day::a_bound_that_bounds_nothing_is_refused,
    task_13_11_classical_rejection_draws_from_p => day::classical_rejection_draws_from_p,
}
