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
    task_23_1_a_request_that_can_never_finish_is_refused => day::a_request_that_can_never_finish_is_refused,
    task_23_1_requests_wait_in_submission_order => day::requests_wait_in_submission_order,
    task_23_2_preemption_moves_the_youngest_request_to_the_queue_front => day::preemption_moves_the_youngest_request_to_the_queue_front,
    task_23_3_the_oldest_come_first => day::the_oldest_come_first,
    task_23_3_a_long_prompt_resumes_where_it_stopped => day::a_long_prompt_resumes_where_it_stopped,
    task_23_3_the_youngest_sequence_is_preempted_first => day::the_youngest_sequence_is_preempted_first,
    task_23_4_prompts_start_within_the_budget => day::prompts_start_within_the_budget,
    task_23_4_prompts_start_while_free_blocks_remain => day::prompts_start_while_free_blocks_remain,
    task_23_4_a_known_prefix_is_not_scheduled => day::a_known_prefix_is_not_scheduled,
    task_23_4_a_preempted_request_is_recomputed => day::a_preempted_request_is_recomputed,
    task_23_5_running_sequences_spend_first => day::running_sequences_spend_first,
    task_23_5_a_preempted_sequence_waits_a_step => day::a_preempted_sequence_waits_a_step,
    task_23_5_no_step_exceeds_the_budget => day::no_step_exceeds_the_budget,
    task_23_6_full_blocks_are_remembered => day::full_blocks_are_remembered,
    task_23_6_an_incomplete_prefill_yields_no_token => day::an_incomplete_prefill_yields_no_token,
    task_23_6_every_sequence_equals_transformers => day::every_sequence_equals_hf,
    task_23_6_with_few_blocks_too => day::with_few_blocks_too,
    task_23_6_sampled_it_equals_alone => day::sampled_it_equals_alone,
    task_23_7_canceling_a_request_frees_its_blocks_at_once => day::canceling_a_request_frees_its_blocks_at_once,
    task_23_7_any_order_of_arrival => day::any_order_of_arrival,
    task_23_8_shares_by_hand => day::shares_by_hand,
    task_23_8_nobody_could_get_more => day::nobody_could_get_more,
}
