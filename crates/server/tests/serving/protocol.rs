//! Tests of requests and their responses.

use crate::running_server::{body, read_some, with, Server, CHAT, COMPLETIONS, MODEL};
use candecode::kit::SamplingParams;
use candecode_engine::Engine;
use serde_json::{json, Value};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

const ONCE: &str = "Once upon a time";

fn chat(more: &Value) -> Value {
    let messages = json!([{"role": "user", "content": "One day, a cat"}]);
    with(json!({"messages": messages, "max_tokens": 12, "temperature": 0}), more)
}

/// Returns the text and finish reason of the first choice, which must be the same in one piece and
/// streamed.
fn both_ways(server: &Server, more: &Value) -> (String, String) {
    let whole = server.answer(COMPLETIONS, &body(ONCE, more));
    let choice = &whole["choices"][0];
    let events = server.events(COMPLETIONS, &with(body(ONCE, more), &json!({"stream": true})));
    let text: String =
        events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
    assert_eq!(text, choice["text"].as_str().unwrap(), "{more}");
    (text, choice["finish_reason"].as_str().unwrap().to_string())
}

#[test]
fn a_text_is_what_the_engine_writes_and_is_counted() {
    let engine = Engine::open(MODEL).unwrap();
    let params = SamplingParams { max_new_tokens: 24, ..SamplingParams::default() };
    let all = engine.generate_batch(&["Lily and her dog"], &[params]).unwrap();
    let server = Server::start(&[]);
    assert!(server.metric("num_blocks") > 0.0, "before the first request");
    assert_eq!(server.text("Lily and her dog", &json!({})), all[0].text);

    assert_eq!(server.get("/health"), (200, r#"{"status":"ok"}"#.into()));
    let tokens = all[0].new_ids.len() as f64;
    for (name, count) in [
        ("generation_tokens_total", tokens),
        ("time_to_first_token_seconds_count", 1.0),
        ("time_per_output_token_seconds_count", tokens - 1.0),
        ("requests_cancelled_total", 0.0),
    ] {
        assert_eq!(server.metric(name), count, "{name}");
    }
    let (status, page) = server.get("/");
    assert!(status == 200 && page.contains(MODEL) && !page.contains("{{"), "{page}");
    assert!(!page.contains("http"), "the page must not load anything from the network: {page}");
    assert!(!page.contains("\"/v1"), "behind a proxy, the server's root can be another's: {page}");
}

#[test]
fn a_stream_is_the_whole_in_pieces_and_ends_as_openais_does() {
    let server = Server::start(&[]);
    let usage = json!({"stream": true, "stream_options": {"include_usage": true}});
    let events = server.events(COMPLETIONS, &body(ONCE, &usage));
    let pieces = events.iter().filter_map(|event| event["choices"][0]["text"].as_str());
    assert_eq!(pieces.collect::<String>(), server.text(ONCE, &json!({})));
    let last = &events[events.len() - 1];
    assert_eq!((&last["choices"], &last["usage"]["completion_tokens"]), (&json!([]), &json!(24)));
    assert!(events[..events.len() - 1].iter().all(|event| event["usage"].is_null()));

    // vLLM's option puts the usage of a choice so far into each of its events.
    let options = json!({"include_usage": true, "continuous_usage_stats": true});
    let more = json!({
        "stream": true, "stream_options": options, "n": 2, "temperature": 1, "ignore_eos": true,
        "prompt": [ONCE, "Lily"], "max_tokens": 9,
    });
    let events = server.events(COMPLETIONS, &body(ONCE, &more));
    let (last, events) = events.split_last().unwrap();
    assert_eq!(last["usage"]["completion_tokens"], 4 * 9);
    for i in 0..4 {
        let of_choice = events.iter().filter(|event| event["choices"][0]["index"] == i);
        let usages: Vec<&Value> = of_choice.map(|event| &event["usage"]).collect();
        let counts: Vec<_> = usages.iter().map(|u| u["completion_tokens"].as_u64()).collect();
        assert!(counts.is_sorted() && counts.last() == Some(&Some(9)), "{counts:?}");
        let prompt = &usages[0]["prompt_tokens"];
        assert!(usages.iter().all(|usage| usage["prompt_tokens"] == *prompt), "{usages:?}");
    }
    let head = read_some(&mut server.begin(&body(ONCE, &json!({"stream": true}))), 400);
    assert!(head.contains("x-accel-buffering: no"), "{head}");

    let ask = json!({"stream": true, "logprobs": true, "top_logprobs": 3, "max_tokens": 60});
    let events = server.events(CHAT, &chat(&ask));
    let (last, others) = events.split_last().unwrap();
    let last = &last["choices"][0];
    assert_eq!(last["delta"], json!({}));
    assert!(last["finish_reason"].is_string());
    assert!(others.iter().all(|event| event["choices"][0]["finish_reason"].is_null()));
    let logprobs =
        events.iter().filter_map(|event| event["choices"][0]["logprobs"]["content"].as_array());
    let logprobs: Vec<&Value> = logprobs.flatten().collect();
    assert!(logprobs.len() > 10);
    for token in logprobs {
        // Greedy decoding, so the chosen token is the most likely one.
        assert_eq!(token["logprob"], token["top_logprobs"][0]["logprob"], "{token}");
    }
}

#[test]
fn equal_prompts_without_a_seed_get_different_texts() {
    let server = Server::start(&[]);
    for seed in [json!(null), json!(-1)] {
        let same = json!({"prompt": vec![ONCE; 4], "temperature": 1, "seed": seed});
        let all = server.answer(COMPLETIONS, &body(ONCE, &same));
        let texts = all["choices"].as_array().unwrap().iter().map(|choice| &choice["text"]);
        let texts: BTreeSet<String> = texts.map(Value::to_string).collect();
        assert!(texts.len() > 1, "{seed}: {texts:?}");
    }
}

#[test]
fn a_pattern_is_kept_and_its_end_ends_the_text() {
    let server = Server::start(&[]);
    let digits = server.text("He was", &json!({"structured_outputs": {"regex": " [0-9]{2}"}}));
    assert!(digits.len() == 3 && digits.trim().parse::<u8>().is_ok(), "{digits:?}");
    for more in [
        json!({}),
        json!({"ignore_eos": true}),
        json!({"min_tokens": 20}),
        json!({"ignore_eos": true, "stop_token_ids": [300]}),
    ] {
        let ask = json!({"structured_outputs": {"choice": [" yes", " no"]}, "max_tokens": 20});
        let (text, finish) = both_ways(&server, &with(ask, &more));
        assert!(text == " yes" || text == " no", "{more}: {text:?}");
        assert_eq!(finish, "stop", "{more}");
    }
    // The template's stop string, a newline, doesn't cut off the chosen text.
    let ask = json!({"guided_choice": ["one\ntwo"], "max_tokens": 40});
    let answer = server.answer(CHAT, &chat(&ask));
    assert_eq!(answer["choices"][0]["message"]["content"], "one\ntwo");

    for regex in ["(", "**", r"\p{Nonsense}", r"\b", "[^\\x00-\u{10FFFF}]"] {
        for (name, pattern) in
            [("structured_outputs", json!({ "regex": regex })), ("guided_regex", json!(regex))]
        {
            let (status, answer) = server.post(COMPLETIONS, &body(ONCE, &json!({ name: pattern })));
            assert_eq!((status, &answer["error"]["param"]), (400, &json!(name)), "{answer}");
        }
    }
    // Rules that contradict each other are the client's mistake.
    let ask = json!({"structured_outputs": {"regex": "a{3}"}, "allowed_token_ids": [300]});
    let (status, answer) = server.post(COMPLETIONS, &body(ONCE, &ask));
    assert_eq!(status, 400, "{answer}");
    let words = answer["error"]["message"].as_str().unwrap();
    assert!(words.contains("the pattern a{3} left no token to choose"), "{words}");
    assert!(!words.contains("--"), "{words}"); // the client sent no flag
}

#[test]
fn a_chat_goes_through_the_template() {
    let server = Server::start(&[]);
    // The story template leaves a line unchanged, so the answer continues it.
    let messages = json!([
        {"role": "user", "content": "One day, a cat"},
        {"role": "assistant", "content": " sat on"},
    ]);
    for (more, prompt) in [
        (json!({}), "One day, a cat"),
        (json!({"messages": messages, "continue_final_message": true}), "One day, a cat sat on"),
    ] {
        let answer = server.answer(CHAT, &chat(&more));
        let text = server.text(prompt, &json!({"max_tokens": 12, "stop": "\n"}));
        let message = json!({"role": "assistant", "content": text, "refusal": null});
        assert_eq!(answer["choices"][0]["message"], message, "{more}");
    }
    // A variable that the template doesn't use changes nothing.
    let more = json!({"chat_template_kwargs": {"enable_thinking": false, "thinking": null}});
    let answers = [&more, &json!({})].map(|more| server.answer(CHAT, &chat(more)));
    assert_eq!(answers[0]["choices"], answers[1]["choices"]);
    for (more, param) in [
        (json!({"chat_template_kwargs": {"messages": []}}), "chat_template_kwargs"),
        (
            json!({"continue_final_message": true, "add_generation_prompt": true}),
            "continue_final_message",
        ),
    ] {
        let (status, answer) = server.post(CHAT, &chat(&more));
        assert_eq!((status, &answer["error"]["param"]), (400, &json!(param)), "{answer}");
    }
}

#[test]
fn a_chat_template_that_cannot_be_used_is_reported() {
    let folder =
        std::env::temp_dir().join(format!("candecode-own-template-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models").join(MODEL);
    for file in std::fs::read_dir(model).unwrap().map(|file| file.unwrap()) {
        std::fs::copy(file.path(), folder.join(file.file_name())).unwrap();
    }
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_candecode-serve"));
        command.arg("--model").arg(&folder).args(["--port", "0"]).stdin(Stdio::null());
        Server::spawn(command.env_remove("CANDECODE_API_KEY").stderr(Stdio::piped()))
    };
    let refused = |server: &Server, words: &str| {
        let (status, answer) = server.post(CHAT, &chat(&json!({})));
        assert_eq!((status, &answer["error"]["param"]), (400, &json!("messages")), "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(words) && message.contains("--template"), "{message}");
    };
    refused(&start(), "this model has no chat template: use /v1/completions");
    std::fs::write(folder.join("chat_template.jinja"), "one\n{% for x in %}").unwrap();
    let mut server = start();
    refused(&server, "this model's chat template can't be used");
    assert!(!server.text(ONCE, &json!({})).is_empty());
    let mut said = String::new();
    BufReader::new(server.child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("the chat template (chat_template.jinja, line 2)"), "{said}");
    drop(server);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_trace_shows_every_pass() {
    for scheduler in [["--max-num-batched-tokens", "2"], ["--scheduler", "day15"]] {
        let mut command =
            Server::command(&[&scheduler[..], &["--trace", "--format=json"]].concat());
        let mut server = Server::spawn(command.stderr(Stdio::piped()));
        let body = json!({"prompt": [[5, 6, 7], [8, 9]], "max_tokens": 4, "ignore_eos": true});
        server.answer(COMPLETIONS, &body);
        let mut counters = [(0, 3), (0, 2)]; // tokens in the cache, and all tokens
        let lines = BufReader::new(server.child.stderr.take().unwrap()).lines();
        let steps = lines.map(|line| line.unwrap()).filter(|line| line.starts_with('{'));
        for (i, line) in steps.enumerate() {
            let step: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(step["step"], i + 1);
            let scheduled = step["total_num_scheduled_tokens"].as_u64().unwrap();
            assert!(scheduled <= 2 || scheduler[1] == "day15", "{line}");
            for request in step["requests"].as_array().unwrap() {
                let (computed, tokens) =
                    &mut counters[request["req_id"].as_u64().unwrap() as usize];
                assert_eq!(request["num_computed_tokens"], *computed, "{line}");
                assert_eq!(request["num_tokens"], *tokens, "{line}");
                *computed += request["num_scheduled_tokens"].as_u64().unwrap();
                *tokens += u64::from(*computed == *tokens);
            }
            if counters == [(6, 7), (5, 6)] {
                break; // both have ended: their last token is never computed
            }
        }
        assert_eq!(counters, [(6, 7), (5, 6)]);
    }
    let table = Server::command(&["--format", "json"]).output().unwrap();
    assert_eq!(table.status.code(), Some(2)); // there is nothing to print
}

#[test]
fn refusals_have_openais_form() {
    let server = Server::start(&[]);
    for (path, body, status, words) in [
        (COMPLETIONS, "{", 400, "not JSON"),
        (COMPLETIONS, r#"{"prompt": "x", "model": "gpt-4"}"#, 404, "not served here"),
        (COMPLETIONS, r#"{"prompt": ""}"#, 400, "the prompt is empty"),
        (COMPLETIONS, r#"{"prompt": [99999]}"#, 400, "not in the vocabulary"),
        (
            COMPLETIONS,
            r#"{"prompt": "x", "logit_bias": {"99999": 1}}"#,
            400,
            "not in the vocabulary",
        ),
        (
            COMPLETIONS,
            r#"{"prompt": "x", "stop": ["a", "<|endoftext|>\n"]}"#,
            400,
            "to stop at the token, use <|endoftext|> by itself",
        ),
        ("/v1/embeddings", "{}", 404, "there is no /v1/embeddings"),
        ("/v1/responses", "{}", 404, "ask for /v1/chat/completions"),
        ("/v1/responses/resp_1/cancel", "{}", 404, "ask for /v1/chat/completions"),
        ("/chat/completions", "{}", 404, "ask for /v1/chat/completions"),
        ("/v1/v1/completions/", "{}", 404, "ask for /v1/completions"),
        ("/v1/models", "{}", 405, "POST cannot be used"),
    ] {
        let (got, text) = server.post_text(path, body);
        let answer: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
        assert_eq!(got, status, "{body}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(message.contains(words), "{body}: {message}");
        assert!(answer["error"]["type"].is_string() && !answer["error"]["code"].is_number());
    }
    let long = "once upon a time ".repeat(400);
    let messages = json!({"messages": [{"role": "user", "content": long}]});
    for (path, body, rest) in [
        (COMPLETIONS, body(&long, &json!({})), "Please reduce the length of the prompt."),
        (CHAT, chat(&messages), "Please reduce the length of the messages."),
    ] {
        let (status, answer) = server.post(path, &body);
        assert_eq!((status, &answer["error"]["code"]), (400, &json!("context_length_exceeded")));
        let message = answer["error"]["message"].as_str().unwrap();
        let begin = "This model's maximum context length is 512 tokens. However, ";
        assert!(message.starts_with(begin) && message.ends_with(rest), "{message}");
    }
}

/// A page from another site can send a form or plain text without a preflight, but not JSON.
#[test]
fn only_json_is_taken() {
    let server = Server::start(&[]);
    for (kind, status) in [
        ("Application/JSON", 200),
        ("application/json; charset=utf-8", 200),
        ("application/json; charset=utf-16", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
    ] {
        assert_eq!(server.post_as(COMPLETIONS, kind, r#"{"prompt": "Once"}"#).0, status, "{kind}");
    }
    for header in ["content-encoding: gzip", "transfer-encoding: gzip, chunked"] {
        let told = read_some(&mut server.post_head(&format!("{header}\r\nconnection: close")), 900);
        let name = header.split(':').next().unwrap();
        assert!(told.starts_with("HTTP/1.1 415") && told.contains(name), "{told}");
    }
    let with_mark = "\u{FEFF}{\"prompt\": \"Once\"}";
    assert_eq!(server.post_text(COMPLETIONS, with_mark).0, 200);
}

#[test]
fn the_context_that_is_served_is_one_number() {
    let server = Server::start(&["--max-batch-tokens", "20"]);
    let list: Value = serde_json::from_str(&server.get("/v1/models").1).unwrap();
    assert_eq!(list["data"][0]["max_model_len"], 20);
    for (prompt, tokens) in [(10, 11), (19, 2), (20, 1)] {
        let mut ask = json!({"prompt": vec![5; prompt], "ignore_eos": true});
        // A completion's default is 16 tokens, or fewer if they don't fit.
        assert_eq!(server.answer(COMPLETIONS, &ask)["usage"]["completion_tokens"], tokens);
        ask["max_tokens"] = tokens.into();
        assert_eq!(server.answer(COMPLETIONS, &ask)["usage"]["completion_tokens"], tokens);
        for name in ["max_tokens", "max_completion_tokens"] {
            ask[name] = (tokens + 1).into();
            let (status, answer) = server.post(COMPLETIONS, &ask);
            assert_eq!((status, &answer["error"]["param"]), (400, &json!(name)));
            assert_eq!(answer["error"]["code"], "context_length_exceeded");
        }
    }
    let (status, answer) = server.post(COMPLETIONS, &json!({"prompt": vec![5; 21]}));
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("context_length_exceeded")));
}

/// Proxies and clients give up on a connection that says nothing.
#[test]
fn a_stream_that_waits_has_headers_and_comments() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_candecode-serve"));
    command.args(["--model", "random-30m", "--port", "0", "--max-num-seqs", "1"]);
    let server = Server::spawn(command.args(["--max-queue", "4"]).stderr(Stdio::null()));
    // Four long texts, one after the other, in short passes: a refusal comes between two of them.
    let long = json!({"prompt": [5], "max_tokens": 6000, "ignore_eos": true});
    let _long: Vec<_> = (0..4).map(|_| server.begin(&long)).collect();
    server.wait_for("num_requests_queued", 3.0);
    let mut waits = server.begin(&body(ONCE, &json!({"stream": true})));
    let head = read_some(&mut waits, 100);
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
    // The queue is full: that's a status, not an event.
    let (status, answer) = server.post(COMPLETIONS, &body(ONCE, &json!({"stream": true})));
    assert_eq!(status, 429, "{answer}");
    let more = head + &read_some(&mut waits, 10);
    assert!(more.contains(": waiting\n\n") && !more.contains("data:"), "{more}");
}
