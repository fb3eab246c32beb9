//! Day 24's checks: draft trees and Medusa.

mod checks;
#[macro_use]
#[path = "checks/day24.rs"]
mod day;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day24_draft_trees.rs"]
mod day24_draft_trees;

checks::tests! {
    24, day24_draft_trees:
    task_24_1_a_node_sees_its_ancestors => day::a_node_sees_its_ancestors,
    task_24_2_a_step_by_hand => day::a_step_by_hand,
    task_24_2_each_node_gets_the_same_logits_as_its_path_alone => day::each_node_gets_the_same_logits_as_its_path_alone,
    task_24_2_a_tree_equals_its_paths_one_by_one => day::a_tree_equals_its_paths_one_by_one,
    task_24_3_keep_retains_the_path_and_drops_the_other_nodes => day::keep_retains_the_path_and_drops_the_other_nodes,
    task_24_4_a_greedy_walk_by_hand => day::a_greedy_walk_by_hand,
    task_24_5_any_tree_gives_the_same_text => day::any_tree_gives_the_same_text,
    task_24_5_the_drafter_gets_the_state_of_the_last_accepted_node => day::the_drafter_gets_the_state_of_the_last_accepted_node,
    task_24_5_a_text_can_end_inside_a_block => day::a_text_can_end_inside_a_block,
    task_24_5_blocks_are_counted => day::blocks_are_counted,
    task_24_5_processors_see_the_text_up_to_each_node =>
        day::processors_see_the_text_up_to_each_node,
    task_24_5_no_processor_runs_after_an_eos => day::no_processor_runs_after_an_eos,
    task_24_6_every_earlier_match_becomes_a_branch => day::every_earlier_match_becomes_a_branch,
    task_24_6_n_gram_trees_give_the_same_story => day::n_gram_trees_give_the_same_story,
    task_24_7_a_sampled_walk_by_hand => day::a_sampled_walk_by_hand,
    task_24_7_two_sampled_tokens_follow_the_target_distribution => day::two_sampled_tokens_follow_the_target_distribution,
    task_24_7_an_impossible_token_is_never_accepted => day::an_impossible_token_is_never_accepted,
    task_24_7_a_bad_tree_is_refused => day::a_bad_tree_is_refused,
    task_24_8_heads_by_hand => day::heads_by_hand,
    task_24_8_heads_equal_torch => day::heads_equal_torch,
    task_24_9_a_tree_from_heads => day::a_tree_from_heads,
    task_24_10_typical_acceptance_by_hand => day::typical_acceptance_by_hand,
    task_24_10_the_decoder_applies_typical_acceptance => day::the_decoder_applies_typical_acceptance,
    task_24_11_several_by_hand => day::several_by_hand,
    task_24_12_a_small_model_grows_a_tree => day::a_small_model_grows_a_tree,
    task_24_12_a_small_models_processors_see_each_nodes_text =>
        day::a_small_models_processors_see_each_nodes_text,
    task_24_12_a_branch_ends_at_a_dead_end => day::a_branch_ends_at_a_dead_end,
    task_24_12_a_tree_is_cut_at_the_small_models_context => day::a_tree_is_cut_at_the_small_models_context,
    task_24_12_sampled_trees_follow_the_target => day::sampled_trees_follow_the_target,
}
