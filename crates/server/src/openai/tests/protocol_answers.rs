//! Answers in OpenAI's form, whole and streamed, and what that company's own client makes of them.

use super::equal;
use crate::openai::reply::{logprobs_json, Spelled, TokenLogprobs};
use crate::openai::{sse, ApiError, ApiRequest, ChoiceDelta, Endpoint, Reply};
use candecode::day20_serve::{JobError, Piece};
use candecode::kit::{FinishReason, Token};
use serde_json::{json, Value};

/// What an answer is made for.
#[derive(Clone)]
struct Asked {
    chat: bool,
    /// The number of tokens in each prompt.
    prompts: Vec<usize>,
    n: usize,
    logprobs: bool,
    usage: bool,
}

/// What a test does to an answer.
enum Make {
    Usage,
    Take(ChoiceDelta),
    Chunks(ChoiceDelta),
    End,
    Failed(ApiError),
    Whole,
}

/// Does all of this to a new answer; what comes of each. Tokens are counted as day 20's loop does.
fn reply(asked: &Asked, script: Vec<Make>) -> Vec<Value> {
    let (endpoint, prompt) = match asked.chat {
        true => (Endpoint::Chat, r#"{"messages": [{"role": "user", "content": "Hi"}]}"#),
        false => (Endpoint::Completions, r#"{"prompt": "Once"}"#),
    };
    let mut request = ApiRequest::parse(endpoint, prompt.as_bytes(), "story-3m", 0).unwrap();
    request.n = asked.n;
    request.logprobs = asked.logprobs.then_some(2);
    request.include_usage = asked.usage;
    let prompts: Vec<Vec<u32>> = asked.prompts.iter().map(|n| vec![5; *n]).collect();
    let (id, model) = ("cmpl-1".to_string(), "story-3m".to_string());
    let mut reply = Reply::new(&request, &prompts, id, 1_750_000_000, model);
    let mut counts = vec![0; prompts.len() * asked.n];
    let mut counted = |delta: ChoiceDelta| {
        counts[delta.index] += 1;
        ChoiceDelta { tokens: counts[delta.index], ..delta }
    };
    let mut all = Vec::new();
    for make in script {
        all.push(match make {
            Make::Usage => reply.usage(),
            Make::Take(delta) => {
                reply.take(&counted(delta));
                Value::Bool(reply.is_done())
            }
            Make::Chunks(delta) => reply.chunks(&counted(delta)).into(),
            Make::End => reply.end().into(),
            Make::Failed(error) => Reply::failed(&error).into(),
            Make::Whole => reply.whole(),
        });
    }
    all
}

#[test]
fn an_event_is_a_line_and_an_empty_line() {
    for (value, want) in [
        (json!({"a": 1}), "data: {\"a\":1}\n\n"),
        (json!({"text": "a\nb"}), "data: {\"text\":\"a\\nb\"}\n\n"),
        (json!([]), "data: []\n\n"),
    ] {
        equal(&format!("sse of {value}"), sse(&value), &want.to_string());
    }
}

/// A token and its logprob.
fn token(text: &str, logprob: f32) -> Spelled {
    Spelled { token: text.to_string(), bytes: text.as_bytes().to_vec(), logprob }
}

/// " Tom", " c", then the two halves of é, each the likelier of two.
fn some_probs() -> Vec<TokenLogprobs> {
    let half = |byte: u8, logprob| Spelled { bytes: vec![byte], ..token("\u{fffd}", logprob) };
    [
        (token(" Tom", -0.5), vec![token(" Tom", -0.5), token(" Lily", -1.25)]),
        (token(" c", -2.5), vec![token(" d", -0.25), token("x", -1.75)]),
        (half(0xc3, -0.125), vec![half(0xc3, -0.125), half(0xc2, -3.5)]),
        (half(0xa9, -0.0625), vec![]),
    ]
    .map(|(chosen, top)| TokenLogprobs { chosen, top })
    .to_vec()
}

#[test]
fn logprobs_in_two_shapes() {
    let entry =
        |one: &Spelled| json!({"token": one.token, "bytes": one.bytes, "logprob": one.logprob});
    let all = some_probs();
    let mut content = Vec::new();
    for TokenLogprobs { chosen, top } in &all {
        let mut one = entry(chosen);
        one["top_logprobs"] = top.iter().map(entry).collect();
        content.push(one);
    }
    let input = "logprobs_json of \" Tom\", \" c\" and the two halves of é";
    let got = logprobs_json(Endpoint::Chat, &all, 3);
    equal(&format!("{input}, in a chat"), got, &json!({"content": content}));
    let want = json!({
        "tokens": [" Tom", " c", "\u{fffd}", "\u{fffd}"],
        "token_logprobs": [-0.5, -2.5, -0.125, -0.0625],
        "top_logprobs": [
            {" Tom": -0.5, " Lily": -1.25},
            {" c": -2.5, " d": -0.25, "x": -1.75},
            {"\u{fffd}": -0.125},
            {"\u{fffd}": -0.0625},
        ],
        "text_offset": [3, 7, 9, 10],
    });
    let got = logprobs_json(Endpoint::Completions, &all, 3);
    equal(&format!("{input}, for a completion, at offset 3"), got, &want);
    let empty = json!({"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []});
    equal("logprobs_json of no token", logprobs_json(Endpoint::Completions, &[], 3), &empty);
}

fn bit(index: usize, text: &str) -> ChoiceDelta {
    ChoiceDelta { index, text: text.to_string(), tokens: 0, logprobs: None, finish: None }
}

fn last(index: usize, text: &str, finish: FinishReason) -> ChoiceDelta {
    ChoiceDelta { finish: Some(finish), ..bit(index, text) }
}

fn asked(chat: bool, n: usize) -> Asked {
    Asked { chat, prompts: vec![4], n, logprobs: false, usage: false }
}

#[test]
fn usage_counts_tokens() {
    let usage = |prompt: usize, completion: usize| {
        json!({"prompt_tokens": prompt, "completion_tokens": completion,
               "total_tokens": prompt + completion})
    };
    let eos = last(0, "", FinishReason::Eos);
    let script = vec![
        Make::Usage,
        Make::Take(bit(0, " caf")),
        Make::Take(bit(0, "")),
        Make::Take(bit(0, "é")),
        Make::Take(eos),
        Make::Usage,
    ];
    let got = reply(&asked(false, 1), script);
    let input = "a prompt of 4 tokens";
    equal(&format!("{input}, nothing yet: usage"), got[0].clone(), &usage(4, 0));
    let input = format!("{input}; \" caf\", half a character, \"é\" and EOS: usage");
    equal(&input, got[5].clone(), &usage(4, 4));
    let two = Asked { prompts: vec![4, 7], ..asked(false, 3) };
    let mut script: Vec<Make> = (0..6).map(|i| Make::Take(bit(i, "x"))).collect();
    script.push(Make::Take(bit(5, "y")));
    script.push(Make::Usage);
    let got = reply(&two, script).pop().unwrap_or_default();
    equal("prompts of 4 and 7 tokens, n = 3, seven tokens: usage", got, &usage(11, 7));
}

#[test]
fn pieces_are_taken_by_their_choice() {
    let probs = some_probs();
    let with = |bit: ChoiceDelta, i: usize| ChoiceDelta { logprobs: Some(probs[i].clone()), ..bit };
    let script = vec![
        Make::Take(with(bit(1, "b"), 1)),
        Make::Take(with(bit(0, "a"), 0)),
        Make::Take(with(last(1, "c", FinishReason::Length), 2)),
        Make::Take(with(last(0, "", FinishReason::Stop), 3)),
        Make::Whole,
    ];
    let two = Asked { logprobs: true, ..asked(false, 2) };
    let got = reply(&two, script);
    let done: Vec<&Value> = got[..4].iter().collect();
    let want = [json!(false), json!(false), json!(false), json!(true)];
    let input = "choices 1, 0, 1 (its last) and 0 (its last) get a token";
    equal(&format!("{input}: is it done?"), done, &want.iter().collect());
    let told: Vec<(Value, Value, Value, Value)> = (0..2)
        .map(|i| {
            let one = &got[4]["choices"][i];
            let tokens = one["logprobs"]["tokens"].clone();
            (one["index"].clone(), one["text"].clone(), tokens, one["finish_reason"].clone())
        })
        .collect();
    let want = vec![
        (json!(0), json!("a"), json!([" Tom", "\u{fffd}"]), json!("stop")),
        (json!(1), json!("bc"), json!([" c", "\u{fffd}"]), json!("length")),
    ];
    equal(&format!("{input}: index, text, tokens and end of each"), told, &want);
}

/// An event of a stream.
fn chunk(chat: bool, choices: Value) -> Value {
    let object = if chat { "chat.completion.chunk" } else { "text_completion" };
    json!({"id": "cmpl-1", "object": object, "created": 1_750_000_000, "model": "story-3m",
           "choices": choices})
}

#[test]
fn a_completion_in_chunks() {
    let one = |text: &str, finish: Value| {
        chunk(false, json!([{"index": 0, "text": text, "logprobs": null, "finish_reason": finish}]))
    };
    let steps = [
        (bit(0, " a caf"), vec![one(" a caf", Value::Null)]),
        (bit(0, ""), vec![]),
        (bit(0, "é"), vec![one("é", Value::Null)]),
        (last(0, "", FinishReason::Eos), vec![one("", json!("stop"))]),
    ];
    let script = steps.iter().map(|(bit, _)| Make::Chunks(bit.clone())).collect();
    let got = reply(&asked(false, 1), script);
    for ((bit, want), got) in steps.iter().zip(got) {
        let input = format!("a completion, streamed; the events of {:?}", bit.text);
        equal(&input, got, &json!(want));
    }
}

#[test]
fn a_chat_in_chunks() {
    let one = |index: usize, delta: Value, finish: Value| {
        let choice =
            json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": finish});
        chunk(true, json!([choice]))
    };
    let role = |index| one(index, json!({"role": "assistant", "content": ""}), Value::Null);
    let said = |index, text: &str| one(index, json!({"content": text}), Value::Null);
    let steps = [
        (bit(1, "Hi"), vec![role(1), said(1, "Hi")]),
        (bit(0, ""), vec![role(0)]),
        (bit(1, " you"), vec![said(1, " you")]),
        (bit(0, "é"), vec![said(0, "é")]),
        (last(1, "", FinishReason::Eos), vec![one(1, json!({}), json!("stop"))]),
        (
            last(0, "!", FinishReason::Length),
            vec![one(0, json!({"content": "!"}), json!("length"))],
        ),
    ];
    let script = steps.iter().map(|(bit, _)| Make::Chunks(bit.clone())).collect();
    let got = reply(&asked(true, 2), script);
    for ((bit, want), got) in steps.iter().zip(got) {
        let input = format!("a chat, n = 2, streamed; choice {} gets {:?}", bit.index, bit.text);
        equal(&input, got, &json!(want));
    }
}

#[test]
fn logprobs_wait_for_an_event() {
    let probs = some_probs();
    let with =
        |text: &str, i: usize| ChoiceDelta { logprobs: Some(probs[i].clone()), ..bit(0, text) };
    let script = vec![
        Make::Chunks(with(" Tom", 0)),
        Make::Chunks(with("", 2)),
        Make::Chunks(with("é", 3)),
        Make::Chunks(ChoiceDelta { finish: Some(FinishReason::Length), ..with(" c", 1) }),
    ];
    let asked = Asked { logprobs: true, ..asked(false, 1) };
    let got = reply(&asked, script);
    let told: Vec<(Value, Value)> = got
        .iter()
        .flat_map(|events| events.as_array().cloned().unwrap_or_default())
        .map(|event| {
            let logprobs = &event["choices"][0]["logprobs"];
            (logprobs["tokens"].clone(), logprobs["text_offset"].clone())
        })
        .collect();
    let want = vec![
        (json!([" Tom"]), json!([0])),
        (json!(["\u{fffd}", "\u{fffd}"]), json!([4, 5])),
        (json!([" c"]), json!([6])),
    ];
    let input =
        "\" Tom\", two halves of é and \" c\", streamed: tokens and text_offset of each event";
    equal(input, told, &want);
}

#[test]
fn a_stream_ends() {
    let pieces =
        || vec![Make::Chunks(bit(0, "a")), Make::Chunks(last(0, "", FinishReason::Eos)), Make::End];
    let got = reply(&asked(true, 1), pieces()).pop().unwrap_or_default();
    equal("end of a stream", got, &json!("data: [DONE]\n\n"));
    let with_usage = Asked { usage: true, ..asked(true, 1) };
    let got = reply(&with_usage, pieces());
    let events: Vec<Value> =
        got[..2].iter().flat_map(|all| all.as_array().cloned().unwrap_or_default()).collect();
    let usages: Vec<Option<&Value>> = events.iter().map(|event| event.get("usage")).collect();
    let null = Value::Null;
    equal("usage asked for: that of the events before the end", usages, &vec![Some(&null); 3]);
    let mut usage = chunk(true, json!([]));
    usage["usage"] = json!({"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6});
    let want = format!("data: {usage}\n\ndata: [DONE]\n\n");
    equal("usage asked for: end of the stream", got[2].clone(), &json!(want));
    let failed = vec![Make::Failed(ApiError::failed("the device is lost"))];
    let got = reply(&asked(true, 1), failed).pop().unwrap_or_default();
    let error = json!({"error": {"message": "the device is lost", "type": "server_error",
                                 "param": null, "code": null}});
    let want = format!("data: {error}\n\ndata: [DONE]\n\n");
    equal("end of a stream that has failed", got, &json!(want));
}

#[test]
fn a_whole_answer() {
    for chat in [false, true] {
        let script = vec![
            Make::Take(bit(0, " a")),
            Make::Take(bit(1, " b")),
            Make::Take(last(0, "", FinishReason::Eos)),
            Make::Take(last(1, " c", FinishReason::Length)),
            Make::Whole,
        ];
        let got = reply(&asked(chat, 2), script).pop().unwrap_or_default();
        let one = |index: usize, text: &str, finish: &str| {
            let mut one = json!({"index": index, "logprobs": null, "finish_reason": finish});
            if chat {
                one["message"] = json!({"role": "assistant", "content": text});
            } else {
                one["text"] = json!(text);
            }
            one
        };
        let object = if chat { "chat.completion" } else { "text_completion" };
        let want = json!({
            "id": "cmpl-1", "object": object, "created": 1_750_000_000, "model": "story-3m",
            "choices": [one(0, " a", "stop"), one(1, " b c", "length")],
            "usage": {"prompt_tokens": 4, "completion_tokens": 4, "total_tokens": 8},
        });
        equal(&format!("the whole answer, n = 2, chat: {chat}"), got, &want);
    }
}

/// What the oracle has: pieces, and what the official client's own types make of them.
#[derive(serde::Deserialize)]
struct Golden {
    chat: bool,
    n: usize,
    prompt_tokens: Vec<usize>,
    logprobs: bool,
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

#[test]
fn as_the_official_client_has_it() {
    let text = std::fs::read_to_string("../tests/oracle/day20.json").unwrap();
    let mut oracle: Value = serde_json::from_str(&text).unwrap();
    let cases: Vec<Golden> = serde_json::from_value(oracle["answers"].take()).unwrap();
    assert!(cases.len() > 3);
    let spelled = |(token, bytes, logprob): GoldenToken| Spelled { token, bytes, logprob };
    for case in cases {
        let bits: Vec<ChoiceDelta> = case
            .pieces
            .into_iter()
            .map(|piece| ChoiceDelta {
                index: piece.index,
                text: piece.text,
                tokens: 0,
                logprobs: piece.logprobs.map(|(chosen, top)| TokenLogprobs {
                    chosen: spelled(chosen),
                    top: top.into_iter().map(spelled).collect(),
                }),
                finish: piece.finish.map(|word| match word.as_str() {
                    "eos" => FinishReason::Eos,
                    "stop" => FinishReason::Stop,
                    _ => FinishReason::Length,
                }),
            })
            .collect();
        let asked = Asked {
            chat: case.chat,
            prompts: case.prompt_tokens,
            n: case.n,
            logprobs: case.logprobs,
            usage: true,
        };
        let texts: Vec<&str> = bits.iter().map(|bit| bit.text.as_str()).collect();
        let input = format!("pieces {texts:?}, n = {}, chat: {}", case.n, case.chat);
        let mut script: Vec<Make> = bits.iter().cloned().map(Make::Chunks).collect();
        script.push(Make::End);
        let mut got = reply(&asked, script);
        let end = got.pop().unwrap_or_default();
        let mut events: Vec<Value> =
            got.iter().flat_map(|all| all.as_array().cloned().unwrap_or_default()).collect();
        for line in end.as_str().unwrap_or_default().split("\n\n") {
            let data = line.strip_prefix("data: ").and_then(|data| serde_json::from_str(data).ok());
            events.extend(data);
        }
        equal(&format!("{input}: how many events"), events.len(), &case.events.len());
        for (i, (got, want)) in events.iter().zip(&case.events).enumerate() {
            equal(&format!("{input}: event {i}, as openai's types have it"), got, &want);
        }
        let mut script: Vec<Make> = bits.into_iter().map(Make::Take).collect();
        script.push(Make::Whole);
        let got = reply(&asked, script).pop().unwrap_or_default();
        equal(&format!("{input}: the whole answer, as openai's types have it"), got, &case.whole);
    }
}

#[test]
fn a_token_is_spelled_with_its_bytes_and_a_logprob_that_json_has() {
    let tokenizer = candecode::formats::read_tokenizer("../../models/story-3m".as_ref()).unwrap();
    let piece = |id, logprob| {
        let token = Token {
            id,
            logprob,
            text: "é".to_string(),
            finish: Some(FinishReason::Eos),
            top: vec![(65, -0.25), (128, -9998.0)],
            ..Token::default()
        };
        Piece { index: 2, tokens: 5, token }
    };
    // Token 65 is "a", 128 the first half of é, and 0 the EOS.
    let a = Spelled { token: "a".to_string(), bytes: b"a".to_vec(), logprob: -0.25 };
    let half = Spelled { token: "\u{fffd}".to_string(), bytes: vec![0xc3], logprob: -9998.0 };
    let eos = "<|endoftext|>";
    let chosen =
        Spelled { token: eos.to_string(), bytes: eos.as_bytes().to_vec(), logprob: -9999.0 };
    let want = ChoiceDelta {
        index: 2,
        text: "é".to_string(),
        tokens: 5,
        logprobs: Some(TokenLogprobs { chosen, top: vec![a, half] }),
        finish: Some(FinishReason::Eos),
    };
    assert_eq!(ChoiceDelta::new(piece(0, f32::NEG_INFINITY), &tokenizer, true), want);
    // The text is the token's own, which waits for whole characters: the id alone is half an é.
    let silent = ChoiceDelta::new(piece(128, -0.5), &tokenizer, false);
    assert_eq!((silent.text.as_str(), silent.logprobs), ("é", None));
}

#[test]
fn an_error_of_the_loop_has_a_status() {
    for (error, status, words) in [
        (JobError::Busy, 429, "the queue is full"),
        (JobError::Closing, 503, "shutting down"),
        (JobError::Invalid("the prompt is empty".into()), 400, "the prompt is empty"),
        (JobError::Failed("the device is lost".into()), 500, "the device is lost"),
        (JobError::Failed("x left no token to choose after 2".into()), 400, "left no token"),
    ] {
        let error = ApiError::from(error);
        assert_eq!(error.status, status, "{error}");
        assert!(error.message.contains(words), "{error}");
    }
    assert_eq!(ApiError::from(JobError::Busy).retry_after, Some(1));
}
