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
    task_15_3_a_prompt_gets_its_own_cache => day::a_prompt_gets_its_own_cache,
    task_15_4_an_empty_batch_is_replaced => day::an_empty_batch_is_replaced,
    task_15_4_joining_updates_the_padding_of_old_and_new_rows => day::joining_updates_the_padding_of_old_and_new_rows,
    task_15_5_a_one_token_text_never_joins_the_batch => day::a_one_token_text_never_joins_the_batch,
    task_15_5_no_request_overtakes => day::no_request_overtakes,
    task_15_5_the_cache_stays_within_the_bound => day::the_cache_stays_within_the_bound,
    task_15_6_no_token_is_lost => day::no_token_is_lost,
    task_15_6_impossible_requests_are_refused => day::impossible_requests_are_refused,
    task_15_6_a_failed_row_leaves_the_other_rows_running => day::a_failed_row_leaves_the_other_rows_running,
    task_15_6_every_sequence_equals_transformers => day::every_sequence_equals_hf,
    task_15_6_any_arrival_order_gives_the_same_tokens => day::any_arrival_order_gives_the_same_tokens,
    task_15_6_requests_can_join_after_the_batch_empties => day::requests_can_join_after_the_batch_empties,
    task_15_6_sampled_texts_equal_alone => day::sampled_texts_equal_alone,
    task_15_6_each_request_has_its_own_parameters => day::each_request_has_its_own_parameters,
    task_15_6_sequences_are_correct_up_to_the_context_limit => day::sequences_are_correct_up_to_the_context_limit,
    task_15_7_overtaking_by_hand => day::overtaking_by_hand,
    task_15_7_overtaking_never_delays_the_first_request => day::overtaking_never_delays_the_first_request,
}
