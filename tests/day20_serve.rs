//! Day 20's checks: the serving loop.

mod checks;
#[macro_use]
#[path = "checks/day20.rs"]
mod day;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day20_serve.rs"]
mod day20_serve;

checks::tests! {
    20, day20_serve:
    task_20_1_four_reasons_three_names => day::four_reasons_three_names,
    task_20_2_every_row_has_its_own_id => day::every_row_has_its_own_id,
    task_20_2_a_failed_start_changes_nothing => day::a_failed_start_changes_nothing,
    task_20_3_each_token_reaches_its_client => day::each_token_reaches_its_client,
    task_20_3_every_token_counts => day::every_token_counts,
    task_20_3_each_token_carries_its_top_logprobs => day::each_token_carries_its_top_logprobs,
    task_20_7_a_failed_row_fails_its_job => day::a_failed_row_fails_its_job,
    task_20_4_the_queue_is_bounded => day::the_queue_is_bounded,
    task_20_5_waiting_jobs_take_turns => day::waiting_jobs_take_turns,
    task_20_6_a_canceled_row_stops_computing => day::a_canceled_row_stops_computing,
    task_20_7_canceling_a_job_cancels_queued_and_running_rows => day::canceling_a_job_cancels_queued_and_running_rows,
    task_20_7_only_the_job_that_cannot_start_fails => day::only_the_job_that_cannot_start_fails,
    task_20_8_jobs_without_a_client_are_dropped => day::jobs_without_a_client_are_dropped,
    task_20_9_a_turn_is_one_step => day::a_turn_is_one_step,
    task_20_9_a_turn_notices_closed_connections => day::a_turn_notices_closed_connections,
    task_20_9_a_failed_step_fails_every_row => day::a_failed_step_fails_every_row,
    task_20_10_started_jobs_are_finished => day::started_jobs_are_finished,
    task_20_10_jobs_take_free_places_before_they_queue => day::jobs_take_free_places_before_they_queue,
    task_20_10_later_jobs_join_the_batch => day::later_jobs_join_the_batch,
    task_20_10_an_idle_loop_waits => day::an_idle_loop_waits,
    task_20_10_canceled_rows_retire_before_the_loop_waits => day::canceled_rows_retire_before_the_loop_waits,
    task_20_10_each_request_gets_the_same_text_at_any_load => day::each_request_gets_the_same_text_at_any_load,
    task_20_11_turns_until_a_place_is_free_by_hand => day::turns_until_a_place_is_free_by_hand,
    task_20_11_turns_until_place_equals_a_turn_by_turn_simulation => day::turns_until_place_equals_a_turn_by_turn_simulation,
    task_20_11_millions_of_tokens => day::millions_of_tokens,
}
