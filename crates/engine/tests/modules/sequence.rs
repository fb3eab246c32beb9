//! Tests of the information a token carries besides its text: the step's top tokens, and the error
//! of a row that fails.

use crate::common::{model, tokenizer};
use candecode::day07_greedy::{argmax, generate, Sequence};
use candecode::day08_sampling::chacha_sampler;
use candecode::day10_kv_cache::{generate_cached, Cached};
use candecode::day12_batching::generate_batch;
use candecode::day12_batching::BatchCache;
use candecode::day15_scheduler::Scheduler;
use candecode::kit::{named, Batch, FinishReason, Model, NoCache, Request, Sampler, Token};
use std::cell::RefCell;
use std::rc::Rc;

/// The raw logits of each step, as the first processor sees them.
type Seen = Rc<RefCell<Vec<Vec<f32>>>>;

const PROMPT: &str = "Once upon a time";

/// Builds a request for row `id` with three top tokens, and returns it with a record of its raw
/// logits.
fn watched<'a>(model: &dyn Model, id: usize, prompt: &[u32]) -> (Request<'a>, Seen) {
    let sampler: Sampler = if id == 0 { Box::new(argmax) } else { chacha_sampler(5, id) };
    let mut request = Request::new(model.config(), prompt, 12, sampler);
    request.id = id;
    request.top_logprobs = Some(3);
    let seen = Seen::default();
    let notes = Rc::clone(&seen);
    request.processors.push(named("look", move |_, logits| {
        notes.borrow_mut().push(logits.to_vec());
        Ok(())
    }));
    request.processors.push(named("no line end", |_, logits| {
        logits.iter_mut().step_by(2).for_each(|logit| *logit = f32::NEG_INFINITY);
        Ok(())
    }));
    (request, seen)
}

/// Returns the three most likely tokens from raw logits, by sorting all of them.
fn sorted(raw: &[f32]) -> Vec<u32> {
    let mut all: Vec<u32> = (0..raw.len() as u32).collect();
    // A stable sort: ties keep their order.
    all.sort_by(|a, b| raw[*b as usize].total_cmp(&raw[*a as usize]));
    all.truncate(3);
    all
}

/// Checks that every token's `top` matches the raw logits, and that the chosen token has a single
/// logprob.
fn check(tokens: &[Token], seen: &Seen) {
    assert!(!tokens.is_empty() && tokens.len() == seen.borrow().len());
    let mut found = 0;
    for (token, raw) in tokens.iter().zip(&*seen.borrow()) {
        let ids: Vec<u32> = token.top.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, sorted(raw));
        let max = raw.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = raw.iter().map(|x| f64::from(x - max).exp()).sum();
        for (id, logprob) in &token.top {
            let want = f64::from(raw[*id as usize] - max) - sum.ln();
            assert!((f64::from(*logprob) - want).abs() < 1e-4, "{logprob} {want}");
        }
        let own = token.top.iter().find(|(id, _)| *id == token.id);
        found += usize::from(own.is_some_and(|(_, logprob)| *logprob == token.logprob));
        assert!(own.is_none_or(|(_, logprob)| *logprob == token.logprob));
    }
    assert!(found > 0, "no chosen token was among the most likely");
}

#[test]
fn every_loop_takes_top_logprobs_from_the_raw_logits() {
    let (tokenizer, model) = (tokenizer().unwrap(), model("story-230k").unwrap());
    let layers = model.config().num_hidden_layers;
    let cache = || -> Box<dyn Batch> { Box::new(BatchCache::new(layers, None)) };
    let ids = |text: &str| tokenizer.encode(text).unwrap();
    let collected =
        |tokens: candecode::kit::TokenIter| -> Vec<Token> { tokens.map(Result::unwrap).collect() };

    let (request, seen) = watched(&*model, 0, &ids(PROMPT));
    check(&collected(generate(&*model, &tokenizer, request).unwrap()), &seen);

    let (request, seen) = watched(&*model, 0, &ids(PROMPT));
    let cached = Cached::new(&*model, cache());
    check(&collected(generate_cached(cached, &tokenizer, request).unwrap()), &seen);

    let prompts = [PROMPT, "Lily", "Tom and Sue went"];
    let rows = || -> (Vec<Request<'_>>, Vec<Seen>) {
        prompts.iter().enumerate().map(|(id, text)| watched(&*model, id, &ids(text))).unzip()
    };
    let (requests, seen) = rows();
    let batched = collected(generate_batch(&*model, &tokenizer, requests, cache()).unwrap());

    let (requests, scheduler_seen) = rows();
    let new_cache = Box::new(move || -> Box<dyn Batch> { Box::new(BatchCache::new(layers, None)) });
    let mut scheduler = Scheduler::new(&*model, &tokenizer, new_cache, 1000);
    requests.into_iter().for_each(|request| scheduler.submit(request).unwrap());
    let mut scheduled = Vec::new();
    while !scheduler.is_idle() {
        scheduled.extend(scheduler.run_iteration().unwrap());
    }
    for (tokens, seen) in [(batched, seen), (scheduled, scheduler_seen)] {
        for (row, seen) in seen.iter().enumerate() {
            let own: Vec<Token> = tokens.iter().filter(|t| t.row == row).cloned().collect();
            check(&own, seen);
        }
    }
}

#[test]
fn top_logprobs_are_returned_only_on_request() {
    let (tokenizer, model) = (tokenizer().unwrap(), model("story-230k").unwrap());
    for (asked, want) in [(None, 0), (Some(0), 0), (Some(1), 1), (Some(1 << 40), 2048)] {
        let prompt = tokenizer.encode(PROMPT).unwrap();
        let mut request = Request::new(model.config(), &prompt, 2, argmax);
        request.top_logprobs = asked;
        for token in generate(&*model, &tokenizer, request).unwrap() {
            assert_eq!(token.unwrap().top.len(), want, "{asked:?}");
        }
    }
}

/// Any error in a step ends the sequence, reports the error, and releases the pending text.
#[test]
fn a_step_that_fails_ends_the_sequence() {
    let tokenizer = tokenizer().unwrap();
    let config = model("story-230k").unwrap().config().clone();
    let ids = tokenizer.encode("Once upon a").unwrap();
    let logits = |id: u32| -> Vec<f32> {
        (0..config.vocab_size as u32).map(|other| f32::from(u8::from(other == id))).collect()
    };
    let nan = vec![f32::NAN; config.vocab_size];
    for (what, says) in [
        ("a rule", "the rule left no token to choose after 3 generated tokens"),
        ("a processor", "the processor fails"),
        ("a sampler", "the sampler fails"),
        ("an id", "99999"),
        ("logits", "NaN"),
    ] {
        let mut request =
            Request::new(&config, &[5], 20, |logits: &[f32]| match (logits[0], what) {
                (2.0, "a sampler") => candle_core::bail!("the sampler fails"),
                (2.0, "an id") => Ok(99999),
                _ => argmax(logits),
            });
        request.id = 4;
        request.top_logprobs = Some(1);
        request.stop_strings = vec![" a timeless".to_string()];
        request.processors.push(named("the rule", |_, logits| {
            match (logits[0], what) {
                (2.0, "a rule") => logits.fill(f32::NEG_INFINITY),
                (2.0, "a processor") => candle_core::bail!("the processor fails"),
                _ => {}
            }
            Ok(())
        }));
        let mut sequence = Sequence::new(request, &tokenizer);
        let shown: String = ids.iter().map(|id| sequence.advance(&logits(*id)).text).collect();
        assert_eq!(shown, "Once upon");
        let mut bad = logits(0);
        bad[0] = 2.0;
        let token = sequence.advance(if what == "logits" { &nan } else { &bad });
        let error = token.error.clone().unwrap();
        assert!(error.contains(says), "{what}: {error}");
        let want = Token {
            row: 4,
            text: " a".to_string(), // it could have become a stop string
            finish: Some(FinishReason::Failed),
            error: Some(error),
            ..Token::default()
        };
        assert_eq!(token, want, "{what}");
        assert_eq!(sequence.finish, Some(FinishReason::Failed), "{what}");
        assert_eq!(sequence.tokens.len(), 4, "{what}");
    }
}

/// The loop ends once every row has failed.
#[test]
fn a_batch_ends_once_every_row_has_failed() {
    let (tokenizer, model) = (tokenizer().unwrap(), model("story-230k").unwrap());
    let request = |most: usize| {
        let mut request = Request::new(model.config(), &[7, 8], most, argmax);
        request.processors.push(named("nothing", |_, logits| {
            logits.fill(f32::NEG_INFINITY);
            Ok(())
        }));
        request
    };
    let batch = vec![request(3), request(5)];
    let tokens = generate_batch(&*model, &tokenizer, batch, Box::new(NoCache)).unwrap();
    let rows: Vec<_> = tokens.map(|token| token.map(|t| (t.row, t.finish)).unwrap()).collect();
    assert_eq!(rows, [(0, Some(FinishReason::Failed)), (1, Some(FinishReason::Failed))]);
}
