//! Tests the client without the command: a request goes in, events come out. Run with
//! `cargo test --package candecode-remote --features test-servers`.

use candecode_kit::SamplingParams;
use candecode_remote::endpoint::{Client, Event, Prompt, Request, What};
use candecode_remote::test_servers::openai::{event, response, stream_of, OpenAi, Then};
use std::thread::sleep;
use std::time::Duration;

/// Sends a prompt, and returns each event as a line, and the error at the end, if there is one.
fn events(server: OpenAi, stop: fn() -> bool) -> (Vec<String>, Option<String>, bool) {
    let server = server.start();
    let client = Client::new(&server.address, None).unwrap();
    let model = client.choose_model("").unwrap();
    let (params, prompt) = (SamplingParams::default(), Prompt::Text("There was".into()));
    let what = What::Completion { prompt: &prompt, n: 1, with_ids: true };
    let mut events = client.ask(&Request { server: &model, params: &params, what }, stop);
    let (mut lines, mut error) = (vec![], None);
    for event in events.by_ref() {
        match event {
            Ok(event) => lines.push(match event {
                Event::Text { at, text } => format!("text {at} {text:?}"),
                Event::Prompt { at, ids } => format!("prompt {at} {ids:?}"),
                Event::Tokens { at, ids, texts, logprobs } => {
                    format!("tokens {at} {ids:?} {texts:?} {logprobs:?}")
                }
                Event::Finish { at, reason } => format!("finish {at} {reason}"),
                Event::Usage { prompt, new } => format!("usage {prompt} {new}"),
            }),
            Err(failed) => error = Some(format!("{failed:#}")),
        }
    }
    assert!(events.next().is_none(), "nothing comes after the end");
    (lines, error, events.stopped())
}

#[test]
fn a_response_is_a_list_of_events() {
    let tokens =
        r#""token_ids":[5],"logprobs":{"tokens":[" a"],"token_logprobs":[-0.5]},"text":" a""#;
    let first = event(" a", "null").replace("\"text\":\" a\"", tokens);
    let usage = "data: {\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":2}}\n\n";
    let stream = stream_of(first + &event(" dog.", "\"stop\"") + usage);
    let (lines, error, stopped) = events(OpenAi::sends(stream), || false);
    let want = [
        r#"tokens 0 [5] [" a"] [-0.5]"#,
        r#"text 0 " a""#,
        r#"text 0 " dog.""#,
        "finish 0 stop",
        "usage 4 2",
    ];
    assert_eq!((lines, error, stopped), (want.map(String::from).to_vec(), None, false));
}

#[test]
fn an_error_is_the_last_event() {
    let (lines, error, stopped) =
        events(OpenAi::sends(stream_of(event("a", "\"error\""))), || false);
    assert_eq!((lines.len(), stopped), (2, false), "{lines:?}");
    assert!(error.is_some_and(|error| error.contains("finish_reason")));
}

#[test]
fn a_stop_ends_the_response_without_an_error() {
    let silent = OpenAi { then: Then::Wait, ..OpenAi::sends("") };
    let (_, error, stopped) = events(silent, || true);
    assert_eq!((error, stopped), (None, true));
    let endless = OpenAi { then: Then::Repeat(event("a", "null")), ..OpenAi::sends(stream_of("")) };
    let (lines, error, stopped) = events(endless, || true);
    assert_eq!((lines.len(), error, stopped), (1, None, true));
}

/// The server asks for a wait of one second, and the caller gives up before it's over.
#[test]
fn a_prompt_is_not_sent_again_once_its_events_are_dropped() {
    let server = OpenAi::sends(response("429 No", "retry-after: 1\r\n", "")).start();
    let client = Client::new(&server.address, None).unwrap();
    let model = client.choose_model("").unwrap();
    let (params, prompt) = (SamplingParams::default(), Prompt::Text("There was".into()));
    for (given_up, prompts) in [(true, 1), (false, 2)] {
        server.asked();
        let what = What::Completion { prompt: &prompt, n: 1, with_ids: true };
        let request = Request { server: &model, params: &params, what };
        let events = client.ask(&request, || false);
        sleep(Duration::from_millis(500));
        let kept = (!given_up).then_some(events);
        sleep(Duration::from_millis(1000));
        assert_eq!(server.lines().len(), prompts, "given up: {given_up}");
        drop(kept);
    }
}
