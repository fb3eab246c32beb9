//! Day 8's checks: sampling.

#[path = "../frame/mod.rs"]
mod frame;

#[cfg(not(feature = "mine"))]
use candecode::day08_sampling;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day08_sampling.rs"]
mod day08_sampling;

use candecode::kit::processor::process_all;
use candecode::kit::rng::{RequestRng, TorchRng};
use candecode::kit::{
    Logits, LogitsProcessor, Model, NoCache, ProcessorInput, Sampler, SamplingParams, Step,
};
use candle_core::{Device, Error, IndexOp, Result, Tensor};
use frame::{close, ensure, equal, equal_tokens, golden, golden_json, refused};
use frame::{Likely, Outcome, Random, Recall};
use serde_json::Value;
use std::rc::Rc;

// Probabilities are at most 1, and f32 sums of up to 2,048 of them differ by a few units of 6e-8.
const TOLERANCE: f32 = 1e-6;
const NEVER: f32 = f32::NEG_INFINITY;

/// The processors of a pipeline.
pub type Processors = Vec<Rc<dyn LogitsProcessor>>;

/// The day 8 functions under test.
#[derive(Clone, Copy)]
pub struct Day {
    pub softmax: fn(&[f32]) -> Result<Vec<f32>>,
    pub temperature: fn(&mut [f32], f64) -> Result<()>,
    pub top_k: fn(&mut [f32], usize) -> Result<()>,
    pub top_p: fn(&mut [f32], f64) -> Result<()>,
    pub min_p: fn(&mut [f32], f64) -> Result<()>,
    pub warpers: fn(&SamplingParams) -> Result<Processors>,
    pub sample: fn(&[f32], f32) -> Result<u32>,
    pub race: fn(&[f32], &[f32]) -> Result<u32>,
    pub draw_distinct: fn(&[f32], &[f32], usize) -> Result<Vec<u32>>,
    pub torch_samplers: fn(u64, usize) -> Vec<Sampler<'static>>,
    pub chacha_sampler: fn(u64, usize) -> Sampler<'static>,
}

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        crate::Day {
            softmax: code::softmax,
            temperature: code::temperature,
            top_k: code::top_k,
            top_p: code::top_p,
            min_p: code::min_p,
            warpers: code::warpers,
            sample: code::sample,
            race: code::race,
            draw_distinct: code::draw_distinct,
            torch_samplers: code::torch_samplers,
            chacha_sampler: code::chacha_sampler,
        }
    }};
}

frame::checks! {
    day08_sampling:
    8.1: softmax_by_hand, softmax_does_not_overflow, softmax_equals_torch,
        softmax_rejects_empty_nan_and_all_masked_rows;
    8.2: temperature_by_hand, the_worked_example, a_tiny_temperature_is_nearly_greedy,
        temperature_equals_transformers, invalid_temperatures_are_rejected;
    8.3: top_k_by_hand, top_k_keeps_ties, top_k_is_clamped, top_k_equals_transformers,
        top_k_of_0_is_rejected;
    8.4: the_token_that_crosses_p_is_kept, top_p_works_on_unsorted_logits,
        top_p_keeps_the_last_of_tied_tokens, top_p_rounds_as_transformers_does, at_least_one_stays,
        top_p_renormalizes_over_the_remaining_tokens, top_p_equals_transformers,
        top_p_keeps_the_smallest_set_that_reaches_p, top_p_outside_0_to_1_is_rejected;
    8.5: min_p_by_hand, min_p_equals_transformers, min_p_outside_0_to_1_is_rejected;
    8.6: nothing_is_implied, temperature_comes_first, top_k_comes_before_top_p,
        the_pipeline_equals_transformers, the_same_filters_on_two_contexts,
        a_bad_parameter_is_rejected_before_the_model_runs;
    8.7: sample_by_hand, a_token_with_probability_0_is_never_sampled, sample_rejects_invalid_input,
        sample_follows_the_probabilities, a_request_draws_the_same_tokens_alone_and_in_a_batch;
    8.8: a_race_by_hand, the_race_equals_torch_multinomial, race_rejects_invalid_input,
        tokens_equal_transformers_for_ten_seeds_and_five_settings,
        rows_in_a_batch_share_one_random_stream;
    8.9: three_tokens_by_hand, drawn_pairs_match_sampling_without_replacement,
        draw_distinct_rejects_invalid_input;
    also: torch_rng_matches_torch, the_portable_stream_never_changes;
}

fn tensor(numbers: &[f32]) -> Result<Tensor> {
    Tensor::new(numbers, &Device::Cpu)
}

/// Checks that two lists of numbers agree.
fn near(input: &str, got: Result<Vec<f32>>, want: &[f32], tolerance: f32) -> Outcome {
    close(input, got.and_then(|got| tensor(&got)), &tensor(want)?, tolerance)
}

fn ln(probabilities: &[f32]) -> Vec<f32> {
    probabilities.iter().map(|p| p.ln()).collect()
}

fn survivors(logits: &[f32]) -> Vec<usize> {
    (0..logits.len()).filter(|id| logits[*id] > NEVER).collect()
}

/// Checks that a filter keeps exactly these tokens and leaves their logits unchanged.
fn keeps(
    input: &str,
    logits: &[f32],
    filter: impl FnOnce(&mut [f32]) -> Result<()>,
    want: &[usize],
) -> Outcome {
    let mut got = logits.to_vec();
    filter(&mut got)?;
    equal(&format!("{input}: the ids that are kept"), Ok(survivors(&got)), &want.to_vec())?;
    let untouched: Vec<f32> =
        (0..logits.len()).map(|id| if want.contains(&id) { logits[id] } else { NEVER }).collect();
    near(&format!("{input}: the resulting logits"), Ok(got), &untouched, 0.0)
        .likely("a filter only writes -inf; the softmax comes later, before the draw")
}

fn number(setting: &Value, name: &str) -> Option<f64> {
    setting.get(name).and_then(Value::as_f64)
}

/// Returns parameters that sample without any filter.
fn unfiltered() -> SamplingParams {
    SamplingParams { temperature: 1.0, ..SamplingParams::default() }
}

fn params(setting: &Value) -> SamplingParams {
    SamplingParams {
        temperature: number(setting, "temperature").unwrap_or(1.0),
        top_k: number(setting, "top_k").map(|k| k as usize),
        top_p: number(setting, "top_p").unwrap_or(1.0),
        min_p: number(setting, "min_p").unwrap_or(0.0),
        ..unfiltered()
    }
}

fn describe(setting: &Value) -> String {
    let names = ["temperature", "top_k", "top_p", "min_p"];
    let given = names.iter().filter_map(|n| number(setting, n).map(|x| format!("{n} {x}")));
    let given: Vec<String> = given.collect();
    if given.is_empty() {
        "no filter".into()
    } else {
        given.join(", ")
    }
}

/// Applies the pipeline for these parameters to one row.
fn pipeline(day: &Day, params: &SamplingParams, logits: &mut [f32]) -> Result<()> {
    let input = ProcessorInput { tokens: &[], prompt_len: 0, remaining: 1, eos: &[] };
    process_all(&(day.warpers)(params)?, &input, logits)
}

/// Compares with HF's warpers on rows of logits. Uses the cases that set exactly `names` or, if
/// `names` is empty, all cases that set more than one.
fn equals_hf(
    names: &[&str],
    tolerance: f32,
    apply: impl Fn(&SamplingParams, &mut [f32]) -> Result<()>,
) -> Outcome {
    let goldens = golden_json("day08")?;
    for (i, case) in goldens["cases"].as_array().into_iter().flatten().enumerate() {
        let given = |name: &&str| case.get(*name).is_some();
        let all: Vec<&str> =
            ["temperature", "top_k", "top_p", "min_p"].into_iter().filter(given).collect();
        if all != names && !(names.is_empty() && all.len() > 1) {
            continue;
        }
        let kind = case["logits"].as_str().unwrap_or_default();
        let rows = golden("day08", &format!("logits.{kind}"))?.to_vec2::<f32>()?;
        let want = golden("day08", &format!("filtered.{i}"))?.to_vec2::<f32>()?;
        for (row, (mut got, want)) in rows.into_iter().zip(want).enumerate() {
            let input = format!("{}, row {row} of the {kind} logits", describe(case));
            apply(&params(case), &mut got)?;
            let ids = format!("{input}: the ids that are kept");
            equal(&ids, Ok(survivors(&got)), &survivors(&want))?;
            near(&format!("{input}: the resulting logits"), Ok(got), &want, tolerance)?;
        }
    }
    Ok(())
}

// 8.1

fn softmax_by_hand(day: &Day) -> Outcome {
    // e^0 : e^ln 3 : e^-inf = 1 : 3 : 0
    let got = (day.softmax)(&[0.0, 3f32.ln(), NEVER]);
    near("softmax([0, ln 3, -inf])", got, &[0.25, 0.75, 0.0], TOLERANCE)
}

fn softmax_does_not_overflow(day: &Day) -> Outcome {
    let got = (day.softmax)(&[1000.0, 1000.0, -1000.0]);
    near("softmax([1000, 1000, -1000])", got, &[0.5, 0.5, 0.0], TOLERANCE)
        .likely_if_not_finite("exp(1000) is infinite in f32: subtract the maximum first")
}

fn softmax_equals_torch(day: &Day) -> Outcome {
    let rows = golden("day08", "logits.random")?.to_vec2::<f32>()?;
    let want = golden("day08", "softmax")?.to_vec2::<f32>()?;
    for (row, (logits, want)) in rows.iter().zip(want).enumerate() {
        let input = format!("row {row} of the random logits");
        near(&input, (day.softmax)(logits), &want, TOLERANCE)?;
    }
    Ok(())
}

fn softmax_rejects_empty_nan_and_all_masked_rows(day: &Day) -> Outcome {
    refused("softmax([])", (day.softmax)(&[]), &[])?;
    refused("softmax([0, NaN])", (day.softmax)(&[0.0, f32::NAN]), &[])?;
    refused("softmax([-inf, -inf])", (day.softmax)(&[NEVER, NEVER]), &[])
}

// 8.2

fn temperature_by_hand(day: &Day) -> Outcome {
    for (t, want) in
        [(2.0, [1.0, -2.0, NEVER]), (0.5, [4.0, -8.0, NEVER]), (1.0, [2.0, -4.0, NEVER])]
    {
        let mut got = [2.0, -4.0, NEVER];
        (day.temperature)(&mut got, t)?;
        near(&format!("[2, -4, -inf] at temperature {t}"), Ok(got.to_vec()), &want, 1e-6)?;
    }
    Ok(())
}

fn the_worked_example(day: &Day) -> Outcome {
    let want = golden("day08", "worked")?.to_vec2::<f32>()?;
    for (t, want) in [1.0, 0.1, 100.0].into_iter().zip(want) {
        let mut logits = [6.0, 2.0, 7.0, 0.1, -8.0, 9.0];
        (day.temperature)(&mut logits, t)?;
        let input = format!("[6, 2, 7, 0.1, -8, 9] at temperature {t}, then softmax");
        // A quotient can be off by one unit of 6e-8, and logits of up to 90 carry that into the
        // exponent.
        near(&input, (day.softmax)(&logits), &want, 1e-5)?;
    }
    Ok(())
}

fn temperature_equals_transformers(day: &Day) -> Outcome {
    // Logits of up to 90, off by one unit of 6e-8 if the code multiplies by a reciprocal.
    equals_hf(&["temperature"], 2e-5, |p, l| (day.temperature)(l, p.temperature))
}

fn a_tiny_temperature_is_nearly_greedy(day: &Day) -> Outcome {
    for (logits, want) in [
        ([2.0, 9.0, NEVER], [0.0, 1.0, 0.0]),
        ([-9.0, -5.0, -6.0], [0.0, 1.0, 0.0]),
        ([7.0, 7.0, 1.0], [0.5, 0.5, 0.0]),
    ] {
        for t in [1e-3, 1e-37, 1e-38] {
            let mut got = logits;
            (day.temperature)(&mut got, t)?;
            let input = format!("{logits:?} at temperature {t:e}, then softmax");
            near(&input, (day.softmax)(&got), &want, 0.0).likely(
                "dividing by a tiny temperature overflows f32: subtract the largest logit \
                 first, which changes no probability",
            )?;
        }
    }
    Ok(())
}

fn invalid_temperatures_are_rejected(day: &Day) -> Outcome {
    for t in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let got = (day.temperature)(&mut [1.0, 2.0], t);
        refused(&format!("temperature {t}"), got, &["temperature"])?;
    }
    for t in [1e-60, 1e60] {
        let got = (day.temperature)(&mut [1.0, 2.0], t);
        refused(&format!("temperature {t:e}"), got, &["temperature"])
            .likely("the logits are divided in f32, where 1e-60 is 0 and 1e60 is infinite")?;
    }
    Ok(())
}

// 8.3

fn top_k_by_hand(day: &Day) -> Outcome {
    let logits = [1.0, 4.0, -2.0, 3.0, 2.0];
    for (k, want) in [(1, vec![1]), (2, vec![1, 3]), (3, vec![1, 3, 4]), (5, vec![0, 1, 2, 3, 4])] {
        keeps(&format!("top-{k} of {logits:?}"), &logits, |l| (day.top_k)(l, k), &want)?;
    }
    Ok(())
}

fn top_k_keeps_ties(day: &Day) -> Outcome {
    let logits = [2.0, 5.0, 2.0, 1.0, 2.0];
    keeps("top-2 of [2, 5, 2, 1, 2]", &logits, |l| (day.top_k)(l, 2), &[0, 1, 2, 4])
        .likely("three tokens share the second place: every token equal to the k-th largest stays")
}

fn top_k_is_clamped(day: &Day) -> Outcome {
    keeps("top-50 of 3 logits", &[0.5, -1.0, 2.0], |l| (day.top_k)(l, 50), &[0, 1, 2])?;
    keeps("top-1 of one logit", &[0.5], |l| (day.top_k)(l, 1), &[0])?;
    keeps("top-3 of [-inf, 1, -inf, 2]", &[NEVER, 1.0, NEVER, 2.0], |l| (day.top_k)(l, 3), &[1, 3])
}

fn top_k_equals_transformers(day: &Day) -> Outcome {
    equals_hf(&["top_k"], 0.0, |p, l| (day.top_k)(l, p.top_k.unwrap_or(1)))
}

fn top_k_of_0_is_rejected(day: &Day) -> Outcome {
    refused("top-0", (day.top_k)(&mut [1.0, 2.0], 0), &["top-k"])
}

// 8.4

fn the_token_that_crosses_p_is_kept(day: &Day) -> Outcome {
    let logits = ln(&[0.5, 0.3, 0.15, 0.05]);
    let cases = [(0.4, vec![0]), (0.6, vec![0, 1]), (0.9, vec![0, 1, 2]), (0.97, vec![0, 1, 2, 3])];
    for (p, want) in cases {
        let input = format!("top-p {p} of the probabilities [.5, .3, .15, .05]");
        keeps(&input, &logits, |l| (day.top_p)(l, p), &want).likely(
            "add up from the most likely token; the one that makes the sum reach p stays",
        )?;
    }
    Ok(())
}

fn top_p_works_on_unsorted_logits(day: &Day) -> Outcome {
    let logits = ln(&[0.05, 0.5, 0.15, 0.3]);
    let input = "top-p 0.6 of the probabilities [.05, .5, .15, .3]";
    keeps(input, &logits, |l| (day.top_p)(l, 0.6), &[1, 3])
}

fn top_p_keeps_the_last_of_tied_tokens(day: &Day) -> Outcome {
    keeps("top-p 0.5 of 8 equal logits", &[1.5; 8], |l| (day.top_p)(l, 0.5), &[4, 5, 6, 7])
        .likely(
            "HF sorts in ascending order, keeps ties in their order, and drops from the front",
        )?;
    let zeros = [0.0, -0.0, 0.0, -0.0];
    keeps("top-p 0.5 of [0, -0, 0, -0]", &zeros, |l| (day.top_p)(l, 0.5), &[2, 3])
}

fn at_least_one_stays(day: &Day) -> Outcome {
    keeps("top-p 0.1 of one logit", &[-3.0], |l| (day.top_p)(l, 0.1), &[0])?;
    keeps("top-p 0.001 of [2, 2]", &[2.0, 2.0], |l| (day.top_p)(l, 0.001), &[1])?;
    // 1 - 1e-9 is 1 in f32, and so is the sum of all probabilities.
    keeps("top-p 1e-9 of [0, 1]", &[0.0, 1.0], |l| (day.top_p)(l, 1e-9), &[1])?;
    keeps("top-p 1 of [1, -3, 0]", &[1.0, -3.0, 0.0], |l| (day.top_p)(l, 1.0), &[0, 1, 2])
}

fn top_p_renormalizes_over_the_remaining_tokens(day: &Day) -> Outcome {
    // After top-k the mass is less than 1: (.5, .3) out of .8 is (.625, .375).
    let mut logits = ln(&[0.5, 0.3, 0.15, 0.05]);
    logits[2..].fill(NEVER);
    let input = "top-p 0.6 of [.5, .3] and two tokens that top-k dropped";
    keeps(input, &logits, |l| (day.top_p)(l, 0.6), &[0])
        .likely("renormalize the probabilities over the tokens that are left")
}

fn top_p_equals_transformers(day: &Day) -> Outcome {
    equals_hf(&["top_p"], 0.0, |p, l| (day.top_p)(l, p.top_p))
}

fn top_p_keeps_the_smallest_set_that_reaches_p(day: &Day) -> Outcome {
    let mut random = Random::new(8);
    for round in 0..200 {
        let logits: Vec<f32> = (0..1 + random.below(60)).map(|_| 4.0 * random.float()).collect();
        let p = 0.01 + 0.98 * f64::from(random.float().abs());
        let mut left = logits.clone();
        (day.top_p)(&mut left, p)?;
        let max = logits.iter().copied().fold(NEVER, f32::max);
        let exp = |x: f32| f64::from(x - max).exp();
        let all: f64 = logits.iter().map(|x| exp(*x)).sum();
        let kept = survivors(&left);
        let mass: f64 = kept.iter().map(|id| exp(logits[*id])).sum::<f64>() / all;
        let least = kept.iter().map(|id| exp(logits[*id])).fold(f64::INFINITY, f64::min) / all;
        let input = format!("round {round}: top-p {p:.4} of {} random logits", logits.len());
        // Allow 1e-5 for a sum that falls just short of p. The ids are shown, so that no two
        // mistakes look alike.
        let shown = format!(
            "got    ids {kept:?}, with {mass:.6} of the mass; the least likely has {least:.6}"
        );
        let too_little = format!("{shown}\n  want   a mass of at least p");
        ensure(&input, mass >= p - 1e-5, &too_little)?;
        let too_much = format!("{shown}\n  want   no more tokens than it takes to reach p");
        ensure(&input, mass - least <= p + 1e-5, &too_much)?;
    }
    Ok(())
}

/// Sums of 1/n are the same numbers on every machine, and some end just beside the limit.
fn top_p_rounds_as_transformers_does(day: &Day) -> Outcome {
    for (n, p, want, why) in [
        (5, 0.2, 1, "four times 1/5 is a little more than 1 - p in f64, and equal to it in f32"),
        (25, 0.04, 1, "the running sum is added in f64; in f32, each addition rounds"),
    ] {
        let mut logits = vec![0.0; n];
        (day.top_p)(&mut logits, p)?;
        let input = format!("top-p {p} of {n} equal logits: how many are kept");
        equal(&input, Ok(survivors(&logits).len()), &want).likely(why)?;
    }
    Ok(())
}

fn top_p_outside_0_to_1_is_rejected(day: &Day) -> Outcome {
    for p in [0.0, -0.1, 1.2, f64::NAN] {
        refused(&format!("top-p {p}"), (day.top_p)(&mut [1.0, 2.0], p), &["top-p"])?;
    }
    Ok(())
}

// 8.5

fn min_p_by_hand(day: &Day) -> Outcome {
    let logits = ln(&[0.05, 0.5, 0.15, 0.3]);
    for (p, want) in
        [(0.0, vec![0, 1, 2, 3]), (0.2, vec![1, 2, 3]), (0.5, vec![1, 3]), (0.9, vec![1])]
    {
        let input = format!("min-p {p} of the probabilities [.05, .5, .15, .3]");
        keeps(&input, &logits, |l| (day.min_p)(l, p), &want)
            .likely("the threshold is p times the largest probability, here p · 0.5")?;
    }
    keeps("min-p 1 of [2, 0, 2]", &[2.0, 0.0, 2.0], |l| (day.min_p)(l, 1.0), &[0, 2])
}

fn min_p_equals_transformers(day: &Day) -> Outcome {
    equals_hf(&["min_p"], 0.0, |p, l| (day.min_p)(l, p.min_p))
}

fn min_p_outside_0_to_1_is_rejected(day: &Day) -> Outcome {
    for p in [-0.1, 1.2, f64::NAN] {
        refused(&format!("min-p {p}"), (day.min_p)(&mut [1.0, 2.0], p), &["min-p"])?;
    }
    Ok(())
}

// 8.6

fn nothing_is_implied(day: &Day) -> Outcome {
    let names = |params: &SamplingParams| -> Result<Vec<String>> {
        Ok((day.warpers)(params)?.iter().map(|warper| warper.name()).collect())
    };
    equal("no parameters: the warpers", names(&unfiltered()), &vec![])?;
    let params = SamplingParams { top_k: Some(50), ..unfiltered() };
    let got = names(&params)?;
    ensure("top_k 50: the warpers", got.len() == 1, &format!("got {got:?}, want one warper"))?;
    // The pipeline uses this name in errors, so it must show which setting to change.
    let said = got[0].contains("top_k") && got[0].contains("50");
    ensure("top_k 50: the name", said, &format!("got {:?}; it should say top_k and 50", got[0]))
}

fn temperature_comes_first(day: &Day) -> Outcome {
    // Temperature 4 reduces .9 to .44 of the mass, so top-p 0.8 then needs three tokens. Before the
    // temperature, one would have been enough.
    let logits = ln(&[0.9, 0.05, 0.04, 0.01]);
    let params = SamplingParams { temperature: 4.0, top_p: 0.8, ..unfiltered() };
    let mut got = logits.clone();
    pipeline(day, &params, &mut got)?;
    let input = "temperature 4, top-p 0.8 of [.9, .05, .04, .01]";
    let cold: Vec<f32> = logits.iter().map(|logit| logit / 4.0).collect();
    // One unit of 6e-8 in a logit of up to 1.2, if the code multiplies by a reciprocal.
    let want = [cold[0], cold[1], cold[2], NEVER];
    near(&format!("{input}: the resulting logits"), Ok(got.clone()), &want, 1e-6)?;
    equal(&format!("{input}: the ids that are kept"), Ok(survivors(&got)), &vec![0, 1, 2])
}

fn top_k_comes_before_top_p(day: &Day) -> Outcome {
    // Top-5 leaves .91 of the mass, and the first two tokens have .66 of that, so top-p 0.62 keeps
    // two. Out of all seven tokens, it would keep three.
    let mut got = ln(&[0.35, 0.25, 0.15, 0.1, 0.06, 0.05, 0.04]);
    let params = SamplingParams { top_k: Some(5), top_p: 0.62, ..unfiltered() };
    pipeline(day, &params, &mut got)?;
    let input = "top-k 5, top-p 0.62 of [.35, .25, .15, .1, .06, .05, .04]: the ids that are kept";
    equal(input, Ok(survivors(&got)), &vec![0, 1])
}

fn the_pipeline_equals_transformers(day: &Day) -> Outcome {
    equals_hf(&[], 2e-5, |params, logits| pipeline(day, params, logits))
}

fn the_same_filters_on_two_contexts(day: &Day) -> Outcome {
    let model = Recall::new("story-3m", 10)?;
    for context in golden_json("day08")?["contexts"].as_array().into_iter().flatten() {
        let step = Step::new(&model, &ids(&context["ids"])?, 0)?.with_logits(Logits::Last(1));
        let logits = model.forward(&step, &mut NoCache)?.flatten_all()?.to_vec1::<f32>()?;
        for setting in context["filters"].as_array().into_iter().flatten() {
            let mut left = logits.clone();
            pipeline(day, &params(setting), &mut left)?;
            let input =
                format!("after {}, {}: how many tokens stay", context["text"], describe(setting));
            equal(
                &input,
                Ok(survivors(&left).len() as u64),
                &setting["kept"].as_u64().unwrap_or(0),
            )?;
        }
    }
    Ok(())
}

fn a_bad_parameter_is_rejected_before_the_model_runs(day: &Day) -> Outcome {
    let bad = [
        (SamplingParams { temperature: f64::NAN, ..unfiltered() }, "temperature", "NaN"),
        (SamplingParams { top_k: Some(0), ..unfiltered() }, "top-k", "0"),
        (SamplingParams { top_p: 1.5, ..unfiltered() }, "top-p", "1.5"),
        (SamplingParams { min_p: -0.5, ..unfiltered() }, "min-p", "-0.5"),
    ];
    let mut accepted = Vec::new();
    for (params, name, value) in &bad {
        if (day.warpers)(params).is_ok() {
            accepted.push(format!("{name} {value}"));
        }
    }
    equal(
        "which of temperature NaN, top-k 0, top-p 1.5 and min-p -0.5 warpers accepts",
        Ok(accepted),
        &vec![],
    )
    .likely("warpers must reject, before any model runs, what the filter itself would reject")?;
    for (params, name, value) in bad {
        let got = (day.warpers)(&params).map(|all| all.len());
        refused(&format!("warpers of {name} {value}"), got, &[name])?;
    }
    Ok(())
}

// 8.7

fn sample_by_hand(day: &Day) -> Outcome {
    // The sums are .25, .75, .75, 1.
    let probs = [0.25, 0.5, 0.0, 0.25];
    for (u, want) in [(0.0, 0), (0.24, 0), (0.25, 1), (0.74, 1), (0.75, 3), (0.99, 3)] {
        let input = format!("probabilities {probs:?}, u {u}");
        equal(&input, (day.sample)(&probs, u), &want)
            .likely("the first token at which the running sum is greater than u")?;
    }
    Ok(())
}

fn a_token_with_probability_0_is_never_sampled(day: &Day) -> Outcome {
    equal("[0, 1], u 0", (day.sample)(&[0.0, 1.0], 0.0), &1)?;
    // Rounding can leave the sum slightly below 1, with u in the gap.
    let probs = [0.5, 0.499_999, 0.0];
    equal("[.5, .499999, 0], u .9999995", (day.sample)(&probs, 0.999_999_5), &1)
        .likely("if the sum ends below u, draw the last token with a nonzero probability")
}

fn sample_rejects_invalid_input(day: &Day) -> Outcome {
    for u in [1.0, -0.1, f32::NAN] {
        refused(&format!("u {u}"), (day.sample)(&[0.5, 0.5], u), &[])?;
    }
    refused("all probabilities 0", (day.sample)(&[0.0, 0.0], 0.5), &[])?;
    refused("no probabilities", (day.sample)(&[], 0.5), &[])
}

const DRAWS: usize = 50_000;
const PROBS: [f32; 5] = [0.0625, 0.5, 0.125, 0.0625, 0.25];

/// The chi-square value with 4 degrees of freedom that chance exceeds once in a million: x = 33.4,
/// where exp(-x/2) (1 + x/2) = 1e-6. The draws use fixed seeds, so a check that passed once passes
/// again.
const ONE_IN_A_MILLION: f64 = 33.4;

fn tally(mut draw: impl FnMut() -> Result<u32>) -> Result<[f64; 5]> {
    let mut counts = [0.0; 5];
    for _ in 0..DRAWS {
        let id = draw()? as usize;
        *counts.get_mut(id).ok_or(Error::Msg(format!("token {id} of 5 was drawn")))? += 1.0;
    }
    Ok(counts)
}

fn follows(input: &str, counts: [f64; 5]) -> Outcome {
    let expected = PROBS.map(|p| f64::from(p) * DRAWS as f64);
    let chi: f64 = counts.iter().zip(expected).map(|(n, e)| (n - e) * (n - e) / e).sum();
    let words = format!(
        "{DRAWS} draws: got {counts:?}, expected about {expected:?}; chi-square \
        {chi:.1}, at most {ONE_IN_A_MILLION}"
    );
    ensure(input, chi <= ONE_IN_A_MILLION, &words)
}

fn sampled(day: &Day) -> Result<[f64; 5]> {
    let mut rng = RequestRng::new(8, 0);
    tally(|| (day.sample)(&PROBS, rng.uniform()))
}

fn sample_follows_the_probabilities(day: &Day) -> Outcome {
    follows("sample from [.0625, .5, .125, .0625, .25]", sampled(day)?)
}

// 8.8

fn a_race_by_hand(day: &Day) -> Outcome {
    let probs = [0.5, 0.25, 0.25, 0.0];
    // The ratios p / q are .5, .25, .25; then .25, 1, .083; then .5, .25, 2.5. The last token, with
    // p = 0, never wins. In the second case, p · q would choose token 0, and p + q token 2.
    let cases =
        [([1.0, 1.0, 1.0, 1.0], 0), ([2.0, 0.25, 3.0, 0.001], 1), ([1.0, 1.0, 0.1, 0.01], 2)];
    for (q, want) in cases {
        let input = format!("probabilities {probs:?}, exponentials {q:?}");
        equal(&input, (day.race)(&probs, &q), &want).likely("the largest p / q wins")?;
    }
    Ok(())
}

fn the_race_equals_torch_multinomial(day: &Day) -> Outcome {
    let probs = golden("day08", "race.probs")?.to_vec2::<f32>()?;
    let q = golden("day08", "race.q")?.to_vec2::<f32>()?;
    let want: Vec<u32> = serde_json::from_value(golden_json("day08")?["race.winners"].clone())
        .map_err(|e| Error::Msg(e.to_string()))?;
    let got = probs.iter().zip(&q).map(|(p, q)| (day.race)(p, q)).collect::<Result<Vec<_>>>();
    equal("torch.multinomial of 12 rows: the winners", got, &want)
}

fn race_rejects_invalid_input(day: &Day) -> Outcome {
    refused("2 probabilities, 1 exponential", (day.race)(&[0.5, 0.5], &[1.0]), &[])?;
    refused("1 probability, 2 exponentials", (day.race)(&[1.0], &[1.0, 1.0]), &[])?;
    refused("all probabilities 0", (day.race)(&[0.0, 0.0], &[1.0, 1.0]), &[])
}

fn ids(value: &Value) -> Result<Vec<u32>> {
    serde_json::from_value(value.clone()).map_err(|e| Error::Msg(e.to_string()))
}

/// Returns every choice of one static batch, each made on the golden text so far. Stops at the
/// first wrong choice.
fn replay(
    day: &Day,
    model: &Recall,
    params: &SamplingParams,
    seed: u64,
    prompts: &[Vec<u32>],
    want: &[Vec<u32>],
) -> Result<Vec<Vec<u32>>> {
    let warpers = (day.warpers)(params)?;
    let mut samplers = (day.torch_samplers)(seed, prompts.len());
    let mut logits = Vec::new();
    for (prompt, new) in prompts.iter().zip(want) {
        let text = [&prompt[..], new].concat();
        logits.push(model.forward(&Step::new(model, &text, 0)?, &mut NoCache)?.i(0)?);
        // (T, V)
    }
    let mut got = vec![Vec::new(); prompts.len()];
    for step in 0..want.iter().map(Vec::len).max().unwrap_or(0) {
        for row in (0..prompts.len()).filter(|row| step < want[*row].len()) {
            let tokens = [&prompts[row][..], &want[row][..step]].concat();
            let mut scores = logits[row].i(tokens.len() - 1)?.to_vec1::<f32>()?;
            let (prompt_len, remaining) = (prompts[row].len(), want[row].len() - step);
            let input = ProcessorInput { tokens: &tokens, prompt_len, remaining, eos: &[0] };
            process_all(&warpers, &input, &mut scores)?;
            got[row].push(samplers[row](&scores)?);
            if got[row].last() != want[row].get(step) {
                return Ok(got);
            }
        }
    }
    Ok(got)
}

fn tokens_equal_transformers_for_ten_seeds_and_five_settings(day: &Day) -> Outcome {
    let goldens = golden_json("day08")?;
    let model = Recall::new("story-3m", 200)?;
    let prompts = [ids(&goldens["prompts"][0])?, ids(&goldens["prompts"][1])?];
    for run in goldens["runs"].as_array().into_iter().flatten() {
        let seed = run["seed"].as_u64().unwrap_or_default();
        for (i, setting) in goldens["settings"].as_array().into_iter().flatten().enumerate() {
            let (prompt, want) = (prompts[i % 2].clone(), ids(&run["new_ids"][i])?);
            let input = format!(
                "generate(do_sample=True) after manual_seed({seed}), {}",
                describe(setting)
            );
            let got = replay(
                day,
                &model,
                &params(setting),
                seed,
                &[prompt],
                std::slice::from_ref(&want),
            )?;
            equal_tokens(&input, Ok(got.concat()), &want, &[])?;
        }
    }
    Ok(())
}

fn rows_in_a_batch_share_one_random_stream(day: &Day) -> Outcome {
    let goldens = golden_json("day08")?;
    let model = Recall::new("story-3m", 100)?;
    for batch in goldens["batches"].as_array().into_iter().flatten() {
        let rows = |name: &str| -> Result<Vec<Vec<u32>>> {
            batch[name].as_array().into_iter().flatten().map(ids).collect()
        };
        let (prompts, want) = (rows("prompts")?, rows("new_ids")?);
        let seed = batch["seed"].as_u64().unwrap_or_default();
        let got = replay(day, &model, &params(&batch["setting"]), seed, &prompts, &want)?;
        for (row, (got, want)) in got.into_iter().zip(&want).enumerate() {
            let input = format!("row {row} of {} after manual_seed({seed})", prompts.len());
            let as_far = want[..got.len().min(want.len())].to_vec();
            equal_tokens(&input, Ok(got), &as_far, &[])
                .likely("torch draws for every row at every step, even for rows that have ended")?;
        }
    }
    Ok(())
}

fn a_request_draws_the_same_tokens_alone_and_in_a_batch(day: &Day) -> Outcome {
    let logits = ln(&PROBS);
    let draw = |sampler: &mut Sampler| sampler(&logits);
    let mut alone = (day.chacha_sampler)(3, 1);
    let want = (0..40).map(|_| draw(&mut alone)).collect::<Result<Vec<_>>>()?;
    let [mut zero, mut one, mut two] = [0, 1, 2].map(|request| (day.chacha_sampler)(3, request));
    let (mut others, mut got) = (Vec::new(), Vec::new());
    for step in 0..40 {
        others.push(draw(&mut zero)?);
        got.push(draw(&mut one)?);
        if step < 20 {
            draw(&mut two)?;
        }
    }
    // A stream is computed from its number, so a large number doesn't require computing the streams
    // before it.
    let far = draw(&mut (day.chacha_sampler)(3, 1_000_000_000))?;
    ensure("request 1,000,000,000", (far as usize) < PROBS.len(), "a token beyond the vocabulary")?;
    ensure(
        "requests 0 and 1 of one seed, 40 draws each",
        others != got,
        "both drew the same tokens; each request needs its own stream",
    )?;
    equal_tokens("request 1 of 3, the portable stream", Ok(got), &want, &[])
}

// 8.9

fn three_tokens_by_hand(day: &Day) -> Outcome {
    let probs = [0.5, 0.25, 0.25, 0.0];
    let cases: [([f32; 4], usize, &[u32]); 4] = [
        ([1.0, 1.0, 0.1, 0.01], 1, &[2]),
        ([1.0, 1.0, 0.1, 0.01], 3, &[2, 0, 1]),
        ([2.0, 0.25, 3.0, 0.001], 2, &[1, 0]),
        ([1.0, 1.0, 0.1, 0.01], 0, &[]),
    ];
    for (q, n, want) in cases {
        let input = format!("{n} distinct draws from {probs:?}, exponentials {q:?}");
        equal(&input, (day.draw_distinct)(&probs, &q, n), &want.to_vec())?;
    }
    Ok(())
}

fn drawn_pairs_match_sampling_without_replacement(day: &Day) -> Outcome {
    // The most likely token is first in half of the draws. Any other token i is followed by j with
    // probability p_j / (1 - p_i).
    let probs = [0.5f32, 0.3, 0.2];
    let pairs = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
    let expected = pairs.map(|(i, j): (usize, usize)| {
        let (first, second) = (f64::from(probs[i]), f64::from(probs[j]));
        DRAWS as f64 * first * second / (1.0 - first)
    });
    let mut rng = TorchRng::new(89);
    let mut counts = [0.0; 6];
    for _ in 0..DRAWS {
        let got = (day.draw_distinct)(&probs, &rng.exponentials(3), 2)?;
        let pair = match got[..] {
            [i, j] => pairs.iter().position(|pair| *pair == (i as usize, j as usize)),
            _ => None,
        };
        let words = format!("got {got:?}, want two different ids below 3");
        ensure("two distinct draws from [.5, .3, .2]", pair.is_some(), &words)?;
        counts[pair.unwrap_or(0)] += 1.0;
    }
    let chi: f64 = counts.iter().zip(expected).map(|(n, e)| (n - e) * (n - e) / e).sum();
    // 5 degrees of freedom: chance exceeds 35.9 once in a million.
    let words = format!(
        "{DRAWS} ordered pairs {pairs:?}: got {counts:?}, expected about {expected:.0?}; \
         chi-square {chi:.1}, at most 35.9"
    );
    ensure("two distinct draws from [.5, .3, .2]", chi <= 35.9, &words)
}

fn draw_distinct_rejects_invalid_input(day: &Day) -> Outcome {
    refused("2 probabilities, 1 exponential", (day.draw_distinct)(&[0.5, 0.5], &[1.0], 1), &[])?;
    refused("1 probability, 2 exponentials", (day.draw_distinct)(&[1.0], &[1.0, 1.0], 1), &[])?;
    let got = (day.draw_distinct)(&[0.5, 0.0, 0.5], &[1.0, 1.0, 1.0], 3);
    refused("three distinct draws from [.5, 0, .5]", got, &[])
}

/// Not a task, since readers don't write this generator.
fn torch_rng_matches_torch() -> Result<()> {
    let goldens = golden_json("day08")?;
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
    let same = |got: Vec<f32>, name: &str| -> Result<()> {
        for (i, (got, want)) in got.iter().zip(golden("day08", name)?.to_vec1::<f32>()?).enumerate()
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
fn the_portable_stream_never_changes() -> Result<()> {
    let uniforms = |seed, request| {
        let mut rng = RequestRng::new(seed, request);
        [(); 3].map(|()| rng.uniform())
    };
    assert_eq!(uniforms(0, 0), [0.801_459_25, 0.731_113_4, 0.555_288_85]);
    assert_eq!(uniforms(0, 1), [0.273_580_55, 0.658_953, 0.827_439_67]);
    assert_eq!(uniforms(7, 0), [0.416_640_94, 0.030_317_307, 0.142_553_27]);
    Ok(())
}
