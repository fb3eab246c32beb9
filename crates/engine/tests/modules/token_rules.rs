//! Tests of logit bias, allowed ids, bad words, and minimum lengths.

use crate::common::{model, tokenizer};
use candecode::day07_greedy::{argmax, generate};
use candecode::day10_kv_cache::{generate_cached, Cached};
use candecode::day12_batching::generate_batch;
use candecode::kit::processor::process_all;
use candecode::kit::{
    named, FinishReason, NoCache, ProcessorInput, Request, SamplingParams, Token,
};
use candecode_engine::operations::plain;
use candecode_engine::requests;
use candecode_engine::token_rules;
use candecode_testing::refused;
use candle_core::Result;

const NONE: f32 = f32::NEG_INFINITY;

/// Applies the processors for `params` to four logits, after a one-token prompt and these tokens.
fn processed(params: &SamplingParams, generated: &[u32], logits: [f32; 4]) -> Result<[f32; 4]> {
    let mut config = model("story-230k")?.config().clone();
    config.vocab_size = 4;
    let processors = requests::processors(params, &tokenizer()?, &config)
        .map_err(|error| candle_core::Error::Msg(error.to_string()))?;
    let tokens = [&[3], generated].concat();
    let request =
        requests::request(&config, &[3], params, &processors, Box::new(|_| Ok(0)), &plain());
    let input = ProcessorInput {
        tokens: &tokens,
        prompt_len: 1,
        remaining: 9,
        eos: &request.eos_token_ids,
    };
    let mut logits = logits;
    process_all(&processors, &input, &mut logits)?;
    Ok(logits)
}

#[test]
fn a_bias_is_added_before_the_penalties() {
    let params = SamplingParams {
        logit_bias: vec![(1, -3.0), (2, NONE)],
        repetition_penalty: 2.0,
        ..SamplingParams::default()
    };
    // Token 1 was generated: 1 - 3 is negative, so the penalty doubles it. Dividing first would
    // result in -2.5.
    let got = processed(&params, &[1], [0.0, 1.0, 5.0, 4.0]).unwrap();
    assert_eq!(got, [0.0, -4.0, NONE, 2.0]);
}

#[test]
fn allowed_token_ids_mask_every_other_token() {
    let params =
        SamplingParams { allowed_token_ids: Some(vec![2, 1]), ..SamplingParams::default() };
    let got = processed(&params, &[], [9.0, 1.0, 2.0, 3.0]).unwrap();
    assert_eq!(got, [NONE, 1.0, 2.0, NONE]);
}

#[test]
fn min_new_tokens_blocks_eos_and_stop_tokens() {
    let params =
        SamplingParams { min_new_tokens: 2, stop_token_ids: vec![3], ..SamplingParams::default() };
    let logits = [0.0, 1.0, 2.0, 3.0];
    assert_eq!(processed(&params, &[], logits).unwrap(), [NONE, 1.0, 2.0, NONE]);
    assert_eq!(processed(&params, &[1], logits).unwrap(), [NONE, 1.0, 2.0, NONE]);
    assert_eq!(processed(&params, &[1, 2], logits).unwrap(), logits);
    // No other token is left, as after a complete pattern, so the text may end.
    assert_eq!(processed(&params, &[], [0.0, NONE, NONE, NONE]).unwrap()[0], 0.0);
}

#[test]
fn ignored_eos_still_ends_a_complete_pattern() {
    let config = model("story-230k").unwrap().config().clone();
    let ends = |params: &SamplingParams| {
        requests::request(&config, &[5], params, &[], Box::new(|_| Ok(0)), &plain()).eos_token_ids
    };
    let params =
        SamplingParams { ignore_eos: true, stop_token_ids: vec![7], ..SamplingParams::default() };
    assert_eq!(ends(&params), [7]);
    let pattern = SamplingParams { allow_regex: Some("a*".into()), ..params };
    assert_eq!(ends(&pattern), [0, 7]);
    let names: Vec<String> =
        token_rules::end_rules(&pattern).iter().map(|rule| rule.name()).collect();
    assert_eq!(names, ["min_tokens"]);
}

/// vLLM and xgrammar also end the text at this point.
#[test]
fn a_complete_pattern_ends_the_text_of_a_model_without_eos() {
    let (tokenizer, model) = (tokenizer().unwrap(), model("story-3m").unwrap());
    let mut config = model.config().clone();
    config.eos_token_ids.clear();
    let prompt = tokenizer.encode("Once upon a time").unwrap();
    for (pattern, texts, reason) in [
        ("[bc]{2}", &["bb", "bc", "cb", "cc"][..], FinishReason::Eos),
        (" Tom| Sue", &[" Tom", " Sue"], FinishReason::Eos),
        ("", &[""], FinishReason::Eos),
        // The pattern could end at every comma, but a model without an EOS token goes on.
        (",*", &[",,,,,,,,,"], FinishReason::Length),
    ] {
        let params = SamplingParams {
            allow_regex: Some(pattern.into()),
            max_new_tokens: 9,
            ..SamplingParams::default()
        };
        let processors = requests::processors(&params, &tokenizer, &config).unwrap();
        let request = || {
            requests::request(&config, &prompt, &params, &processors, Box::new(argmax), &plain())
        };
        let cached = Cached::new(&*model, Box::new(NoCache));
        let batch = vec![request(), Request { id: 1, ..request() }];
        for (rows, tokens) in [
            (1, generate(&*model, &tokenizer, request()).unwrap()),
            (1, generate_cached(cached, &tokenizer, request()).unwrap()),
            (2, generate_batch(&*model, &tokenizer, batch, Box::new(NoCache)).unwrap()),
        ] {
            let tokens: Vec<Token> = tokens.map(Result::unwrap).collect();
            for row in 0..rows {
                let own = || tokens.iter().filter(|token| token.row == row);
                let text: String = own().map(|token| token.text.as_str()).collect();
                assert!(texts.contains(&&*text), "{pattern}: {text:?}");
                assert_eq!(own().next_back().unwrap().finish, Some(reason), "{pattern}");
            }
        }
        // A model with an EOS id doesn't need this.
        let own = requests::processors(&params, &tokenizer, model.config()).unwrap();
        assert!(own.iter().all(|rule| rule.end_token().is_none()));
    }
}

/// Tokens in the prompt don't count as generated.
#[test]
fn an_error_counts_only_generated_tokens() {
    let forbid = named("nothing", |_: &ProcessorInput, logits: &mut [f32]| {
        logits.fill(NONE);
        Ok(())
    });
    for (generated, words) in [
        (&[][..], "nothing left no token to choose after 0 generated tokens;"),
        (&[7], "after 1 generated token;"),
        (&[7, 8], "after 2 generated tokens;"),
    ] {
        let tokens = [&[1, 2, 3], generated].concat();
        let input = ProcessorInput { tokens: &tokens, prompt_len: 3, remaining: 9, eos: &[] };
        let left = process_all(std::slice::from_ref(&forbid), &input, &mut [0.0; 4]);
        refused(left.map_err(Into::into), &[words]);
    }
}

/// The sequences work like transformers' `bad_words_ids`. A sequence of only EOS is
/// ignored.
#[test]
fn sequences_of_ids_are_blocked() {
    let params =
        SamplingParams { block_ids: vec![vec![1, 2], vec![3], vec![0]], ..Default::default() };
    let logits = [1.0; 4];
    assert_eq!(processed(&params, &[], logits).unwrap(), [1.0, 1.0, 1.0, NONE]);
    assert_eq!(processed(&params, &[1], logits).unwrap(), [1.0, 1.0, NONE, NONE]);
    let beyond = SamplingParams { block_ids: vec![vec![1], vec![2, 9]], ..Default::default() };
    let error = processed(&beyond, &[], logits).map_err(Into::into);
    refused(error, &["block_ids: token id 9 is not in the vocabulary of 4 tokens"]);
}

#[test]
fn a_bad_word_is_never_completed() {
    let tokenizer = tokenizer().unwrap();
    let word = "happy".to_string();
    let spellings = ["happy", " happy"].map(|text| tokenizer.encode_rendered(text).unwrap());
    let params = SamplingParams { bad_words: vec![word], ..SamplingParams::default() };
    let rules = token_rules::before_penalties(&params, &tokenizer).unwrap();
    let forbidden = |before: &[u32]| {
        let tokens = [&[5], before].concat();
        let input = ProcessorInput { tokens: &tokens, prompt_len: 1, remaining: 9, eos: &[0] };
        let mut logits = vec![0.0; tokenizer.vocab_size()];
        process_all(&rules, &input, &mut logits).unwrap();
        (0..).zip(logits).filter(|(_, x)| *x == NONE).map(|(id, _)| id).collect::<Vec<u32>>()
    };
    let mut longest = 0;
    for spelling in spellings {
        let (last, before) = spelling.split_last().unwrap();
        assert!(forbidden(before).contains(last), "{spelling:?}");
        if !before.is_empty() {
            // The last token is allowed without the tokens before it, and the prompt doesn't count.
            assert!(!forbidden(&[]).contains(last), "{spelling:?}");
        }
        longest = longest.max(spelling.len());
    }
    assert!(longest > 1, "no spelling of several tokens was tried");
}

#[test]
fn invalid_token_rules_are_refused() {
    let (tokenizer, model) = (tokenizer().unwrap(), model("story-230k").unwrap());
    let neutral = SamplingParams::default;
    for (params, words) in [
        (SamplingParams { logit_bias: vec![(2, f32::NAN)], ..neutral() }, "logit_bias of token 2"),
        (SamplingParams { allowed_token_ids: Some(vec![]), ..neutral() }, "allowed_token_ids"),
        (SamplingParams { bad_words: vec![" ".into()], ..neutral() }, "bad_words has an empty"),
        (SamplingParams { min_new_tokens: 129, ..neutral() }, "min_tokens 129 is more than"),
    ] {
        refused(requests::check(&params), &[words]);
    }
    for params in [
        SamplingParams { logit_bias: vec![(99_999, 1.0)], ..neutral() },
        SamplingParams { allowed_token_ids: Some(vec![1, 99_999]), ..neutral() },
        SamplingParams { stop_token_ids: vec![99_999], ..neutral() },
    ] {
        let made = requests::processors(&params, &tokenizer, model.config());
        refused(made.map(|_| ()), &["token id 99999 is not in the vocabulary"]);
    }
}
