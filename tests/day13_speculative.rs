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
    task_13_3_the_continuation_of_the_latest_match_is_drafted => day::the_continuation_of_the_latest_match_is_drafted,
    task_13_4_the_draft_leaves_room_for_the_token_the_pass_adds => day::the_draft_leaves_room_for_the_token_the_pass_adds,
    task_13_4_a_sequence_at_its_limit_gets_an_empty_block => day::a_sequence_at_its_limit_gets_an_empty_block,
    task_13_4_a_text_can_end_inside_a_block => day::a_text_can_end_inside_a_block,
    task_13_4_processors_see_the_text_up_to_each_drafted_token => day::processors_see_the_text_up_to_each_drafted_token,
    task_13_4_processors_see_the_drafted_tokens => day::processors_see_the_drafted_tokens,
    task_13_4_processors_stop_after_eos_or_a_sure_rejection => day::processors_stop_after_eos_or_a_sure_rejection,
    task_13_4_a_bad_draft_is_refused => day::a_bad_draft_is_refused,
    task_13_4_greedy_speculation_equals_the_target_alone => day::greedy_speculation_equals_the_target_alone,
    task_13_4_any_drafter_gives_the_same_text => day::any_drafter_gives_the_same_text,
    task_13_4_drafts_do_not_change_text_at_the_context_limit => day::drafts_do_not_change_text_at_the_context_limit,
    task_13_4_blocks_are_counted => day::blocks_are_counted,
    task_13_5_the_residual_by_hand => day::the_residual_by_hand,
    task_13_6_a_token_is_accepted_with_probability_p_over_q => day::a_token_is_accepted_with_probability_p_over_q,
    task_13_6_a_rejected_token_ends_the_draft => day::a_rejected_token_ends_the_draft,
    task_13_6_speculative_samples_follow_the_targets_distribution => day::speculative_samples_follow_the_targets_distribution,
    task_13_6_the_acceptance_rate_equals_the_overlap_of_p_and_q => day::the_acceptance_rate_equals_the_overlap_of_p_and_q,
    task_13_6_processors_stop_after_eos_or_a_sure_rejection_when_sampling => day::processors_stop_after_eos_or_a_sure_rejection_when_sampling,
    task_13_6_sampled_texts_follow_the_target => day::sampled_texts_follow_the_target,
    task_13_7_the_draft_comes_with_its_distributions => day::the_draft_comes_with_its_distributions,
    task_13_7_a_drafted_eos_ends_the_draft => day::a_drafted_eos_ends_the_draft,
    task_13_7_the_drafters_processors_see_the_draft => day::the_drafters_processors_see_the_draft,
    task_13_7_a_dead_end_ends_the_draft => day::a_dead_end_ends_the_draft,
    task_13_7_the_draft_ends_at_the_drafters_context_limit => day::the_draft_ends_at_the_drafters_context_limit,
    task_13_7_q_covers_the_targets_vocabulary => day::q_covers_the_targets_vocabulary,
    task_13_7_an_unknown_token_in_the_text_yields_an_empty_draft => day::an_unknown_token_in_the_text_yields_an_empty_draft,
    task_13_7_greedy_drafts_equal_the_draft_models_greedy_text => day::greedy_drafts_equal_the_draft_models_greedy_text,
    task_13_7_a_small_model_drafts => day::a_small_model_drafts,
    task_13_7_samples_drafted_by_a_small_model_follow_the_target => day::samples_drafted_by_a_small_model_follow_the_target,
    task_13_8_same_seed_acceptance_gives_the_text_drawn_without_drafts => day::same_seed_acceptance_gives_the_text_drawn_without_drafts,
    task_13_9_classical_rejection_by_hand => day::classical_rejection_by_hand,
    task_13_9_an_invalid_rejection_bound_is_refused => day::an_invalid_rejection_bound_is_refused,
    task_13_9_classical_rejection_draws_from_p => day::classical_rejection_draws_from_p,
}
