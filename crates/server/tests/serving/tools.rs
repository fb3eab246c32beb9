//! Calls of tools. Tests of vLLM's (`test_completion_with_function_calling.py`) and llama.cpp's
//! (`test_tool_call.py`) are here with the models of the course, which call a tool if they have to.

use crate::running_server::{with, Server, CHAT};
use serde_json::{json, Value};
use std::collections::BTreeSet;

/// A template that shows tools, and says how a call looks.
const TEMPLATE: &str = "{% for tool in tools or [] %}{{ tool.function.name }} {% endfor %}{% for \
    message in messages %}{{ message.content }}{% for call in message.tool_calls or [] %}\
    <tool_call>{{ call.function.arguments | tojson }}</tool_call>{% endfor %}{% endfor %}\
    {{ '<think>' if thinking }}{% if false %}</think>{% endif %}";

fn tool(name: &str, parameters: &Value) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": parameters}})
}

/// llama.cpp's three tools, with strings that end.
fn tools() -> Value {
    let text = json!({"type": "string", "maxLength": 20});
    let object = |name: &str, schema: &Value| {
        let properties = json!({ name: schema });
        json!({"type": "object", "properties": properties, "required": [name]})
    };
    json!([
        tool("test", &object("success", &json!({"type": "boolean", "const": true}))),
        tool("python", &object("code", &text)),
        tool("get_current_weather", &object("location", &text)),
    ])
}

fn named(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name}})
}

fn chat(more: &Value) -> Value {
    let messages = json!([{"role": "user", "content": "One day, a cat"}]);
    with(json!({"messages": messages, "max_tokens": 200, "temperature": 1, "seed": 1}), more)
}

/// A choice's calls: names and arguments.
type Calls = Vec<(String, String)>;

/// Returns the choices' content, thoughts, calls and finish reasons, which must be the same in one
/// piece and streamed.
fn both_ways(server: &Server, more: &Value) -> Vec<(String, String, Calls, String)> {
    let whole = server.answer(CHAT, &chat(more));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let mut all = Vec::new();
    let mut ids = BTreeSet::new();
    for choice in whole["choices"].as_array().unwrap() {
        let message = &choice["message"];
        assert!(message.get("tool_calls").is_none_or(|calls| *calls != json!([])), "{message}");
        let mut calls = Vec::new();
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            assert_eq!(call["type"], "function");
            assert!(ids.insert(text(&call["id"])), "{whole}");
            calls.push((text(&call["function"]["name"]), text(&call["function"]["arguments"])));
        }
        assert_eq!(message["reasoning"], message["reasoning_content"]);
        assert!(calls.is_empty() || message["content"] != "", "{message}");
        let (content, thoughts) = (text(&message["content"]), text(&message["reasoning"]));
        all.push((content, thoughts, calls, text(&choice["finish_reason"])));
    }
    let mut streamed = vec![(String::new(), String::new(), Calls::new(), String::new()); all.len()];
    let mut logprobs = vec![Vec::new(); all.len()];
    for event in server.events(CHAT, &with(chat(more), &json!({"stream": true}))) {
        let Some(choice) = event["choices"].get(0) else { continue };
        let index = choice["index"].as_u64().unwrap() as usize;
        let new = choice["logprobs"]["content"].as_array();
        logprobs[index].extend(new.into_iter().flatten().cloned());
        let (content, thoughts, calls, reason) = &mut streamed[index];
        assert!(reason.is_empty(), "nothing follows the finish reason: {event}");
        let delta = &choice["delta"];
        *content += &text(&delta["content"]);
        *thoughts += &text(&delta["reasoning"]);
        assert_eq!(delta["reasoning"], delta["reasoning_content"]);
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().unwrap() as usize;
            if call["id"].is_string() {
                assert_eq!((index, &call["type"]), (calls.len(), &json!("function")), "{event}");
                calls.push((text(&call["function"]["name"]), String::new()));
            } else {
                assert!(call["function"].get("name").is_none(), "only once: {event}");
            }
            calls[index].1 += &text(&call["function"]["arguments"]);
        }
        *reason = text(&choice["finish_reason"]);
    }
    assert_eq!(streamed, all, "{more}");
    // Also of tokens that the parser took, such as the tag of a call.
    for (logprobs, choice) in logprobs.into_iter().zip(whole["choices"].as_array().unwrap()) {
        let whole = choice["logprobs"]["content"].as_array().cloned().unwrap_or_default();
        assert_eq!(logprobs, whole, "{more}");
    }
    all
}

#[test]
fn required_and_named_calls_match_their_schemas_whole_and_streamed() {
    let server = Server::start(&[]);
    let names = ["test", "python", "get_current_weather"];
    let keys = ["success", "code", "location"];
    let mut seen = BTreeSet::new();
    for (name, key) in names.iter().zip(keys) {
        for temperature in [0.0, 1.0] {
            let choice = json!({
                "tools": tools(), "tool_choice": named(name), "temperature": temperature,
            });
            let (content, _, calls, reason) = both_ways(&server, &choice).remove(0);
            assert_eq!((content.as_str(), calls[0].0.as_str(), calls.len()), ("", *name, 1));
            let arguments: Value = serde_json::from_str(&calls[0].1).unwrap();
            assert!(arguments.get(key).is_some(), "{arguments}");
            assert_eq!(reason, "stop", "as in OpenAI's API, for a named tool");
        }
    }
    // A format of what is said doesn't matter: nothing is (vLLM's
    // `test_response_format_with_tool_choice_required`).
    let required = json!({"tools": tools(), "tool_choice": "required", "n": 8, "max_tokens": 300,
        "response_format": {"type": "json_object"}});
    for (content, _, calls, reason) in both_ways(&server, &required) {
        assert_eq!(content, "");
        for (i, (name, arguments)) in calls.iter().enumerate() {
            let Ok(arguments) = serde_json::from_str::<Value>(arguments) else {
                assert_eq!((reason.as_str(), i + 1), ("length", calls.len()), "{calls:?}");
                continue;
            };
            let key = keys[names.iter().position(|known| known == name).unwrap()];
            assert!(arguments.get(key).is_some(), "{name} {arguments}");
            seen.insert(name.clone());
        }
    }
    assert!(seen.len() > 1, "the model chooses among the tools: {seen:?}");
    let one = json!({"tools": tools(), "tool_choice": "required", "parallel_tool_calls": false});
    for seed in 0..5 {
        let (_, _, calls, reason) =
            both_ways(&server, &with(one.clone(), &json!({"seed": seed}))).remove(0);
        assert_eq!((calls.len(), reason.as_str()), (1, "tool_calls"));
    }
    // Cut short, the call is there as far as it got.
    let cut = json!({"tools": tools(), "tool_choice": named("python"), "max_tokens": 4});
    let (_, _, calls, reason) = both_ways(&server, &cut).remove(0);
    assert_eq!((calls[0].0.as_str(), reason.as_str()), ("python", "length"));
}

/// A pattern stands for a model that knows how to call a tool.
#[test]
fn a_model_chooses_in_the_form_of_its_template() {
    let path = std::env::temp_dir().join(format!("candecode-tools-{}.jinja", std::process::id()));
    std::fs::write(&path, TEMPLATE).unwrap();
    let server = Server::start(&["--template", path.to_str().unwrap()]);
    let says = |regex: &str, more: &Value| {
        both_ways(&server, &with(json!({"tools": tools(), "guided_regex": regex}), more)).remove(0)
    };
    let call = r#"<tool_call>\{"name": "test", "arguments": \{"success": true\}\}</tool_call>"#;
    let test = ("test".to_string(), r#"{"success": true}"#.to_string());
    let weather = ("python".to_string(), "{}".to_string());
    let (content, _, calls, reason) = says(&format!("Well\\. {call}"), &json!({}));
    let only = vec![test.clone()];
    assert_eq!((content.as_str(), &calls, reason.as_str()), ("Well.", &only, "tool_calls"));
    let two =
        format!(r#"{call}\n<tool_call>\{{"name": "python", "arguments": \{{\}}\}}</tool_call>"#);
    assert_eq!(says(&two, &json!({})).2, [test, weather]);
    assert_eq!(says(&two, &json!({"parallel_tool_calls": false})).2, only);
    // Each choice is read on its own.
    let several = json!({"tools": tools(), "guided_regex": call, "n": 2, "logprobs": true});
    assert!(both_ways(&server, &several).iter().all(|choice| choice.2 == only));
    let (content, _, calls, reason) = says("No call\\.", &json!({"tool_choice": "auto"}));
    assert_eq!((content.as_str(), calls.len(), reason.as_str()), ("No call.", 0, "stop"));
    // Without tools, or with none of them allowed, a call is a text (llama.cpp's test).
    for more in [json!({"tools": []}), json!({"tools": null}), json!({"tool_choice": "none"})] {
        let (content, _, calls, reason) = says(call, &more);
        assert_eq!((content, calls.len()), (call.replace('\\', ""), 0), "{more}");
        assert_eq!(reason, "stop");
    }
    // The prompt has the tools, and the history's calls.
    let tokens = |more: &Value| {
        let (_, answer) = server.post(CHAT, &chat(&with(json!({"max_tokens": 1}), more)));
        answer["usage"]["prompt_tokens"].as_u64().unwrap_or_else(|| panic!("{answer}"))
    };
    let bare = tokens(&json!({}));
    assert!(tokens(&json!({"tools": tools()})) > bare);
    assert_eq!(tokens(&json!({"tools": tools(), "tool_choice": "none"})), bare);
    for arguments in ["", "{}", "{\"a\": 1}"] {
        let called = json!([{"id": "a", "type": "function",
                             "function": {"name": "test", "arguments": arguments}}]);
        let messages = json!([
            {"role": "user", "content": "One day, a cat"},
            {"role": "assistant", "content": null, "tool_calls": called},
            {"role": "tool", "content": " sat", "tool_call_id": "a"},
        ]);
        assert!(tokens(&json!({ "messages": messages })) > bare);
    }
    // A thought, if the prompt has begun one, and nothing else is enforced.
    let thinking = json!({"chat_template_kwargs": {"thinking": true}, "max_tokens": 8});
    let (content, thoughts, _, reason) = both_ways(&server, &thinking).remove(0);
    assert_eq!((content.as_str(), reason.as_str()), ("", "length"));
    assert!(!thoughts.is_empty());
    drop(server);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn tools_that_no_model_could_call_are_refused_before_anything_runs() {
    let server = Server::start(&[]);
    let deep = (0..200).fold("1".to_string(), |inner, _| format!("{{\"items\": {inner}}}"));
    for (asked, param) in [
        (json!({"tools": tools()}), "tools"), // the story template doesn't show them
        (
            json!({"tools": [tool("f", &json!({"type": "object", "properties": {"x": {"type": "x"}}}))],
                "tool_choice": "required"}),
            "tools",
        ),
        (
            json!({"tools": [tool("f", &json!({"$ref": "#/$defs/none"}))], "tool_choice": named("f")}),
            "tools",
        ),
    ] {
        let (status, answer) = server.post(CHAT, &chat(&asked));
        assert_eq!((status, &answer["error"]["param"]), (400, &json!(param)), "{asked}: {answer}");
    }
    let body = format!(
        r#"{{"messages": [], "tools": [{{"type": "function", "function": {{"name": "f", "parameters": {deep}}}}}]}}"#
    );
    assert_eq!(server.post_text(CHAT, &body).0, 400);
    assert_eq!(server.metric("generation_tokens_total"), 0.0);
}
