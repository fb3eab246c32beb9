//! Requests of OpenAI's clients: what each field does, its range, and what is refused. The lists of
//! names are made by `tests/oracle/request_fields.py`, from packages of OpenAI's, vLLM's and
//! llama.cpp's.

use crate::openai::known_fields::{rule, FieldRule, READ, REFUSED, WITHOUT_EFFECT};
use crate::openai::Endpoint::{self, Chat, Completions};
use crate::openai::{ApiError, ApiRequest, ChatMessage, PromptInput};
use candecode::kit::SamplingParams;
use serde_json::{json, Value};
use std::collections::BTreeMap;

/// Parses the smallest request with what `more` says, sent to a server of story-3m.
fn parse(endpoint: Endpoint, more: &Value) -> Result<ApiRequest, ApiError> {
    let mut body = match endpoint {
        Completions => json!({"prompt": "Once"}),
        Chat => json!({"messages": [{"role": "user", "content": "Hi"}]}),
    };
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    ApiRequest::parse(endpoint, body.to_string().as_bytes(), "story-3m", 99)
}

/// The field at fault in a request that is refused with 400, and the message.
#[track_caller]
fn refused(endpoint: Endpoint, more: &Value) -> (String, String) {
    match parse(endpoint, more) {
        Ok(request) => panic!("{more} is taken: {request:?}"),
        Err(error) => {
            assert_eq!(error.status, 400, "{more}: {error}");
            let length = error.body().to_string().len();
            assert!(length < 1500, "{length} bytes");
            (error.param.unwrap_or_default(), error.message)
        }
    }
}

/// What a client gets that asks for nothing.
fn defaults(max_new_tokens: usize) -> SamplingParams {
    SamplingParams { max_new_tokens, temperature: 1.0, seed: 99, ..SamplingParams::default() }
}

#[test]
fn every_documented_field_has_a_rule() {
    let text = std::fs::read_to_string("../../tests/oracle/request_fields.json").unwrap();
    let sources: BTreeMap<String, BTreeMap<String, Vec<String>>> =
        serde_json::from_str(&text).unwrap();
    assert_eq!(sources.len(), 3);
    let mut count = 0;
    for (source, places) in &sources {
        for (place, name) in
            places.iter().flat_map(|(place, names)| names.iter().map(move |name| (place, name)))
        {
            count += 1;
            if ["completions", "chat"].contains(&place.as_str()) {
                assert!(rule(name).is_some(), "{source} documents {name}: what becomes of it?");
            } else if !["include_usage", "type", "regex", "choice"].contains(&name.as_str()) {
                // What is not read within a field is refused.
                let inner = json!({"type": "text", "regex": "a", name: "x"});
                let (param, words) = refused(Chat, &json!({"stream": true, place: inner}));
                assert_eq!(&param, place, "{words}");
            }
        }
    }
    assert!(count > 300, "{count}");
}

#[test]
fn a_field_is_read_or_refused_or_noted() {
    let unknown = [json!(true), json!(7.5), json!("x"), json!(["x"]), json!({"x": 1})];
    for endpoint in [Completions, Chat] {
        let neutral = parse(endpoint, &json!({})).unwrap();
        for name in WITHOUT_EFFECT.iter().flat_map(|(_, names)| *names).chain(&["mystery"]) {
            let mut request = parse(endpoint, &json!({ *name: 7 })).unwrap();
            assert_eq!(std::mem::take(&mut request.ignored), [*name]);
            assert_eq!(request, neutral, "{name}");
        }
        for (nothing, names) in REFUSED {
            let nothing: Value = serde_json::from_str(nothing).unwrap();
            for name in *names {
                for value in unknown.iter().filter(|value| **value != nothing) {
                    let (param, words) = refused(endpoint, &json!({ *name: value }));
                    assert!(param == *name && words.contains("not supported"), "{words}");
                }
                for value in [&nothing, &Value::Null] {
                    assert_eq!(
                        parse(endpoint, &json!({ *name: value })).unwrap(),
                        neutral,
                        "{name}"
                    );
                }
            }
        }
        // No field that is read takes everything.
        for (name, _) in READ {
            let taken = unknown.iter().filter(|value| {
                let error = parse(endpoint, &json!({ *name: value })).err();
                error.is_none_or(|error| error.param.as_deref() != Some(*name))
            });
            assert!(taken.count() < 4, "{name}");
            if !["messages", "prompt"].contains(name) {
                assert_eq!(parse(endpoint, &json!({ *name: null })).unwrap(), neutral, "{name}");
            }
        }
    }
}

#[test]
fn sampling_parameters_have_openais_names_defaults_and_vllms_extensions() {
    let own = defaults(16);
    assert_eq!(parse(Chat, &json!({})).unwrap().params, defaults(usize::MAX));
    for (asked, want) in [
        (json!({}), own.clone()),
        (
            json!({"temperature": 0, "top_p": 0.5, "min_p": 0.25}),
            SamplingParams { temperature: 0.0, top_p: 0.5, min_p: 0.25, ..own.clone() },
        ),
        // Much smaller ones overflow: they are greedy, as in vLLM.
        (json!({"temperature": 1e-46}), SamplingParams { temperature: 0.0, ..own.clone() }),
        (json!({"top_k": 5, "seed": 7}), SamplingParams { top_k: Some(5), seed: 7, ..own.clone() }),
        (json!({"top_k": -1, "seed": -1}), own.clone()),
        (json!({"seed": -2}), SamplingParams { seed: -2_i64 as u64, ..own.clone() }),
        // Python's clients send floats for integers, and vLLM takes them.
        (
            json!({"max_tokens": 8.0, "top_k": 0.0}),
            SamplingParams { max_new_tokens: 8, ..own.clone() },
        ),
        (
            json!({"max_tokens": 8, "max_completion_tokens": 9}),
            SamplingParams { max_new_tokens: 9, ..own.clone() },
        ),
        (
            json!({"presence_penalty": 2, "frequency_penalty": -2, "repetition_penalty": 1.5}),
            SamplingParams {
                presence_penalty: 2.0,
                frequency_penalty: -2.0,
                repetition_penalty: 1.5,
                ..own.clone()
            },
        ),
        (
            json!({"stop": "x", "stop_token_ids": [5]}),
            SamplingParams { stop: vec!["x".into()], stop_token_ids: vec![5], ..own.clone() },
        ),
        (
            json!({"stop": ["x", "\n"], "bad_words": ["cat"]}),
            SamplingParams {
                stop: vec!["x".into(), "\n".into()],
                bad_words: vec!["cat".into()],
                ..own.clone()
            },
        ),
        (
            json!({"logit_bias": {"5": -100, "7": 1.5}, "allowed_token_ids": [9, 5, 9]}),
            SamplingParams {
                logit_bias: vec![(5, -100.0), (7, 1.5)],
                allowed_token_ids: Some(vec![5, 9]),
                ..own.clone()
            },
        ),
        (
            json!({"min_tokens": 3, "ignore_eos": true}),
            SamplingParams { min_new_tokens: 3, ignore_eos: true, ..own.clone() },
        ),
        (
            json!({"guided_regex": "a+"}),
            SamplingParams { allow_regex: Some("a+".into()), ..own.clone() },
        ),
        (
            json!({"guided_choice": ["a.b", "c"]}),
            SamplingParams { allow_regex: Some(r"(?:a\.b|c)".into()), ..own.clone() },
        ),
        (
            json!({"structured_outputs": {"regex": "a", "json": null},
                "response_format": {"type": "text"}}),
            SamplingParams { allow_regex: Some("a".into()), ..own.clone() },
        ),
        (
            json!({"structured_outputs": {"choice": ["yes"]}}),
            SamplingParams { allow_regex: Some("(?:yes)".into()), ..own.clone() },
        ),
    ] {
        assert_eq!(parse(Completions, &asked).unwrap().params, want, "{asked}");
    }
}

#[test]
fn what_is_out_of_range_or_too_much_is_refused() {
    let long = "A".repeat(900_000);
    let ids: Vec<u32> = (0..1500).collect();
    let bias: serde_json::Map<_, _> = ids.iter().map(|id| (id.to_string(), json!(1))).collect();
    for (asked, param) in [
        (json!({"temperature": -0.1}), "temperature"),
        (json!({"temperature": 1e39}), "temperature"), // 32 bits don't hold it
        (json!({"temperature": long}), "temperature"),
        (json!({"top_p": 0}), "top_p"),
        (json!({"top_p": 1e-46}), "top_p"),
        (json!({"top_p": 1.01}), "top_p"),
        (json!({"top_k": -2}), "top_k"),
        (json!({"top_k": 2.5}), "top_k"),
        (json!({"min_p": 1.000_000_001}), "min_p"),
        (json!({"seed": 0.5}), "seed"),
        (json!({"seed": 18_446_744_073_709_551_615_u64}), "seed"),
        (json!({"presence_penalty": 2.1}), "presence_penalty"),
        (json!({"frequency_penalty": -2.1}), "frequency_penalty"),
        (json!({"repetition_penalty": 1e-38}), "repetition_penalty"),
        (json!({"repetition_penalty": 1e300}), "repetition_penalty"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"max_completion_tokens": -5}), "max_completion_tokens"),
        (json!({"min_tokens": -1}), "min_tokens"),
        (json!({"n": 0}), "n"),
        (json!({"n": 129}), "n"),
        (json!({"n": 2, "best_of": 3}), "best_of"),
        (json!({"n": 2, "best_of": 1}), "best_of"),
        (json!({"n": 2, "temperature": 0}), "n"), // both would be the same text
        (json!({"stop": ["END", ""]}), "stop"),
        (json!({"stop": {"x": long}}), "stop"),
        (json!({"stop": vec!["ab"; 65]}), "stop"),
        (json!({"stop": "é".repeat(2049)}), "stop"),
        (json!({"bad_words": vec!["dog"; 257]}), "bad_words"),
        (json!({"bad_words": ["x".repeat(5000)]}), "bad_words"),
        (json!({"stop_token_ids": ids}), "stop_token_ids"),
        (json!({"allowed_token_ids": [-1]}), "allowed_token_ids"),
        (json!({"logit_bias": bias}), "logit_bias"),
        (json!({"logit_bias": {"cat": 1}}), "logit_bias"),
        (json!({"logit_bias": {"5": 101}}), "logit_bias"),
        (json!({"logprobs": true, "top_logprobs": 21}), "top_logprobs"),
        (json!({"top_logprobs": 2}), "top_logprobs"),
        (json!({"logprobs": 3}), "logprobs"),
        (json!({"guided_choice": []}), "guided_choice"),
        (json!({"guided_regex": "a", "guided_choice": ["b"]}), "guided_choice"),
        (json!({"structured_outputs": {"regex": "a", "choice": ["b"]}}), "structured_outputs"),
        (json!({"structured_outputs": {long.clone(): 1}}), "structured_outputs"),
        (json!({"response_format": {"type": "json_object"}}), "response_format"),
        (json!({"response_format": {"type": long}}), "response_format"),
        (json!({"response_format": "text"}), "response_format"),
        (json!({"stream_options": {"include_usage": true}}), "stream_options"), // no stream
        (json!({"stream_options": {"include_usage": 1}}), "stream_options"),
        (json!({"tools": [{"type": "function"}]}), "tools"),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (json!({"model": 7}), "model"),
        (json!({"prompt": "Once"}), "prompt"), // a completion's
        (json!({"echo": true}), "echo"),
    ] {
        let (param_got, words) = refused(Chat, &asked);
        assert_eq!(param_got, param, "{words}");
        assert!(words.starts_with(param) || param == "n", "{words}");
    }
    for (asked, param) in [
        (json!({"messages": [{"role": "user", "content": "Hi"}]}), "messages"), // a chat's
        (json!({"chat_template_kwargs": {"a": 1}}), "chat_template_kwargs"),
        (json!({"logprobs": 21}), "logprobs"),
        (json!({"logprobs": true}), "logprobs"),
        (json!({"echo": true, "logprobs": 0}), "echo"),
        (json!({"prompt": vec!["Once"; 65], "n": 2}), "n"),
    ] {
        assert_eq!(refused(Completions, &asked).0, param, "{asked}");
    }
    let error = parse(Chat, &json!({"model": "story-7b"})).unwrap_err();
    assert_eq!((error.status, error.code), (404, Some("model_not_found")));
    for body in ["{\"prompt\": ", "[\"Once\"]", &"[".repeat(500_000)] {
        let error = ApiRequest::parse(Completions, body.as_bytes(), "story-3m", 99).unwrap_err();
        assert_eq!((error.status, error.param), (400, None));
    }
}

#[test]
fn values_that_stand_for_nothing_are_nothing() {
    for (endpoint, nothing) in [
        (Completions, json!({"model": ""})),
        (Completions, json!({"logprobs": false})),
        (Completions, json!({"top_logprobs": 0, "best_of": 1.0})),
        (Chat, json!({"logprobs": false, "top_logprobs": 0})),
        (Chat, json!({"tools": [{"type": "function"}], "tool_choice": "none"})),
        (Chat, json!({"tools": [], "tool_choice": "auto"})),
        (Chat, json!({"response_format": {"type": "text", "json_schema": null}})),
        (Chat, json!({"stream_options": {"include_obfuscation": false}})),
        (Chat, json!({"structured_outputs": {}})),
    ] {
        let neutral = parse(endpoint, &json!({})).unwrap();
        assert_eq!(parse(endpoint, &nothing).unwrap(), neutral, "{nothing}");
    }
}

#[test]
fn a_whole_request() {
    let asked = json!({
        "model": "story-3m", "prompt": ["Once", "The"], "n": 2, "stream": true, "logprobs": 2,
        "stream_options": {"include_usage": true}, "mystery": "a", "user": "x",
    });
    let text = |text: &str| PromptInput::Text(text.to_string());
    let want = ApiRequest {
        endpoint: Completions,
        prompts: vec![text("Once"), text("The")],
        params: defaults(16),
        pattern_field: None,
        n: 2,
        logprobs: Some(2),
        echo: false,
        stream: true,
        include_usage: true,
        add_generation_prompt: true,
        continue_final_message: false,
        template_kwargs: serde_json::Map::new(),
        ignored: vec!["mystery".into(), "user".into()],
    };
    assert_eq!(parse(Completions, &asked).unwrap(), want);
    let asked = json!({
        "continue_final_message": true, "chat_template_kwargs": {"enable_thinking": false},
        "logprobs": true, "guided_regex": "a",
    });
    let chat = parse(Chat, &asked).unwrap();
    assert!(chat.continue_final_message && !chat.add_generation_prompt);
    assert_eq!(chat.template_kwargs["enable_thinking"], false);
    assert_eq!((chat.logprobs, chat.pattern_field), (Some(0), Some("guided_regex")));
}

#[test]
fn prompts_and_messages_have_several_forms() {
    let text = |text: &str| PromptInput::Text(text.to_string());
    for (prompt, want) in [
        (json!("Once"), vec![text("Once")]),
        (json!(["Once", ""]), vec![text("Once"), text("")]),
        (json!([7, 8]), vec![PromptInput::Ids(vec![7, 8])]),
        (json!([[7, 8], []]), vec![PromptInput::Ids(vec![7, 8]), PromptInput::Ids(vec![])]),
    ] {
        let asked = json!({ "prompt": prompt });
        assert_eq!(parse(Completions, &asked).unwrap().prompts, want, "{asked}");
    }
    for prompt in [
        json!(null),
        json!(7),
        json!({"text": "Once"}),
        json!(["Once", 7]),
        json!([7, "Once"]),
        json!([[7], "Once"]),
        json!([-7]),
        json!([7.5]),
        json!([4_294_967_296_u64]),
        json!([null]),
    ] {
        assert_eq!(refused(Completions, &json!({ "prompt": prompt })).0, "prompt", "{prompt}");
    }
    let messages = json!([
        {"role": "developer", "content": "Be short."},
        {"role": "user", "content": "Hi", "name": "Lily"},
        {"role": "assistant", "content": null, "tool_calls": []},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "system", "content": []},
    ]);
    let said = |role, content: &str| ChatMessage { role, content: content.to_string() };
    let want = vec![
        said("system", "Be short."),
        said("user", "Hi"),
        said("assistant", ""),
        said("user", "a\nb"),
        said("system", ""),
    ];
    let got = parse(Chat, &json!({ "messages": messages })).unwrap().prompts;
    assert_eq!(got, [PromptInput::Messages(want)]);
    for messages in [
        json!(null),
        json!([]),
        json!("Hi"),
        json!(["Hi"]),
        json!([{"role": "tool", "content": "4"}]),
        json!([{"content": "Hi"}]),
        json!([{"role": "user"}]),
        json!([{"role": "user", "content": 4}]),
        json!([{"role": "user", "content": [{"type": "image_url", "text": "a cat"}]}]),
        json!([{"role": "user", "content": ["Hi"]}]),
        json!([{"role": "assistant", "tool_calls": [{"id": "x"}]}]),
        json!([{"role": "A".repeat(90_000), "content": "x"}]),
    ] {
        assert_eq!(refused(Chat, &json!({ "messages": messages })).0, "messages", "{messages}");
    }
}

#[test]
fn no_name_has_two_rules() {
    let mut names: Vec<&str> = READ.iter().map(|(name, _)| *name).collect();
    for (_, more) in WITHOUT_EFFECT.iter().chain(REFUSED) {
        names.extend(*more);
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert_eq!(rule("user"), Some(FieldRule::NoEffect("a label for the client's own records")));
}
