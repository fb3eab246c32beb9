//! Tests the library's entry point: `cargo test -p candecode-engine --features ref`.

#![cfg(feature = "ref")]

use candecode::day05_model::Norm;
use candecode::day07_greedy::StopStrings;
use candecode::kit::{FinishReason, SamplingParams, Token, TokenIter};
use candecode_engine::score::{score, TraceLoop};
use candecode_engine::watched::{first_nan, NanTrace};
use candecode_engine::CacheConfig;
use candecode_engine::{load, operations, Completion, Engine};
use candecode_formats::ModelFiles;
use candle_core::{DType, Device};
use std::time::Instant;

const PROMPTS: [&str; 3] = ["Once upon a time", "Lily", "Tom and Sue went to the park. They"];

fn engine() -> Engine {
    Engine::open("story-230k").unwrap()
}

fn greedy(max_new_tokens: usize) -> SamplingParams {
    SamplingParams { max_new_tokens, ..Default::default() }
}

fn ids(tokens: TokenIter) -> Vec<u32> {
    tokens.map(|token| token.unwrap().id).collect()
}

fn texts(tokens: &[Token]) -> String {
    tokens.iter().map(|token| token.text.as_str()).collect()
}

#[test]
fn interleaved_generations_of_one_engine_equal_solo_runs() {
    let engine = engine();
    let params = [greedy(20), SamplingParams { temperature: 0.9, seed: 7, ..greedy(20) }];
    let alone: Vec<Vec<u32>> =
        (0..2).map(|i| ids(engine.generate(PROMPTS[i], &params[i]).unwrap())).collect();
    let mut first = engine.generate(PROMPTS[0], &params[0]).unwrap();
    let mut second = engine.generate(PROMPTS[1], &params[1]).unwrap();
    let mut side_by_side = [Vec::new(), Vec::new()];
    for _ in 0..20 {
        side_by_side[0].extend(first.next().map(|token| token.unwrap().id));
        side_by_side[1].extend(second.next().map(|token| token.unwrap().id));
    }
    assert_eq!(side_by_side.to_vec(), alone);
}

#[test]
fn batched_equals_alone_with_per_prompt_parameters() {
    let engine = engine();
    let params = [
        greedy(12),
        SamplingParams { temperature: 0.8, top_k: Some(20), seed: 3, ..greedy(30) },
        SamplingParams { repetition_penalty: 1.3, stop: vec![".".into()], ..greedy(40) },
    ];
    let together = engine.generate_batch(&PROMPTS, &params).unwrap();
    for (i, completion) in together.iter().enumerate() {
        // Row 1 samples. Its random stream depends on its index in the batch, so it differs alone.
        if i == 1 {
            continue;
        }
        let alone: Vec<Token> =
            engine.generate(PROMPTS[i], &params[i]).unwrap().map(Result::unwrap).collect();
        let ids: Vec<u32> = alone.iter().map(|token| token.id).collect();
        assert_eq!(completion.new_ids, ids, "prompt {i}");
        assert_eq!(completion.text, texts(&alone), "prompt {i}");
    }
    assert_eq!(together[0].finish, Some(FinishReason::Length));
    assert_eq!(together[2].finish, Some(FinishReason::Stop));
    assert_eq!(together, engine.generate_batch(&PROMPTS, &params).unwrap());
}

#[test]
fn a_failed_completion_leaves_the_others_unchanged() {
    let engine = engine();
    // Only "was" is allowed after " there", and it is blocked.
    let failing = SamplingParams {
        allow_regex: Some(" there was".into()),
        block: vec!["was".into()],
        ..greedy(12)
    };
    let params = [greedy(12), failing, greedy(20)];
    let together = engine.generate_batch(&PROMPTS, &params).unwrap();
    let failed = &together[1];
    assert_eq!(failed.finish, Some(FinishReason::Failed));
    let error = failed.error.as_deref().unwrap();
    let generated = failed.new_ids.len();
    let says = format!("left no token to choose after {generated} generated tokens");
    assert!(error.contains(&says), "{error}");
    assert!(failed.text.starts_with(" there") && generated > 1, "{failed:?}");
    assert_eq!(failed.logprobs.len(), generated);
    let others = [PROMPTS[0], PROMPTS[2]];
    let without = engine.generate_batch(&others, &[greedy(12), greedy(20)]).unwrap();
    assert_eq!([&together[0], &together[2]], [&without[0], &without[1]]);
    assert!(without.iter().all(|completion| completion.error.is_none()));
    // When it runs alone, the failure is returned as an error.
    let alone: Vec<_> = engine.generate(PROMPTS[1], &params[1]).unwrap().collect();
    assert_eq!(alone.len(), generated + 1);
    assert!(alone[..generated].iter().all(Result::is_ok) && alone[generated].is_err());
}

#[test]
fn every_kind_of_cache_gives_the_same_tokens() {
    let mut engine = engine();
    let want = ids(engine.generate(PROMPTS[2], &greedy(24)).unwrap());
    for cache in [None, Some(CacheConfig::Static(512)), Some(CacheConfig::Sliding(512))] {
        engine.cache = cache;
        let got = ids(engine.generate(PROMPTS[2], &greedy(24)).unwrap());
        assert_eq!(got, want, "{cache:?}");
    }
}

#[test]
fn an_engine_built_from_parts_gives_the_same_tokens() {
    let files = ModelFiles::open("story-230k").unwrap();
    let weights = files.weights(DType::F32, &Device::Cpu).unwrap();
    let config = files.config().clone();
    let parts = Engine::from_parts(config, files.tokenizer().unwrap(), &weights).unwrap();
    let want = ids(engine().generate(PROMPTS[0], &greedy(16)).unwrap());
    assert_eq!(ids(parts.generate(PROMPTS[0], &greedy(16)).unwrap()), want);
}

#[test]
fn generation_stops_at_the_context_limit() {
    let engine = engine();
    let context = engine.model().config.max_position_embeddings;
    let prompt = "Once upon a time there was a red ball. ".repeat(44);
    let prompt_len = engine.tokenizer().encode(&prompt).unwrap().len();
    assert!(prompt_len < context, "{prompt_len}");
    let eos_off = SamplingParams { max_new_tokens: 10_000, ..Default::default() };
    let tokens: Vec<Token> =
        engine.generate(&prompt, &eos_off).unwrap().map(Result::unwrap).collect();
    let last = tokens.last().unwrap();
    if last.finish == Some(FinishReason::Length) {
        // The last token needs no position, because it is never fed.
        assert_eq!(tokens.len(), context + 1 - prompt_len);
    } else {
        assert_eq!(last.finish, Some(FinishReason::Eos));
    }
}

#[test]
fn bad_requests_are_refused() {
    let engine = engine();
    let refused =
        |prompt: &str, params: &SamplingParams, says: &str| match engine.generate(prompt, params) {
            Ok(_) => panic!("{prompt:?} with {params:?} was taken"),
            Err(error) => assert!(format!("{error:#}").contains(says), "{error:#}"),
        };
    refused("", &greedy(5), "the prompt is empty");
    refused(&"a ".repeat(2000), &greedy(5), "tokens long, the context 512");
    refused("Once", &SamplingParams { temperature: -1.0, ..greedy(5) }, "temperature");
    refused("Once", &SamplingParams { temperature: 1e-46, ..greedy(5) }, "temperature");
    refused("Once", &SamplingParams { temperature: 1.0, top_p: 0.0, ..greedy(5) }, "top_p");
    refused("Once", &SamplingParams { repetition_penalty: 0.0, ..greedy(5) }, "repetition_penalty");
    refused("Once", &SamplingParams { block: vec![" ".into()], ..greedy(5) }, "empty");
    refused("Once", &SamplingParams { allow_regex: Some("(".into()), ..greedy(5) }, "unclosed");
    let error = engine.generate_batch(&PROMPTS, &[greedy(1), greedy(1)]).unwrap_err();
    assert!(error.to_string().contains("3 prompts need as many parameters"), "{error}");
    assert!(engine.generate_batch(&[], &[greedy(1)]).is_err());
    assert!(Engine::open("no/such/model/here").is_err());
    let nothing = engine.generate_batch(&PROMPTS[..1], &[greedy(0)]).unwrap();
    assert_eq!(nothing, [Completion::default()]);
}

#[test]
fn a_watched_distinguishes_no_nan_from_not_repeatable() {
    let files = ModelFiles::open("story-230k").unwrap();
    let mut model =
        load::load_files(&files, DType::F32, &Device::Cpu, &operations::plain()).unwrap();
    let context = model.config.max_position_embeddings;
    assert_eq!(first_nan(&model, &[1, 2, 3]), NanTrace::NoNan);
    let too_long = vec![1; context + 1];
    assert_eq!(first_nan(&model, &too_long), NanTrace::NotRepeatable);
    if let Norm::Rms { weight, .. } = &mut model.norm {
        *weight = (&*weight * f64::NAN).unwrap();
    }
    let NanTrace::FirstIn(stage) = first_nan(&model, &[1, 2, 3]) else { panic!("no stage") };
    let of_the_norm =
        "every layer's output is free of NaN, but that of the last norm or the head isn't";
    assert_eq!(stage, of_the_norm);
}

/// Many stop strings, or a long one that the text starts to match, cost about as much as one short
/// string.
#[test]
fn many_or_long_stop_strings_do_not_slow_matching() {
    let pieces: Vec<String> = (0..4000).map(|i| format!(" {i}")).collect();
    let cost = |stops: &[String]| {
        let mut watch = StopStrings::new(stops);
        let began = Instant::now();
        for piece in &pieces {
            assert!(!watch.push(piece).1);
        }
        began.elapsed()
    };
    let one = (0..5).map(|_| cost(&["END".into()])).min().unwrap();
    let many: Vec<String> = (0..100_000).map(|i| format!(" {i} and {i}")).collect();
    let long = vec![pieces.concat() + "END"];
    for (what, stops) in [("100,000", &many), ("one of 19 KB", &long)] {
        // Searching for each of them, or through all of the pending text, would cost a thousand
        // times as much. On a busy machine, some tries take long.
        let is_cheap = (0..20).any(|_| cost(stops) < one * 100);
        assert!(is_cheap, "{what}: more than a hundred times {one:?}, for one of three letters");
    }
}

#[test]
fn a_nan_error_reports_the_result_of_its_trace() {
    let numbers = NanTrace::NoNan.to_string();
    assert!(numbers.contains("without a cache, this text gives no NaN"), "{numbers}");
    let unknown = NanTrace::NotRepeatable.to_string();
    assert!(!unknown.contains("gives no NaN"), "{unknown}");
    assert!(unknown.contains("could not be computed again"), "{unknown}");
    assert_eq!(NanTrace::FirstIn("layer 2's MLP".into()).to_string(), "layer 2's MLP");
}

#[test]
fn a_sliding_cache_refuses_a_batch() {
    let mut engine = engine();
    engine.cache = Some(CacheConfig::Sliding(64));
    assert_eq!(ids(engine.generate(PROMPTS[0], &greedy(2)).unwrap()).len(), 2);
    let refused = engine.generate_batch(&PROMPTS, &[greedy(2)]).unwrap_err().to_string();
    assert!(refused.contains("a sliding cache is for one text"), "{refused}");
    engine.cache = Some(CacheConfig::Static(64));
    let fixed = engine.generate_batch(&PROMPTS, &[greedy(8)]).unwrap();
    engine.cache = Some(CacheConfig::Dynamic);
    assert_eq!(engine.generate_batch(&PROMPTS, &[greedy(8)]).unwrap(), fixed);
    engine.cache = Some(CacheConfig::Paged { block_size: 4, num_blocks: 200 });
    assert_eq!(engine.generate_batch(&PROMPTS, &[greedy(8)]).unwrap(), fixed);
}

#[test]
fn every_scored_loop_matches_transformers_at_the_expected_cost() {
    let oracle = std::fs::read_to_string("../../tests/day15_scheduler/oracle.json").unwrap();
    let oracle: serde_json::Value = serde_json::from_str(&oracle).unwrap();
    let cost = |day| {
        let cost = score(TraceLoop::parse(day).unwrap()).unwrap();
        assert_eq!(cost["texts"], oracle["trace"]["texts"], "day {day}");
        ["passes", "positions", "wasted"].map(|count| cost[count].as_u64().unwrap())
    };
    // 524 new tokens after 156 of prompts; the last token of each of the 24 texts isn't computed.
    assert_eq!(cost("10"), [524, 156 + 524 - 24, 0]);
    assert_eq!(cost("12"), [181, 656 + 60, 60]); // three batches, with padding in their prefills
    assert_eq!(cost("15"), [107, 656, 0]); // 24 prefills, and 83 passes over a full batch
    assert_eq!(cost("21"), [87, 656, 0]); // prompts and new tokens in the same passes
    assert_eq!(cost("23"), [87, 656, 0]);
}
