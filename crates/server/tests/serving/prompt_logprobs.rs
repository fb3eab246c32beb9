//! Tests of the log-probabilities of prompts, and of what an answer says about cached tokens.

use crate::running_server::{body, with, Server, CHAT, COMPLETIONS, MODEL};
use candecode::day07_greedy::token_logprobs;
use candecode_engine::Engine;
use serde_json::{json, Value};

fn tokens(seed: u32, len: u32) -> Vec<u32> {
    (0..len).map(|i| 3 + (seed * 7919 + i * i * 31 + i) % 500).collect()
}

/// Checks a choice's `logprobs` against day 7's scores of the prompt alone.
fn check(engine: &Engine, prompt: &[u32], choice: &Value) {
    let want = token_logprobs(engine.model(), &prompt[..1], &prompt[1..]).unwrap();
    let list = |name: &str| choice["logprobs"][name].as_array().unwrap().clone();
    let (got, top) = (list("token_logprobs"), list("top_logprobs"));
    assert_eq!((&got[0], &top[0]), (&Value::Null, &Value::Null));
    assert!(got.len() >= prompt.len());
    for (i, want) in want.iter().enumerate() {
        let logprob = got[i + 1].as_f64().unwrap();
        assert!((logprob - f64::from(*want)).abs() < 2e-4, "token {i}: {logprob}, not {want}");
        let best = top[i + 1].as_object().unwrap().values().map(|p| p.as_f64().unwrap());
        assert!(best.fold(f64::NEG_INFINITY, f64::max) >= logprob);
    }
}

#[test]
fn scores_of_prompts_are_the_models_under_every_scheduler() {
    let engine = Engine::open(MODEL).unwrap();
    // The third is the first again, and the fourth begins with it.
    let mut prompts: Vec<Vec<u32>> = vec![tokens(1, 70), tokens(2, 3), tokens(1, 70)];
    prompts.push([tokens(1, 70), tokens(3, 20)].concat());
    prompts.push(vec![7]);
    for flags in [
        &[][..],
        &["--max-num-batched-tokens", "7"],
        &["--block-size", "2", "--no-enable-prefix-caching"],
        // Too few blocks for all, so some are preempted.
        &["--max-batch-tokens", "144", "--block-size", "4", "--max-num-batched-tokens", "40"],
        &["--scheduler", "day15"],
    ] {
        let server = Server::start(flags);
        let plain = server.text("Lily and her dog", &json!({}));
        for _ in 0..2 {
            for max_tokens in [0, 1, 30] {
                let ask = json!({
                    "prompt": prompts, "echo": true, "logprobs": 2, "max_tokens": max_tokens,
                    "temperature": 0, "ignore_eos": true,
                });
                let answer = server.answer(COMPLETIONS, &ask);
                let choices = answer["choices"].as_array().unwrap();
                for (prompt, choice) in prompts.iter().zip(choices) {
                    check(&engine, prompt, choice);
                    let spelled = choice["logprobs"]["tokens"].as_array().unwrap();
                    assert_eq!(spelled.len(), prompt.len() + max_tokens, "{flags:?}");
                    assert_eq!(choice["finish_reason"], "length");
                    if max_tokens == 0 {
                        assert_eq!(choice["text"], engine.tokenizer().decode(prompt).unwrap());
                    }
                }
                let usage = &answer["usage"];
                assert_eq!(usage["completion_tokens"], max_tokens * prompts.len());
                assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 0);
            }
        }
        assert_eq!(server.text("Lily and her dog", &json!({})), plain);
    }
}

#[test]
fn a_streamed_echo_has_the_scores_of_the_whole() {
    let server = Server::start(&[]);
    // The stop string holds text back.
    let stop = ", there was a zebra";
    let more = json!({"echo": true, "logprobs": 1, "max_tokens": 5, "stop": stop});
    let whole = server.answer(COMPLETIONS, &body("Once upon a time", &more));
    let streamed = body("Once upon a time", &with(more, &json!({"stream": true})));
    let events = server.events(COMPLETIONS, &streamed);
    for name in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        let lists = events.iter().filter_map(|e| e["choices"][0]["logprobs"][name].as_array());
        let all: Vec<Value> = lists.flatten().cloned().collect();
        assert_eq!(json!(all), whole["choices"][0]["logprobs"][name], "{name}");
    }
    // As vLLM's `test_echo_logprob_completion` expects.
    for (most, prompt) in [0, 1].into_iter().zip([json!("Once upon a time"), json!(tokens(6, 9))]) {
        let ask = json!({"prompt": prompt, "echo": true, "logprobs": most, "max_tokens": 5});
        let top = &server.answer(COMPLETIONS, &ask)["choices"][0]["logprobs"]["top_logprobs"];
        let top = top.as_array().unwrap();
        let sizes = top[1..].iter().map(|at| at.as_object().unwrap().len());
        assert!(top.len() > 5 && top[0].is_null());
        assert!(sizes.into_iter().all(|n| (most.max(1)..=most + 1).contains(&n)), "{top:?}");
    }
}

#[test]
fn prompt_logprobs_have_vllms_form() {
    let server = Server::start(&[]);
    let engine = Engine::open(MODEL).unwrap();
    let prompt = tokens(4, 12);
    let ask = json!({"prompt": prompt, "prompt_logprobs": 3, "max_tokens": 1, "n": 2});
    let answer = server.answer(COMPLETIONS, &ask);
    let want = token_logprobs(engine.model(), &prompt[..1], &prompt[1..]).unwrap();
    for choice in answer["choices"].as_array().unwrap() {
        assert!(choice["logprobs"].is_null());
        let all = choice["prompt_logprobs"].as_array().unwrap();
        assert_eq!((all.len(), &all[0]), (12, &Value::Null));
        for ((at, id), want) in all[1..].iter().zip(&prompt[1..]).zip(&want) {
            let at = at.as_object().unwrap();
            let own = &at[&id.to_string()];
            let logprob = own["logprob"].as_f64().unwrap();
            assert!((logprob - f64::from(*want)).abs() < 2e-4, "{own}");
            let rank = own["rank"].as_u64().unwrap();
            assert!(at.len() == if rank <= 3 { 3 } else { 4 }, "{at:?}");
            let better = at.values().filter(|other| other["logprob"].as_f64() > Some(logprob));
            assert_eq!(better.count() as u64, (rank - 1).min(3));
            assert!(own["decoded_token"].is_string());
        }
    }
    // A chat has one prompt, and the scores are the answer's.
    let messages = json!([{"role": "user", "content": "One day, a cat"}]);
    let ask = json!({"messages": messages, "prompt_logprobs": 0, "max_tokens": 1});
    let answer = server.answer(CHAT, &ask);
    let all = answer["prompt_logprobs"].as_array().unwrap();
    assert_eq!(all.len() as u64, answer["usage"]["prompt_tokens"].as_u64().unwrap());
    assert!(all[1..].iter().all(|at| at.as_object().unwrap().len() == 1));
}

#[test]
fn too_many_logprobs_of_prompts_are_refused() {
    let server = Server::start(&[]);
    let ask = json!({"prompt": vec![vec![5; 500]; 128], "echo": true, "logprobs": 20});
    let (status, answer) = server.post(COMPLETIONS, &with(ask, &json!({"max_tokens": 0})));
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("logprobs")));
    let ask = json!({"prompt": vec![vec![5; 500]; 128], "prompt_logprobs": 20});
    let (status, answer) = server.post(COMPLETIONS, &ask);
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("prompt_logprobs")));
}

#[test]
fn cached_tokens_are_counted_and_the_fingerprint_stays() {
    let server = Server::start(&["--block-size", "4"]);
    let prompt = tokens(5, 21);
    let mut fingerprints = Vec::new();
    for (salt, cached) in [("a", 0), ("a", 20), ("b", 0)] {
        let ask = json!({"prompt": [prompt, [8, 9]], "cache_salt": salt, "max_tokens": 2});
        let answer = server.answer(COMPLETIONS, &ask);
        assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], cached, "{salt}");
        fingerprints.push(answer["system_fingerprint"].as_str().unwrap().to_string());
    }
    let options = json!({"include_usage": true});
    let ask = json!({"prompt": prompt, "cache_salt": "a", "stream": true});
    let events = server.events(COMPLETIONS, &with(ask, &json!({ "stream_options": options })));
    let usage = &events.last().unwrap()["usage"];
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 20);
    fingerprints.extend(events.iter().map(|e| e["system_fingerprint"].as_str().unwrap().into()));
    fingerprints.dedup();
    assert_eq!(fingerprints.len(), 1, "{fingerprints:?}");
}
