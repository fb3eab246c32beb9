//! Day 9's checks: penalties.

#[path = "../frame/mod.rs"]
mod frame;

#[cfg(not(feature = "mine"))]
use candecode::day09_penalties;
#[cfg(feature = "mine")]
#[allow(dead_code)]
#[path = "../../src/day09_penalties.rs"]
mod day09_penalties;

use candecode::day07_greedy::{argmax, generate};
use candecode::day08_sampling::warpers;
use candecode::kit::processor::process_all;
use candecode::kit::{LogitsProcessor, Model, ProcessorInput, Request, SamplingParams};
use candle_core::{Device, Error, Result, Tensor};
use frame::{close, ensure, equal, equal_tokens, golden, golden_json, refused};
use frame::{Likely, Outcome, Random, Recall};
use serde_json::Value;
use std::rc::Rc;

// One or two operations on numbers below 30, each with a relative error of 6e-8.
const TOLERANCE: f32 = 1e-5;
const NEVER: f32 = f32::NEG_INFINITY;

/// The processors of a pipeline.
pub type Processors = Vec<Rc<dyn LogitsProcessor>>;

/// The day 9 functions under test.
#[derive(Clone, Copy)]
pub struct Day {
    pub repetition: fn(&mut [f32], &[u32], f32) -> Result<()>,
    pub presence_frequency: fn(&mut [f32], &[u32], f32, f32) -> Result<()>,
    pub ngram: fn(&mut [f32], &[u32], usize) -> Result<()>,
    pub recent: fn(&[u32], Option<usize>) -> &[u32],
    pub penalties: fn(&SamplingParams) -> Result<Processors>,
    pub dry: fn(&mut [f32], &[u32], f32, f32, usize),
}

/// Builds a `Day` from a module: the reader's code, a known mistake, or the stub.
macro_rules! implementation {
    ($($path:ident)::+) => {{
        use $($path)::+ as code;
        crate::Day {
            repetition: code::repetition_penalty,
            presence_frequency: code::presence_frequency,
            ngram: code::no_repeat_ngram,
            recent: code::recent,
            penalties: code::penalties,
            dry: code::dry,
        }
    }};
}

frame::checks! {
    day09_penalties:
    9.1: both_signs_go_down, each_token_is_penalized_once, other_logits_stay,
        repetition_equals_transformers, an_extreme_penalty_stays_finite,
        repetition_rejects_bad_values;
    9.2: presence_and_frequency_by_hand, presence_and_frequency_equal_vllm,
        presence_and_frequency_reject_bad_values;
    9.3: ngrams_by_hand, ngrams_equal_transformers, ngrams_reject_zero;
    9.4: recent_returns_the_end_of_the_text;
    9.5: nothing_is_implied, the_scope_of_each, ngrams_in_the_prompt_also_count,
        penalty_window_limits_penalties_but_not_no_repeat_ngram, repetition_comes_before_presence,
        all_three_equal_vllm, the_pipeline_is_that_of_transformers,
        a_bad_parameter_is_rejected_at_once, greedy_tokens_equal_transformers;
    9.6: a_longer_repetition_costs_more, dry_equals_the_definition,
        dry_leaves_the_first_token_alone;
}

/// Checks that `change` turns `logits` into `want`.
fn becomes(
    input: &str,
    logits: &[f32],
    change: impl FnOnce(&mut [f32]) -> Result<()>,
    want: &[f32],
) -> Outcome {
    let mut got = logits.to_vec();
    let got = change(&mut got).and_then(|()| Tensor::new(&got[..], &Device::Cpu));
    close(input, got, &Tensor::new(want, &Device::Cpu)?, TOLERANCE)
}

/// Checks that `change`, applied to all-zero logits, forbids exactly `want`.
fn forbids(
    input: &str,
    vocabulary: usize,
    change: impl FnOnce(&mut [f32]) -> Result<()>,
    want: &[usize],
) -> Outcome {
    let mut logits = vec![0.0; vocabulary];
    change(&mut logits)?;
    let got = (0..vocabulary).filter(|id| logits[*id] == NEVER).collect();
    equal(&format!("{input}: the forbidden ids"), Ok(got), &want.to_vec())?;
    let others = logits.iter().all(|logit| *logit == 0.0 || *logit == NEVER);
    ensure(input, others, "a logit is neither unchanged nor -inf")
}

fn names(all: &[Rc<dyn LogitsProcessor>]) -> Vec<String> {
    all.iter().map(|processor| processor.name()).collect()
}

/// Applies all penalties in `params` to the logits that follow `tokens`.
fn penalized(
    day: &Day,
    params: &SamplingParams,
    tokens: &[u32],
    prompt_len: usize,
    logits: &mut [f32],
) -> Result<()> {
    let at = ProcessorInput { tokens, prompt_len, remaining: 1, eos: &[] };
    process_all(&(day.penalties)(params)?, &at, logits)
}

fn number(setting: &Value, name: &str) -> Option<f64> {
    setting.get(name).and_then(Value::as_f64)
}

/// Converts the arguments of HF's `generate` to the penalties they stand for.
fn hf_penalties(setting: &Value) -> SamplingParams {
    SamplingParams {
        repetition_penalty: number(setting, "repetition_penalty").map_or(1.0, |x| x as f32),
        no_repeat_ngram: number(setting, "no_repeat_ngram_size").map(|n| n as usize),
        ..SamplingParams::default()
    }
}

/// Describes the penalties among the parameters.
fn describe(params: &SamplingParams) -> String {
    format!(
        "repetition {}, presence {}, frequency {}, n-grams {:?}, window {:?}",
        params.repetition_penalty,
        params.presence_penalty,
        params.frequency_penalty,
        params.no_repeat_ngram,
        params.penalty_window
    )
}

fn numbers(name: &str) -> Result<Vec<f64>> {
    let list = golden_json("day09")?[name].clone();
    serde_json::from_value(list).map_err(|e| Error::Msg(e.to_string()))
}

/// Logits, the ids before them, and the expected logits.
type Row = (Vec<f32>, Vec<u32>, Vec<f32>);

/// Returns each row of random logits with its ids and its expected logits.
fn rows(want: &str) -> Result<Vec<Row>> {
    let logits = golden("day09", "logits")?.to_vec2::<f32>()?;
    let ids = golden("day09", "ids")?.to_vec2::<u32>()?;
    let want = golden("day09", want)?.to_vec2::<f32>()?;
    Ok(logits.into_iter().zip(ids).zip(want).map(|((l, i), w)| (l, i, w)).collect())
}

// 9.1

fn both_signs_go_down(day: &Day) -> Outcome {
    let logits = [3.0, -3.0, 0.0, 1.0, -1.0];
    let input = "repetition penalty 1.5 for tokens 0, 1, 2; logits [3, -3, 0, 1, -1]";
    becomes(input, &logits, |l| (day.repetition)(l, &[0, 1, 2], 1.5), &[2.0, -4.5, 0.0, 1.0, -1.0])
        .likely("divide positive logits, multiply negative ones")?;
    let input = "repetition penalty 0.5 for tokens 0, 1: values below 1 encourage repetition";
    becomes(input, &logits, |l| (day.repetition)(l, &[0, 1], 0.5), &[6.0, -1.5, 0.0, 1.0, -1.0])
}

fn each_token_is_penalized_once(day: &Day) -> Outcome {
    let input = "repetition penalty 2 for tokens 0, 1, 0, 0, 1; logits [8, -1, 4]";
    becomes(
        input,
        &[8.0, -1.0, 4.0],
        |l| (day.repetition)(l, &[0, 1, 0, 0, 1], 2.0),
        &[4.0, -2.0, 4.0],
    )
    .likely(
        "each distinct token is penalized once: loop over a set of the tokens instead of the list",
    )
}

fn other_logits_stay(day: &Day) -> Outcome {
    let input = "repetition penalty 2, no tokens";
    becomes(input, &[1.0, -1.0], |l| (day.repetition)(l, &[], 2.0), &[1.0, -1.0])?;
    // A model can have fewer logits than its tokenizer has ids, and forbidden tokens stay
    // forbidden.
    let input = "repetition penalty 2 for tokens 0 and 9 of a vocabulary of 2; logits [-inf, 1]";
    becomes(input, &[NEVER, 1.0], |l| (day.repetition)(l, &[0, 9], 2.0), &[NEVER, 1.0])?;
    let input = "repetition penalty 2 for tokens 9 and 0 of a vocabulary of 2; logits [4, 1]";
    becomes(input, &[4.0, 1.0], |l| (day.repetition)(l, &[9, 0], 2.0), &[2.0, 1.0])
}

fn repetition_equals_transformers(day: &Day) -> Outcome {
    for penalty in numbers("repetition")? {
        let shown =
            if penalty.fract() == 0.0 { format!("{penalty:.1}") } else { penalty.to_string() };
        for (row, (logits, ids, want)) in rows(&format!("repetition.{shown}"))?.iter().enumerate() {
            let input = format!("repetition penalty {penalty}, row {row} of the random logits");
            becomes(&input, logits, |l| (day.repetition)(l, ids, penalty as f32), want)?;
        }
    }
    Ok(())
}

fn an_extreme_penalty_stays_finite(day: &Day) -> Outcome {
    for (penalty, logits, want) in [
        (1e-40, [5.0, -5.0, 1.0], [f32::MAX, 0.0, 1.0]),
        (3e38, [5.0, -5.0, 1.0], [0.0, f32::MIN, 1.0]),
        (3e38, [1.0, f32::NEG_INFINITY, 1.0], [0.0, f32::NEG_INFINITY, 1.0]),
    ] {
        let input = format!("repetition penalty {penalty:e}, tokens 0 and 1, logits {logits:?}");
        let mut got = logits;
        (day.repetition)(&mut got, &[0, 1], penalty)?;
        // 5 / 3e38 and 5 * 1e-40 count as 0.
        let got: Vec<f32> = got.iter().map(|x| if x.abs() < 1e-30 { 0.0 } else { *x }).collect();
        equal(&input, Ok(got), &want.to_vec()).likely_if_not_finite(
            "an infinite logit makes the softmax NaN: clamp it to f32::MIN and f32::MAX",
        )?;
    }
    Ok(())
}

fn repetition_rejects_bad_values(day: &Day) -> Outcome {
    for penalty in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let got = (day.repetition)(&mut [1.0], &[0], penalty);
        refused(&format!("repetition penalty {penalty}"), got, &["repetition"])?;
    }
    Ok(())
}

// 9.2

fn presence_and_frequency_by_hand(day: &Day) -> Outcome {
    let logits = [1.0, 1.0, -1.0, 1.0];
    // Token 0 occurs three times, token 2 once.
    let cases = [
        // This case is first because it tells the most mistakes apart.
        ((0.5, 0.25), [-0.25, 1.0, -1.75, 1.0]),
        ((0.5, 0.0), [0.5, 1.0, -1.5, 1.0]),
        ((0.0, 0.25), [0.25, 1.0, -1.25, 1.0]),
        ((-0.5, -0.25), [2.25, 1.0, -0.25, 1.0]),
    ];
    for ((presence, frequency), want) in cases {
        let input = format!(
            "presence {presence}, frequency {frequency}; generated 0, 0, 2, 0; logits [1, 1, -1, 1]"
        );
        let change =
            |l: &mut [f32]| (day.presence_frequency)(l, &[0, 0, 2, 0], presence, frequency);
        becomes(&input, &logits, change, &want)
            .likely("presence once per token, frequency once per occurrence")?;
    }
    let input = "presence 1, frequency 1; generated 7, not in the vocabulary, then 0; logits [1]";
    becomes(input, &[1.0], |l| (day.presence_frequency)(l, &[7, 0], 1.0, 1.0), &[-1.0])
}

fn presence_and_frequency_equal_vllm(day: &Day) -> Outcome {
    let goldens = golden_json("day09")?;
    let prompt_len = goldens["prompt_len"].as_u64().unwrap_or_default() as usize;
    for (i, case) in goldens["vllm"].as_array().into_iter().flatten().enumerate() {
        let get = |name| number(case, name).unwrap_or_default() as f32;
        if get("repetition") != 1.0 {
            continue; // covered by task 9.5
        }
        let (presence, frequency) = (get("presence"), get("frequency"));
        for (row, (logits, ids, want)) in rows(&format!("vllm.{i}"))?.iter().enumerate() {
            let input = format!(
                "presence {presence}, frequency {frequency}, row {row} of the random logits"
            );
            let generated = &ids[prompt_len..];
            let change =
                |l: &mut [f32]| (day.presence_frequency)(l, generated, presence, frequency);
            becomes(&input, logits, change, want)?;
        }
    }
    Ok(())
}

fn presence_and_frequency_reject_bad_values(day: &Day) -> Outcome {
    for (presence, frequency, says) in
        [(2.5, 0.0, "presence"), (0.0, -2.1, "frequency"), (f32::NAN, 0.0, "presence")]
    {
        let got = (day.presence_frequency)(&mut [1.0], &[], presence, frequency);
        refused(&format!("presence {presence}, frequency {frequency}"), got, &[says])?;
    }
    let input =
        "presence 2, frequency -2, the limits of the range, which are allowed; generated 0, 0";
    becomes(input, &[1.0], |l| (day.presence_frequency)(l, &[0, 0], 2.0, -2.0), &[3.0])
}

// 9.3

fn ngrams_by_hand(day: &Day) -> Outcome {
    let cases: [(&[u32], usize, &[usize]); 11] = [
        (&[4, 2, 1, 5, 2, 3, 5, 2], 2, &[1, 3]), // 2 was followed by 1 and by 3
        (&[1, 2, 3, 1, 2], 3, &[3]),             // 1 2 was followed by 3
        (&[1, 2, 3, 1, 2, 4, 1, 2], 3, &[3, 4]), // and by 4
        (&[1, 2, 3, 1, 2], 2, &[3]),             // 2 was followed by 3
        (&[1, 2, 3, 1, 2], 1, &[1, 2, 3]),       // every token seen so far
        (&[1, 2, 3, 1, 2], 4, &[]),              // 3 1 2 hasn't occurred before
        (&[1, 1], 2, &[1]),                      // 1 was followed by 1
        (&[1, 2, 1], 2, &[2]),
        (&[1, 2], 3, &[]),
        (&[1, 2], 9, &[]),
        (&[2, 9, 2, 1, 2], 2, &[1]), // 9 is beyond the vocabulary
    ];
    for (tokens, n, want) in cases {
        let input = format!("no repeated {n}-gram after {tokens:?}");
        forbids(&input, 6, |l| (day.ngram)(l, tokens, n), want).likely(
            "wherever the last n - 1 tokens occurred before, the token after them is forbidden",
        )?;
    }
    Ok(())
}

fn ngrams_equal_transformers(day: &Day) -> Outcome {
    for n in numbers("ngrams")? {
        for (row, (logits, ids, want)) in rows(&format!("ngram.{n}"))?.iter().enumerate() {
            let input = format!("no repeated {n}-gram, row {row} of the random logits");
            becomes(&input, logits, |l| (day.ngram)(l, ids, n as usize), want)?;
        }
    }
    Ok(())
}

fn ngrams_reject_zero(day: &Day) -> Outcome {
    refused("no repeated 0-gram", (day.ngram)(&mut [1.0], &[0], 0), &["n-gram"])
}

// 9.4

fn recent_returns_the_end_of_the_text(day: &Day) -> Outcome {
    let text = [4, 5, 6, 7];
    for (window, want) in [
        (None, &text[..]),
        (Some(2), &text[2..]),
        (Some(4), &text[..]),
        (Some(9), &text[..]),
        (Some(0), &[]),
    ] {
        let got = (day.recent)(&text, window).to_vec();
        equal(&format!("recent([4, 5, 6, 7], {window:?})"), Ok(got), &want.to_vec())?;
    }
    Ok(())
}

// 9.5

fn nothing_is_implied(day: &Day) -> Outcome {
    let got = (day.penalties)(&SamplingParams::default()).map(|all| names(&all));
    equal("the penalties for default parameters", got, &vec![])
}

fn the_scope_of_each(day: &Day) -> Outcome {
    // Prompt 0, 1; generated 2, 3, 2.
    let (tokens, logits) = ([0, 1, 2, 3, 2], [2.0, 2.0, 2.0, 2.0, 2.0]);
    let on = |params: SamplingParams| move |l: &mut [f32]| penalized(day, &params, &tokens, 2, l);
    let none = SamplingParams::default;
    let text = "prompt 0, 1, generated 2, 3, 2, logits [2, 2, 2, 2, 2]";
    let repetition = SamplingParams { repetition_penalty: 2.0, ..none() };
    becomes(
        &format!("repetition penalty 2: {text}"),
        &logits,
        on(repetition),
        &[1.0, 1.0, 1.0, 1.0, 2.0],
    )
    .likely("the repetition penalty counts prompt and generated tokens")?;
    let presence = SamplingParams { presence_penalty: 0.5, ..none() };
    becomes(
        &format!("presence penalty 0.5: {text}"),
        &logits,
        on(presence),
        &[2.0, 2.0, 1.5, 1.5, 2.0],
    )
    .likely(
        "the presence penalty counts generated tokens only: input.tokens[input.prompt_len..]",
    )?;
    let frequency = SamplingParams { frequency_penalty: 0.5, ..none() };
    becomes(
        &format!("frequency penalty 0.5: {text}"),
        &logits,
        on(frequency),
        &[2.0, 2.0, 1.0, 1.5, 2.0],
    )
    .likely("the frequency penalty counts generated tokens only: input.tokens[input.prompt_len..]")
}

fn ngrams_in_the_prompt_also_count(day: &Day) -> Outcome {
    let params = SamplingParams { no_repeat_ngram: Some(2), ..SamplingParams::default() };
    // 1 2 occurs in the prompt, 1 4 in the generated tokens.
    forbids(
        "prompt 1, 2, 3, generated 1, 4, 1, no repeated 2-gram",
        5,
        |l| penalized(day, &params, &[1, 2, 3, 1, 4, 1], 3, l),
        &[2, 4],
    )
}

fn penalty_window_limits_penalties_but_not_no_repeat_ngram(day: &Day) -> Outcome {
    let (tokens, logits) = ([0, 1, 2, 3, 1], [2.0; 5]);
    let window = SamplingParams { penalty_window: Some(3), ..SamplingParams::default() };
    let text = "prompt 0, 1, generated 2, 3, 1, window 3";
    let repetition = SamplingParams { repetition_penalty: 2.0, ..window.clone() };
    becomes(
        &format!("repetition penalty 2: {text}"),
        &logits,
        |l| penalized(day, &repetition, &tokens, 2, l),
        &[2.0, 1.0, 1.0, 1.0, 2.0],
    )?;
    let both = SamplingParams {
        presence_penalty: 1.0,
        frequency_penalty: 0.25,
        penalty_window: Some(2),
        ..window.clone()
    };
    becomes(
        "presence penalty 1, frequency penalty 0.25: prompt 0, 1, generated 2, 3, 1, window 2",
        &logits,
        |l| penalized(day, &both, &tokens, 2, l),
        &[2.0, 0.75, 2.0, 0.75, 2.0],
    )?;
    // 1 2 occurs before the window, but a repeated n-gram counts no matter how far back it is.
    let ngram =
        SamplingParams { no_repeat_ngram: Some(2), penalty_window: Some(4), ..window.clone() };
    forbids(
        "prompt 0, generated 1, 2, 3, 1, 4, 1, window 4, no repeated 2-gram",
        5,
        |l| penalized(day, &ngram, &[0, 1, 2, 3, 1, 4, 1], 1, l),
        &[2, 4],
    )
}

fn repetition_comes_before_presence(day: &Day) -> Outcome {
    let params = SamplingParams {
        repetition_penalty: 2.0,
        presence_penalty: 1.0,
        ..SamplingParams::default()
    };
    // 4 / 2 - 1 is 1, but (4 - 1) / 2 is 1.5.
    becomes(
        "repetition penalty 2, presence penalty 1: prompt 0, generated 1, logits [4, 4, 4]",
        &[4.0, 4.0, 4.0],
        |l| penalized(day, &params, &[0, 1], 1, l),
        &[2.0, 1.0, 4.0],
    )
}

fn all_three_equal_vllm(day: &Day) -> Outcome {
    let goldens = golden_json("day09")?;
    let prompt_len = goldens["prompt_len"].as_u64().unwrap_or_default() as usize;
    for (i, case) in goldens["vllm"].as_array().into_iter().flatten().enumerate() {
        let get = |name, neutral| number(case, name).map_or(neutral, |x| x as f32);
        let params = SamplingParams {
            repetition_penalty: get("repetition", 1.0),
            presence_penalty: get("presence", 0.0),
            frequency_penalty: get("frequency", 0.0),
            ..SamplingParams::default()
        };
        for (row, (logits, ids, want)) in rows(&format!("vllm.{i}"))?.iter().enumerate() {
            let input = format!("{}, row {row} of the random logits", describe(&params));
            let change = |l: &mut [f32]| penalized(day, &params, ids, prompt_len, l);
            becomes(&input, logits, change, want)?;
        }
    }
    Ok(())
}

fn the_pipeline_is_that_of_transformers(day: &Day) -> Outcome {
    let goldens = golden_json("day09")?;
    let get = |name| number(&goldens["pipeline"], name);
    let params = SamplingParams {
        temperature: get("temperature").unwrap_or(1.0),
        top_k: get("top_k").map(|k| k as usize),
        top_p: get("top_p").unwrap_or(1.0),
        min_p: get("min_p").unwrap_or(0.0),
        ..hf_penalties(&goldens["pipeline"])
    };
    let mut all = (day.penalties)(&params)?;
    all.extend(warpers(&params)?);

    let short = |class: &str| match class {
        "RepetitionPenaltyLogitsProcessor" => "repetition_penalty",
        "NoRepeatNGramLogitsProcessor" => "no_repeat_ngram",
        "TemperatureLogitsWarper" => "temperature",
        "TopKLogitsWarper" => "top_k",
        "TopPLogitsWarper" => "top_p",
        "MinPLogitsWarper" => "min_p",
        _ => "unknown",
    };
    let order = goldens["order"].as_array().into_iter().flatten();
    let want: Vec<&str> = order.filter_map(Value::as_str).map(short).collect();
    let got = names(&all);
    let same = got.len() == want.len() && got.iter().zip(&want).all(|(g, w)| g.starts_with(w));
    ensure(
        "the order of the whole pipeline",
        same,
        &format!("got {got:?}, want names that start with {want:?}"),
    )?;

    for (row, (logits, ids, want)) in rows("pipelined")?.iter().enumerate() {
        let input = format!("all of HF's processors, row {row} of the random logits");
        let at = ProcessorInput { tokens: ids, prompt_len: 16, remaining: 1, eos: &[] };
        becomes(&input, logits, |l| process_all(&all, &at, l), want)?;
    }
    Ok(())
}

fn a_bad_parameter_is_rejected_at_once(day: &Day) -> Outcome {
    let none = SamplingParams::default;
    for (params, says) in [
        (SamplingParams { repetition_penalty: 0.0, ..none() }, "repetition"),
        (SamplingParams { presence_penalty: 3.0, ..none() }, "presence"),
        (SamplingParams { frequency_penalty: f32::NAN, ..none() }, "frequency"),
        (SamplingParams { no_repeat_ngram: Some(0), ..none() }, "n-gram"),
    ] {
        let got = (day.penalties)(&params).map(|all| all.len());
        let accepted = got.is_ok();
        let outcome = refused(&format!("penalties with {}", describe(&params)), got, &[says]);
        if accepted {
            return outcome
                .likely("`penalties` itself must reject a bad parameter, before the model runs");
        }
        outcome?;
    }
    Ok(())
}

fn ids(value: &Value) -> Result<Vec<u32>> {
    serde_json::from_value(value.clone()).map_err(|e| Error::Msg(e.to_string()))
}

fn greedy_tokens_equal_transformers(day: &Day) -> Outcome {
    let goldens = golden_json("day09")?;
    let model = Recall::new("story-3m", 1000)?;
    let tokenizer = frame::tokenizer()?;
    for run in goldens["greedy"].as_array().into_iter().flatten() {
        let (prompt, want) = (ids(&run["prompt"])?, ids(&run["new_ids"])?);
        model.prime(&[&[&prompt[..], &want].concat()])?;
        let mut request = Request::new(model.config(), &prompt, want.len(), argmax);
        request.processors = (day.penalties)(&hf_penalties(&run["setting"]))?;
        let mut got = Vec::new();
        for token in generate(&model, &tokenizer, request)? {
            got.push(token?.id);
            if got.last() != want.get(got.len() - 1) {
                break;
            }
        }
        let input = format!("greedy after {:?}, {}", tokenizer.decode(&prompt)?, run["setting"]);
        equal_tokens(&input, Ok(got), &want, &[])?;
    }
    Ok(())
}

// 9.6

fn a_longer_repetition_costs_more(day: &Day) -> Outcome {
    // Multiplier 0.5, base 2, allowed length 2.
    let cases: [(&[u32], [f32; 5]); 7] = [
        (&[1, 2, 3, 1, 2], [0.0, 0.0, 0.0, -0.5, 0.0]), // 1 2 was followed by 3
        (&[4, 1, 2, 3, 4, 1, 2], [0.0, 0.0, 0.0, -1.0, 0.0]), // and so was 4 1 2
        (&[2, 3, 4, 2], [0.0; 5]),                      // 2 alone is allowed
        // 1 2 was followed by 3, and 0 1 2 by 4.
        (&[1, 2, 3, 0, 1, 2, 4, 0, 1, 2], [0.0, 0.0, 0.0, -0.5, -1.0]),
        // 0 1 2 was followed by 3 first, and 1 2 later: the longest match counts.
        (&[0, 1, 2, 3, 4, 1, 2, 3, 0, 1, 2], [0.0, 0.0, 0.0, -1.0, 0.0]),
        (&[1, 1, 1, 1], [0.0, -1.0, 0.0, 0.0, 0.0]), // 1 1 1 was followed by 1
        (&[], [0.0; 5]),
    ];
    for (tokens, want) in cases {
        let change = |l: &mut [f32]| {
            (day.dry)(l, tokens, 0.5, 2.0, 2);
            Ok(())
        };
        becomes(
            &format!("DRY multiplier 0.5, base 2, allowed length 2, after {tokens:?}"),
            &[0.0; 5],
            change,
            &want,
        )?;
    }
    let change = |l: &mut [f32]| {
        (day.dry)(l, &[1, 7, 1, 0, 1], 1.0, 2.0, 1);
        Ok(())
    };
    let input = "DRY multiplier 1, base 2, allowed length 1, after [1, 7, 1, 0, 1], 2 logits";
    becomes(input, &[3.0, 3.0], change, &[2.0, 3.0])
}

fn dry_leaves_the_first_token_alone(day: &Day) -> Outcome {
    for (tokens, want) in [(vec![2], [1.0, 1.0, 1.0]), (vec![2, 0], [0.75, 1.0, 1.0])] {
        let input = format!("DRY multiplier 0.25, base 1.5, allowed length 0, after {tokens:?}");
        let change = |l: &mut [f32]| {
            (day.dry)(l, &tokens, 0.25, 1.5, 0);
            Ok(())
        };
        becomes(&input, &[1.0; 3], change, &want)
            .likely("nothing stands before the first token, so it continues nothing")?;
    }
    Ok(())
}

/// Compares with the definition, applied literally: for every token and every length, whether the
/// end of the text occurred before, followed by this token.
fn dry_equals_the_definition(day: &Day) -> Outcome {
    let mut random = Random::new(19);
    for _ in 0..40 {
        let tokens: Vec<u32> = (0..random.below(16)).map(|_| random.below(3) as u32).collect();
        let allowed = 1 + random.below(3);
        let mut want = [1.0f32; 3];
        for (id, logit) in want.iter_mut().enumerate() {
            let follows = |length: &usize| {
                let end: &[u32] = &tokens[tokens.len() - length..];
                let found = [end, &[id as u32]].concat();
                tokens.windows(length + 1).any(|run| run == found)
            };
            if let Some(length) = (allowed..=tokens.len()).rev().find(follows) {
                *logit -= 0.25 * 1.5f32.powi((length - allowed) as i32);
            }
        }
        let input =
            format!("DRY multiplier 0.25, base 1.5, allowed length {allowed}, after {tokens:?}");
        let change = |l: &mut [f32]| {
            (day.dry)(l, &tokens, 0.25, 1.5, allowed);
            Ok(())
        };
        becomes(&input, &[1.0; 3], change, &want)?;
    }
    Ok(())
}
