//! What is asked, and what is answered.

use crate::running_server::{body, Server, MODEL};
use candecode::engine::Engine;
use candecode::kit::SamplingParams;
use serde_json::{json, Value};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

#[test]
fn the_model_is_listed_and_found_by_its_name() {
    let server = Server::start(&["--served-model-name", "story"]);
    let (status, list) = server.get("/v1/models");
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(status, 200);
    assert_eq!((&list["object"], &list["data"][0]["id"]), (&json!("list"), &json!("story")));
    assert_eq!(list["data"][0]["owned_by"], "candecode");
    assert_eq!(server.get("/v1/models/story").0, 200);
    assert_eq!(server.get("/v1/models/another").0, 404);
}

#[test]
fn health_metrics_and_the_page_are_there() {
    let server = Server::start(&[]);
    assert_eq!(server.get("/health"), (200, r#"{"status":"ok"}"#.into()));
    server.text("Once upon a time", &json!({}));
    let (_, metrics) = server.get("/metrics");
    assert!(metrics.contains("candecode_generation_tokens_total 24"), "{metrics}");
    assert!(metrics.contains("candecode_time_to_first_token_seconds_count 1"), "{metrics}");
    assert!(metrics.contains("candecode_time_per_output_token_seconds_count 23"), "{metrics}");
    let (status, page) = server.get("/");
    assert!(status == 200 && page.contains(MODEL) && !page.contains("{{"), "{page}");
    let elsewhere = page.matches("http").count(); // the page needs nothing from any network
    assert_eq!(elsewhere, 0, "{page}");
}

#[test]
fn a_text_is_what_the_engine_writes() {
    let engine = Engine::open(MODEL).unwrap();
    let params = SamplingParams { max_new_tokens: 24, ..SamplingParams::default() };
    let all = engine.generate_batch(&["Lily and her dog"], &[params]).unwrap();
    let server = Server::start(&[]);
    assert_eq!(server.text("Lily and her dog", &json!({})), all[0].text);
}

#[test]
fn a_stream_is_the_whole_in_pieces() {
    let server = Server::start(&[]);
    let whole = server.text("Once upon a time", &json!({}));
    let usage = json!({"stream": true, "stream_options": {"include_usage": true}});
    let events = server.events(COMPLETIONS, &body("Once upon a time", &usage));
    let pieces = events.iter().filter_map(|event| event["choices"][0]["text"].as_str());
    assert_eq!(pieces.collect::<String>(), whole);
    let last = &events[events.len() - 1];
    assert_eq!((&last["choices"], &last["usage"]["completion_tokens"]), (&json!([]), &json!(24)));
}

#[test]
fn several_choices_differ_and_come_again_with_their_seed() {
    let server = Server::start(&[]);
    let ask = json!({"temperature": 1.0, "n": 3, "seed": 7});
    let (_, one) = server.post(COMPLETIONS, &body("Once", &ask));
    let (_, again) = server.post(COMPLETIONS, &body("Once", &ask));
    assert_eq!(one["choices"], again["choices"]);
    let text = |i: usize| one["choices"][i]["text"].as_str().unwrap();
    assert!(text(0) != text(1) && text(1) != text(2), "{one}");
    assert_eq!(one["choices"][2]["index"], 2);
}

#[test]
fn a_stop_string_ends_the_text_and_is_not_part_of_it() {
    let server = Server::start(&[]);
    let whole = server.text("Once upon a time", &json!({}));
    let word = whole.split(' ').nth(4).unwrap().to_string();
    let (_, answer) = server.post(COMPLETIONS, &body("Once upon a time", &json!({"stop": word})));
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "stop");
    let text = choice["text"].as_str().unwrap();
    assert!(whole.starts_with(text) && !text.contains(&word), "{text:?} {word:?}");
}

#[test]
fn a_choice_or_a_pattern_is_kept() {
    let server = Server::start(&[]);
    let choice = json!({"structured_outputs": {"choice": [" red", " blue"]}});
    let text = server.text("Her ball was", &choice);
    assert!(text == " red" || text == " blue", "{text:?}");
    let text = server.text("He was", &json!({"structured_outputs": {"regex": " [0-9]{2}"}}));
    assert!(text.len() == 3 && text.trim().parse::<u8>().is_ok(), "{text:?}");
}

#[test]
fn a_chat_goes_through_the_template() {
    let server = Server::start(&[]);
    let ask = json!({
        "messages": [{"role": "user", "content": "One day, a cat"}],
        "max_completion_tokens": 8, "temperature": 0,
    });
    let (status, answer) = server.post(CHAT, &ask);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["choices"][0]["message"]["role"], "assistant");
    // The story template writes the line as it is: so the answer continues it.
    let continued = server.text("One day, a cat", &json!({"max_tokens": 8, "stop": "\n"}));
    assert_eq!(answer["choices"][0]["message"]["content"], continued.as_str());
}

#[test]
fn refusals_have_openais_form() {
    let server = Server::start(&[]);
    for (path, body, status, words) in [
        (COMPLETIONS, "{", 400, "not JSON"),
        (COMPLETIONS, "[]", 400, "must be a JSON object"),
        (COMPLETIONS, "{}", 400, "prompt must be"),
        (COMPLETIONS, r#"{"prompt": 5}"#, 400, "prompt must be"),
        (COMPLETIONS, r#"{"prompt": "x", "temperature": "hot"}"#, 400, "temperature must be"),
        (COMPLETIONS, r#"{"prompt": "x", "top_p": 3}"#, 400, "top_p must be"),
        (COMPLETIONS, r#"{"prompt": "x", "model": "gpt-4"}"#, 404, "not served here"),
        (COMPLETIONS, r#"{"prompt": [99999]}"#, 400, "not in the vocabulary"),
        (COMPLETIONS, r#"{"prompt": "x", "tools": [{"a": 1}]}"#, 400, "tools is not supported"),
        (CHAT, r#"{"messages": []}"#, 400, "messages must be"),
        (CHAT, r#"{"messages": [{"role": "king", "content": "x"}]}"#, 400, "role"),
        (
            CHAT,
            r#"{"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_object"}}"#,
            400,
            "response_format",
        ),
        ("/v1/embeddings", "{}", 404, "there is no /v1/embeddings"),
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
    let (status, answer) = server.post(COMPLETIONS, &body(&long, &json!({})));
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("context_length_exceeded")));
}

#[test]
fn a_form_is_not_taken_for_json() {
    let server = Server::start(&[]);
    let request = ureq::post(server.url(COMPLETIONS)).header("content-type", "text/plain");
    let refused = request.send(r#"{"prompt": "x"}"#);
    assert!(matches!(refused, Err(ureq::Error::StatusCode(415))), "{refused:?}");
}

#[test]
fn a_key_is_asked_for() {
    let server = Server::start(&["--api-key", "sesame"]);
    assert_eq!(server.get("/v1/models").0, 401);
    assert_eq!(server.get("/health").0, 200);
    let with = |key: &str| {
        let request = ureq::get(server.url("/v1/models"));
        request.header("authorization", format!("Bearer {key}")).call().is_ok()
    };
    assert!(with("sesame") && !with("sesam") && !with("sesamee") && !with(""));
}

#[test]
fn other_machines_need_a_key() {
    for (flags, words) in [
        (&["--host", "0.0.0.0"][..], "give them a key with --api-key"),
        (&["--max-batch", "0"], "--max-batch is 0"),
        (&["--api-key", ""], "--api-key is empty"),
        (&["--dtype", "f8"], "unknown dtype"),
    ] {
        let out = Server::command(flags).output().unwrap();
        let errors = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{errors}");
        assert!(errors.contains(words), "{errors}");
    }
    let first = Server::start(&[]);
    let port = first.host.split(':').nth(1).unwrap();
    let out = Server::command(&["--port", port]).output().unwrap();
    let errors = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1), "{errors}");
    assert!(errors.contains(&format!("cannot listen at 127.0.0.1:{port}")), "{errors}");
}

#[test]
fn a_models_name_may_be_encoded_in_the_path() {
    let server = Server::start(&["--served-model-name", "me/story 3:m é"]);
    for name in ["me%2Fstory%203:m%20%C3%A9", "me/story%203%3Am%20%c3%a9"] {
        assert_eq!(server.get(&format!("/v1/models/{name}")).0, 200, "{name}");
    }
    let (status, text) = server.get(&format!("/v1/models/{}", "a".repeat(5000)));
    assert!(status == 404 && text.len() < 400, "{status} {text}");
}

#[test]
fn a_key_is_shown_in_any_case() {
    let server = Server::start(&["--api-key", "sesame"]);
    let shown = |value: &str| {
        let request = ureq::get(server.url("/v1/models")).header("authorization", value);
        match request.call() {
            Ok(response) => response.status().as_u16(),
            Err(ureq::Error::StatusCode(status)) => status,
            Err(error) => panic!("{error}"),
        }
    };
    for value in ["Bearer sesame", "bearer sesame", "BEARER  sesame"] {
        assert_eq!(shown(value), 200, "{value}");
    }
    for value in ["sesame", "Bearer", "Bearer Sesame", "Bearersesame", "Basic sesame"] {
        assert_eq!(shown(value), 401, "{value}");
    }
}

#[test]
fn json_is_known_by_its_type_whatever_its_case() {
    let server = Server::start(&[]);
    let status = |kind: &str, coding: &str| {
        let request = ureq::post(server.url(COMPLETIONS)).header("content-type", kind);
        match request.header("content-encoding", coding).send(r#"{"prompt": "Once"}"#) {
            Ok(response) => response.status().as_u16(),
            Err(ureq::Error::StatusCode(status)) => status,
            Err(error) => panic!("{error}"),
        }
    };
    for kind in ["Application/JSON", "application/json; charset=utf-8", "application/vnd.api+json"]
    {
        assert_eq!(status(kind, "identity"), 200, "{kind}");
    }
    assert_eq!(status("text/json+plain", "identity"), 415);
    assert_eq!(status("application/json", "gzip"), 415);
}

#[test]
fn a_body_may_be_any_unicode_that_python_reads() {
    let server = Server::start(&[]);
    let text = r#"{"prompt": "Once é 🙂", "max_tokens": 2, "temperature": 0}"#;
    let status = |bytes: &[u8]| {
        let request =
            ureq::post(server.url(COMPLETIONS)).header("content-type", "application/json");
        match request.send(bytes) {
            Ok(response) => response.status().as_u16(),
            Err(ureq::Error::StatusCode(status)) => status,
            Err(error) => panic!("{error}"),
        }
    };
    let utf16: Vec<u16> = text.encode_utf16().collect();
    let mut forms = vec![text.as_bytes().to_vec(), [b"\xEF\xBB\xBF", text.as_bytes()].concat()];
    forms.push(utf16.iter().flat_map(|unit| unit.to_le_bytes()).collect());
    forms.push(utf16.iter().flat_map(|unit| unit.to_be_bytes()).collect());
    forms.push(std::iter::once(0xFEFF).chain(utf16).flat_map(u16::to_le_bytes).collect());
    forms.push(text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect());
    for form in &forms {
        assert_eq!(status(form), 200, "{form:?}");
    }
    assert_eq!(status(b"\xFF\xFE{"), 400);
}

#[test]
fn a_body_that_is_announced_as_too_long_is_refused_before_it_is_sent() {
    use std::io::Write as _;
    let server = Server::start(&[]);
    let mut client = server.connect();
    write!(
        client,
        "POST {COMPLETIONS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         expect: 100-continue\r\ncontent-length: 3000000\r\n\r\n"
    )
    .unwrap();
    let told = crate::running_server::read_some(&mut client, 12);
    assert!(told.starts_with("HTTP/1.1 413"), "{told}");
}

#[test]
fn the_context_that_is_served_is_one_number() {
    let server = Server::start(&["--max-batch-tokens", "20"]);
    let (_, list) = server.get("/v1/models");
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list["data"][0]["max_model_len"], 20);
    for (prompt, tokens) in [(10, 11), (19, 2), (20, 1)] {
        let ask = json!({"prompt": vec![5; prompt], "max_tokens": 50, "ignore_eos": true});
        let (status, answer) = server.post(COMPLETIONS, &ask);
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["usage"]["completion_tokens"], tokens);
    }
    let (status, answer) = server.post(COMPLETIONS, &json!({"prompt": vec![5; 21]}));
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("context_length_exceeded")));
    assert!(answer["error"]["message"].as_str().unwrap().contains("20"), "{answer}");
}

#[test]
fn an_error_stays_short_however_long_the_request_is() {
    let server = Server::start(&[]);
    let long = "é\u{1b}x".repeat(30_000);
    let names: Vec<String> = (0..5000).map(|i| format!("field{i}")).collect();
    for body in [
        json!({"prompt": "Once", "model": long}),
        json!({"prompt": {"text": long}}),
        json!({"prompt": "Once", "max_tokens": long}),
        json!({"prompt": "Once", "stop": [[long]]}),
        json!({"prompt": "Once", "logprobs": vec![1; 50_000]}),
        json!({"prompt": "Once", "structured_outputs": {"regex": format!("({long}")}}),
        json!({"prompt": "Once", "structured_outputs": {long.clone(): 1}}),
        json!({"prompt": "Once", "response_format": {"type": long}}),
        json!({"prompt": "Once", "stream_options": long}),
        json!({"prompt": "Once", "guided_choice": {"names": names}}),
    ] {
        let (status, text) = server.post_text(COMPLETIONS, &body.to_string());
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert!([400, 404].contains(&status), "{answer}");
        assert!(text.len() < 8000, "{} bytes", text.len());
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.chars().count() <= 1001, "{message}");
    }
    for body in [
        json!({"messages": [{"role": long, "content": "x"}]}),
        json!({"messages": [{"role": "user", "content": {"text": long}}]}),
        json!({"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {long: 1}}),
    ] {
        let (status, text) = server.post_text(CHAT, &body.to_string());
        assert!(status == 400 && text.len() < 8000, "{status}: {} bytes", text.len());
    }
}
