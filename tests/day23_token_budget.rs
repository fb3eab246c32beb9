//! Day 23's checks: a token budget.

mod checks;
#[macro_use]
#[path = "checks/day23.rs"]
mod day;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day23_token_budget.rs"]
mod day23_token_budget;

checks::tests! {
    23, day23_token_budget:
    task_23_1_what_can_never_finish_is_refused => day::what_can_never_finish_is_refused,
    task_23_1_the_queue_keeps_its_order => day::the_queue_keeps_its_order,
    task_23_2_the_youngest_goes_to_the_front => day::the_youngest_goes_to_the_front,
    task_23_3_the_oldest_come_first => day::the_oldest_come_first,
    task_23_3_a_long_prompt_goes_on_where_it_was => day::a_long_prompt_goes_on_where_it_was,
    task_23_3_blocks_are_taken_from_the_youngest => day::blocks_are_taken_from_the_youngest,
    task_23_4_prompts_start_within_the_budget => day::prompts_start_within_the_budget,
    task_23_4_prompts_start_while_blocks_are_left => day::prompts_start_while_blocks_are_left,
    task_23_4_a_known_prefix_is_not_scheduled => day::a_known_prefix_is_not_scheduled,
    task_23_4_what_was_preempted_is_recomputed => day::what_was_preempted_is_recomputed,
    task_23_5_running_sequences_spend_first => day::running_sequences_spend_first,
    task_23_5_a_preempted_sequence_waits_a_step => day::a_preempted_sequence_waits_a_step,
    task_23_5_no_step_exceeds_the_budget => day::no_step_exceeds_the_budget,
    task_23_6_full_blocks_are_remembered => day::full_blocks_are_remembered,
    task_23_6_a_piece_leads_to_no_token => day::a_piece_leads_to_no_token,
    task_23_6_every_sequence_equals_transformers => day::every_sequence_equals_hf,
    task_23_6_with_few_blocks_too => day::with_few_blocks_too,
    task_23_6_sampled_it_equals_alone => day::sampled_it_equals_alone,
    task_23_7_cancelled_blocks_are_free_at_once => day::cancelled_blocks_are_free_at_once,
    task_23_7_any_order_of_arrival => day::any_order_of_arrival,
    task_23_8_shares_by_hand => day::shares_by_hand,
    task_23_8_nobody_could_get_more => day::nobody_could_get_more,
}
