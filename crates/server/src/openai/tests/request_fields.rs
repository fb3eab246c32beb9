//! Every field that OpenAI, vLLM and llama.cpp document is honoured, refused, or known to change nothing. The lists of names are
//! made by `tests/oracle/request_fields.py`, from packages of theirs.

use crate::openai::known_fields::{FieldRule, Neutral, FIELDS, STREAM_OPTIONS, STRUCTURED_OUTPUTS};
use crate::openai::{ApiError, ApiRequest, Endpoint};
use candecode::kit::SamplingParams;
use serde_json::{json, Value};
use std::collections::BTreeMap;

const BOTH: [Endpoint; 2] = [Endpoint::Completions, Endpoint::Chat];

/// The smallest request, and what `more` says.
fn body(endpoint: Endpoint, more: &Value) -> Value {
    let mut body = match endpoint {
        Endpoint::Completions => json!({"prompt": "Once"}),
        Endpoint::Chat => json!({"messages": [{"role": "user", "content": "Hi"}]}),
    };
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn parse(endpoint: Endpoint, more: &Value) -> Result<ApiRequest, ApiError> {
    ApiRequest::parse(endpoint, body(endpoint, more).to_string().as_bytes(), "story", 99)
}

fn params(more: &Value) -> SamplingParams {
    parse(Endpoint::Completions, more).unwrap_or_else(|error| panic!("{more}: {error}")).params
}

/// The refusal of a request: the field at fault, and the words.
fn refused(endpoint: Endpoint, more: &Value) -> (String, String) {
    match parse(endpoint, more) {
        Ok(request) => panic!("{more} is taken: {request:?}"),
        Err(error) => {
            assert_eq!(error.status, 400, "{more}: {error}");
            (error.param.unwrap_or_default(), error.message)
        }
    }
}

/// A wish for every field that is read, on the endpoint that has it.
fn wishes() -> Vec<(&'static str, Endpoint, Value)> {
    use Endpoint::{Chat, Completions};
    vec![
        ("add_generation_prompt", Chat, json!(false)),
        ("add_special_tokens", Completions, json!(false)),
        ("allowed_token_ids", Chat, json!([5, 9])),
        ("bad_words", Chat, json!(["cat"])),
        ("best_of", Completions, json!(3)),
        ("chat_template_kwargs", Chat, json!({"enable_thinking": false})),
        ("continue_final_message", Chat, json!(true)),
        ("echo", Completions, json!(true)),
        ("frequency_penalty", Chat, json!(0.5)),
        ("function_call", Chat, json!({"name": "f"})),
        ("guided_choice", Chat, json!(["red", "blue"])),
        ("guided_regex", Completions, json!("[0-9]+")),
        ("ignore_eos", Chat, json!(true)),
        ("include_stop_str_in_output", Chat, json!(true)),
        ("logit_bias", Chat, json!({"5": -100})),
        ("logprobs", Completions, json!(2)),
        ("max_completion_tokens", Completions, json!(7)),
        ("max_tokens", Chat, json!(7)),
        ("messages", Chat, json!([{"role": "user", "content": "Bye"}])),
        ("min_p", Chat, json!(0.5)),
        ("min_tokens", Chat, json!(5)),
        ("model", Chat, json!(7)),
        ("n", Chat, json!(2)),
        ("n_cmpl", Completions, json!(2)),
        ("n_predict", Completions, json!(7)),
        ("penalty_last_n", Completions, json!(5)),
        ("presence_penalty", Chat, json!(0.5)),
        ("prompt", Completions, json!("Twice")),
        ("repeat_last_n", Completions, json!(5)),
        ("repeat_penalty", Completions, json!(1.5)),
        ("repetition_penalty", Chat, json!(1.5)),
        ("request_id", Chat, json!("mine")),
        ("response_format", Chat, json!({"type": "json_object"})),
        ("seed", Chat, json!(3)),
        ("stop", Chat, json!("x")),
        ("stop_token_ids", Chat, json!([5])),
        ("stream", Chat, json!(true)),
        ("stream_options", Chat, json!({"include_usage": true})),
        ("structured_outputs", Chat, json!({"regex": "a"})),
        ("temperature", Chat, json!(0.5)),
        ("tool_choice", Chat, json!("required")),
        ("top_k", Chat, json!(5)),
        ("top_logprobs", Chat, json!(2)),
        ("top_p", Chat, json!(0.5)),
    ]
}

#[test]
fn every_documented_field_has_a_rule() {
    let text = std::fs::read_to_string("../tests/oracle/request_fields.json").unwrap();
    let lists: BTreeMap<String, BTreeMap<String, Vec<String>>> =
        serde_json::from_str(&text).unwrap();
    assert_eq!(lists.len(), 3);
    let mut count = 0;
    for (source, places) in &lists {
        for (place, names) in places {
            let known = match place.as_str() {
                "completions" | "chat" => FIELDS,
                "stream_options" => STREAM_OPTIONS,
                "structured_outputs" => STRUCTURED_OUTPUTS,
                "response_format" => continue, // its own test: one type is taken, and nothing with it
                other => panic!("{other}"),
            };
            for name in names {
                let has_rule = known.iter().any(|(known, _)| known == name);
                assert!(has_rule, "{source} documents {name} in {place}: what becomes of it?");
                count += 1;
            }
        }
    }
    assert!(count > 300, "{count}");
    assert!(FIELDS.is_sorted_by(|a, b| a.0 < b.0));
}

#[test]
fn what_is_read_changes_the_request_or_is_refused() {
    let wishes = wishes();
    let read = FIELDS.iter().filter(|(_, rule)| *rule == FieldRule::Read).map(|(name, _)| *name);
    let tried: Vec<&str> = wishes.iter().map(|(name, ..)| *name).collect();
    assert_eq!(tried, read.collect::<Vec<_>>());
    for (name, endpoint, value) in wishes {
        let neutral = parse(endpoint, &json!({})).unwrap();
        match parse(endpoint, &json!({ name: value })) {
            Ok(request) => {
                assert_eq!(request.ignored, [""; 0], "{name}");
                assert_ne!(request, neutral, "{name}: {value} is ignored");
            }
            Err(error) => assert_eq!(error.param.as_deref(), Some(name), "{error}"),
        }
        let request = parse(endpoint, &json!({ name: null }));
        if !["messages", "prompt"].contains(&name) {
            assert_eq!(request.unwrap(), neutral, "{name}: null");
        }
    }
}

#[test]
fn what_cannot_be_done_is_refused_and_what_asks_for_nothing_is_not() {
    let wishes =
        [json!(true), json!(7.5), json!("x"), json!(["x"]), json!({"x": 1}), json!(0), json!({})];
    for endpoint in BOTH {
        let neutral = parse(endpoint, &json!({})).unwrap();
        for (name, rule) in FIELDS {
            let FieldRule::Refused(accepted) = rule else { continue };
            let mut refusals = 0;
            for value in wishes.iter().filter(|value| !accepted.accepts(value)) {
                let (param, words) = refused(endpoint, &json!({ *name: value }));
                assert_eq!(param, *name);
                assert!(words.contains(name), "{words}");
                refusals += 1;
            }
            assert!(refusals >= 4, "{name}");
            let nothing = match accepted {
                Neutral::Empty => vec![json!(false), json!(""), json!([]), json!({})],
                Neutral::Number(number) => vec![json!(number)],
                Neutral::AtMost(most) => vec![json!(most), json!(most - 1.0)],
                Neutral::True => vec![json!(true)],
                Neutral::Words(words) => words.iter().map(|word| json!(word)).collect(),
                Neutral::ListOf(word) => vec![json!([]), json!([word])],
                Neutral::Null => vec![],
            };
            for value in nothing.into_iter().chain([Value::Null]) {
                let request = parse(endpoint, &json!({ *name: value }));
                assert_eq!(request.unwrap(), neutral, "{name}: {value}");
            }
        }
    }
}

#[test]
fn what_changes_nothing_is_noted_with_its_reason() {
    for endpoint in BOTH {
        let neutral = parse(endpoint, &json!({})).unwrap();
        for (name, rule) in FIELDS {
            let FieldRule::NoEffect(reason) = rule else { continue };
            assert!(reason.len() > 10, "{name}: {reason}");
            let mut request = parse(endpoint, &json!({ *name: 7 })).unwrap();
            assert_eq!(std::mem::take(&mut request.ignored), [*name]);
            assert_eq!(request, neutral, "{name}");
        }
    }
}

#[test]
fn the_same_holds_inside_of_fields() {
    for options in [
        json!({"include_obfuscation": true}),
        json!({"continuous_usage_stats": "yes"}),
        json!({"include_usage": 1}),
        json!(7),
    ] {
        let asked = json!({"stream": true, "stream_options": options});
        assert_eq!(refused(Endpoint::Chat, &asked).0, "stream_options", "{options}");
    }
    let asked = json!({"stream": true, "stream_options": {"include_usage": true, "mystery": 1}});
    let request = parse(Endpoint::Chat, &asked).unwrap();
    assert_eq!(request.ignored, ["stream_options.mystery"]);
    for nothing in
        [json!({}), json!({"include_usage": null}), json!({"include_obfuscation": false})]
    {
        assert!(parse(Endpoint::Chat, &json!({"stream_options": nothing})).is_ok(), "{nothing}");
    }

    for (asked, regex) in [
        (json!({"regex": "a", "json": null, "choice": null}), Some("a")),
        (
            json!({"choice": ["a.b"], "json_object": false, "whitespace_pattern": " "}),
            Some(r"(?:a\.b)"),
        ),
        (json!({"regex": "a", "json": {}}), None),
        (json!({"json_object": true}), None),
        (json!({"regex": "a", "choice": ["b"]}), None),
        (json!({"regex": "a", "mystery": 1}), None),
        (json!({"grammar": "root ::= x"}), None),
        (json!({}), None),
    ] {
        let asked = json!({"structured_outputs": asked});
        match regex {
            Some(regex) => assert_eq!(params(&asked).allow_regex.as_deref(), Some(regex)),
            None => assert_eq!(refused(Endpoint::Completions, &asked).0, "structured_outputs"),
        }
    }

    for format in [
        json!("text"),
        json!({}),
        json!({"type": "json_schema", "json_schema": {}}),
        json!({"type": 7}),
    ] {
        let (param, words) = refused(Endpoint::Chat, &json!({"response_format": format}));
        assert_eq!(param, "response_format");
        assert!(!words.contains("null"), "{words}");
    }
    let text = json!({"response_format": {"type": "text", "json_schema": null}});
    assert_eq!(parse(Endpoint::Chat, &text).unwrap(), parse(Endpoint::Chat, &json!({})).unwrap());

    for part in ["tool_calls", "function_call"] {
        let messages = json!([{"role": "assistant", "content": null, part: [{"id": "x"}]}]);
        assert_eq!(refused(Endpoint::Chat, &json!({"messages": messages})).0, "messages");
    }
}

#[test]
fn other_servers_names_mean_what_ours_do() {
    for (theirs, ours) in [
        (json!({"guided_regex": "a+"}), json!({"structured_outputs": {"regex": "a+"}})),
        (
            json!({"guided_choice": ["a", "b"]}),
            json!({"structured_outputs": {"choice": ["a", "b"]}}),
        ),
        (json!({"repeat_penalty": 1.5}), json!({"repetition_penalty": 1.5})),
        (
            json!({"repeat_penalty": 1.5, "repetition_penalty": 1.5}),
            json!({"repetition_penalty": 1.5}),
        ),
        (json!({"n_predict": 5}), json!({"max_tokens": 5})),
        (json!({"n_predict": 5, "max_tokens": 9}), json!({"max_tokens": 5})),
        (json!({"n_cmpl": 2}), json!({"n": 2})),
        (json!({"logit_bias": [[5, -1.5], [7, 2]]}), json!({"logit_bias": {"5": -1.5, "7": 2}})),
    ] {
        let parsed = |more: &Value| parse(Endpoint::Completions, more).unwrap();
        let mut parsed_theirs = parsed(&theirs);
        parsed_theirs.extras.pattern_field = None; // only for the names in errors
        assert_eq!(parsed_theirs, parsed(&ours), "{theirs}");
    }
    assert_eq!(params(&json!({"n_predict": -1})).max_new_tokens, i64::MAX as usize);
    assert_eq!(params(&json!({"repeat_last_n": -1})).penalty_window, None);
    assert_eq!(params(&json!({"repeat_last_n": 64})).penalty_window, Some(64));
    assert_eq!(params(&json!({"logit_bias": [[5, false]]})).logit_bias, [(5, f32::NEG_INFINITY)]);
    for (asked, param) in [
        (json!({"repeat_penalty": 1.5, "repetition_penalty": 1.2}), "repeat_penalty"),
        (json!({"guided_regex": "a", "structured_outputs": {"choice": ["b"]}}), "guided_regex"),
        (json!({"guided_regex": "a", "guided_choice": ["b"]}), "guided_choice"),
        (json!({"guided_regex": 5}), "guided_regex"),
        (json!({"guided_choice": []}), "guided_choice"),
        (json!({"n_predict": 0}), "n_predict"),
        (json!({"logit_bias": {"cat": 1}}), "logit_bias"),
        (json!({"logit_bias": {"5": "1"}}), "logit_bias"),
        (json!({"logit_bias": {"5": 101}}), "logit_bias"),
        (json!({"logit_bias": 5}), "logit_bias"),
        (json!({"allowed_token_ids": [-1]}), "allowed_token_ids"),
        (json!({"stop_token_ids": "5"}), "stop_token_ids"),
        (json!({"min_tokens": -1}), "min_tokens"),
        (json!({"request_id": "two words"}), "request_id"),
        (json!({"echo": true, "logprobs": 0}), "echo"),
        (json!({"chat_template_kwargs": {"a": 1}}), "chat_template_kwargs"),
    ] {
        assert_eq!(refused(Endpoint::Completions, &asked).0, param, "{asked}");
    }
    for (asked, param) in [
        (json!({"echo": true}), "echo"),
        (json!({"add_special_tokens": true}), "add_special_tokens"),
        (
            json!({"continue_final_message": true, "add_generation_prompt": true}),
            "continue_final_message",
        ),
    ] {
        assert_eq!(refused(Endpoint::Chat, &asked).0, param, "{asked}");
    }
}

#[test]
fn values_that_stand_for_nothing_are_nothing() {
    for (endpoint, nothing) in [
        (Endpoint::Completions, json!({"seed": -1})),
        (Endpoint::Completions, json!({"model": ""})),
        (Endpoint::Completions, json!({"logprobs": false})),
        (Endpoint::Completions, json!({"best_of": 1})),
        (Endpoint::Chat, json!({"top_logprobs": 0})),
        (Endpoint::Chat, json!({"top_logprobs": 0, "logprobs": false})),
        (Endpoint::Chat, json!({"tools": [{"type": "function"}], "tool_choice": "none"})),
        (Endpoint::Chat, json!({"functions": [{"name": "f"}], "function_call": "none"})),
        (Endpoint::Chat, json!({"tools": [], "tool_choice": "auto"})),
    ] {
        let neutral = parse(endpoint, &json!({})).unwrap();
        assert_eq!(parse(endpoint, &nothing).unwrap(), neutral, "{nothing}");
    }
    assert_eq!(parse(Endpoint::Completions, &json!({"n": 3, "best_of": 3})).unwrap().n, 3);
    for (endpoint, asked, param) in [
        (Endpoint::Completions, json!({"top_logprobs": 2}), "top_logprobs"),
        (
            Endpoint::Completions,
            json!({"messages": [{"role": "user", "content": "Hi"}]}),
            "messages",
        ),
        (Endpoint::Chat, json!({"prompt": "Once"}), "prompt"),
        (Endpoint::Completions, json!({"n": 3, "best_of": 1}), "best_of"),
        (Endpoint::Completions, json!({"n": 3, "best_of": 4}), "best_of"),
        (Endpoint::Chat, json!({"top_logprobs": 1}), "top_logprobs"),
        (Endpoint::Chat, json!({"tools": [{"type": "function"}]}), "tools"),
        (Endpoint::Chat, json!({"tool_choice": "required"}), "tool_choice"),
        (Endpoint::Chat, json!({"tool_choice": {"type": "function"}, "tools": []}), "tool_choice"),
        (Endpoint::Chat, json!({"tool_choice": 7}), "tool_choice"),
        (Endpoint::Chat, json!({"function_call": {"name": "f"}}), "function_call"),
    ] {
        assert_eq!(refused(endpoint, &asked).0, param, "{asked}");
    }
}

#[test]
fn numbers_are_checked_as_they_are_sent_and_as_32_bits_hold_them() {
    for tiny in [9e-6, 1e-38, 1e-46, 5e-324] {
        assert_eq!(params(&json!({"temperature": tiny})).temperature, 0.0, "{tiny}");
    }
    assert_eq!(params(&json!({"temperature": 1e-5})).temperature, 1e-5);
    // vLLM takes floats without a fraction as integers.
    let whole = params(&json!({"max_tokens": 8.0, "seed": 3.0, "top_k": 5.0, "min_tokens": 1.0}));
    assert_eq!(whole, params(&json!({"max_tokens": 8, "seed": 3, "top_k": 5, "min_tokens": 1})));
    assert_eq!(params(&json!({"seed": -1.0})).seed, 99);
    assert_eq!(refused(Endpoint::Chat, &json!({"seed": 0.5})).0, "seed");
    for (name, value, told) in [
        ("temperature", 1e39, "1e+39"),
        ("top_p", 1e-46, "1e-46"),
        ("repetition_penalty", 1e300, "1e+300"),
        ("repetition_penalty", 1e-46, "1e-46"),
        ("repetition_penalty", 1e-38, "1e-38"),
        ("frequency_penalty", 2.000_000_1, "2.0000001"),
        ("min_p", 1.000_000_001, "1.000000001"),
    ] {
        let (param, words) = refused(Endpoint::Chat, &json!({ name: value }));
        assert_eq!(param, name);
        assert!(words.contains(name) && words.ends_with(&format!("got {told}")), "{words}");
    }
    let long = "-9223372036854775809";
    let body = format!(r#"{{"prompt": "Once", "seed": {long}}}"#);
    let error = ApiRequest::parse(Endpoint::Completions, body.as_bytes(), "story", 99).unwrap_err();
    assert!(error.message.ends_with(&format!("got {long}")), "{error}");
}

#[test]
fn a_refusal_is_short_however_long_the_request_is() {
    let long = "A".repeat(900_000);
    let digits: Vec<u32> = (0..90_000).collect();
    for asked in [
        json!({"model": long}),
        json!({"response_format": {"type": long}}),
        json!({"response_format": long}),
        json!({"structured_outputs": {"choice": long}}),
        json!({"structured_outputs": {long.clone(): 1}}),
        json!({"stop": {"x": long}}),
        json!({"logit_bias": {long.clone(): 1}}),
        json!({"temperature": long}),
        json!({"tool_choice": long}),
        json!({"guided_choice": [long, 1]}),
        json!({"guided_regex": [long]}),
        json!({"stop_token_ids": [digits, -1]}),
        json!({"request_id": long}),
        json!({"best_of": long}),
        json!({"prompt": {"x": long}}),
    ] {
        let error = parse(Endpoint::Completions, &asked).unwrap_err();
        let length = error.body().to_string().len();
        assert!(length < 2000, "{length} bytes: {}", &error.message[..80]);
    }
}
