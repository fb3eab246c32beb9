//! Day 8's checks: sampling.

mod checks;
#[macro_use]
#[path = "checks/day08.rs"]
mod day;
#[cfg(mistakes)]
include!(env!("CANDECODE_MISTAKES"));

#[allow(unused_imports)]
use candecode::*;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../src/day08_sampling.rs"]
mod day08_sampling;

checks::tests! {
    8, day08_sampling:
    task_8_1_softmax_by_hand => day::softmax_by_hand,
    task_8_1_softmax_does_not_overflow => day::softmax_does_not_overflow,
    task_8_1_softmax_equals_torch => day::softmax_equals_torch,
    task_8_1_softmax_equals_candle_nn => day::softmax_equals_candle_nn,
    task_8_1_softmax_rejects_empty_nan_and_all_masked_rows => day::softmax_rejects_empty_nan_and_all_masked_rows,
    task_8_2_temperature_by_hand => day::temperature_by_hand,
    task_8_2_the_worked_example => day::the_worked_example,
    task_8_2_a_tiny_temperature_is_nearly_greedy => day::a_tiny_temperature_is_nearly_greedy,
    task_8_2_temperature_equals_transformers => day::temperature_equals_hf,
    task_8_2_invalid_temperatures_are_rejected => day::invalid_temperatures_are_rejected,
    task_8_3_top_k_by_hand => day::top_k_by_hand,
    task_8_3_top_k_keeps_ties => day::top_k_keeps_ties,
    task_8_3_top_k_is_clamped => day::top_k_is_clamped,
    task_8_3_top_k_equals_transformers => day::top_k_equals_hf,
    task_8_3_top_k_of_0_is_rejected => day::top_k_of_0_is_rejected,
    task_8_4_the_token_that_crosses_p_is_kept => day::the_token_that_crosses_p_is_kept,
    task_8_4_top_p_works_on_unsorted_logits => day::top_p_works_on_unsorted_logits,
    task_8_4_top_p_keeps_the_last_of_tied_tokens => day::top_p_keeps_the_last_of_tied_tokens,
    task_8_4_at_least_one_stays => day::at_least_one_stays,
    task_8_4_top_p_renormalizes_over_the_remaining_tokens => day::top_p_renormalizes_over_the_remaining_tokens,
    task_8_4_top_p_equals_transformers => day::top_p_equals_hf,
    task_8_4_top_p_keeps_the_smallest_set_that_reaches_p => day::top_p_keeps_the_fewest_tokens_that_reach_p,
    task_8_4_top_p_outside_0_to_1_is_rejected => day::top_p_outside_0_to_1_is_rejected,
    task_8_5_min_p_by_hand => day::min_p_by_hand,
    task_8_5_min_p_equals_transformers => day::min_p_equals_hf,
    task_8_5_min_p_outside_0_to_1_is_rejected => day::min_p_outside_0_to_1_is_rejected,
    task_8_6_nothing_is_implied => day::nothing_is_implied,
    task_8_6_temperature_comes_first => day::temperature_comes_first,
    task_8_6_top_k_comes_before_top_p => day::top_k_comes_before_top_p,
    task_8_6_the_pipeline_equals_transformers => day::the_pipeline_equals_hf,
    task_8_6_the_same_filters_on_two_contexts => day::two_contexts,
    task_8_6_a_bad_parameter_is_rejected_before_the_model_runs => day::a_bad_parameter_is_rejected_before_the_model_runs,
    task_8_7_sample_by_hand => day::sample_by_hand,
    task_8_7_a_token_with_probability_0_is_never_sampled => day::a_token_with_probability_0_is_never_sampled,
    task_8_7_sample_rejects_invalid_input => day::sample_rejects_invalid_input,
    task_8_7_sample_follows_the_probabilities => day::sample_follows_the_probabilities,
    task_8_7_a_request_draws_the_same_tokens_alone_and_in_a_batch => day::a_request_draws_the_same_tokens_alone_and_in_a_batch,
    task_8_8_a_race_by_hand => day::a_race_by_hand,
    task_8_8_the_race_equals_torch_multinomial => day::the_race_equals_torch_multinomial,
    task_8_8_race_rejects_invalid_input => day::race_rejects_invalid_input,
    task_8_8_race_and_sample_draw_from_the_same_distribution => day::race_and_sample_draw_from_the_same_distribution,
    task_8_8_tokens_equal_transformers_for_ten_seeds_and_five_settings => day::ten_seeds_five_settings,
    task_8_8_rows_in_a_batch_share_one_random_stream => day::rows_in_a_batch_share_one_random_stream,
    task_8_8_generate_equals_transformers => day::generate_equals_transformers,
    task_8_9_three_tokens_by_hand => day::three_tokens_by_hand,
    task_8_9_drawn_pairs_match_sampling_without_replacement => day::drawn_pairs_match_sampling_without_replacement,
    task_8_9_draw_distinct_rejects_invalid_input => day::draw_distinct_rejects_invalid_input,
}

use candecode::kit::rng::{RequestRng, TorchRng};

/// Not a task, since readers don't write this generator.
#[test]
fn teeth_torch_rng_matches_torch() -> candle_core::Result<()> {
    let goldens = checks::golden_json("day08")?;
    for golden in goldens["words"].as_array().unwrap() {
        let mut rng = TorchRng::new(golden["seed"].as_u64().unwrap());
        let words: Vec<u64> = (0..1300).map(|_| u64::from(rng.next_u32())).collect();
        let list = |name: &str| -> Vec<u64> {
            golden[name].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect()
        };
        for (at, want) in list("at").into_iter().zip(list("low 27 bits")) {
            assert_eq!(
                words[at as usize] % (1 << 27),
                want,
                "word {at} of seed {}",
                golden["seed"]
            );
        }
        for (at, want) in list("second at").into_iter().zip(list("second")) {
            assert_eq!(words[at as usize], want, "word {at} of seed {}", golden["seed"]);
        }
    }
    // Element by element, allowing one unit in the last place: another libm may round ln_1p
    // differently.
    let same = |got: Vec<f32>, name: &str| -> candle_core::Result<()> {
        for (i, (got, want)) in
            got.iter().zip(checks::golden("day08", name)?.to_vec1::<f32>()?).enumerate()
        {
            assert!((got - want).abs() <= 1.2e-7 * want, "{name}, element {i}: {got} for {want}");
        }
        Ok(())
    };
    same(TorchRng::new(0).exponentials(700), "exponentials.0")?;
    same(TorchRng::new(42).exponentials(700), "exponentials.42")?;
    same(TorchRng::new(1).exponentials(1500).split_off(1480), "exponentials.rows")
}

/// `--rng chacha --seed N` must draw the same numbers in every release.
#[test]
fn teeth_the_portable_stream_never_changes() {
    let uniforms = |seed, request| {
        let mut rng = RequestRng::new(seed, request);
        [(); 3].map(|()| rng.uniform())
    };
    assert_eq!(uniforms(0, 0), [0.801_459_25, 0.731_113_4, 0.555_288_85]);
    assert_eq!(uniforms(0, 1), [0.273_580_55, 0.658_953, 0.827_439_67]);
    assert_eq!(uniforms(7, 0), [0.416_640_94, 0.030_317_307, 0.142_553_27]);
}
