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
    task_11_1_impossible_tokens_are_never_candidates => day::impossible_tokens_are_never_candidates,
    task_11_1_candidates_equal_a_stable_sort => day::candidates_equal_a_stable_sort,
    task_11_2_the_best_hypotheses_are_kept_in_order => day::the_best_hypotheses_are_kept_in_order,
    task_11_3_split_by_hand => day::split_by_hand,
    task_11_3_an_ending_counts_only_among_the_best_candidates => day::an_ending_counts_only_among_the_best_candidates,
    task_11_3_split_follows_its_rule_on_random_candidates => day::split_follows_its_rule_on_random_candidates,
    task_11_4_log_probabilities_are_computed_for_every_beam => day::log_probabilities_are_computed_for_every_beam,
    task_11_4_processors_come_after => day::processors_come_after,
    task_11_4_a_processors_error_is_returned => day::a_processors_error_is_returned,
    task_11_4_beams_feed_only_uncached_tokens => day::beams_feed_only_uncached_tokens,
    task_11_5_two_beams_by_hand => day::two_beams_by_hand,
    task_11_5_an_ending_makes_room_for_the_next_candidate => day::an_ending_makes_room_for_the_next_candidate,
    task_11_5_two_eos_ids_need_three_candidates_per_beam => day::two_eos_ids_need_three_candidates_per_beam,
    task_11_5_a_stop_string_is_found_after_the_prompt => day::a_stop_string_is_found_after_the_prompt,
    task_11_5_stop_strings_need_two_candidates_per_beam_without_eos => day::stop_strings_need_two_candidates_per_beam_without_eos,
    task_11_5_one_beam_is_greedy => day::one_beam_is_greedy,
    task_11_5_enough_beams_find_the_best_sequence_overall => day::enough_beams_find_the_best_sequence_overall,
    task_11_5_early_stopped_sums_equal_transformers => day::early_stopped_equal_hf,
    task_11_5_cached_beam_search_equals_uncached => day::cached_beam_search_equals_uncached,
    task_11_5_sequences_are_correct_up_to_the_context_limit => day::sequences_are_correct_up_to_the_context_limit,
    task_11_5_a_dead_end_ends_only_its_beam => day::a_dead_end_ends_only_its_beam,
    task_11_5_invalid_parameters_are_rejected => day::invalid_parameters_are_rejected,
    task_11_6_length_normalized_by_hand => day::length_normalized_by_hand,
    task_11_6_length_penalty_1_gives_the_mean_log_probability => day::length_penalty_1_gives_the_mean_log_probability,
    task_11_6_early_stopped_equal_transformers => day::early_stopping_with_length_normalization_equals_hf,
    task_11_7_beam_search_continues_until_num_beams_have_finished => day::beam_search_continues_until_num_beams_have_finished,
    task_11_7_can_improve_by_hand => day::can_improve_by_hand,
    task_11_7_length_penalty_and_early_stopping_by_hand => day::length_penalty_and_early_stopping_by_hand,
    task_11_7_enough_beams_continue_with_two_eos_ids => day::enough_beams_continue_with_two_eos_ids,
    task_11_7_all_beams_may_end_in_the_same_step => day::all_beams_may_end_in_the_same_step,
    task_11_7_an_ending_by_stop_string_also_takes_up_a_candidate => day::an_ending_by_stop_string_also_takes_up_a_candidate,
    task_11_7_enough_beams_find_the_best_sequence_at_any_length_penalty => day::enough_beams_find_the_best_sequence_at_any_length_penalty,
    task_11_7_sequences_and_scores_equal_transformers => day::defaults_equal_hf,
    task_11_7_endings_and_penalties_equal_transformers => day::endings_equal_hf,
    task_11_7_with_processors_it_equals_transformers => day::processed_equals_hf,
    task_11_7_with_a_cache_it_equals_transformers => day::cached_beam_search_equals_hf,
}
