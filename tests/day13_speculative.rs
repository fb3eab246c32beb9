//! Day 13's checkers: speculative decoding.

mod checks;
#[macro_use]
#[path = "checks/day13.rs"]
mod day;
include!(concat!(env!("OUT_DIR"), "/day13.rs"));

checks::tests! {
    13, day13_speculative:
    task_13_1_the_residual_by_hand => day::the_residual_by_hand,
    task_13_2_a_draft_stands_with_p_over_q => day::a_draft_stands_with_p_over_q,
    task_13_2_what_follows_a_fallen_token_is_dropped => day::what_follows_a_fallen_token_is_dropped,
    task_13_2_numbers_that_do_not_fit_are_refused => day::numbers_that_do_not_fit_are_refused,
    task_13_2_the_distribution_is_the_targets => day::the_distribution_is_the_targets,
    task_13_2_drafts_stand_as_often_as_the_overlap_says => day::drafts_stand_as_often_as_the_overlap_says,
    task_13_3_the_overlap_by_hand => day::the_overlap_by_hand,
    task_13_4_n_grams_are_looked_up => day::n_grams_are_looked_up,
    task_13_5_the_drafter_follows_the_text => day::the_drafter_follows_the_text,
    task_13_8_processors_see_the_drafted_tokens => day::processors_see_the_drafted_tokens,
    task_13_9_the_text_ends_inside_a_block => day::the_text_ends_inside_a_block,
    task_13_9_greedy_text_is_the_targets_own => day::greedy_text_is_the_targets_own,
    task_13_9_the_window_moves_as_without_drafts => day::the_window_moves_as_without_drafts,
    task_13_9_blocks_are_counted => day::blocks_are_counted,
    task_13_9_sampled_pairs_follow_the_target => day::sampled_pairs_follow_the_target,
}
