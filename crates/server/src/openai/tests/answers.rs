//! Answers in OpenAI's format, whole and streamed, as its official client parses them.

use crate::openai::reply::{ChoiceDelta, Spelled, TokenLogprobs};
use crate::openai::{AnswerForm, ApiError, ApiRequest, CallForm, Endpoint, Origin, Reply};
use crate::prompt_report::PromptReport;
use candecode::day20_serve::JobError;
use candecode::kit::FinishReason;
use candecode_engine::Engine;
use candecode_structured::TOO_COMPLEX;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// The oracle's data: pieces, and the answers that the official client's types build from them.
#[derive(serde::Deserialize)]
struct Golden {
    chat: bool,
    n: usize,
    prompt_tokens: Vec<usize>,
    pieces: Vec<GoldenPiece>,
    events: Vec<Value>,
    whole: Value,
}

#[derive(serde::Deserialize)]
struct GoldenPiece {
    index: usize,
    text: String,
    logprobs: Option<(GoldenToken, Vec<GoldenToken>)>,
    finish: Option<String>,
}

/// Text, bytes and logprob.
type GoldenToken = (String, Vec<u8>, f32);

/// Starts an answer to prompts of these lengths.
fn reply(
    chat: bool,
    n: usize,
    prompts: &[usize],
    echoes: &[String],
    form: &AnswerForm,
    stream: bool,
) -> Reply {
    static ENGINE: LazyLock<Arc<Engine>> =
        LazyLock::new(|| Arc::new(Engine::open("story-230k").unwrap()));
    let (endpoint, body) = match chat {
        true => (Endpoint::Chat, r#"{"messages": [{"role": "user", "content": "Hi"}]}"#),
        false => (Endpoint::Completions, r#"{"prompt": "Once"}"#),
    };
    let mut request = ApiRequest::parse(endpoint, body.as_bytes(), "story-3m").unwrap();
    request.n = n;
    request.fields.stream = stream;
    request.fields.stream_options.include_usage = Some(true);
    let report = |len: &usize| Arc::new(PromptReport::new(vec![5; *len].into(), None));
    let reports = prompts.iter().flat_map(|len| std::iter::repeat_n(report(len), n)).collect();
    let origin = Origin {
        engine: ENGINE.clone(),
        model: "story-3m".into(),
        fingerprint: "fp_1".into(),
        id: "cmpl-1".into(),
        created: 1_750_000_000,
    };
    Reply::new(origin, request, reports, echoes, form)
}

/// Takes what OpenAI's recorded answers don't have out of an answer.
fn as_recorded(mut answer: Value) -> Value {
    assert_eq!(answer.as_object_mut().unwrap().remove("system_fingerprint"), Some(json!("fp_1")));
    if let Some(usage) = answer["usage"].as_object_mut() {
        let details = usage.remove("prompt_tokens_details");
        assert_eq!(details, Some(json!({"cached_tokens": 0})));
    }
    answer.as_object_mut().unwrap().remove("prompt_logprobs");
    for choice in answer["choices"].as_array_mut().unwrap() {
        choice.as_object_mut().unwrap().remove("prompt_logprobs");
    }
    answer
}

/// Returns the JSON of a stream's events, after checking that the stream ends correctly.
fn read(stream: &str) -> Vec<Value> {
    let events = stream.strip_suffix("data: [DONE]\n\n").unwrap_or_else(|| panic!("{stream}"));
    let events = events.split_terminator("\n\n");
    events
        .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
        .collect()
}

fn delta(index: usize, text: &str, finish: Option<FinishReason>) -> ChoiceDelta {
    ChoiceDelta { index, text: text.to_string(), tokens: 1, logprobs: Vec::new(), finish }
}

#[test]
fn answers_match_the_official_client() {
    let text = std::fs::read_to_string("../../tests/day20_serve/oracle.json").unwrap();
    let mut oracle: Value = serde_json::from_str(&text).unwrap();
    let cases: Vec<Golden> = serde_json::from_value(oracle["answers"].take()).unwrap();
    assert!(cases.len() > 3);
    let spelled = |(token, bytes, p): GoldenToken| Spelled { token, bytes, logprob: Some(p) };
    let logprobs = |(chosen, top): (GoldenToken, Vec<GoldenToken>)| TokenLogprobs {
        chosen: spelled(chosen),
        top: top.into_iter().map(spelled).collect(),
    };
    for case in cases {
        let form = AnswerForm::default();
        let new = |stream| reply(case.chat, case.n, &case.prompt_tokens, &[], &form, stream);
        let (mut whole, mut streamed, mut stream) = (new(false), new(true), String::new());
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for piece in case.pieces {
            let tokens = counts.entry(piece.index).or_default();
            *tokens += 1;
            let delta = ChoiceDelta {
                index: piece.index,
                text: piece.text,
                tokens: *tokens,
                logprobs: piece.logprobs.into_iter().map(logprobs).collect(),
                finish: piece.finish.map(|word| match word.as_str() {
                    "eos" => FinishReason::Eos,
                    "stop" => FinishReason::Stop,
                    _ => FinishReason::Length,
                }),
            };
            assert!(!whole.is_done());
            whole.take(delta.clone());
            stream += &streamed.events(delta);
        }
        assert!(whole.is_done());
        let events: Vec<Value> = read(&stream).into_iter().map(as_recorded).collect();
        assert_eq!(events, case.events, "must match the events of openai's types");
        let got = as_recorded(serde_json::from_str(&whole.whole()).unwrap());
        assert_eq!(got, case.whole, "must match the complete answer of openai's types");
    }
}

#[test]
fn an_echo_comes_before_the_first_text_of_each_choice() {
    let echoes = ["Once".to_string(), "The".to_string()];
    let mut both = reply(false, 1, &[1, 1], &echoes, &AnswerForm::default(), true);
    let mut stream = both.events(delta(1, " end", None));
    stream += &both.events(delta(1, "", Some(FinishReason::Eos)));
    stream += &both.events(delta(0, " more", Some(FinishReason::Length)));
    let texts: Vec<Value> = read(&stream).iter().map(|e| e["choices"][0]["text"].clone()).collect();
    assert_eq!(texts, [json!("The end"), json!(""), json!("Once more"), json!(""), Value::Null]);
}

/// The finish reasons of vLLM's `test_resolve_finish_reason`: `tool_calls` needs a call that the
/// model has chosen, and never hides `length`.
#[test]
fn a_call_is_the_finish_reason_if_the_model_has_chosen_it_and_ended() {
    let tagged = r#"<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>"#;
    let list = r#"[{"name": "f", "parameters": {"x": 1}}]"#;
    for (calls, text, finish, want) in [
        (CallForm::Tagged, tagged, FinishReason::Eos, "tool_calls"),
        (CallForm::Tagged, tagged, FinishReason::Stop, "tool_calls"),
        (CallForm::Tagged, tagged, FinishReason::Length, "length"),
        (CallForm::Tagged, "Hello", FinishReason::Eos, "stop"),
        (CallForm::List, list, FinishReason::Eos, "tool_calls"),
        (CallForm::List, list, FinishReason::Length, "length"),
        (CallForm::List, "", FinishReason::Stop, "stop"),
        (CallForm::Named("f".into()), r#"{"x": 1}"#, FinishReason::Eos, "stop"),
        (CallForm::Named("f".into()), r#"{"x": 1}"#, FinishReason::Length, "length"),
        (CallForm::None, tagged, FinishReason::Eos, "stop"),
    ] {
        let form = AnswerForm { calls, ..AnswerForm::default() };
        let mut whole = reply(true, 1, &[1], &[], &form, false);
        whole.take(delta(0, text, Some(finish)));
        let got: Value = serde_json::from_str(&whole.whole()).unwrap();
        assert_eq!(got["choices"][0]["finish_reason"], want, "{form:?} {text}");
        let mut streamed = reply(true, 1, &[1], &[], &form, true);
        let events = read(&streamed.events(delta(0, text, Some(finish))));
        let last = events.iter().rev().find(|event| event["choices"][0].is_object()).unwrap();
        assert_eq!(last["choices"][0]["finish_reason"], want, "{form:?} {text}");
    }
}

#[test]
fn json_has_no_line_separators() {
    let mut one = reply(false, 1, &[1], &[], &AnswerForm::default(), true);
    let said = "a\u{2028}b\u{2029}c\u{85}d\ne";
    let stream = one.events(delta(0, said, Some(FinishReason::Length)));
    assert!(stream.contains(r"a\u2028b\u2029c\u0085d\ne"), "{stream}");
    assert_eq!(read(&stream)[0]["choices"][0]["text"], said);
}

#[test]
fn a_failed_stream_sends_an_error_event_and_done() {
    let error = json!({"error": {"message": "the device is lost", "type": "server_error",
                                 "param": null, "code": null}});
    let stream = Reply::failed(&ApiError::failed("the device is lost"));
    assert_eq!(read(&stream), [error]);
}

#[test]
fn token_logprobs_include_bytes_and_are_finite() {
    let tokenizer = candecode_formats::read_tokenizer("../../models/story-3m".as_ref()).unwrap();
    // Token 65 is "a", 128 is the first half of é, and 0 is EOS.
    let spelled = |token: &str, bytes: &[u8], logprob| Spelled {
        token: token.to_string(),
        bytes: bytes.to_vec(),
        logprob: Some(logprob),
    };
    let eos = "<|endoftext|>";
    let logprobs = TokenLogprobs {
        chosen: spelled(eos, eos.as_bytes(), -9999.0),
        top: vec![spelled("a", b"a", -0.25), spelled("\u{fffd}", &[0xc3], -9998.0)],
    };
    let top = [(65, -0.25), (128, -9998.0)];
    assert_eq!(TokenLogprobs::new(&tokenizer, 0, Some(f32::NEG_INFINITY), &top), logprobs);
}

#[test]
fn each_loop_error_maps_to_an_http_status() {
    for (error, status, words) in [
        (JobError::Busy, 429, "the queue is full"),
        (JobError::Closing, 503, "shutting down"),
        (JobError::Invalid("the prompt is empty".into()), 400, "the prompt is empty"),
        (JobError::Failed("the device is lost".into()), 500, "the device is lost"),
        (JobError::Failed("x left no token to choose after 2".into()), 400, "left no token"),
        (JobError::Failed(format!("x {TOO_COMPLEX}: its rows")), 400, "its rows"),
    ] {
        let error = ApiError::from(error);
        assert_eq!(error.status, status, "{error}");
        assert!(error.message.contains(words), "{error}");
    }
    assert_eq!(ApiError::from(JobError::Busy).retry_after, Some(1));
}
