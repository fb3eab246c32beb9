//! Day 11's checks: beam search.

mod checks;
#[macro_use]
#[path = "checks/day11.rs"]
mod day;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day11_beam_search.rs"]
mod day11_beam_search;

checks::tests! {
    11, day11_beam_search:
    task_11_1_candidates_by_hand => day::candidates_by_hand,
    task_11_1_ties_go_to_the_earlier_beam_and_id => day::ties_go_to_the_earlier_beam_and_id,
    task_11_1_impossible_tokens_are_no_candidates => day::impossible_tokens_are_no_candidates,
    task_11_1_candidates_equal_a_stable_sort => day::candidates_equal_a_stable_sort,
    task_11_2_the_best_are_kept_in_order => day::the_best_are_kept_in_order,
    task_11_3_split_by_hand => day::split_by_hand,
    task_11_3_an_ending_counts_only_among_the_best => day::an_ending_counts_only_among_the_best,
    task_11_3_split_follows_its_rule_on_random_candidates => day::split_follows_its_rule_on_random_candidates,
    task_11_4_log_probabilities_of_every_beam => day::log_probabilities_of_every_beam,
    task_11_4_processors_come_after => day::processors_come_after,
    task_11_4_a_processors_error_is_returned => day::a_processors_error_is_returned,
    task_11_4_only_what_the_cache_lacks => day::only_what_the_cache_lacks,
    task_11_5_two_beams_by_hand => day::two_beams_by_hand,
    task_11_5_an_ending_makes_room_for_the_next => day::an_ending_makes_room_for_the_next,
    task_11_5_two_eos_ids_make_room_too => day::two_eos_ids_make_room_too,
    task_11_5_a_stop_string_is_found_after_the_prompt => day::a_stop_string_is_found_after_the_prompt,
    task_11_5_stop_strings_make_room_without_eos => day::stop_strings_make_room_without_eos,
    task_11_5_one_beam_is_greedy => day::one_beam_is_greedy,
    task_11_5_enough_beams_find_the_best_of_all => day::enough_beams_find_the_best_of_all,
    task_11_5_early_stopped_sums_equal_transformers => day::early_stopped_equal_hf,
    task_11_5_with_a_cache_it_is_the_same => day::with_a_cache_it_is_the_same,
    task_11_5_to_the_end_of_the_context => day::to_the_end_of_the_context,
    task_11_5_a_dead_end_ends_only_its_beam => day::a_dead_end_ends_only_its_beam,
    task_11_5_invalid_parameters_are_rejected => day::invalid_parameters_are_rejected,
    task_11_6_length_normalized_by_hand => day::length_normalized_by_hand,
    task_11_6_a_mean_over_the_generated_tokens => day::a_mean_over_the_generated_tokens,
    task_11_6_early_stopped_equal_transformers => day::early_stopped_and_normalized_equal_hf,
    task_11_7_until_enough_are_finished_it_goes_on => day::until_enough_are_finished_it_goes_on,
    task_11_7_when_to_stop_by_hand => day::when_to_stop_by_hand,
    task_11_7_penalties_and_stops_by_hand => day::penalties_and_stops_by_hand,
    task_11_7_with_two_eos_ids_enough_go_on => day::with_two_eos_ids_enough_go_on,
    task_11_7_every_beam_may_end_at_once => day::every_beam_may_end_at_once,
    task_11_7_a_stop_string_takes_a_place_too => day::a_stop_string_takes_a_place_too,
    task_11_7_enough_beams_find_the_best_under_any_penalty => day::enough_beams_find_the_best_under_any_penalty,
    task_11_7_sequences_and_scores_equal_transformers => day::defaults_equal_hf,
    task_11_7_endings_and_penalties_equal_transformers => day::endings_equal_hf,
    task_11_7_with_processors_it_equals_transformers => day::processed_equals_hf,
    task_11_7_with_a_cache_it_equals_transformers => day::with_a_cache_it_equals_hf,
}
