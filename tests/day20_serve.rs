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
    task_20_1_four_reasons_three_words => day::four_reasons_three_words,
    task_20_2_every_start_has_a_number_of_its_own => day::every_start_has_a_number_of_its_own,
    task_20_2_what_does_not_start_leaves_nothing => day::what_does_not_start_leaves_nothing,
    task_20_3_a_token_finds_its_client => day::a_token_finds_its_client,
    task_20_3_every_token_counts => day::every_token_counts,
    task_20_3_logprobs_belong_to_their_token => day::logprobs_belong_to_their_token,
    task_20_7_a_row_that_fails_fails_its_job => day::a_row_that_fails_fails_its_job,
    task_20_4_a_queue_has_an_end => day::a_queue_has_an_end,
    task_20_5_waiting_jobs_take_turns => day::waiting_jobs_take_turns,
    task_20_6_a_cancelled_row_computes_no_more => day::a_cancelled_row_computes_no_more,
    task_20_7_a_job_leaves_all_places => day::a_job_leaves_all_places,
    task_20_7_what_cannot_start_fails_alone => day::what_cannot_start_fails_alone,
    task_20_8_whose_client_has_gone => day::whose_client_has_gone,
    task_20_9_a_turn_is_one_step => day::a_turn_is_one_step,
    task_20_9_a_turn_notices_who_has_gone => day::a_turn_notices_who_has_gone,
    task_20_9_a_failed_step_ends_whom_it_was_for => day::a_failed_step_ends_whom_it_was_for,
    task_20_10_what_has_begun_is_finished => day::what_has_begun_is_finished,
    task_20_10_a_place_before_the_queue => day::a_place_before_the_queue,
    task_20_10_who_comes_later_joins => day::who_comes_later_joins,
    task_20_10_with_nothing_to_do_it_waits => day::with_nothing_to_do_it_waits,
    task_20_10_the_same_at_any_load => day::the_same_at_any_load,
}
