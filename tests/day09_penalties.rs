//! Day 9's checks: penalties.

mod checks;
#[macro_use]
#[path = "checks/day09.rs"]
mod day;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day09_penalties.rs"]
mod day09_penalties;

checks::tests! {
    9, day09_penalties:
    task_9_1_both_signs_go_down => day::both_signs_go_down,
    task_9_1_each_token_is_penalized_once => day::once_however_often,
    task_9_1_other_logits_stay => day::other_logits_stay,
    task_9_1_repetition_equals_transformers => day::repetition_equals_hf,
    task_9_1_an_extreme_penalty_stays_finite => day::an_extreme_penalty_stays_finite,
    task_9_1_repetition_rejects_bad_values => day::repetition_rejects_bad_values,
    task_9_2_presence_and_frequency_by_hand => day::presence_and_frequency_by_hand,
    task_9_2_presence_and_frequency_equal_vllm => day::presence_and_frequency_equal_vllm,
    task_9_2_presence_and_frequency_reject_bad_values => day::presence_and_frequency_reject_bad_values,
    task_9_3_ngrams_by_hand => day::ngrams_by_hand,
    task_9_3_ngrams_equal_transformers => day::ngrams_equal_hf,
    task_9_3_no_ngram_ever_repeats => day::no_ngram_ever_repeats,
    task_9_3_ngrams_reject_zero => day::ngrams_reject_zero,
    task_9_4_recent_returns_the_end_of_the_text => day::recent_returns_the_end_of_the_text,
    task_9_5_nothing_is_implied => day::nothing_is_implied,
    task_9_5_the_scope_of_each => day::the_scope_of_each,
    task_9_5_ngrams_in_the_prompt_also_count => day::ngrams_in_the_prompt_also_count,
    task_9_5_penalty_window_limits_penalties_but_not_no_repeat_ngram => day::penalty_window_limits_penalties_but_not_no_repeat_ngram,
    task_9_5_repetition_comes_before_presence => day::repetition_comes_before_presence,
    task_9_5_all_three_equal_vllm => day::all_three_equal_vllm,
    task_9_5_the_pipeline_is_that_of_transformers => day::the_pipeline_is_hfs,
    task_9_5_a_bad_parameter_is_rejected_at_once => day::a_bad_parameter_is_rejected_at_once,
    task_9_5_greedy_tokens_equal_transformers => day::greedy_tokens_equal_hf,
    task_9_6_a_longer_repetition_costs_more => day::a_longer_repetition_costs_more,
    task_9_6_dry_equals_the_definition => day::dry_equals_the_definition,
}
