//! Fields beyond the first ones: what they do to a text, and what the answers look like.

use crate::running_server::{body, Server};
use serde_json::{json, Value};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";
const ONCE: &str = "Once upon a time";

fn chat(more: &Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "One day, a cat"}], "max_tokens": 12, "temperature": 0,
    });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn asked(server: &Server, path: &str, body: &Value) -> Value {
    let (status, answer) = server.post(path, body);
    assert_eq!(status, 200, "{body}: {answer}");
    answer
}

/// The status, the field at fault, and the message.
fn refused(server: &Server, path: &str, body: &Value) -> (u16, String, String) {
    let (status, answer) = server.post(path, body);
    let text = |name: &str| answer["error"][name].as_str().unwrap_or_default().to_string();
    (status, text("param"), text("message"))
}

/// Text and finish reason of the first choice, whole and streamed, which must be the same.
fn both_ways(server: &Server, more: &Value) -> (String, String) {
    let whole = asked(server, COMPLETIONS, &body(ONCE, more));
    let choice = &whole["choices"][0];
    let mut streamed = body(ONCE, more);
    streamed["stream"] = json!(true);
    let events = server.events(COMPLETIONS, &streamed);
    let first = events.iter().map(|event| &event["choices"][0]).filter(|one| one["index"] == 0);
    let text: String = first.filter_map(|one| one["text"].as_str()).collect();
    assert_eq!(text, choice["text"].as_str().unwrap(), "{more}");
    (text, choice["finish_reason"].as_str().unwrap().to_string())
}

#[test]
fn rules_for_tokens_are_kept() {
    let server = Server::start(&[]);
    let text = server.text(ONCE, &json!({}));
    let word = text.split([' ', '.', ',']).max_by_key(|word| word.len()).unwrap();

    // Only token 300: the text is it, again and again.
    let (only, _) = both_ways(&server, &json!({"allowed_token_ids": [300], "max_tokens": 3}));
    let (ids, _) = both_ways(&server, &json!({"logit_bias": {"300": 100}, "max_tokens": 3}));
    assert_eq!(only, ids);
    let (other, _) = both_ways(&server, &json!({"bad_words": [word]}));
    assert_ne!(other, text);
    assert!(!other.contains(word), "{other:?} has {word:?}");
    let unknown = json!({"logit_bias": {"99999": 1}});
    let (status, param, words) = refused(&server, COMPLETIONS, &body(ONCE, &unknown));
    assert_eq!((status, param.as_str()), (400, "logit_bias"));
    assert!(words.contains("99999 is not in the vocabulary"), "{words}");
    let late = json!({"min_tokens": 9, "max_tokens": 8});
    assert_eq!(refused(&server, COMPLETIONS, &body(ONCE, &late)).1, "min_tokens");
}

#[test]
fn stop_tokens_end_a_text_and_min_tokens_keep_it_going() {
    let server = Server::start(&[]);
    // 300 is certain, and ends the text.
    let certain = json!({"logit_bias": {"300": 100}, "stop_token_ids": [300], "max_tokens": 5});
    assert_eq!(both_ways(&server, &certain), (String::new(), "stop".to_string()));
    for more in [json!({"min_tokens": 3}), json!({"min_tokens": 3, "ignore_eos": true})] {
        let mut least = certain.clone();
        for (name, value) in more.as_object().unwrap() {
            least[name] = value.clone();
        }
        let answer = asked(&server, COMPLETIONS, &body(ONCE, &least));
        assert_eq!(answer["usage"]["completion_tokens"], 4, "{answer}");
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    }
}

#[test]
fn a_complete_pattern_ends_a_text_whatever_else_is_asked() {
    let server = Server::start(&[]);
    for more in [
        json!({"ignore_eos": true}),
        json!({"min_tokens": 20}),
        json!({"ignore_eos": true, "stop_token_ids": [300]}),
    ] {
        let mut ask = json!({"structured_outputs": {"choice": [" yes", " no"]}, "max_tokens": 20});
        for (name, value) in more.as_object().unwrap() {
            ask[name] = value.clone();
        }
        let (text, finish) = both_ways(&server, &ask);
        assert!(text == " yes" || text == " no", "{more}: {text:?}");
        assert_eq!(finish, "stop", "{more}");
    }
    // A template's line end doesn't cut what was chosen.
    let ask = json!({"structured_outputs": {"choice": ["one\ntwo"]}, "max_tokens": 40});
    let answer = asked(&server, CHAT, &chat(&ask));
    assert_eq!(answer["choices"][0]["message"]["content"], "one\ntwo");
    let guided = asked(&server, CHAT, &chat(&json!({"guided_choice": ["red", "blue"]})));
    let text = guided["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(text == "red" || text == "blue", "{text:?}");
}

#[test]
fn rules_that_contradict_each_other_are_the_clients_fault() {
    let server = Server::start(&[]);
    let ask = json!({"structured_outputs": {"regex": "a{3}"}, "allowed_token_ids": [300]});
    let (status, _, words) = refused(&server, COMPLETIONS, &body(ONCE, &ask));
    assert_eq!(status, 400, "{words}");
    assert!(words.contains("the pattern a{3} left no token to choose"), "{words}");
    assert!(!words.contains("--"), "{words}"); // the client sent no flag
    for name in ["structured_outputs", "guided_regex"] {
        let pattern = if name == "guided_regex" { json!("[") } else { json!({"regex": "["}) };
        let (status, param, words) =
            refused(&server, COMPLETIONS, &body(ONCE, &json!({name: pattern})));
        assert_eq!((status, param.as_str()), (400, name), "{words}");
    }
}

#[test]
fn a_stop_string_may_stay_in_the_text() {
    let server = Server::start(&[]);
    let whole = server.text(ONCE, &json!({}));
    let words: Vec<&str> = whole.split(' ').collect();
    for stops in [
        json!([words[4]]),
        json!([format!("{} {}", words[3], words[4])]),
        json!(["nowhere", words[5], words[4]]),
        json!([&words[4][1..]]),
    ] {
        let cut = both_ways(&server, &json!({"stop": stops}));
        let (text, finish) =
            both_ways(&server, &json!({"stop": stops, "include_stop_str_in_output": true}));
        assert_eq!((finish.as_str(), cut.1.as_str()), ("stop", "stop"));
        let stop = text.strip_prefix(&cut.0).unwrap_or_else(|| panic!("{cut:?} {text:?}"));
        assert!(stops.as_array().unwrap().contains(&json!(stop)), "{stops}: {text:?}");
        assert!(whole.starts_with(&text), "{text:?}");
    }
    let none = both_ways(&server, &json!({"include_stop_str_in_output": true}));
    assert_eq!(none, (whole, "length".to_string()));
}

#[test]
fn a_completion_may_begin_with_its_prompt() {
    let server = Server::start(&[]);
    let alone = server.text(ONCE, &json!({}));
    let (text, _) = both_ways(&server, &json!({"echo": true}));
    assert_eq!(text, format!("{ONCE}{alone}"));
    let ask =
        json!({"prompt": [ONCE, "Lily and"], "echo": true, "n": 2, "max_tokens": 3, "seed": 5});
    let answer = asked(&server, COMPLETIONS, &ask);
    for (i, prompt) in [ONCE, ONCE, "Lily and", "Lily and"].iter().enumerate() {
        let text = answer["choices"][i]["text"].as_str().unwrap();
        assert!(text.starts_with(prompt) && text.len() > prompt.len(), "{text:?}");
    }
}

#[test]
fn a_seed_means_the_same_in_a_list_of_prompts() {
    let server = Server::start(&[]);
    let more = json!({"seed": 7, "temperature": 1, "n": 2, "max_tokens": 8});
    let mut list = body(ONCE, &more);
    list["prompt"] = json!([ONCE, "Lily and her dog"]);
    let all = asked(&server, COMPLETIONS, &list);
    for (prompt, at) in [(ONCE, 0), ("Lily and her dog", 2)] {
        let alone = asked(&server, COMPLETIONS, &body(prompt, &more));
        for i in 0..2 {
            assert_eq!(all["choices"][at + i]["text"], alone["choices"][i]["text"], "{prompt}");
        }
    }
    let random = json!({"seed": -1, "temperature": 1});
    let texts: std::collections::BTreeSet<String> =
        (0..4).map(|_| server.text(ONCE, &random)).collect();
    assert!(texts.len() > 1, "-1 is a seed like any other: {texts:?}");
}

#[test]
fn the_last_message_may_be_continued() {
    let server = Server::start(&[]);
    let messages = json!([
        {"role": "user", "content": "One day, a cat"},
        {"role": "assistant", "content": " sat on"},
    ]);
    let ask = json!({"messages": messages, "continue_final_message": true, "add_generation_prompt": false});
    let answer = asked(&server, CHAT, &chat(&ask));
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
    let alone = server.text("One day, a cat sat on", &json!({"max_tokens": 12, "stop": "\n"}));
    assert_eq!(text, alone);
    let new_turn = asked(&server, CHAT, &chat(&json!({"messages": messages})));
    assert!(new_turn["choices"][0]["message"]["content"].is_string());
    let unknown = chat(&json!({"chat_template_kwargs": {"enable_thinking": false}}));
    let (status, param, _) = refused(&server, CHAT, &unknown);
    assert_eq!((status, param.as_str()), (400, "chat_template_kwargs"));
}

#[test]
fn a_stream_ends_as_openais_does() {
    let server = Server::start(&[]);
    let mut ask = chat(&json!({"stream": true, "logprobs": true, "max_tokens": 3}));
    let events = server.events(CHAT, &ask);
    let last = &events[events.len() - 1]["choices"][0];
    assert_eq!((&last["delta"], &last["finish_reason"]), (&json!({}), &json!("length")));
    for event in &events[..events.len() - 1] {
        assert_eq!(event["choices"][0]["finish_reason"], Value::Null, "{event}");
    }
    assert!(events[1]["choices"][0]["logprobs"].as_object().unwrap().contains_key("refusal"));
    let logprobs =
        events.iter().filter_map(|event| event["choices"][0]["logprobs"]["content"].as_array());
    assert_eq!(logprobs.map(Vec::len).sum::<usize>(), 3);
    ask["stream"] = json!(false);
    let whole = asked(&server, CHAT, &ask);
    let message = whole["choices"][0]["message"].as_object().unwrap();
    assert_eq!(message.get("refusal"), Some(&Value::Null));
    assert_eq!(whole["choices"][0]["logprobs"].get("refusal"), Some(&Value::Null));

    let events = server.events(COMPLETIONS, &body(ONCE, &json!({"stream": true, "max_tokens": 3})));
    let last = &events[events.len() - 1]["choices"][0];
    assert_eq!((&last["text"], &last["finish_reason"]), (&json!(""), &json!("length")));
    assert_eq!(events[events.len() - 2]["choices"][0]["finish_reason"], Value::Null);
}

#[test]
fn usage_may_come_with_every_event() {
    let server = Server::start(&[]);
    let options = json!({"include_usage": true, "continuous_usage_stats": true});
    let ask = json!({"stream": true, "stream_options": options, "max_tokens": 4});
    let events = server.events(COMPLETIONS, &body(ONCE, &ask));
    let counts: Vec<u64> =
        events.iter().map(|event| event["usage"]["completion_tokens"].as_u64().unwrap()).collect();
    assert!(counts.is_sorted() && counts.first() < counts.last(), "{counts:?}");
    assert_eq!(counts.last(), Some(&4));
    assert!(events
        .iter()
        .all(|event| event["usage"]["prompt_tokens"] == events[0]["usage"]["prompt_tokens"]));
}

#[test]
fn separators_of_unicode_do_not_break_a_line() {
    let server = Server::start(&[]);
    let choice = "a\u{2028}b\u{85}c\u{2029}";
    let ask = json!({"structured_outputs": {"choice": [choice]}, "max_tokens": 40});
    for stream in [false, true] {
        let mut ask = body(ONCE, &ask);
        ask["stream"] = json!(stream);
        let (status, text) = server.post_text(COMPLETIONS, &ask.to_string());
        assert_eq!(status, 200, "{text}");
        assert!(!text.contains(['\u{2028}', '\u{2029}', '\u{85}']), "{text:?}");
        assert!(text.contains("\\u2028") && text.contains("\\u0085"), "{text:?}");
    }
}

#[test]
fn a_prompt_that_is_too_long_says_so_in_openais_words() {
    let server = Server::start(&[]);
    let long = "once upon a time ".repeat(400);
    let messages = json!([{"role": "user", "content": long}]);
    for (path, body, rest) in [
        (COMPLETIONS, body(&long, &json!({})), "Please reduce the length of the prompt."),
        (CHAT, chat(&json!({"messages": messages})), "Please reduce the length of the messages."),
    ] {
        let (status, answer) = server.post(path, &body);
        let message = answer["error"]["message"].as_str().unwrap();
        assert_eq!((status, &answer["error"]["code"]), (400, &json!("context_length_exceeded")));
        assert!(
            message.starts_with("This model's maximum context length is 512 tokens. However, "),
            "{message}"
        );
        assert!(message.ends_with(rest), "{message}");
    }
}

#[test]
fn every_answer_has_a_request_id() {
    let server = Server::start(&[]);
    let id = |path: &str, given: Option<&str>| {
        let mut request = ureq::get(server.url(path)).config().http_status_as_error(false).build();
        if let Some(given) = given {
            request = request.header("x-request-id", given);
        }
        let response = request.call().unwrap();
        response.headers()["x-request-id"].to_str().unwrap().to_string()
    };
    assert_eq!(id("/v1/models", Some("mine-7")), "mine-7");
    assert_eq!(id("/nowhere", Some("mine-8")), "mine-8");
    let (one, other) = (id("/health", None), id("/health", Some(&"x".repeat(200))));
    assert!(one.starts_with("req_") && other.starts_with("req_") && one != other, "{one} {other}");
    let answer = asked(&server, COMPLETIONS, &body(ONCE, &json!({"request_id": "story-1"})));
    assert_eq!(answer["id"], "cmpl-story-1");
}

/// A request byte by byte, and the head of its answer, in small letters.
fn head(server: &Server, method: &str, path: &str, headers: &str) -> String {
    use std::io::Write as _;
    let mut stream = server.connect();
    let host = &server.host;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{headers}\r\n"
    )
    .unwrap();
    let answer = crate::running_server::read_some(&mut stream, usize::MAX);
    answer.split("\r\n\r\n").next().unwrap().to_lowercase()
}

#[test]
fn pages_of_allowed_origins_may_ask() {
    let page = "http://app.example:3000";
    let question = |origin: &str| {
        format!("origin: {origin}\r\naccess-control-request-method: POST\r\naccess-control-request-headers: authorization, content-type, x-stainless-os\r\n")
    };
    let server = Server::start(&[
        "--allowed-origins",
        &format!("{page},https://b.example"),
        "--api-key",
        "k",
    ]);
    let asked = head(&server, "OPTIONS", CHAT, &question(page));
    for part in [
        "http/1.1 204",
        &format!("access-control-allow-origin: {page}"),
        "access-control-allow-methods: get, post, options",
        "access-control-allow-headers: authorization, content-type, x-stainless-os",
        "vary: origin",
    ] {
        assert!(asked.contains(part), "{part}: {asked}");
    }
    // Without the key the page may read the refusal.
    let answer = head(&server, "GET", "/v1/models", &format!("origin: {page}\r\n"));
    assert!(answer.contains("http/1.1 401"), "{answer}");
    assert!(answer.contains(&format!("access-control-allow-origin: {page}")), "{answer}");
    let stranger = head(&server, "OPTIONS", CHAT, &question("http://evil.example"));
    assert!(!stranger.contains("access-control"), "{stranger}");

    let open = Server::start(&["--allowed-origins", "*"]);
    let answer = head(&open, "GET", "/v1/models", "origin: https://anything.example\r\n");
    assert!(answer.contains("http/1.1 200"), "{answer}");
    assert!(answer.contains("access-control-allow-origin: https://anything.example"), "{answer}");
    let closed = Server::start(&[]);
    let answer = head(&closed, "GET", "/v1/models", "origin: https://anything.example\r\n");
    assert!(answer.contains("http/1.1 403") && !answer.contains("access-control"), "{answer}");

    for bad in ["app.example", "http://app.example/", "http://app.example/page"] {
        let out = Server::command(&["--allowed-origins", bad]).output().unwrap();
        assert_eq!(out.status.code(), Some(2));
        assert!(String::from_utf8(out.stderr).unwrap().contains("--allowed-origins"));
    }
}

#[test]
fn a_token_has_one_logprob_wherever_it_stands() {
    let server = Server::start(&[]);
    let ask = chat(&json!({"logprobs": true, "top_logprobs": 3, "max_tokens": 60}));
    let answer = asked(&server, CHAT, &ask);
    let content = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert!(content.len() > 10, "{answer}");
    for token in content {
        // Greedy: the chosen token is the likeliest.
        assert_eq!(token["logprob"], token["top_logprobs"][0]["logprob"], "{token}");
    }
}
