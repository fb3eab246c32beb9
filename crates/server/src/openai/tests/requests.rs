//! Requests from OpenAI's clients: the effect and range of each field, and the errors.

use crate::openai::fields::Fields;
use crate::openai::Endpoint::{self, Chat, Completions};
use crate::openai::{ApiError, ApiRequest, PromptInput, NO_SEED};
use candecode::kit::SamplingParams;
use candecode_engine::chat::Message;
use candecode_structured::Constraint;
use serde_json::{json, Value};

/// Parses a minimal request with the fields in `more`, sent to a server of story-3m.
pub fn parse(endpoint: Endpoint, more: &Value) -> Result<ApiRequest, ApiError> {
    let mut body = match endpoint {
        Completions => json!({"prompt": "Once"}),
        Chat => json!({"messages": [{"role": "user", "content": "Hi"}]}),
    };
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    ApiRequest::parse(endpoint, body.to_string().as_bytes(), "story-3m")
}

/// Expects the request to be rejected with 400, and returns the field at fault and the message.
#[track_caller]
pub fn refused(endpoint: Endpoint, more: &Value) -> (String, String) {
    match parse(endpoint, more) {
        Ok(request) => panic!("{more} was accepted: {request:?}"),
        Err(error) => {
            assert_eq!(error.status, 400, "{more}: {error}");
            let length = error.body().to_string().len();
            assert!(length < 1500, "{length} bytes");
            (error.param.unwrap_or_default(), error.message)
        }
    }
}

/// The parameters of a request that sets none.
fn defaults(max_new_tokens: usize) -> SamplingParams {
    SamplingParams { max_new_tokens, temperature: 1.0, seed: NO_SEED, ..SamplingParams::default() }
}

#[test]
fn a_field_is_read_or_rejected_or_ignored() {
    use Outcome::{Ignored, Meant, Unsupported};
    for (endpoint, fields, outcome) in [
        // Fields of other servers that would change the text, unless their value is the one for
        // "off".
        (Chat, json!({"tools": [{"type": "function"}], "tool_choice": "none"}), Ignored),
        (Chat, json!({"tools": [], "tool_choice": "auto"}), Ignored),
        (Chat, json!({"functions": [{"name": "f"}], "function_call": "auto"}), Unsupported),
        (Chat, json!({"functions": [{"name": "f"}], "function_call": "none"}), Ignored),
        (Chat, json!({"function_call": {"name": "f"}}), Unsupported),
        (Chat, json!({"reasoning_effort": "high"}), Unsupported),
        (Chat, json!({"reasoning_effort": "none"}), Ignored),
        (Chat, json!({"include_reasoning": false}), Unsupported),
        (Chat, json!({"include_reasoning": true}), Ignored),
        (Chat, json!({"response_format": {"type": "structural_tag"}}), Unsupported),
        (Chat, json!({"response_format": {"type": "text", "json_schema": null}}), Ignored),
        (Completions, json!({"suffix": "The end."}), Unsupported),
        (Completions, json!({"suffix": "", "grammar": "", "use_beam_search": false}), Ignored),
        (Completions, json!({"guided_json": {}}), Unsupported), // the schema of any JSON
        (Completions, json!({"structured_outputs": {"structural_tag": {}}}), Unsupported),
        (Completions, json!({"structured_outputs": {"json": null, "json_object": false}}), Ignored),
        (Completions, json!({"top_n_sigma": 1.5}), Unsupported),
        (Completions, json!({"adaptive_target": 0.5}), Unsupported),
        (Completions, json!({"top_n_sigma": 0, "min_keep": 0, "adaptive_target": -0.01}), Ignored),
        (
            Completions,
            json!({"repeat_last_n": -1, "t_max_predict_ms": -1.0, "mirostat": 0}),
            Ignored,
        ),
        (Completions, json!({"repeat_last_n": 0}), Unsupported), // penalizes nothing
        (Completions, json!({"penalty_last_n": 0}), Unsupported),
        (Chat, json!({"thinking_budget_tokens": 0}), Unsupported), // no thinking
        (Chat, json!({"thinking_budget_tokens": -1, "reasoning_budget_tokens": -1.0}), Ignored),
        (Completions, json!({"repeat_penalty": 1.3}), Unsupported),
        (Completions, json!({"repeat_penalty": 1.0, "typical_p": 1}), Ignored),
        (Completions, json!({"skip_special_tokens": false}), Unsupported),
        (Completions, json!({"skip_special_tokens": true, "add_special_tokens": true}), Ignored),
        (Completions, json!({"add_special_tokens": false}), Unsupported),
        (Chat, json!({"add_special_tokens": false}), Ignored),
        (Completions, json!({"top_a": 0.2}), Unsupported),
        (Completions, json!({"top_a": 0}), Ignored),
        (Completions, json!({"max_new_tokens": 5}), Unsupported),
        (Completions, json!({"model": "", "logprobs": false, "best_of": 1.0}), Ignored),
        (Completions, json!({"top_logprobs": 0, "structured_outputs": {}}), Ignored),
        (Chat, json!({"logprobs": false, "top_logprobs": 0}), Ignored),
        (Chat, json!({"stream_options": {"include_obfuscation": false}}), Ignored),
        // Misspelled ones.
        (Chat, json!({"temprature": 0}), Meant("temperature")),
        (Chat, json!({"tempretaure": 0.5}), Meant("temperature")), // two letters
        (Chat, json!({"temperature ": 0.5}), Meant("temperature")),
        (Chat, json!({"maxTokens": 5}), Meant("max_tokens")),
        (Chat, json!({"max_token": 5}), Meant("max_tokens")),
        (Chat, json!({"messaegs": ["x"]}), Meant("messages")), // a swap
        (Chat, json!({"top_pp_": 0.5, "stopp": "x", "sede": 5}), Ignored), // short, or too far
        (Chat, json!({"temprature": null, "max_token": "", "promptt": {}}), Ignored),
        (Chat, json!({"models": ["a", "b"]}), Ignored), // OpenRouter's
        // Everything else.
        (Chat, json!({"user": "x", "store": true, "cache_prompt": 7, "mystery": [{}]}), Ignored),
        (Chat, json!({"return_token_ids": true, "x".repeat(900_000): "y"}), Ignored),
    ] {
        let parsed = parse(endpoint, &fields);
        match outcome {
            Ignored => {
                let mut request = parsed.unwrap();
                for name in std::mem::take(&mut request.ignored) {
                    assert!(fields.get(&name).is_some(), "{name}");
                }
                let neutral = parse(endpoint, &json!({})).unwrap();
                request.fields = neutral.fields.clone(); // has the values as they were sent
                assert_eq!(request, neutral, "{fields}");
            }
            Unsupported => {
                let error = parsed.unwrap_err();
                let code = Some("unsupported_parameter");
                assert_eq!((error.status, error.code), (400, code), "{fields}: {error}");
                assert!(fields.get(error.param.unwrap()).is_some(), "{fields}");
            }
            Meant(name) => {
                let (_, message) = refused(endpoint, &fields);
                assert!(message.ends_with(&format!("did you mean {name}?")), "{message}");
            }
        }
    }
    // The client's own fields are named, so that the log can name them.
    let named = parse(Chat, &json!({"user": "x", "mystery": 1, "seed": null})).unwrap().ignored;
    assert_eq!(named, ["user", "mystery"]);
}

/// What becomes of fields that aren't read.
enum Outcome {
    Ignored,
    Unsupported,
    /// 400, with the name that was meant.
    Meant(&'static str),
}

#[test]
fn every_field_that_is_read_has_a_type_and_may_be_null() {
    let names = json!(Fields::default());
    let wrong = [json!(true), json!(7.5), json!("x"), json!([["x"]]), json!({"x": {"y": 1}})];
    for name in names.as_object().unwrap().keys() {
        let endpoint = if name == "prompt" || name == "echo" { Completions } else { Chat };
        let rejected = wrong.iter().filter_map(|value| {
            let error = parse(endpoint, &json!({ name: value })).err()?;
            (error.param.as_ref() == Some(name)).then_some(error.status)
        });
        assert!(rejected.count() > 0, "{name}");
        if !["messages", "prompt"].contains(&name.as_str()) {
            let null = parse(endpoint, &json!({ name: null })).unwrap();
            assert_eq!(null, parse(endpoint, &json!({})).unwrap(), "{name}");
        }
    }
}

#[test]
fn sampling_parameters_follow_openai_and_vllm() {
    let own = defaults(16);
    assert_eq!(parse(Chat, &json!({})).unwrap().params, defaults(usize::MAX));
    for (asked, want) in [
        (json!({}), own.clone()),
        (
            json!({"temperature": 0, "top_p": 0.5, "min_p": 0.25}),
            SamplingParams { temperature: 0.0, top_p: 0.5, min_p: 0.25, ..own.clone() },
        ),
        // Anything much smaller overflows, so it means greedy decoding, as in vLLM.
        (json!({"temperature": 1e-46}), SamplingParams { temperature: 0.0, ..own.clone() }),
        (json!({"top_k": 5, "seed": 7}), SamplingParams { top_k: Some(5), seed: 7, ..own.clone() }),
        (json!({"top_k": -1, "seed": -1}), own.clone()),
        (json!({"seed": -2}), SamplingParams { seed: -2_i64 as u64, ..own.clone() }),
        // Python clients send floats for integers, and vLLM accepts them.
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

/// OpenAI's `response_format`, also as llama.cpp has it, and vLLM's `structured_outputs`.
#[test]
fn a_format_is_read_from_every_field() {
    let schema = || json!({"type": "integer"});
    let want = |schema: Value| Some(Constraint::JsonSchema(schema));
    for endpoint in [Chat, Completions] {
        for (asked, want) in [
            (json!({"response_format": {"type": "json_object"}}), Some(Constraint::json_object())),
            (
                json!({"response_format": {"type": "json_schema",
                    "json_schema": {"name": "n", "strict": true, "schema": schema()}}}),
                want(schema()),
            ),
            (
                json!({"response_format": {"type": "json_object", "schema": schema()}}),
                want(schema()),
            ),
            (json!({"structured_outputs": {"json": schema(), "regex": null}}), want(schema())),
            (json!({"structured_outputs": {"json": schema().to_string()}}), want(schema())),
            (json!({"structured_outputs": {"json": {}}}), want(json!({}))),
            (json!({"structured_outputs": {"json": {"x": false}}}), want(json!({"x": false}))),
            (json!({"structured_outputs": {"json_object": true}}), Some(Constraint::json_object())),
            (
                json!({"structured_outputs": {"grammar": ""}}),
                Some(Constraint::Grammar(String::new())),
            ),
            (json!({"response_format": {"type": "text"}}), None),
        ] {
            let request = parse(endpoint, &asked).unwrap();
            assert_eq!(request.constraint, want, "{asked}");
            assert_eq!(request.params.allow_regex, None);
        }
    }
}

#[test]
fn out_of_range_or_oversized_values_are_refused() {
    let long = "A".repeat(900_000);
    let ids: Vec<u32> = (0..1500).collect();
    let bias: serde_json::Map<_, _> = ids.iter().map(|id| (id.to_string(), json!(1))).collect();
    for (asked, param) in [
        (json!({"temperature": -0.1}), "temperature"),
        (json!({"temperature": 1e39}), "temperature"), // overflows 32 bits
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
        (json!({"n": 2, "temperature": 0}), "n"), // both would have the same text
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
        (json!({"structured_outputs": {"json": "{"}}), "structured_outputs"),
        (json!({"structured_outputs": {"json": {}, "json_object": true}}), "structured_outputs"),
        (json!({"structured_outputs": {"regex": {"1": "a"}}}), "structured_outputs"),
        (json!({"response_format": {"type": long}}), "response_format"),
        (json!({"response_format": {"type": "json_schema"}}), "response_format"),
        (json!({"response_format": {"type": "json_schema", "json_schema": {}}}), "response_format"),
        (
            json!({"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}}),
            "response_format",
        ),
        (json!({"response_format": "text"}), "response_format"),
        (json!({"stream_options": {"include_usage": true}}), "stream_options"), // no stream
        (json!({"stream_options": {"continuous_usage_stats": true}}), "stream_options"),
        (json!({"stream_options": {"include_usage": 1}}), "stream_options"),
        (json!({"model": 7}), "model"),
        (json!({"prompt": "Once"}), "prompt"), // a completion's
        (json!({"echo": true}), "echo"),
    ] {
        let (param_got, words) = refused(Chat, &asked);
        assert_eq!(param_got, param, "{words}");
        assert!(words.contains(param) || param == "n", "{words}");
    }
    for (asked, param) in [
        (json!({"messages": [{"role": "user", "content": "Hi"}]}), "messages"), // a chat's
        (json!({"chat_template_kwargs": {"a": 1}}), "chat_template_kwargs"),
        (json!({"logprobs": 21}), "logprobs"),
        (json!({"logprobs": true}), "logprobs"),
        (json!({"max_tokens": 0}), "max_tokens"), // only with echo
        (json!({"echo": true, "max_tokens": -1}), "max_tokens"),
        (json!({"prompt_logprobs": 21}), "prompt_logprobs"),
        (json!({"prompt_logprobs": -1}), "prompt_logprobs"),
        (json!({"prompt_logprobs": true}), "prompt_logprobs"),
        (json!({"prompt_logprobs": 0, "stream": true}), "prompt_logprobs"),
        (json!({"prompt": vec!["Once"; 65], "n": 2}), "n"),
    ] {
        assert_eq!(refused(Completions, &asked).0, param, "{asked}");
    }
    let error = parse(Chat, &json!({"model": "story-7b"})).unwrap_err();
    assert_eq!((error.status, error.code), (404, Some("model_not_found")));
    for body in ["{\"prompt\": ", "[\"Once\"]", &"[".repeat(500_000)] {
        let error = ApiRequest::parse(Completions, body.as_bytes(), "story-3m").unwrap_err();
        assert_eq!((error.status, error.param), (400, None));
    }
}

#[test]
fn each_prompt_and_message_form_is_parsed_or_refused() {
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
    let want = vec![
        Message::new("system", "Be short."),
        Message::new("user", "Hi"),
        Message::new("assistant", ""),
        Message::new("user", "a\nb"),
        Message::new("system", ""),
    ];
    let got = parse(Chat, &json!({ "messages": messages })).unwrap().prompts;
    assert_eq!(got, [PromptInput::Messages(want)]);
    for messages in [
        json!(null),
        json!([]),
        json!("Hi"),
        json!(["Hi"]),
        json!([{"content": "Hi"}]),
        json!([{"role": "user", "content": [{"type": "image_url", "text": "a cat"}]}]),
        json!([{"role": "user", "content": ["Hi"]}]),
        json!([{"role": "A".repeat(90_000), "content": "x"}]),
        json!([{"role": "user", "content": [{"type": "A".repeat(90_000), "text": "x"}]}]),
    ] {
        assert_eq!(refused(Chat, &json!({ "messages": messages })).0, "messages", "{messages}");
    }
    // The error names the message, and what is wrong with it.
    let good = json!({"role": "user", "content": "Hi"});
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    for (bad, words) in [
        (
            json!({"role": "user", "content": [{"type": "text", "text": "look"}, image]}),
            "image_url",
        ),
        (json!({"role": "tool", "content": "4"}), "tool"),
        (json!({"role": "assistant", "tool_calls": [{"id": "x"}]}), "tool_calls"),
        (json!({"role": "user"}), "content"),
        (json!({"role": "user", "content": 4}), "content"),
    ] {
        let messages = [good.clone(), good.clone(), bad, good.clone()];
        let (_, message) = refused(Chat, &json!({ "messages": messages }));
        assert!(message.starts_with("messages[2]") && message.contains(words), "{message}");
    }
}
