//! Day 15's checks: the scheduler.

mod checks;
#[macro_use]
#[path = "checks/day15.rs"]
mod day;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day15_scheduler.rs"]
mod day15_scheduler;

checks::tests! {
    15, day15_scheduler:
    task_15_1_paddings_by_hand => day::paddings_by_hand,
    task_15_2_room_by_hand => day::room_by_hand,
    task_15_2_only_the_first_in_the_queue_counts => day::only_the_first_in_the_queue_counts,
    task_15_3_a_prompt_in_a_cache_of_its_own => day::a_prompt_in_a_cache_of_its_own,
    task_15_4_a_batch_that_ran_empty_is_replaced => day::a_batch_that_ran_empty_is_replaced,
    task_15_4_both_sides_learn_of_their_padding => day::both_sides_learn_of_their_padding,
    task_15_5_who_ended_at_once_never_joins => day::who_ended_at_once_never_joins,
    task_15_5_nobody_overtakes => day::nobody_overtakes,
    task_15_5_the_cache_stays_within_the_bound => day::the_cache_stays_within_the_bound,
    task_15_6_no_token_is_lost => day::no_token_is_lost,
    task_15_6_what_cannot_run_is_refused => day::what_cannot_run_is_refused,
    task_15_6_a_row_that_fails_ends_alone => day::a_row_that_fails_ends_alone,
    task_15_6_every_sequence_equals_transformers => day::every_sequence_equals_hf,
    task_15_6_in_any_order_of_arrival => day::in_any_order_of_arrival,
    task_15_6_when_the_batch_ran_empty => day::when_the_batch_ran_empty,
    task_15_6_sampled_it_equals_alone => day::sampled_it_equals_alone,
    task_15_6_requests_have_their_own_parameters => day::requests_have_their_own_parameters,
    task_15_6_to_the_end_of_the_context => day::to_the_end_of_the_context,
}
