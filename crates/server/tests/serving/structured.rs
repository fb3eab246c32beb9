//! JSON schemas and grammars over HTTP: OpenAI's `response_format`, also as llama.cpp has it, and
//! vLLM's `structured_outputs`.

use crate::running_server::{body, with, Server, CHAT, COMPLETIONS};
use serde_json::{json, Value};
use std::collections::BTreeMap;

fn chat(more: &Value) -> Value {
    let messages = json!([{"role": "user", "content": "Write an example"}]);
    with(json!({"messages": messages, "max_tokens": 200, "temperature": 0}), more)
}

/// A person, with children who are persons.
fn person() -> Value {
    json!({
        "type": "object", "properties": {
            "name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 99},
            "children": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2},
        },
        "required": ["name", "age"], "additionalProperties": false,
    })
}

fn person_format() -> Value {
    json!({"type": "json_schema", "json_schema": {"name": "person", "schema": person()}})
}

fn is_person(text: &str) -> bool {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    value["name"].is_string() && value["age"].as_u64().is_some_and(|age| age < 100)
}

/// The fields and values of vLLM's `tests/entrypoints/openai` and of llama.cpp's
/// `tools/server/tests/unit/test_chat_completion.py`: what they expect of a text, or None for 400.
#[test]
fn formats_of_vllms_and_llama_cpps_tests() {
    let server = Server::start(&[]);
    let result = json!({"type": "object", "properties": {"result": {"type": "integer"}},
        "required": ["result"], "additionalProperties": false});
    let wrong = json!({"type": "object", "properties": {"brand": {"type": "string"}, "foo": "bar"},
        "required": ["brand", "foo"]});
    let car = json!({"properties": {"brand": {"title": "Brand", "type": "string", "maxLength": 9},
        "car_type": {"$ref": "#/$defs/CarType"}}, "required": ["brand", "car_type"], "title": "Car",
        "type": "object", "$defs": {"CarType": {"enum": ["sedan", "SUV"], "type": "string"}}});
    let schema = |schema: Value| json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}});
    let sql = "root ::= select_statementinvalidsyntax\n\nselect_statement ::= \"SELECT \" column";
    for (asked, want) in [
        (
            json!({"response_format": {"type": "json_object", "schema": {"const": "42"}}}),
            Some("\"42\""),
        ),
        (json!({"response_format": schema(json!({"const": "foooooo"}))}), Some("\"foooooo\"")),
        (json!({"response_format": schema(result)}), Some("{\"result\"")),
        (json!({"response_format": {"type": "json_object"}}), Some("{")),
        (json!({"response_format": {"type": "text"}}), Some("")),
        (json!({"structured_outputs": {"grammar": "start: \"a\"~5"}}), Some("aaaaa")),
        (json!({"structured_outputs": {"json_object": true}}), Some("{")),
        (
            json!({"response_format": {"type": "json_object", "schema": {"items": [{"type": "integer"}]}}}),
            Some(""),
        ),
        (
            json!({"structured_outputs": {"choice": ["Java", "JavaScript", "C++", "C#"]},
                "logprobs": true, "top_logprobs": 5}),
            Some(""),
        ),
        (json!({"structured_outputs": {"json": car}}), Some("{\"brand\"")),
        (json!({"response_format": {"type": "sound"}}), None),
        (json!({"response_format": {"type": "json_object", "schema": 123}}), None),
        (json!({"response_format": {"type": "json_object", "schema": {"type": 123}}}), None),
        (json!({"response_format": {"type": "json_object", "schema": {"type": "hiccup"}}}), None),
        (json!({"response_format": {"type": "json_schema"}}), None),
        (json!({"response_format": {"type": "structural_tag", "format": 1}}), None),
        (json!({"structured_outputs": {"structural_tag": "x"}}), None),
        (json!({"structured_outputs": {"json": wrong}}), None),
        (json!({"structured_outputs": {"regex": "[.*"}, "stop": ["\n"]}), None),
        (json!({"structured_outputs": {"regex": {"1": "Python", "2": "C++"}}}), None),
        (json!({"structured_outputs": {"grammar": sql}}), None),
        (json!({"structured_outputs": {"grammar": ""}}), None),
        (json!({"grammar": "root ::= this is (not valid GBNF"}), None),
    ] {
        let asked = with(asked, &json!({"max_tokens": 60}));
        let (status, answer) = server.post(CHAT, &chat(&asked));
        match want {
            Some(start) => {
                assert_eq!(status, 200, "{asked}: {answer}");
                let choice = &answer["choices"][0];
                let text = choice["message"]["content"].as_str().unwrap();
                let choices = asked["structured_outputs"]["choice"].as_array();
                assert!(choices.is_none_or(|choices| choices.contains(&json!(text))), "{text}");
                for token in choice["logprobs"]["content"].as_array().into_iter().flatten() {
                    let top = token["top_logprobs"].as_array().unwrap();
                    assert!(top.iter().all(|one| one["logprob"].as_f64() >= Some(-9999.0)));
                }
                assert!(text.replace([' ', '\n'], "").starts_with(start), "{asked}: {text:?}");
            }
            None => {
                assert_eq!(status, 400, "{asked}: {answer}");
                let param = answer["error"]["param"].as_str().unwrap();
                assert!(asked.get(param).is_some(), "{asked}: {answer}");
            }
        }
    }
}

/// Streams, several choices, log-probabilities, other requests in the batch and preemption make no
/// difference to a text.
#[test]
fn a_format_holds_in_every_way_to_ask() {
    let server = Server::start(&["--num-gpu-blocks-override", "24"]);
    let ask = json!({"response_format": person_format(), "temperature": 1.5, "seed": 3, "n": 3, "max_tokens": 300});
    let whole = server.answer(CHAT, &chat(&ask));
    let texts: Vec<&str> =
        (0..3).map(|i| whole["choices"][i]["message"]["content"].as_str().unwrap()).collect();
    for (i, text) in texts.iter().enumerate() {
        let finish = &whole["choices"][i]["finish_reason"];
        assert!(*finish != "stop" || is_person(text), "{text}");
    }
    assert!(texts.iter().any(|text| is_person(text)), "{texts:?}");
    let mut streamed = vec![String::new(); 3];
    let stream = with(chat(&ask), &json!({"stream": true, "logprobs": true, "top_logprobs": 2}));
    for event in server.events(CHAT, &stream) {
        for choice in event["choices"].as_array().unwrap() {
            let text = choice["delta"]["content"].as_str().unwrap_or_default();
            streamed[choice["index"].as_u64().unwrap() as usize] += text;
        }
    }
    assert_eq!(streamed, texts);
    // Many at once, some without a format.
    let plain = server.text("Once upon a time", &json!({}));
    std::thread::scope(|scope| {
        let asked: Vec<_> =
            (0..6).map(|_| scope.spawn(|| server.post(CHAT, &chat(&ask)))).collect();
        for _ in 0..3 {
            assert_eq!(server.text("Once upon a time", &json!({})), plain);
        }
        for thread in asked {
            assert_eq!(thread.join().unwrap().1["choices"], whole["choices"]);
        }
    });
    // Choices of one request run side by side, however busy the machine is.
    let many = server.answer(CHAT, &chat(&with(ask, &json!({"n": 24}))));
    assert_eq!(many["choices"].as_array().unwrap()[..3], *whole["choices"].as_array().unwrap());
    assert!(server.metric("num_preemptions_total") > 0.0, "24 blocks were enough");
}

#[test]
fn a_complete_text_ends_whatever_else_is_asked() {
    let server = Server::start(&[]);
    for more in [
        json!({}),
        json!({"ignore_eos": true}),
        json!({"min_tokens": 20}),
        json!({"ignore_eos": true, "stop_token_ids": [300]}),
    ] {
        let ask = json!({"structured_outputs": {"json": {"const": "one\ntwo"}}, "max_tokens": 40});
        for (path, asked) in [(COMPLETIONS, body("Once", &ask)), (CHAT, chat(&ask))] {
            let answer = server.answer(path, &with(asked, &more));
            let choice = &answer["choices"][0];
            let text = choice["text"].as_str().or(choice["message"]["content"].as_str()).unwrap();
            assert_eq!(
                (text, &choice["finish_reason"]),
                ("\"one\\ntwo\"", &json!("stop")),
                "{more}"
            );
        }
    }
}

/// Rules that leave no token fail their own text, and say so.
#[test]
fn a_format_and_a_forbidden_token_fail_alone() {
    let server = Server::start(&[]);
    let plain = server.text("Once upon a time", &json!({}));
    let ask = json!({"response_format": {"type": "json_object"}, "allowed_token_ids": [300]});
    let (status, answer) = server.post(COMPLETIONS, &body("Once", &ask));
    assert_eq!(status, 400, "{answer}");
    let words = answer["error"]["message"].as_str().unwrap();
    assert!(words.contains("the JSON schema") && words.contains("left no token"), "{words}");
    assert_eq!(server.text("Once upon a time", &json!({})), plain);
}

/// Schemas that can't be compiled are refused before anything runs, in bounded time and memory.
#[test]
fn impossible_formats_are_refused() {
    let server = Server::start(&[]);
    let whole = server.text("Once upon a time", &json!({}));
    let many: Vec<Value> = (0..10_000).map(|n| json!({"required": [format!("k{n}")]})).collect();
    // Too many properties to keep track of, as it turns out while the text is written.
    let properties: BTreeMap<_, _> = (0..600).map(|n| (format!("k{n}"), json!({}))).collect();
    let ask = json!({"structured_outputs": {"json": {"type": "object", "properties": properties}}});
    let (status, answer) = server.post(COMPLETIONS, &body("Once", &ask));
    assert_eq!((status, &answer["error"]["type"]), (400, &json!("invalid_request_error")));
    assert!(answer["error"]["message"].as_str().unwrap().contains("too complex"), "{answer}");
    for schema in [
        json!("{"),
        json!({"$ref": "#"}),
        json!({"anyOf": many}),
        json!({"const": "x".repeat(1_000_000)}),
        json!({"type": "integer", "multipleOf": 99_999_999}),
    ] {
        let ask = json!({"structured_outputs": {"json": schema}});
        let (status, answer) = server.post(COMPLETIONS, &body("Once", &ask));
        assert_eq!(
            (status, &answer["error"]["param"]),
            (400, &json!("structured_outputs")),
            "{answer}"
        );
        assert_eq!(answer["error"]["type"], "invalid_request_error");
        assert_eq!(server.text("Once upon a time", &json!({})), whole);
    }
    #[cfg(target_os = "linux")]
    assert!(server.peak_memory() < 1 << 30, "{}", server.peak_memory());
}
