//! Tools: what models have written, taken apart whole and in pieces, and requests about tools.

use super::requests::{parse, refused};
use crate::openai::answer_parser::{AnswerParser, Part};
use crate::openai::tools::schema;
use crate::openai::{AnswerForm, ApiRequest, CallForm, Endpoint::Chat, PromptInput, Thoughts};
use candecode::kit::ProcessorInput;
use candecode_structured::Compiler;
use serde_json::{json, Value};

/// A text that a model wrote, and what other parsers found in it. In their tests, whose files
/// `source` names, space around thoughts, and text around Llama's calls, is sometimes lost.
#[derive(serde::Deserialize)]
struct Recorded {
    source: String,
    form: String,
    thoughts: Option<String>,
    text: String,
    calls: Vec<(String, String)>,
    /// The calls of a stream, where it has reported what turned out not to be JSON.
    streamed: Option<Vec<(String, String)>>,
    content: Option<String>,
    reasoning: Option<String>,
}

#[derive(Debug, Default, PartialEq)]
struct Found {
    calls: Vec<(String, String)>,
    content: String,
    reasoning: String,
}

fn form(calls: &str, thoughts: Option<&str>) -> AnswerForm {
    let calls = match calls {
        "tagged" => CallForm::Tagged,
        "json" => CallForm::Json,
        _ => CallForm::List,
    };
    let thoughts = match thoughts {
        Some("open") => Thoughts::Open,
        Some(_) => Thoughts::Possible,
        None => Thoughts::None,
    };
    AnswerForm { calls, thoughts, one_call: false }
}

fn read(form: &AnswerForm, whole: bool, pieces: &[&str]) -> Found {
    let mut parser = AnswerParser::new(form.clone(), whole);
    let mut parts = Vec::new();
    pieces.iter().for_each(|piece| parts.extend(parser.push(piece)));
    parts.extend(parser.finish());
    let mut found = Found::default();
    for part in parts {
        match part {
            Part::Content(text) => found.content += &text,
            Part::Reasoning(text) => found.reasoning += &text,
            Part::Call { index, name } => {
                assert_eq!(index, found.calls.len());
                found.calls.push((name, String::new()));
            }
            Part::Arguments { index, text } => {
                assert_eq!(index + 1, found.calls.len());
                assert!(!text.is_empty());
                found.calls[index].1 += &text;
            }
        }
    }
    assert_eq!(parser.has_called(), !found.calls.is_empty());
    found
}

fn pieces(text: &str, size: usize) -> Vec<String> {
    let all: Vec<char> = text.chars().collect();
    all.chunks(size).map(|piece| piece.iter().collect()).collect()
}

#[test]
fn recorded_answers_are_taken_apart_as_elsewhere_whole_and_in_any_pieces() {
    let cases: Vec<Recorded> = serde_json::from_str(include_str!("tool_outputs.json")).unwrap();
    assert!(cases.len() > 40);
    for case in cases {
        let form = form(&case.form, case.thoughts.as_deref());
        let want = Found {
            calls: case.calls,
            content: case.content.unwrap_or_default(),
            reasoning: case.reasoning.unwrap_or_default(),
        };
        let what = format!("{}: {}", case.source, case.text);
        assert_eq!(read(&form, true, &[&case.text]), want, "{what}");
        for size in (1..=40).chain([9999]) {
            for whole in [true, false] {
                let pieces = pieces(&case.text, size);
                let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
                let got = read(&form, whole, &pieces);
                match &case.streamed {
                    Some(calls) if !whole => assert_eq!(got.calls, *calls, "{what}"),
                    _ => assert_eq!(got, want, "{what} {pieces:?}"),
                }
            }
        }
    }
}

#[test]
fn parallel_calls_can_be_turned_off() {
    let text = r#"Well: <tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>
        <tool_call>{"name": "g", "arguments": {}}</tool_call>"#;
    let form = AnswerForm { one_call: true, ..form("tagged", None) };
    for pieces in [vec![text], pieces(text, 3).iter().map(String::as_str).collect()] {
        let found = read(&form, false, &pieces);
        assert_eq!(found.calls, [("f".to_string(), r#"{"x": 1}"#.to_string())]);
        assert_eq!(found.content, "Well:");
    }
}

#[test]
fn a_named_tool_gets_the_whole_answer_and_a_list_can_be_cut_short() {
    let named = AnswerForm { calls: CallForm::Named("f".into()), ..AnswerForm::default() };
    let mut parser = AnswerParser::new(named, true);
    let call = Part::Call { index: 0, name: "f".into() };
    let text = |text: &str| Part::Arguments { index: 0, text: text.into() };
    assert_eq!(parser.push(r#"{"x""#), [call, text(r#"{"x""#)]);
    assert_eq!(parser.push(": 1}"), [text(": 1}")]);
    assert_eq!(parser.finish(), []);
    assert!(!parser.has_called(), "as in OpenAI's API, the finish reason is stop");
    let cut = r#"[{"name": "f", "parameters": {"x": "ab"#;
    for whole in [true, false] {
        let found = read(&form("list", None), whole, &[cut]);
        assert_eq!(found.calls, [("f".to_string(), r#"{"x": "ab"#.to_string())]);
    }
}

/// Each character is looked at a fixed number of times, or this takes hours.
#[test]
fn long_answers_take_linear_time() {
    let long = "{\"a\": [".repeat(100_000);
    for (calls, start) in [
        ("tagged", r#"<tool_call>{"name": "f", "arguments": "#),
        ("json", r#"{"name": "f", "parameters": "#),
        ("tagged", ""),
        ("json", ""),
        ("list", "["),
        ("tagged", "<tool_call><"),
    ] {
        let mut parser = AnswerParser::new(form(calls, Some("possible")), false);
        let mut bytes = 0;
        let mut parts = parser.push(start);
        for piece in pieces(&long, 4) {
            parts.extend(parser.push(&piece));
        }
        parts.extend(parser.finish());
        for part in parts {
            let (Part::Content(text) | Part::Reasoning(text) | Part::Arguments { text, .. }) = part
            else {
                continue;
            };
            bytes += text.len();
        }
        assert!(bytes + 100 > long.len() || calls == "list", "{calls} {start}: {bytes}");
    }
}

fn tool(name: &str, parameters: Value) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": parameters}})
}

fn weather() -> Value {
    tool("get_weather", json!({"type": "object", "properties": {"location": {"type": "string"}}}))
}

#[test]
fn requests_about_tools_are_checked_before_anything_runs() {
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    let many: Vec<Value> = (0..129).map(|i| tool(&format!("f{i}"), json!({}))).collect();
    let large = tool("f", json!({"type": "object", "description": "x".repeat(300_000)}));
    for (asked, param) in [
        // Without a name, twice the same, of another type.
        (json!({"tools": [{"type": "function"}]}), "tools"),
        (json!({"tools": [{"type": "function", "function": {}}]}), "tools"),
        (json!({"tools": [{"type": "function", "function": {"name": 7}}]}), "tools"),
        (json!({"tools": [{"type": "function", "function": {"name": null}}]}), "tools"),
        (json!({"tools": [tool("", json!({}))]}), "tools"),
        (json!({"tools": [tool(&"f".repeat(129), json!({}))]}), "tools"),
        (json!({"tools": [weather(), tool("g", json!({})), weather()]}), "tools"),
        (json!({"tools": [{"type": "code_interpreter", "function": {"name": "f"}}]}), "tools"),
        (json!({"tools": {"f": weather()}}), "tools"),
        (json!({"tools": ["f"]}), "tools"),
        // Parameters that aren't a schema.
        (json!({"tools": [tool("f", json!("x"))]}), "tools"),
        (json!({"tools": [tool("f", json!(["x"]))]}), "tools"),
        (json!({"tools": [tool("f", json!({"type": "string"}))]}), "tools"),
        (json!({"tools": [tool("f", json!({"type": 7}))]}), "tools"),
        (json!({"tools": [tool("f", json!({"properties": ["x"]}))]}), "tools"),
        (json!({"tools": [tool("f", json!({"properties": {"x": "string"}}))]}), "tools"),
        (json!({"tools": [tool("f", json!({"$defs": null}))]}), "tools"),
        (json!({"tools": [tool("f", json!({"$defs": "x"}))]}), "tools"),
        (json!({"tools": [tool("f", json!({"definitions": {"x": 1}}))]}), "tools"),
        // Too many, or too large.
        (json!({ "tools": many }), "tools"),
        (json!({"tools": [large]}), "tools"),
        // A choice that can't be made (vLLM's test_chat_completion_request_validations.py).
        (json!({"tool_choice": "required"}), "tool_choice"),
        (json!({"tool_choice": "required", "tools": null}), "tool_choice"),
        (json!({"tool_choice": "required", "tools": []}), "tool_choice"),
        (json!({"tool_choice": named("f")}), "tool_choice"),
        (json!({"tool_choice": named("f"), "tools": [weather()]}), "tool_choice"),
        (json!({"tool_choice": {"type": "function"}, "tools": [weather()]}), "tool_choice"),
        (json!({"tool_choice": {"function": {}}, "tools": [weather()]}), "tool_choice"),
        (json!({"tool_choice": "get_weather", "tools": [weather()]}), "tool_choice"),
        (json!({"tool_choice": true, "tools": [weather()]}), "tool_choice"),
        (json!({"tools": [weather()], "parallel_tool_calls": "no"}), "parallel_tool_calls"),
        // Two forms for one text (vLLM's, too).
        (
            json!({"tools": [weather()], "tool_choice": named("get_weather"),
                "structured_outputs": {"regex": "a"}}),
            "tools",
        ),
    ] {
        assert_eq!(refused(Chat, &asked).0, param, "{asked:.300}");
    }
    for asked in [
        json!({"tools": [weather(), tool("g", json!({}))]}),
        json!({"tools": [weather()], "tool_choice": "auto", "parallel_tool_calls": false}),
        json!({"tools": [{"type": "function", "function": {"name": "f", "strict": true}}]}),
        json!({"tools": [tool("f", json!({"type": "object", "properties": {"x": true}}))]}),
        json!({"tool_choice": "auto"}),
        json!({"tools": [weather()], "structured_outputs": {"regex": "a"}}),
    ] {
        parse(Chat, &asked).unwrap();
    }
}

/// Calls, results and thoughts of the history, as templates get them.
#[test]
fn the_history_keeps_calls_results_and_thoughts() {
    let call = |id: &str, arguments: Value| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}});
    let history = |messages: Value| parse(Chat, &json!({ "messages": messages }));
    let more = |request: ApiRequest| match &request.prompts[0] {
        PromptInput::Messages(messages) => {
            messages.iter().map(|message| json!(message.more)).collect::<Vec<Value>>()
        }
        other => panic!("{other:?}"),
    };
    let messages = json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": null, "reasoning_content": "Hm.", "tool_calls": [
            call("a", json!("{\"x\": 1}")), call("b", json!("")), call("c", json!({"y": 2})),
            call("d", json!("{\"cut")), {"function": {"name": "g"}},
        ]},
        {"role": "tool", "content": "4", "tool_call_id": "a", "name": "f"},
        {"role": "tool", "content": [{"type": "text", "text": "5"}], "tool_call_id": "b"},
        {"role": "tool", "content": "6"},
        {"role": "assistant", "content": "7", "reasoning": "new", "reasoning_content": "old"},
    ]);
    let request = history(messages).unwrap();
    let both = |thoughts: &str| json!({"reasoning": thoughts, "reasoning_content": thoughts});
    let mut called = both("Hm.");
    called["tool_calls"] = json!([
        call("a", json!({"x": 1})), call("b", json!({})), call("c", json!({"y": 2})),
        call("d", json!("{\"cut")), {"type": "function", "function": {"name": "g", "arguments": {}}},
    ]);
    let a = json!({"tool_call_id": "a", "name": "f"});
    let b = json!({"tool_call_id": "b"});
    assert_eq!(more(request), [json!({}), called, a, b, json!({}), both("new")]);

    let user = json!({"role": "user", "content": "Hi"});
    let calls = json!({"role": "assistant", "content": "", "tool_calls": [call("a", json!(""))]});
    let result = |id: &str| json!({"role": "tool", "content": "4", "tool_call_id": id});
    for (messages, words) in [
        (json!([result("a")]), "messages[0]"),
        (json!([user, result("a")]), "messages[1]"),
        (json!([calls, user, result("a")]), "messages[2]"),
        (json!([calls, result("a"), user, result("a")]), "messages[3]"),
        (json!([calls, result("b")]), "messages[1].tool_call_id \"b\""),
        (json!([calls, {"role": "tool", "tool_call_id": "a"}]), "messages[1].content"),
        (
            json!([{"role": "user", "content": "", "tool_calls": [call("a", json!(""))]}]),
            "tool_calls",
        ),
        (json!([{"role": "assistant", "tool_calls": [{"id": "a"}]}]), "tool_calls"),
        (json!([{"role": "assistant", "tool_calls": [{"function": {}}]}]), "tool_calls"),
        (json!([{"role": "assistant", "tool_calls": {}}]), "tool_calls"),
        (
            json!([{"role": "assistant", "tool_calls": [{"type": "custom", "function": {"name": "f"}}]}]),
            "tool_calls",
        ),
    ] {
        let (param, message) = refused(Chat, &json!({ "messages": messages }));
        assert_eq!(param, "messages", "{messages}");
        assert!(message.contains(words), "{messages}: {message}");
    }
}

#[test]
fn a_required_call_has_a_schema() {
    let of = |asked: Value| schema(&parse(Chat, &asked).unwrap().fields);
    let node = json!({
        "type": "object",
        "properties": {"next": {"$ref": "#"}, "leaf": {"$ref": "#/$defs/leaf"}, "$ref": {"type": "null"}},
        "$defs": {"leaf": {"type": "integer"}},
    });
    let tools = json!([tool("f", node.clone()), tool("g", json!({}))]);
    for free in [json!("auto"), json!("none"), json!(null)] {
        assert_eq!(of(json!({"tools": tools, "tool_choice": free})), None);
    }
    let named = json!({"type": "function", "function": {"name": "f"}});
    let mut closed = node;
    closed["additionalProperties"] = json!(false);
    assert_eq!(of(json!({"tools": tools, "tool_choice": named})), Some(closed));
    let list = of(json!({"tools": tools, "tool_choice": "required"})).unwrap();
    assert_eq!((&list["minItems"], &list["maxItems"]), (&json!(1), &json!(8)));
    let first = &list["$defs"]["0"]["properties"];
    assert_eq!(first["next"]["$ref"], "#/$defs/0");
    assert_eq!(first["leaf"]["$ref"], "#/$defs/0/$defs/leaf");
    assert_eq!(first["$ref"], json!({"type": "null"}));
    let all_of = json!({"allOf": [{"properties": {"x": {"properties": {}}}}], "properties": {}});
    let open = of(json!({"tools": [tool("f", all_of)], "tool_choice": "required"})).unwrap();
    let part = json!({"properties": {"x": {"properties": {}, "additionalProperties": false}}});
    assert_eq!(open["$defs"]["0"], json!({"allOf": [part], "properties": {}}));
    let one = json!({"tools": tools, "tool_choice": "required", "parallel_tool_calls": false});
    assert_eq!(of(one).unwrap()["maxItems"], 1);
    let empty = json!({"type": "object", "properties": {}, "additionalProperties": false});
    for parameters in [json!(null), json!({})] {
        let asked = json!({"tools": [tool("f", parameters)], "tool_choice": named});
        assert_eq!(of(asked), Some(empty.clone()));
    }
}

/// What vLLM's `test_tool_choice_required.py` expects of a required call.
#[test]
fn only_calls_of_the_tools_have_the_required_form() {
    let tokenizer = candecode_formats::read_tokenizer("../../models/story-3m".as_ref()).unwrap();
    let compiler = Compiler::new(&tokenizer, tokenizer.vocab_size()).unwrap();
    let city = json!({"city": {"type": "string"}});
    let both = json!({"city": {"type": "string"}, "days": {"type": "integer"}});
    let object = |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required});
    let two = json!([
        tool("get_current_weather", object(city, json!(["city"]))),
        tool("get_forecast", object(both, json!(["city", "days"]))),
    ]);
    let (none, empty) = (json!([tool("f", json!(null))]), json!([tool("f", json!({}))]));
    let weather = r#"{"name": "get_current_weather", "parameters": {"city": "Vienna"}}"#;
    let forecast = r#"{"name": "get_forecast", "parameters": {"city": "Vienna", "days": 7}}"#;
    for (tools, parallel, text, fits) in [
        (&two, true, format!("[{weather}]"), true),
        (&two, true, format!("[{weather}, {weather}]"), true),
        (&two, true, format!("[{forecast}, {weather}, {forecast}, {weather}]"), true),
        (&two, false, format!("[{weather}]"), true),
        (&two, false, format!("[{weather}, {weather}]"), false),
        (&two, true, "null".into(), false),
        (&two, true, "[]".into(), false),
        (&two, true, "{}".into(), false),
        (&two, true, "[{}]".into(), false),
        (&two, true, weather.into(), false),
        (&two, true, format!("[{weather}, {{}}]"), false),
        (&two, true, r#"[{"name": "get_current_weather"}]"#.into(), false),
        (&two, true, weather.replace(r#"{"city": "Vienna"}"#, "{}"), false),
        (&two, true, format!("[{}]", weather.replace(r#"{"city": "Vienna"}"#, "null")), false),
        (&two, true, format!("[{}]", weather.replace("na\"", "na\", \"extra\": 1")), false),
        (&two, true, format!("[{}]", forecast.replace(", \"days\": 7", "")), false),
        (&two, true, format!("[{}]", forecast.replace("forecast", "weather")), false),
        (
            &two,
            true,
            r#"[{"parameters": {"city": "Vienna"}, "name": "get_current_weather"}]"#.into(),
            false,
        ),
        (&none, true, r#"[{"name": "f", "parameters": {}}]"#.into(), true),
        (&empty, true, r#"[{"name": "f", "parameters": {}}]"#.into(), true),
        (&empty, true, r#"[{"name": "f", "parameters": {"extra": 1}}]"#.into(), false),
        (&empty, true, r#"[{"name": "f"}]"#.into(), false),
        (&none, true, r#"[{"name": "f", "parameters": null}]"#.into(), false),
    ] {
        let asked =
            json!({"tools": tools, "tool_choice": "required", "parallel_tool_calls": parallel});
        let schema = parse(Chat, &asked).unwrap().constraint.unwrap();
        let rule = compiler.compile(&schema).unwrap().processor();
        let ids = [tokenizer.encode(&text).unwrap(), vec![0]].concat(); // 0 is EOS
        let allowed = |n: usize| {
            let mut logits = vec![0.0; tokenizer.vocab_size()];
            let tokens = &ids[..n];
            let input = ProcessorInput { tokens, prompt_len: 0, remaining: 9, eos: &[0] };
            rule.process(&input, &mut logits).unwrap();
            logits[ids[n] as usize] == 0.0
        };
        assert_eq!((0..ids.len()).all(allowed), fits, "{text}");
    }
}
